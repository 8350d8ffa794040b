//! Media in the released template's and tokenizer's terms: markers where the reference renders them, times as the
//! reference tokenizes them. Skipped, loudly, without those files.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;

use m3_core::text::tokenizer::Tokenizer;
use m3_media::geometry::Geometry;
use m3_media::prepare::Prepared;
use m3_server::openai::chat_request::ChatRequest;
use m3_server::openai::generation::Limits;
use m3_server::vision::{MediaKind, MediaLimits, Placer, SizeRule, VisionSide};
use serde_json::{Value, json};

const VISION: VisionSide = VisionSide {
    geometry: Geometry { patch: 14, merge: 2, temporal: 2, mean: [0.0; 3], std: [1.0; 3] },
    image_token: 200_025,
    video_token: 200_026,
    brackets: Some([200_029, 200_030]),
    size_rule: SizeRule::Area,
    limits: MediaLimits { images: 200, videos: 20 },
};

/// 3.3 s at 30 frames a second of 640 x 360: three temporal patches of 26 x 46.
fn clip() -> Prepared {
    Prepared {
        digest: [0; 32],
        patches: Arc::from(Vec::new()),
        row_len: 1176,
        grid: [3, 26, 46],
        tokens_per_time: 299,
        timestamps: ["0.0", "2.0", "3.3"].map(str::to_owned).to_vec(),
    }
}

#[test]
fn the_worked_example_is_927_tokens() {
    let Some(data) = support::shared_data() else { return };
    let tokenizer = Tokenizer::from_file(&data.join("tokenizer.reconstructed.json")).unwrap();
    let encode = |text: &str| Ok(tokenizer.encode_ordinary(text).unwrap());
    assert_eq!(encode("]<]1.0 seconds[>[").unwrap(), [74528, 93, 49, 46, 48, 12557, 91, 49452]);
    assert_eq!(encode("]<]12.5 seconds[>[").unwrap(), [74528, 93, 975, 46, 53, 12557, 91, 49452]);
    let placer = Placer { vision: &VISION, encode: Some(&encode), param: "messages" };
    let placed = placer.place(&[5, 200_026, 6], vec![(MediaKind::Video, clip())]).unwrap();
    assert_eq!(placed.ids.len(), 927 + 2);
    assert_eq!(placed.tokens.video, 897);
    let runs: Vec<(u32, u32)> =
        placed.media[0].runs.iter().map(|run| (run.first_position, run.len)).collect();
    // The first id, then for each temporal patch eight ids of its time, a bracket, 299 rows, a bracket.
    assert_eq!(runs, [(10, 299), (319, 299), (628, 299)]);
    assert_eq!(placed.ids[1..10], [74528, 93, 48, 46, 48, 12557, 91, 49452, 200_029]);
}

/// The reference's own cases with pictures; its parts have no addresses, which a server needs.
#[test]
fn pictures_are_rendered_where_the_reference_renders_them() {
    let Some(data) = support::shared_data() else { return };
    let place = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let (template, tokenizer) = (place("chat_template.m3.jinja"), place("tokenizer.reconstructed.json"));
    let words = ["serve", "--chat-template", &template, "--tokenizer", &tokenizer].map(str::to_owned);
    let options = m3_server::args::Options::read(&m3_server::args::parse(&words).unwrap()).unwrap();
    let text = m3_server::model::TextSide::load(&support::bundled(), &options.model).unwrap();
    let limits = Limits { vocab_size: 200_064, max_logprobs: 20, max_choices: 64, always_thinks: false };
    let cases: Value =
        serde_json::from_slice(&std::fs::read(data.join("template_cases.json")).unwrap()).unwrap();
    let mut seen = 0;
    for case in cases["cases"].as_array().unwrap() {
        if !["20_content_parts_image", "21_video"].contains(&case["id"].as_str().unwrap()) {
            continue;
        }
        let mut messages = case["messages"].clone();
        for message in messages.as_array_mut().unwrap() {
            for part in message["content"].as_array_mut().into_iter().flatten() {
                if part["type"] == "image" || part["type"] == "video" {
                    part["url"] = json!("data:;base64,AA==");
                }
            }
        }
        let body = json!({"messages": messages, "tools": case["tools"], "chat_template_kwargs": case["kwargs"],
            "add_generation_prompt": case["add_generation_prompt"]});
        let request = ChatRequest::read(body, limits, &serde_json::Map::new()).unwrap();
        let (_, ids) = m3_server::routes::render_chat(&text, &request).unwrap();
        assert_eq!(json!(ids), case["token_ids"], "{}", case["id"]);
        let markers = ids.iter().filter(|id| [200_025, 200_026].contains(*id)).count();
        assert_eq!((markers, request.media.is_empty()), (request.media.len(), false), "{}", case["id"]);
        seen += 1;
    }
    assert_eq!(seen, 2, "the cases are there");
}
