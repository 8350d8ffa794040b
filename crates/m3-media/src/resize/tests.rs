//! Resized pixels against the table that `tests/python/resize_oracle.py` made with pinned torch and Pillow.

use sha2::{Digest as _, Sha256};

use super::*;

/// The made-up picture that the script makes too.
fn picture(kind: &str, width: u32, height: u32) -> Picture {
    let value = |index: u64| {
        let (x, y, colour) = (index / 3 % u64::from(width), index / 3 / u64::from(width), index % 3);
        match kind {
            "noise" => {
                let mut value = index * 2_654_435_761 % (1 << 32);
                value ^= value >> 15;
                value = value * 2_246_822_519 % (1 << 32);
                value ^ value >> 13
            }
            "edges" => (x / 5 + y / 3 + colour) % 2 * 255,
            "ramp" => x * 7 + y * 3 + colour * 50,
            _ => panic!("no picture is called {kind}"),
        }
    };
    let count = u64::from(width) * u64::from(height) * 3;
    Picture { width, height, rgb: (0..count).map(|index| value(index) as u8).collect() }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Row {
    kind: String,
    from: Size,
    to: Size,
    before: String,
    torch: String,
    pillow_off: u64,
}

fn table() -> Vec<Row> {
    let text = include_str!("../../tests/data/resize.json");
    let table: serde_json::Value = serde_json::from_str(text).expect("our own table");
    let rows = table["rows"].as_array().expect("its rows");
    assert_eq!(rows.len(), 96, "the table lost rows");
    let side = |value: &serde_json::Value| value.as_u64().expect("a side") as u32;
    let size = |value: &serde_json::Value| Size { width: side(&value[0]), height: side(&value[1]) };
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let row = |row: &serde_json::Value| Row {
        kind: text(&row["kind"]),
        from: size(&row["from"]),
        to: size(&row["to"]),
        before: text(&row["before"]),
        torch: text(&row["torch"]),
        pillow_off: row["pillow_off"].as_u64().expect("a level"),
    };
    rows.iter().map(row).collect()
}

#[test]
fn bytes_are_those_of_the_released_processors_resizing() {
    let differs = |row: &Row| {
        let before = picture(&row.kind, row.from.width, row.from.height);
        assert_eq!(digest(&before.rgb), row.before, "{} {} is made up otherwise", row.kind, row.from);
        let after = resize(&before, row.to).expect("resizes");
        assert_eq!(after.size(), row.to);
        digest(&after.rgb) != row.torch
    };
    let wrong = table().into_iter().filter(differs);
    let wrong: Vec<String> = wrong.map(|row| format!("{} {} to {}", row.kind, row.from, row.to)).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// The bytes are torch's (the test above), and the script measured torch against Pillow.
#[test]
fn bytes_are_within_two_levels_of_the_pinned_pillow() {
    let far = table().into_iter().filter(|row| row.pillow_off > 2);
    assert_eq!(far.map(|row| row.from).collect::<Vec<_>>(), []);
    for (from, to) in [((61, 70), (56, 56)), ((31, 20), (84, 56)), ((210, 33), (112, 28))] {
        let name = format!("pillow_{}x{}_{}x{}.png", from.0, from.1, to.0, to.1);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(&name);
        let bytes = std::fs::read(path).expect("our own picture");
        let pillow = crate::decode_image(&bytes, &crate::Limits::default()).expect("our own picture").rgb;
        let to = Size { width: to.0, height: to.1 };
        let ours = resize(&picture("edges", from.0, from.1), to).expect("resizes");
        assert_eq!(pillow.len(), ours.rgb.len());
        let off = pillow.iter().zip(&ours.rgb).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(off <= Some(2), "{name}: {off:?} levels off");
    }
}

#[test]
fn a_picture_that_fits_is_left_alone() {
    let picture = picture("noise", 56, 28);
    assert_eq!(resize(&picture, picture.size()), Ok(picture));
}
