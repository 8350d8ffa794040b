//! Streams against whole answers: usage, the end, characters of several tokens, and kinds of text kept apart.

use serde_json::{Value, json};

use super::support::{Server, fold, says, user};
use super::{CHAT, with};

/// Characters of several tokens, of several code points and of both directions.
const EMOJI: [&str; 4] = ["🌶️😊👩‍👩‍👧‍👦", "汉字と仮名 🇰🇷🇨🇳", "é🏳️‍🌈‍🩹", "مرحبا 🧑🏽‍🚀 नमस्ते"];

fn question() -> Value {
    json!({"messages": user("Reply with pictures."), "temperature": 0, "stream_options": {"include_usage": true}})
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_stands_in_the_last_chunk_only_and_done_ends_the_stream() {
    let server = Server::start(says("<mm:think>r</mm:think>a few words of an answer"), &[]).await;
    let text = server.stream_text(CHAT, question()).await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(text.matches("[DONE]").count(), 1);
    let events = super::support::events(&text);
    let with_usage: Vec<usize> =
        events.iter().enumerate().filter(|(_, event)| !event["usage"].is_null()).map(|(at, _)| at).collect();
    assert_eq!(with_usage, [events.len() - 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_streams_of_pictures_hold_no_replacement_character() {
    for text in EMOJI {
        let script = format!("<mm:think>{text}</mm:think>{text}");
        let server = Server::start(says(&script), &[]).await;
        for _ in 0..5 {
            let stream = server.stream_text(CHAT, question()).await;
            assert!(!stream.contains('\u{fffd}') && !stream.contains("\\ufffd"), "{stream}");
            let message = &fold(&super::support::events(&stream), 0)["message"];
            assert_eq!((&message["content"], &message["reasoning_content"]), (&json!(text), &json!(text)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_tokens_are_equal_streamed_and_whole() {
    let server = Server::start(says("ok"), &[]).await;
    for text in ["hi", "汉字 🌶️", &"long ".repeat(300)] {
        let body = with(question(), &json!({"messages": user(text)}));
        let events = server.stream(CHAT, body.clone()).await;
        let mut body = body;
        body.as_object_mut().unwrap().remove("stream_options");
        let whole = server.good(CHAT, body).await;
        let streamed = &events.last().unwrap()["usage"];
        for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(streamed[name], whole["usage"][name], "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_delta_of_twenty_streams_carries_both_reasoning_and_content() {
    let server = Server::start(says("<mm:think>because of this</mm:think>that is so"), &[]).await;
    for interval in 1..=20 {
        let events = server.stream(CHAT, with(question(), &json!({"stream_interval": interval}))).await;
        for delta in events.iter().map(|event| &event["choices"][0]["delta"]) {
            let says = |name: &str| delta[name].as_str().is_some_and(|text| !text.is_empty());
            assert!(!(says("content") && says("reasoning_content")), "{delta}");
        }
        let message = &fold(&events, 0)["message"];
        assert_eq!(message["reasoning_content"], "because of this");
        assert_eq!(message["content"], "that is so");
    }
}
