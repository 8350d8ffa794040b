//! Parts in every spelling, settings, and places in prompts. No HTTP and no pixels here.

use std::sync::Arc;

use m3_core::request::MediumRun;
use m3_media::prepare::Prepared;
use m3_media::size::Rule;
use m3_media::{Source, geometry::Geometry};
use serde_json::{Value, json};

use super::*;
use crate::conversation::normalise;
use crate::error::ApiError;
use crate::openai::fields::Fields;

const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";

fn parts(content: Value) -> Result<Vec<MediaPart>, ApiError> {
    normalise(&[json!({"role": "user", "content": content})]).map(|conversation| conversation.media)
}

fn refusal(content: Value) -> (String, String) {
    let error = parts(content).expect_err("refused");
    assert_eq!(error.status, 400);
    (error.param.expect("a field"), error.message)
}

#[test]
fn every_spelling_of_an_image_and_a_video_is_read() {
    use MediaKind::{Image, Video};
    for (part, kind) in [
        (json!({"type": "image_url", "image_url": {"url": PNG}}), Image),
        (json!({"type": "image_url", "image_url": PNG}), Image),
        (
            json!({"type": "image_url", "image_url": {"url": PNG, "detail": "low", "content_hash": "x"}}),
            Image,
        ),
        (json!({"type": "input_image", "image_url": PNG, "detail": "high"}), Image),
        (json!({"type": "image", "image": PNG}), Image),
        (json!({"type": "image", "url": PNG}), Image),
        (json!({"type": "image_url", "image_url": {"url": PNG}, "uuid": "a", "cache_control": {}}), Image),
        (json!({"type": "video_url", "video_url": {"url": PNG}}), Video),
        (json!({"type": "input_video", "video_url": PNG}), Video),
        (json!({"type": "video", "video": PNG}), Video),
    ] {
        let read = parts(json!([part])).expect("a part");
        assert_eq!(read.len(), 1, "{part}");
        assert_eq!((read[0].kind, read[0].path.as_str()), (kind, "messages[0].content[0]"));
        assert!(matches!(&read[0].source, Source::DataUri(bytes) if bytes.len() == 8), "{part}");
    }
}

#[test]
fn settings_stand_beside_the_address_and_win_over_those_of_the_request() {
    let part = json!({"type": "video_url", "video_url":
        {"url": PNG, "fps": 2, "max_frames": 8, "max_long_side_pixel": 504}});
    let options = parts(json!([part])).expect("a part")[0].options;
    assert_eq!(options, MediaOptions { max_long_side: Some(504), fps: Some(2.0), max_frames: Some(8) });
    let body = json!({
        "mm_processor_kwargs": {"fps": 0.5, "max_long_side_pixel": 252},
        "media_io_kwargs": {"video": {"num_frames": 4}, "image": {}},
    });
    let mut fields = Fields::new(body).expect("an object");
    let [images, videos] = MediaOptions::take(&mut fields).expect("settings");
    assert_eq!(videos, MediaOptions { max_long_side: Some(252), fps: Some(0.5), max_frames: Some(4) });
    assert_eq!(images.max_long_side, Some(252));
    let own = MediaOptions { fps: Some(3.0), ..MediaOptions::default() };
    assert_eq!(own.or(videos).fps, Some(3.0));
    assert_eq!(own.or(videos).max_frames, Some(4));
    fields.finish("/v1/chat/completions").expect("nothing is left");
}

#[test]
fn what_would_change_sizes_and_is_not_known_is_refused_with_its_path() {
    let image =
        |inner: Value| json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": inner}]);
    for (inner, param) in [
        (json!({"url": PNG, "max_pixels": 3}), "messages[0].content[1].image_url.max_pixels"),
        (json!({"url": PNG, "fps": 3}), "messages[0].content[1].image_url.fps"),
        (json!({"url": PNG, "detail": "best"}), "messages[0].content[1].image_url.detail"),
        (
            json!({"url": PNG, "max_long_side_pixel": "x"}),
            "messages[0].content[1].image_url.max_long_side_pixel",
        ),
        (
            json!({"url": PNG, "max_long_side_pixel": 1.5}),
            "messages[0].content[1].image_url.max_long_side_pixel",
        ),
        (json!({"detail": "low"}), "messages[0].content[1].image_url.url"),
        (json!(3), "messages[0].content[1].image_url"),
        (json!(null), "messages[0].content[1].image_url"),
        (json!({"url": "gopher://x"}), "messages[0].content[1]"),
        (json!({"url": "data:image/png;base64,%%%"}), "messages[0].content[1]"),
    ] {
        assert_eq!(refusal(image(inner.clone())).0, param, "{inner}");
    }
    let by_id = refusal(json!([{"type": "input_image", "file_id": "file-1"}]));
    assert_eq!(by_id.0, "messages[0].content[0].file_id");
    for body in [
        json!({"mm_processor_kwargs": {"do_resize": false}}),
        json!({"mm_processor_kwargs": 3}),
        json!({"media_io_kwargs": {"audio": {"rate": 3}}}),
        json!({"images_config": {"fps": 2}}),
    ] {
        let mut fields = Fields::new(body.clone()).expect("an object");
        assert!(MediaOptions::take(&mut fields).is_err(), "{body}");
    }
}

