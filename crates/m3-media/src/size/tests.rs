//! The size rules against the reference's table and the specification's examples.

use super::*;

const UNIT: u32 = 28;

fn size(width: u32, height: u32) -> Size {
    Size { height, width }
}

/// Width, height, then both rules' sizes.
type Row = ((u32, u32), (u32, u32), (u32, u32));

#[test]
fn sizes_are_those_of_the_specification() {
    let table: [Row; 11] = [
        ((672, 672), (672, 672), (672, 672)),
        ((640, 480), (644, 476), (644, 476)),
        ((1024, 768), (756, 560), (1036, 756)),
        ((1920, 1080), (896, 504), (1932, 1092)),
        ((4000, 3000), (756, 560), (2016, 1512)),
        ((100, 100), (112, 112), (112, 112)),
        ((20, 20), (56, 56), (112, 112)),
        ((42, 42), (56, 56), (112, 112)),
        ((70, 70), (56, 56), (112, 112)),
        ((30, 4000), (28, 4004), (28, 2016)),
        ((5000, 5000), (672, 672), (2016, 2016)),
    ];
    let long_side = Rule::LongSide { max_side: IMAGE_SIDE };
    for ((width, height), area, long) in table {
        let from = size(width, height);
        assert_eq!(Rule::IMAGE.apply(from, UNIT), Ok(size(area.0, area.1)), "area rule of {from}");
        assert_eq!(long_side.apply(from, UNIT), Ok(size(long.0, long.1)), "long-side rule of {from}");
    }
}

#[test]
fn sizes_are_those_of_the_reference_processors() {
    let text = include_str!("../../tests/data/smart_resize.json");
    let cases: Vec<serde_json::Value> = serde_json::from_str(text).expect("our own table");
    assert_eq!(cases.len(), 28, "the table lost cases");
    for case in &cases {
        let side = |value: &serde_json::Value| value.as_u64().expect("a side") as u32;
        let from = size(side(&case["width"]), side(&case["height"]));
        let check = |rule: Rule, column: &str| match (&case[column], rule.apply(from, UNIT)) {
            (serde_json::Value::Array(sides), chosen) => {
                assert_eq!(chosen, Ok(size(side(&sides[1]), side(&sides[0]))), "{column} of {from}");
            }
            (_, chosen) => assert!(chosen.is_err(), "{column} refuses {from}; chosen: {chosen:?}"),
        };
        check(Rule::IMAGE, "vllm");
        check(Rule::LongSide { max_side: IMAGE_SIDE }, "sglang_default");
    }
}

#[test]
fn frames_have_their_own_limits() {
    let hd = size(1920, 1080);
    assert_eq!(Rule::VIDEO.apply(hd, UNIT), Ok(size(1008, 560)));
    assert_eq!(Rule::LongSide { max_side: FRAME_SIDE }.apply(hd, UNIT), Ok(size(756, 420)));
    assert_eq!(Rule::VIDEO.apply(size(640, 360), UNIT), Ok(size(644, 364)));
}

#[test]
fn extreme_ratios_are_refused_with_the_limit() {
    let rule = Rule::IMAGE;
    assert!(rule.apply(size(1, 200), UNIT).is_ok(), "200 times is the limit and allowed");
    let refused = rule.apply(size(1801, 9), UNIT).expect_err("200.1 times");
    let sentence = "the picture is 1801x9, 200.1 times as long as wide; the limit is 200 times";
    assert_eq!(refused.to_string(), sentence);
    assert!(rule.apply(size(0, 5), UNIT).is_err());
}

#[test]
fn the_longest_side_must_be_a_multiple_of_28_within_limits() {
    for side in [112, 252, 504, 1008, 3584] {
        assert_eq!(Rule::long_side(side, UNIT), Ok(Rule::LongSide { max_side: side as u32 }));
    }
    for side in [0, 84, 113, 3612, u64::MAX] {
        let sentence = Rule::long_side(side, UNIT).expect_err("outside").to_string();
        let expected = format!("max_long_side_pixel is {side}; it must be a multiple of 28 from 112 to 3584");
        assert_eq!(sentence, expected);
    }
    assert_eq!(Rule::long_side(3584, UNIT).and_then(|rule| rule.apply(size(3584, 3584), UNIT)), {
        Ok(size(3584, 3584))
    });
}

#[test]
fn every_size_keeps_the_rules_promises() {
    let rules = [
        Rule::IMAGE,
        Rule::VIDEO,
        Rule::LongSide { max_side: 112 },
        Rule::LongSide { max_side: 2016 },
        Rule::LongSide { max_side: 3584 },
    ];
    let sides = (1..60).chain([97, 111, 112, 113, 500, 671, 672, 673, 2015, 2016, 2017, 3584, 9999, 65535]);
    let sides: Vec<u32> = sides.collect();
    for (&width, &height) in sides.iter().flat_map(|width| sides.iter().map(move |height| (width, height))) {
        for rule in rules {
            let Ok(chosen) = rule.apply(size(width, height), UNIT) else {
                assert!(width.max(height) > 200 * width.min(height), "{rule:?} refused {width}x{height}");
                continue;
            };
            assert!(chosen.width >= UNIT && chosen.height >= UNIT);
            assert!(chosen.width.is_multiple_of(UNIT) && chosen.height.is_multiple_of(UNIT));
            match rule {
                // Rounding a side up to one unit can exceed the area: 28 x 4,004 is within, no ratio leaves it.
                Rule::Area { max_pixels } => {
                    assert!(u64::from(chosen.width) * u64::from(chosen.height) <= max_pixels)
                }
                Rule::LongSide { max_side } => assert!(chosen.width.max(chosen.height) <= max_side),
            }
        }
    }
}

#[test]
fn long_videos_are_refused_with_their_volume() {
    let frame = size(1008, 560);
    assert_eq!(check_volume(533, frame), Ok(()));
    let sentence = check_volume(534, frame).expect_err("above").to_string();
    assert!(sentence.starts_with("534 frames of 1008x560 have 301432320 pixels; the limit is 301056000"));
}
