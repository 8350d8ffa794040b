//! M3's format contract: each rule that the model maker's public format check puts to a server, tried over HTTP on a
//! scripted model. Packets of streams are counted at the pace of real devices. Faults of other servers are tried in the
//! files named after them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod calls;
mod clips;
mod context;
mod effort;
mod history;
mod limits;
mod packets;
mod pictures;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};
use support::Server;

const CHAT: &str = "/v1/chat/completions";
const NS: &str = "]<]minimax[>[";

/// A block of calls around these invocations.
fn block(invokes: &str) -> String {
    format!("{NS}<tool_call>\n{invokes}{NS}</tool_call>")
}

/// One invocation with parameters in markup.
fn invoke(name: &str, parameters: &str) -> String {
    format!("{NS}<invoke name=\"{name}\">{parameters}{NS}</invoke>\n")
}

/// `name` around `inner`, in markup.
fn element(name: &str, inner: &str) -> String {
    format!("{NS}<{name}>{inner}{NS}</{name}>")
}

fn tool(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "a test", "parameters": parameters}})
}

/// `{"type": "object"}` with these properties.
fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// `body` with more fields.
fn with(mut body: Value, fields: &Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// Refused with 400 and a sentence; gives the field and the sentence.
async fn refused(server: &Server, body: Value) -> (String, String) {
    let (status, answer) = server.post(CHAT, body).await;
    assert_eq!(status, 400, "{answer}");
    let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
    assert!(!text("message").is_empty(), "{answer}");
    (text("param"), text("message"))
}

/// Name and arguments of every call, which a stream has to give as well.
async fn calls(server: &Server, body: Value) -> Vec<(String, Value)> {
    let whole = server.good(CHAT, body.clone()).await;
    let message = whole["choices"][0]["message"].clone();
    let folded = support::fold(&server.stream(CHAT, body).await, 0);
    let texts = |calls: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        calls
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| (text(&call["name"]), text(&call["arguments"])))
            .collect()
    };
    let functions: Vec<Value> =
        message["tool_calls"].as_array().into_iter().flatten().map(|call| call["function"].clone()).collect();
    let told = texts(&Value::Array(functions));
    assert_eq!(texts(&folded["message"]["tool_calls"]), told);
    assert_eq!(folded["message"]["content"], message["content"]);
    assert_eq!(folded["finish_reason"], whole["choices"][0]["finish_reason"]);
    told.into_iter().map(|(name, arguments)| (name, serde_json::from_str(&arguments).unwrap())).collect()
}
