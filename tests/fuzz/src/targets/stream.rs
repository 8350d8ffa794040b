//! Streams of whatever a model may say, on every route that streams: the framing holds, and what the events join to is
//! the answer that comes in one piece.
//!
//! Head line: words that choose the request. Text: the model's output, spelled as its tokens.

use serde_json::{Value, json};

use super::{head_and_text, markup, world};
use crate::Target;
use crate::mutate::Dialect;
use crate::server::Server;
use crate::sse;

/// End of a turn in the bundled vocabulary.
const END: &str = "[e~[";
/// Most tokens of an output; the rest is left out.
const MOST_TOKENS: usize = 600;

#[derive(Default)]
pub(super) struct Streams {
    started: u64,
}

impl Target for Streams {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Text
    }

    fn words(&self) -> Vec<String> {
        let head =
            ["thinking", "answering", "tools", "stop", "interval", "slow", "short", "logprobs", "single"];
        let framing =
            ["data: x", "\n\n", "event: y", "\r", "[DONE]", ": z", "\u{2028}", "\u{85}", "id: 1", "retry: 5"];
        markup().into_iter().chain(head.iter().chain(&framing).map(|word| (*word).to_owned())).collect()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        self.started += 1;
        let (head, text) = head_and_text(input);
        let has = |word: &str| head.split(' ').any(|other| other == word);
        let mut ids = world().tokenizer.encode_special(&text).map_err(|error| error.to_string())?;
        ids.truncate(MOST_TOKENS);
        let step = if has("slow") { 500 } else { 0 };
        let null = json!({"script": ids, "eos": world().tokenizer.token_id(END), "step_us": step});
        let server = Server::start(&null, &[]).map_err(|error| format!("no server: {error:#}"))?;
        let fields = fields(&has);
        let chat =
            sse::compare(&server, "/v1/chat/completions", &merged(json!({"messages": messages()}), &fields))?;
        let mut others = vec![
            (
                "/v1/completions",
                merged(
                    json!({"prompt": "x"}),
                    &without(
                        &fields,
                        &["tools", "thinking", "logprobs", "top_logprobs", "parallel_tool_calls"],
                    ),
                ),
            ),
            ("/generate", json!({"text": "x", "sampling_params": {"temperature": 0, "max_new_tokens": 700}})),
        ];
        let plain = without(
            &fields,
            &[
                "stream_interval",
                "stop",
                "tools",
                "logprobs",
                "top_logprobs",
                "max_tokens",
                "thinking",
                "parallel_tool_calls",
            ],
        );
        others.push(("/v1/responses", merged(json!({"input": "x", "store": false}), &plain)));
        others.push(("/v1/messages", merged(json!({"messages": messages(), "max_tokens": 700}), &plain)));
        for (path, body) in others {
            sse::compare(&server, path, &body)?;
        }
        Ok(chat)
    }
}

fn messages() -> Value {
    json!([{"role": "user", "content": "x"}])
}

fn fields(has: &dyn Fn(&str) -> bool) -> Value {
    let mut fields = json!({"temperature": 0, "max_tokens": if has("short") { 9 } else { 700 }});
    let properties = json!({"s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"},
        "l": {"type": "array", "items": {"type": "number"}}});
    for (word, name, value) in [
        ("thinking", "thinking", json!({"type": "enabled"})),
        ("answering", "thinking", json!({"type": "disabled"})),
        (
            "tools",
            "tools",
            json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}]),
        ),
        ("stop", "stop", json!(["STOP", "\n\n"])),
        ("interval", "stream_interval", json!(7)),
        ("logprobs", "logprobs", json!(true)),
        ("logprobs", "top_logprobs", json!(1)),
        ("single", "parallel_tool_calls", json!(false)),
    ] {
        if has(word) {
            fields[name] = value;
        }
    }
    fields
}

fn merged(mut body: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().into_iter().flatten() {
        body[key.as_str()] = value.clone();
    }
    body
}

fn without(fields: &Value, names: &[&str]) -> Value {
    let mut fields = fields.clone();
    if let Some(members) = fields.as_object_mut() {
        names.iter().for_each(|name| drop(members.shift_remove(*name)));
    }
    fields
}
