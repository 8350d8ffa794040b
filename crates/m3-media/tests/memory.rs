//! Small files that would become large, and files with random faults, decoded under a counted heap: neither may take
//! more than its header allows. In a file of its own because the counter counts for the whole process.

use m3_media::decode::header;
use m3_media::{Kind, Limits, decode_image};
use m3_testdata::counted::{self, Counted};
use std::path::Path;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// One test at a time, also where tests are threads of one process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The most that `work` took, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    counted::peak(work).0
}

const SMALL: usize = 1 << 20;

fn png(width: u32, height: u32, colour: png::ColorType, depth: png::BitDepth) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().expect("a header");
    let mut rows = writer.stream_writer().expect("a stream");
    let row = vec![0x55; colour.samples() * width as usize * (depth as usize) / 8];
    for _ in 0..height {
        std::io::Write::write_all(&mut rows, &row).expect("a row");
    }
    rows.finish().expect("an end");
    writer.finish().expect("an end");
    bytes
}

/// A PNG whose header is changed to another size, with its checksum.
fn resized(mut bytes: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let checksum = !bytes[12..29].iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    });
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// 40000x40000 pixels of one colour: 200 MB even at one bit each.
#[test]
fn g1_a_small_png_that_becomes_gigabytes_is_refused_with_flat_memory() {
    let _alone = ALONE.lock().expect("alone");
    let bytes = png(40_000, 40_000, png::ColorType::Grayscale, png::BitDepth::One);
    println!("{} bytes for 40000x40000", bytes.len());
    assert!(bytes.len() < 8 << 20);
    let begun = Instant::now();
    let taken = peak(|| {
        let error = decode_image(&bytes, &Limits::default()).expect_err("too large");
        assert_eq!(error.kind(), Kind::TooLarge);
        let wanted = "the image of 40000x40000 in pixels is 1600000000, above the limit of 67108864";
        assert_eq!(error.to_string(), wanted);
    });
    assert!(taken < SMALL, "{taken} bytes");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Headers of every format that promise more pixels than are allowed.
#[test]
fn g1_sizes_are_read_from_the_header_in_every_format() {
    let _alone = ALONE.lock().expect("alone");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let read = |name: &str| std::fs::read(corpus.join(name)).expect(name);
    let mut jpeg = read("jpeg_420.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let mut gif = read("gif.gif");
    gif[6..10].copy_from_slice(&[0xff; 4]);
    let mut gif_frame = read("gif_small_frame.gif");
    let frame = gif_frame.iter().position(|byte| *byte == 0x2c).expect("a frame");
    gif_frame[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    let mut bmp = read("bmp_24.bmp");
    bmp[18..22].copy_from_slice(&30_000i32.to_le_bytes());
    bmp[22..26].copy_from_slice(&30_000i32.to_le_bytes());
    let lossy = read("webp_lossy.webp");
    let at = lossy.windows(4).position(|name| name == b"VP8 ").expect("a frame");
    let mut webp = lossy.clone();
    webp[at + 14..at + 18].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    // A canvas of one pixel with that frame inside: the decoder would take memory by the frame.
    let mut hidden = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    hidden.extend_from_slice(&webp[at..]);
    let size = hidden.len() as u32 - 8;
    hidden[4..8].copy_from_slice(&size.to_le_bytes());
    for (name, bytes) in [
        ("jpeg", jpeg),
        ("gif", gif),
        ("gif frame", gif_frame),
        ("bmp", bmp),
        ("webp", webp),
        ("webp frame", hidden),
    ] {
        let taken = peak(|| {
            let error = decode_image(&bytes, &Limits::default()).expect_err(name);
            assert_eq!(error.kind(), Kind::TooLarge, "{name}: {error}");
        });
        assert!(taken < SMALL, "{name}: {taken} bytes");
    }
}

/// More data than the header's pixels need: 300 MB behind a picture of 8x8.
#[test]
fn g1_data_beyond_the_picture_is_not_kept() {
    let _alone = ALONE.lock().expect("alone");
    let bytes = resized(png(8000, 5000, png::ColorType::Rgba, png::BitDepth::Sixteen), 8, 8);
    assert!(bytes.len() < 8 << 20);
    let taken = peak(|| drop(decode_image(&bytes, &Limits::default())));
    assert!(taken < 8 * SMALL, "{taken} bytes");
}

/// What the pool reserves by the header is enough for every kind of picture.
#[test]
fn decoding_takes_no_more_than_the_header_announces() {
    let _alone = ALONE.lock().expect("alone");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut pictures = vec![
        ("rgba 16".to_owned(), png(2000, 1500, png::ColorType::Rgba, png::BitDepth::Sixteen)),
        ("rgb 8".into(), png(2000, 1500, png::ColorType::Rgb, png::BitDepth::Eight)),
        ("grey 1".into(), png(4000, 4000, png::ColorType::Grayscale, png::BitDepth::One)),
    ];
    // Large frames with next to no data: decoders take their memory all the same.
    for name in [
        "jpeg_420.jpg",
        "jpeg_progressive.jpg",
        "jpeg_progressive_cmyk.jpg",
        "jpeg_cmyk.jpg",
        "jpeg_exif_6.jpg",
    ] {
        let mut bytes = std::fs::read(corpus.join(name)).expect(name);
        let frame = bytes.windows(2).position(|pair| pair[0] == 0xff && matches!(pair[1], 0xc0 | 0xc2));
        let frame = frame.expect("a frame header");
        bytes[frame + 5..frame + 9].copy_from_slice(&[0x07, 0xd0, 0x07, 0xd0]);
        pictures.push((name.into(), bytes));
    }
    for (name, bytes) in &pictures {
        let allowed = header(bytes, &Limits::default()).expect(name).working_bytes() as usize;
        let mut outcome = String::new();
        let taken = peak(|| {
            outcome = decode_image(bytes, &Limits::default())
                .map_or_else(|e| e.to_string(), |_| "a picture".into());
        });
        println!("{name}: {taken} of {allowed} bytes, {outcome}");
        assert!(taken < allowed + SMALL, "{name}: {taken} bytes, more than {allowed}");
    }
}

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

fn mutated(good: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=dice.roll(8) {
        let (at, length) = (dice.roll(bytes.len()), dice.roll(32));
        let end = (at + length).min(bytes.len());
        match dice.roll(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.extend_from_within(at..end),
            5 => bytes[at..end].fill(0xff),
            _ => {
                let from = dice.roll(other.len());
                let piece = &other[from..(from + length).min(other.len())];
                bytes.splice(at..end, piece.iter().copied());
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// Random faults in good files: never a panic that gets out, never more memory than a picture of the limit may take.
/// `M3_FUZZ_SECONDS` and `M3_FUZZ_SEED` make it longer and other.
#[test]
fn pictures_with_random_faults_end_in_a_picture_or_a_sentence() {
    let _alone = ALONE.lock().expect("alone");
    let number =
        |name: &str, default: u64| std::env::var(name).map_or(default, |value| value.parse().expect(name));
    let (seconds, seed) = (number("M3_FUZZ_SECONDS", 5), number("M3_FUZZ_SEED", 1));
    let limits = Limits { max_pixels: 1 << 20, ..Limits::default() };
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> =
        std::fs::read_dir(corpus).expect("the corpus").flatten().map(|e| e.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end != "py" && end != "txt"));
    files.sort();
    let files: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).expect("a file")).collect();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut dice, begun, mut runs, mut accepted) = (Dice(seed), Instant::now(), 0u64, 0u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let bytes = mutated(&files[dice.roll(files.len())], &files[dice.roll(files.len())], &mut dice);
        let (single, mut outcome) = (Instant::now(), None);
        let flat = peak(|| drop(header(&bytes, &limits)));
        assert!(flat < 2 * SMALL, "seed {seed}, run {runs}: {flat} bytes for a header");
        let taken = peak(|| outcome = Some(decode_image(&bytes, &limits)));
        let allowed = (limits.max_pixels * 16) as usize + 20 * SMALL;
        assert!(taken < allowed, "seed {seed}, run {runs}: {taken} bytes");
        assert!(
            single.elapsed() < Duration::from_secs(20),
            "seed {seed}, run {runs}: {:?}",
            single.elapsed()
        );
        match outcome.expect("an outcome") {
            Ok(picture) => {
                accepted += 1;
                assert_eq!(picture.rgb.len(), (picture.width * picture.height * 3) as usize);
            }
            Err(error) => {
                assert_ne!(error.kind(), Kind::Internal, "seed {seed}, run {runs}: {error}");
                assert!(error.to_string().len() < 400, "seed {seed}, run {runs}: {error}");
            }
        }
        // Addresses are a client's words as well.
        let text = String::from_utf8_lossy(&bytes);
        for address in
            [format!("data:{text}"), format!("data:;base64,{text}"), format!("https://{text}"), text.into()]
        {
            let _ = m3_media::Source::parse(&address);
        }
        runs += 1;
    }
    let _ = std::panic::take_hook();
    println!("{runs} files from seed {seed}, {accepted} of them still pictures");
    assert!(runs > 50 && accepted > 0, "{runs} runs, {accepted} accepted");
}
