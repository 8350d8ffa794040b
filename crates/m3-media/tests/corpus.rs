//! The corpus of odd pictures against what a pinned Pillow sees in them. `corpus/make.py` made the files and
//! `corpus/expected.txt`, and says what its lines mean; `cargo xtask pictures` makes them again.

use m3_media::{Kind, Limits, Picture, decode_image};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn decoded(name: &str) -> Picture {
    decode_image(&bytes(name), &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of `expected.txt` as words: name, then what is expected.
fn expected() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder().join("expected.txt")).expect("the list");
    text.lines()
        .map(|line| line.split_once(' ').map(|(a, b)| (a.into(), b.into())).expect("two words"))
        .collect()
}

/// The largest difference of two pictures' samples.
fn furthest(name: &str, picture: &Picture) -> u8 {
    let wanted = decoded(&format!("{name}.expected.png"));
    assert_eq!((picture.width, picture.height), (wanted.width, wanted.height), "{name}");
    picture.rgb.iter().zip(&wanted.rgb).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

/// What is wrong with one accepted picture.
fn compare(name: &str, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [near, width, height, digest] = words[..] else { panic!("{name}: {line}") };
    let picture = match decode_image(&bytes(name), &Limits::default()) {
        Ok(picture) => picture,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    if (picture.width.to_string(), picture.height.to_string()) != (width.into(), height.into()) {
        return Some(format!("{name}: {}x{} instead of {width}x{height}", picture.width, picture.height));
    }
    assert_eq!(picture.rgb.len() as u64, u64::from(picture.width) * u64::from(picture.height) * 3, "{name}");
    let near: u8 = near.parse().expect("a number");
    if near > 0 {
        let furthest = furthest(name, &picture);
        eprintln!("{name}: at most {furthest} of {near}");
        return (furthest > near).then(|| format!("{name}: off by {furthest}, more than {near}"));
    }
    let found: String = Sha256::digest(&picture.rgb).iter().map(|byte| format!("{byte:02x}")).collect();
    (found != digest)
        .then(|| format!("{name}: other pixels, {:?}...", &picture.rgb[..picture.rgb.len().min(24)]))
}

#[test]
fn odd_pictures_are_what_pillow_sees() {
    let accepted: Vec<_> = expected().into_iter().filter(|(_, line)| !line.starts_with("refused")).collect();
    assert!(accepted.len() >= 60, "only {} pictures", accepted.len());
    let wrong: Vec<String> = accepted.iter().filter_map(|(name, line)| compare(name, line)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), accepted.len(), wrong.join("\n"));
}

#[test]
fn broken_and_foreign_pictures_are_refused_by_name() {
    let refused: Vec<_> = expected()
        .into_iter()
        .filter_map(|(name, line)| Some((name, line.strip_prefix("refused ")?.to_owned())))
        .collect();
    assert!(refused.len() >= 30, "only {} pictures", refused.len());
    for (name, wanted) in refused {
        let error = decode_image(&bytes(&name), &Limits::default()).expect_err(&name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
        let sentence = error.to_string();
        assert!(sentence.contains(&wanted), "{name}: {sentence}");
        assert!(sentence.starts_with("the image"), "{name}: {sentence}");
    }
}

/// Orientation 6 of a picture gives the size and pixels of the file that was turned by hand.
#[test]
fn g3_exif_orientation_is_applied() {
    let upright = decoded("jpeg_exif_1.jpg");
    let turned = decoded("jpeg_exif_6.jpg");
    assert_eq!((turned.width, turned.height), (upright.height, upright.width));
    for y in 0..turned.height {
        for x in 0..turned.width {
            let at = |picture: &Picture, x: u32, y: u32| {
                let start = ((y * picture.width + x) * 3) as usize;
                picture.rgb[start..start + 3].to_vec()
            };
            assert_eq!(at(&turned, x, y), at(&upright, y, upright.height - 1 - x), "{x} {y}");
        }
    }
}

/// Three pictures of different sizes, one after the other and side by side.
#[test]
fn g12_pictures_of_different_sizes_do_not_disturb_each_other() {
    let names = ["png_1x200.png", "jpeg_420.jpg", "webp_lossy.webp"];
    let alone: Vec<Picture> = names.iter().map(|name| decoded(name)).collect();
    let together: Vec<_> = names.map(|name| std::thread::spawn(move || decoded(name))).into_iter().collect();
    for (alone, together) in alone.iter().zip(together) {
        assert_eq!(*alone, together.join().expect("decoded"));
    }
}

/// A broken picture costs its own request only: the next one is decoded as before.
#[test]
fn g4_a_failed_picture_leaves_nothing_behind() {
    let before = decoded("jpeg_420.jpg");
    for name in ["jpeg_truncated.jpg", "png_bad_data_crc.png", "webp_truncated.webp", "gif_truncated.gif"] {
        assert!(decode_image(&bytes(name), &Limits::default()).is_err());
        assert_eq!(decoded("jpeg_420.jpg"), before);
    }
}

#[test]
fn sizes_above_the_limits_are_named() {
    let limits = Limits { max_pixels: 116, ..Limits::default() };
    let error = decode_image(&bytes("png_rgb_8.png"), &limits).expect_err("13x9 is 117");
    assert_eq!(error.to_string(), "the image of 13x9 in pixels is 117, above the limit of 116");
    assert_eq!(error.kind(), Kind::TooLarge);
    let limits = Limits { max_image_bytes: 50, ..Limits::default() };
    let error = decode_image(&bytes("png_rgb_8.png"), &limits).expect_err("too many bytes");
    assert!(error.to_string().ends_with("above the limit of 50"), "{error}");
}