#[test]
fn only_users_and_tools_show_pictures() {
    let picture = json!([{"type": "image_url", "image_url": PNG}]);
    for role in ["system", "developer", "assistant", "root"] {
        let error = normalise(&[json!({"role": role, "content": picture})]).expect_err(role);
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0].type"), "{role}");
    }
}

#[test]
fn texts_and_pictures_keep_their_order_and_markers_in_texts_stay_text() {
    let content = json!([
        {"type": "text", "text": "one ]<]image[>["}, {"type": "text", "text": " two"},
        {"type": "image_url", "image_url": PNG}, {"type": "image_url", "image_url": PNG},
        {"type": "text", "text": "three"}, {"type": "video_url", "video_url": PNG},
    ]);
    let read = normalise(&[json!({"role": "user", "content": content})]).expect("a message");
    let expected = json!([
        {"type": "text", "text": "one ]<]image[>[ two"}, {"type": "image"}, {"type": "image"},
        {"type": "text", "text": "three"}, {"type": "video"},
    ]);
    assert_eq!(read.messages[0]["content"], expected);
    let kinds: Vec<MediaKind> = read.media.iter().map(|part| part.kind).collect();
    assert_eq!(kinds, [MediaKind::Image, MediaKind::Image, MediaKind::Video]);
}

