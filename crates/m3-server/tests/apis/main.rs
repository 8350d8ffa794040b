//! The other APIs: Responses, Messages, SGLang's native routes and what routers ask. Their own shapes on the wire, and
//! that each tells the same answer as chat does.
#![allow(clippy::unwrap_used, reason = "a test")]

mod generate;
mod http;
mod info;
mod messages;
mod page;
mod responses;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};

const NS: &str = "]<]minimax[>[";

/// Reasoning, text, two calls.
fn two_calls() -> String {
    let invoke = |city: &str| {
        let location = format!("{NS}<location>{city}{NS}</location>{NS}<days>3{NS}</days>");
        format!("{NS}<invoke name=\"get_weather\">{location}{NS}</invoke>\n")
    };
    let calls = format!("{}{}", invoke("Paris"), invoke("Köln 🌶"));
    format!("<mm:think>Let me look.</mm:think>One moment. {NS}<tool_call>\n{calls}{NS}</tool_call>")
}

fn weather() -> Value {
    json!({"type": "object", "properties": {"location": {"type": "string"}, "days": {"type": "integer"}}})
}

/// Names and data of a stream's events, comments left out.
fn named_events(text: &str) -> Vec<(String, Value)> {
    let block = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("event: "))?;
        let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    };
    text.split("\n\n").filter_map(block).collect()
}
