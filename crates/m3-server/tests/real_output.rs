//! What a trained model really writes, through the parser: the bundled miniature on the CPU backend. Sampled at high
//! temperatures it also breaks its own markup, which no script thinks of.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use support::{Server, fold, user};

const CHAT: &str = "/v1/chat/completions";
/// Requests in flight at once.
const AT_ONCE: usize = 8;

fn trained() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/m3-nano")
}

async fn server(flags: &[&str]) -> Server {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(trained()).unwrap() {
        let path = entry.unwrap().path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let fixed = ["--backend", "cpu", "--kv-cache-memory-bytes", "256M", "--threads", "1"];
    let server = Server::start_unready(folder, &[&fixed, flags].concat()).await;
    server.wait_ready().await;
    server
}

fn tool(name: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({"type": "function", "function": {"name": name, "description": "Do it.",
        "parameters": {"type": "object", "properties": properties, "required": required}}})
}

/// Questions of each kind that the model was trained on, with words of their own.
fn questions() -> Vec<Value> {
    let flat = tool("paint_house", &json!({"width": {"type": "integer"}, "colour": {"type": "string"}}));
    let place =
        json!({"type": "object", "properties": {"reason": {"type": "string"}, "limit": {"type": "integer"}}});
    let nested = tool("build_event", &json!({"place": place, "loud": {"type": "boolean"}}));
    let list = tool("add_record", &json!({"words": {"type": "array", "items": {"type": "string"}}}));
    vec![
        json!({"messages": user("How much is 387 - 5?")}),
        json!({"messages": user("20 - 8 = ?"), "chat_template_kwargs": {"thinking_mode": "enabled"}}),
        json!({"messages": user("Use paint_house: width = 41; colour = Madrid."), "tools": [flat.clone(), list.clone()]}),
        json!({"messages": user("Build the event with place (reason: yellow house; limit: 12); loud false."),
            "tools": [nested.clone(), flat], "chat_template_kwargs": {"thinking_mode": "enabled"}}),
        json!({"messages": user("请调用 add_record with words Athens, Rome, Oslo."), "tools": [list, nested]}),
        json!({"messages": user("Repeat this: river read pond velvet stair Riga empty Berlin anchor rope")}),
        json!({"messages": user("你好!")}),
    ]
}

/// Every text that a client reads, without ids.
fn texts(message: &Value) -> Value {
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| if call["function"].is_object() { &call["function"] } else { call })
        .map(|call| json!([call["name"], call["arguments"]]))
        .collect();
    json!([message["reasoning_content"], message["content"], calls])
}

/// Texts of the added tokens that the format gives a meaning.
fn markers() -> Vec<String> {
    let file = std::fs::read(trained().join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_slice(&file).unwrap();
    let added = tokenizer["added_tokens"].as_array().unwrap().iter();
    let markers: Vec<String> = added
        .map(|token| token["content"].as_str().unwrap().to_owned())
        .filter(|text| {
            text.contains("[>[")
                || text.contains("~")
                || text.contains("mm:think")
                || text.contains("tool_call")
        })
        .chain(["<invoke".to_owned(), "</invoke".to_owned()])
        .collect();
    assert!(markers.len() >= 20, "{markers:?}");
    markers
}

async fn sampled(server: &Server, markers: &[String], seed: usize, question: &Value) {
    let mut body = question.clone();
    body["seed"] = seed.into();
    body["temperature"] = [1.0, 1.0, 1.5][seed % 3].into();
    // A few are cut, inside markup or not.
    body["max_tokens"] = if seed.is_multiple_of(5) { 9 + seed % 23 } else { 160 }.into();
    let whole = server.good(CHAT, body.clone()).await["choices"][0].clone();
    let message = &whole["message"];
    let read = texts(message);
    let text = read.to_string();
    for marker in markers {
        assert!(!text.contains(marker.as_str()), "{marker} in {whole}\nof {body}");
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let arguments: Value =
            serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{error}: {whole}"));
        assert!(arguments.is_object(), "{whole}");
    }
    let streamed = fold(&server.stream(CHAT, body.clone()).await, 0);
    assert_eq!(texts(&streamed["message"]), read, "streamed: {streamed}\nwhole: {whole}\nof {body}");
    assert_eq!(streamed["finish_reason"], whole["finish_reason"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_answers_hold_no_marker_and_stream_as_they_are() {
    // In bfloat16 the rounding may depend on how many rows a step has.
    let server = server(&["--dtype", "float32"]).await;
    let (markers, questions) = (markers(), questions());
    let all = (0..105).map(|seed| sampled(&server, &markers, seed, &questions[seed % questions.len()]));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_made_and_its_result_told() {
    let server = server(&[]).await;
    let question = &questions()[3];
    let mut body = question.clone();
    body["temperature"] = 0.into();
    body["max_tokens"] = 200.into();
    let answer = server.good(CHAT, body.clone()).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
    let call = &message["tool_calls"][0];
    assert_eq!(call["function"]["name"], "build_event");
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"place": {"reason": "yellow house", "limit": 12}, "loud": false}));
    let history = body["messages"].as_array_mut().unwrap();
    history.push(message.clone());
    history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "{\"status\": \"piano\", \"level\": 7}"}));
    let told = server.good(CHAT, body).await;
    assert_eq!(told["choices"][0]["message"]["content"], "The status is piano and the level is 7.", "{told}");
}