/// Results are put into the order of their calls; their pictures must go with them.
#[test]
fn pictures_of_tool_results_are_in_the_order_in_which_they_are_rendered() {
    let call =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": "see", "arguments": "{}"}});
    let result = |id: &str, fill: &str| {
        let url = format!("data:;base64,{fill}");
        json!({"role": "tool", "tool_call_id": id, "content": [{"type": "image_url", "image_url": url}]})
    };
    let messages = [
        json!({"role": "user", "content": "look"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]}),
        result("b", "Yg=="),
        result("a", "YQ=="),
    ];
    let read = normalise(&messages).expect("a conversation");
    let bytes = |part: &MediaPart| match &part.source {
        Source::DataUri(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(read.media.iter().map(bytes).collect::<Vec<_>>(), [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(read.media[0].path, "messages[3].content[0]");
    assert_eq!(read.messages[2]["content"], json!([{"type": "image"}]));
}

#[test]
fn native_images_are_addresses_bare_base64_or_objects() {
    for value in [json!(PNG), json!("iVBORw0KGgo="), json!({"url": PNG, "max_long_side_pixel": 252})] {
        let part = raw_part(MediaKind::Image, &value, "image_data").expect("an image");
        assert!(matches!(&part.source, Source::DataUri(bytes) if bytes.len() == 8), "{value}");
    }
    let part =
        raw_part(MediaKind::Image, &json!("HTTPS://example.com/a.png"), "image_data").expect("an address");
    assert!(matches!(part.source, Source::Url(_)));
    for value in [json!(3), json!({}), json!("no base64!")] {
        assert!(raw_part(MediaKind::Image, &value, "image_data").is_err(), "{value}");
    }
}

const IMAGE: u32 = 900;
const VIDEO: u32 = 901;
const START: u32 = 902;
const END: u32 = 903;

fn side() -> VisionSide {
    VisionSide {
        geometry: Geometry::default(),
        image_token: IMAGE,
        video_token: VIDEO,
        brackets: Some([START, END]),
        size_rule: SizeRule::Area,
        limits: MediaLimits::default(),
    }
}

/// A medium of `times` temporal patches with `per_time` tokens each; `mark` tells it from others.
fn prepared(mark: u8, times: u32, per_time: u32, timestamps: &[&str]) -> Prepared {
    Prepared {
        digest: [mark; 32],
        patches: Arc::from(Vec::new()),
        row_len: 1176,
        grid: [times, 2, 2 * per_time],
        tokens_per_time: per_time as usize,
        timestamps: timestamps.iter().map(|time| (*time).to_owned()).collect(),
    }
}

/// Times are encoded as the bytes of their text.
fn place(ids: &[u32], media: Vec<(MediaKind, Prepared)>) -> Result<Placed, ApiError> {
    let encode = |text: &str| Ok(text.bytes().map(u32::from).collect());
    Placer { vision: &side(), encode: Some(&encode), param: "messages" }.place(ids, media)
}

fn run(first_position: u32, len: u32) -> MediumRun {
    MediumRun { first_position, len }
}

#[test]
fn an_image_becomes_its_tokens_between_brackets() {
    let placed = place(
        &[7, IMAGE, 8, IMAGE],
        vec![(MediaKind::Image, prepared(1, 1, 3, &[])), (MediaKind::Image, prepared(2, 1, 2, &[]))],
    );
    let placed = placed.expect("two images");
    assert_eq!(placed.ids, [7, START, IMAGE, IMAGE, IMAGE, END, 8, START, IMAGE, IMAGE, END]);
    assert_eq!(placed.media[0].runs, [run(2, 3)]);
    assert_eq!(placed.media[1].runs, [run(8, 2)]);
    assert_eq!((placed.media[0].digest[0], placed.media[1].digest[0]), (1, 2));
    assert_eq!(placed.tokens, MediaTokens { image: 5, video: 0 });
}

#[test]
fn a_video_names_the_time_of_each_temporal_patch() {
    let media = vec![(MediaKind::Video, prepared(1, 2, 2, &["0.0", "2.5"]))];
    let placed = place(&[7, VIDEO, 8], media).expect("a video");
    let time = |text: &str| format!("]<]{text} seconds[>[").bytes().map(u32::from).collect::<Vec<_>>();
    let expected = [
        vec![7],
        time("0.0"),
        vec![START, VIDEO, VIDEO, END],
        time("2.5"),
        vec![START, VIDEO, VIDEO, END],
        vec![8],
    ]
    .concat();
    assert_eq!(placed.ids, expected);
    let first = 1 + time("0.0").len() as u32 + 1;
    let second = first + 3 + time("2.5").len() as u32 + 1;
    assert_eq!(placed.media[0].runs, [run(first, 2), run(second, 2)]);
    assert_eq!(placed.tokens, MediaTokens { image: 0, video: 4 });
}

#[test]
fn kinds_are_matched_by_their_own_tokens_and_listed_by_position() {
    let media =
        vec![(MediaKind::Image, prepared(1, 1, 2, &[])), (MediaKind::Video, prepared(2, 1, 2, &["0.0"]))];
    let placed = place(&[VIDEO, IMAGE], media).expect("both");
    let order: Vec<u8> = placed.media.iter().map(|medium| medium.digest[0]).collect();
    assert_eq!(order, [2, 1], "the video stands first");
    assert!(placed.media[0].runs[0].first_position < placed.media[1].runs[0].first_position);
}

#[test]
fn expanded_prompts_are_taken_when_they_fit_exactly() {
    let image = || (MediaKind::Image, prepared(1, 1, 3, &[]));
    let ids = [7, START, IMAGE, IMAGE, IMAGE, END, 8];
    let placed = place(&ids, vec![image()]).expect("expanded");
    assert_eq!((placed.ids.as_slice(), placed.media[0].runs[0]), (&ids[..], run(2, 3)));
    // As the golden prompts have them: two media back to back need no brackets.
    let two = [IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE];
    let placed = place(&two, vec![image(), image()]).expect("two");
    assert_eq!((placed.media[0].runs[0], placed.media[1].runs[0]), (run(0, 3), run(3, 3)));
    for (ids, media) in [
        (vec![7, 8], vec![image()]),
        (vec![IMAGE], vec![]),
        (vec![IMAGE, IMAGE], vec![image()]),
        (vec![IMAGE; 4], vec![image()]),
        // The right count, but split elsewhere.
        (vec![IMAGE, 7, IMAGE, IMAGE], vec![image()]),
        (vec![VIDEO], vec![image()]),
    ] {
        let error = place(&ids, media).map(|placed| placed.ids).expect_err("it does not fit");
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some("messages")), "{ids:?}");
    }
}

#[test]
fn without_a_tokenizer_prompts_must_be_expanded() {
    let vision = VisionSide { brackets: None, ..side() };
    let placer = Placer { vision: &vision, encode: None, param: "input_ids" };
    let image = || vec![(MediaKind::Image, prepared(1, 1, 3, &[]))];
    assert!(placer.place(&[IMAGE; 3], image()).is_ok());
    assert_eq!(placer.place(&[IMAGE], image()).map(|placed| placed.ids).expect_err("single").status, 400);
}

#[test]
fn the_servers_rule_holds_where_a_request_says_nothing() {
    let long = VisionSide { size_rule: SizeRule::LongSide, ..side() };
    assert_eq!(side().rule(MediaKind::Image, None), Ok(Rule::IMAGE));
    assert_eq!(side().rule(MediaKind::Video, None), Ok(Rule::VIDEO));
    assert_eq!(long.rule(MediaKind::Image, None), Ok(Rule::LongSide { max_side: 2016 }));
    assert_eq!(long.rule(MediaKind::Video, None), Ok(Rule::LongSide { max_side: 756 }));
    for vision in [side(), long] {
        assert_eq!(vision.rule(MediaKind::Video, Some(252)), Ok(Rule::LongSide { max_side: 252 }));
        assert!(vision.rule(MediaKind::Image, Some(253)).is_err());
    }
}
