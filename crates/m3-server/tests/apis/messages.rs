//! `/v1/messages`.

use serde_json::{Value, json};

use crate::support::{EOS, Server, ids, says};
use crate::{named_events, two_calls, weather};

const MESSAGES: &str = "/v1/messages";

fn body(more: Value) -> Value {
    let mut body =
        json!({"max_tokens": 500, "messages": [{"role": "user", "content": "Weather?"}], "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn tools() -> Value {
    json!([{"name": "get_weather", "input_schema": weather()}])
}

/// Folds a stream as a client does, checking the order of events on the way.
fn fold(events: &[(String, Value)]) -> Value {
    assert_eq!(events[0].0, "message_start");
    let mut message = events[0].1["message"].clone();
    let mut open: Option<(usize, String)> = None;
    let mut ended = false;
    for (name, event) in &events[1..] {
        assert_eq!(event["type"], name.as_str());
        assert!(!ended, "nothing comes after message_stop");
        let content = message["content"].as_array_mut().unwrap();
        match name.as_str() {
            "content_block_start" => {
                assert!(open.is_none() && event["index"] == content.len());
                content.push(event["content_block"].clone());
                open = Some((content.len() - 1, String::new()));
            }
            "content_block_delta" => {
                let (index, json) = open.as_mut().unwrap();
                assert_eq!(event["index"], *index);
                let (block, delta) = (&mut content[*index], &event["delta"]);
                let mut add = |name: &str| {
                    let text = format!("{}{}", block[name].as_str().unwrap(), delta[name].as_str().unwrap());
                    block[name] = text.into();
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => add("text"),
                    "thinking_delta" => add("thinking"),
                    "signature_delta" => add("signature"),
                    "input_json_delta" => json.push_str(delta["partial_json"].as_str().unwrap()),
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                let (index, json) = open.take().unwrap();
                if content[index]["type"] == "tool_use" {
                    content[index]["input"] = serde_json::from_str(&json).unwrap();
                }
            }
            "message_delta" => {
                assert!(open.is_none());
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => ended = true,
            "ping" => {}
            other => panic!("{other}"),
        }
    }
    assert!(ended);
    message
}

fn bare(mut message: Value) -> Value {
    message["id"] = Value::Null;
    for block in message["content"].as_array_mut().unwrap() {
        block["id"] = Value::Null;
    }
    message["usage"]["input_tokens"] = Value::Null;
    message["usage"]["cache_read_input_tokens"] = Value::Null;
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_folds_to_the_whole_message() {
    let server = Server::start(says(&two_calls()), &[]).await;
    let whole = server.good(MESSAGES, body(json!({"tools": tools()}))).await;
    let events = named_events(&server.stream_text(MESSAGES, body(json!({"tools": tools()}))).await);
    assert_eq!(bare(fold(&events)), bare(whole.clone()));
    let content = whole["content"].as_array().unwrap();
    let kinds: Vec<&str> = content.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(content[0]["thinking"], "Let me look.");
    assert_eq!(content[0]["signature"].as_str().unwrap().len(), 64);
    assert_eq!(content[3]["input"], json!({"location": "Köln 🌶", "days": 3}));
    assert!(content[2]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("tool_use"), &Value::Null));
    assert_eq!(events[1].0, "ping");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_says_how_it_ended() {
    let server = Server::start(says("one two three four"), &[]).await;
    for (more, reason, sequence) in [
        (json!({}), "end_turn", Value::Null),
        (json!({"max_tokens": 2}), "max_tokens", Value::Null),
        (json!({"stop_sequences": ["zzz", "three"]}), "stop_sequence", json!("three")),
    ] {
        let whole = server.good(MESSAGES, body(more.clone())).await;
        assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!(reason), &sequence), "{more}");
        let events = named_events(&server.stream_text(MESSAGES, body(more)).await);
        assert_eq!(bare(fold(&events)), bare(whole));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counted_tokens_are_those_of_the_message_and_the_cache_is_told_apart() {
    let server = Server::start(says("a"), &[]).await;
    let long = format!("{} Weather?", "again ".repeat(600));
    let ask =
        body(json!({"system": "be kind", "tools": tools(), "messages": [{"role": "user", "content": long}]}));
    let counted =
        server.good("/v1/messages/count_tokens", ask.clone()).await["input_tokens"].as_u64().unwrap();
    let first = server.good(MESSAGES, ask.clone()).await["usage"].clone();
    assert_eq!(first["input_tokens"], counted);
    let second = server.good(MESSAGES, ask.clone()).await["usage"].clone();
    let cached = second["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached > 0);
    assert_eq!(second["input_tokens"].as_u64().unwrap() + cached, counted);
    let events = named_events(&server.stream_text(MESSAGES, ask).await);
    assert_eq!(fold(&events)["usage"], second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begun_answer_is_continued() {
    let server = Server::start(says("quick brown fox"), &[]).await;
    let history = json!([{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "The "}]);
    let answer =
        server.good(MESSAGES, body(json!({"messages": history, "thinking": {"type": "disabled"}}))).await;
    assert_eq!(answer["content"], json!([{"type": "text", "text": "quick brown fox"}]));
}

/// C9: an answer is accepted back in any order of its blocks, and prompts the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_sent_back() {
    let server = Server::start(says(&two_calls()), &[]).await;
    let answer = server.good(MESSAGES, body(json!({"tools": tools()}))).await;
    let mut blocks = answer["content"].as_array().unwrap().clone();
    let results: Vec<Value> = blocks
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": "18C"}))
        .collect();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let history = json!([{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": blocks},
            {"role": "user", "content": results}]);
        let ask = body(json!({"tools": tools(), "messages": history}));
        counts.push(server.good("/v1/messages/count_tokens", ask).await["input_tokens"].as_u64().unwrap());
        blocks[..2].reverse();
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_anthropic_s_shape() {
    let server = Server::start(says("a"), &["--api-key", "k"]).await;
    let send = |path: &str, key: &str, body: Value| {
        let request =
            server.client.post(format!("{}{path}", server.base)).header("anthropic-version", "2023-06-01");
        request.header("x-api-key", key).json(&body).send()
    };
    let good = send(MESSAGES, "k", body(json!({}))).await.unwrap();
    assert_eq!(good.status(), 200);
    let id = good.headers()["request-id"].to_str().unwrap().to_owned();
    assert_eq!(good.json::<Value>().await.unwrap()["id"], id);
    for (path, key, body, status, kind) in [
        (MESSAGES, "wrong", body(json!({})), 401, "authentication_error"),
        (MESSAGES, "k", body(json!({"model": "claude"})), 404, "not_found_error"),
        (MESSAGES, "k", body(json!({"temperature": 9})), 400, "invalid_request_error"),
        (MESSAGES, "k", json!({}), 400, "invalid_request_error"),
        ("/v1/messages/other", "k", json!({}), 404, "not_found_error"),
    ] {
        let response = send(path, key, body).await.unwrap();
        assert_eq!(response.status(), status);
        let request_id = response.headers()["request-id"].to_str().unwrap().to_owned();
        let answer: Value = response.json().await.unwrap();
        assert_eq!((&answer["type"], &answer["error"]["type"]), (&json!("error"), &json!(kind)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().len() > 5);
        assert_eq!(answer["request_id"], request_id);
    }
    let response =
        server.client.get(format!("{}{MESSAGES}", server.base)).bearer_auth("k").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["allow"].to_str().unwrap()), (405, "POST"));
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "invalid_request_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_ends_with_an_error_and_silence_with_pings() {
    let server = Server::start(json!({"fault_at": 20, "step_us": 1000}), &[]).await;
    let endless = body(json!({"ignore_eos": true, "max_tokens": 1000}));
    let events = named_events(&server.stream_text(MESSAGES, endless).await);
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["error"]["type"]), ("error", &json!("api_error")));
    let slow = json!({"script": ids("a"), "eos": EOS, "step_us": 400_000});
    let server = Server::start(slow, &["--heartbeat-secs", "0.1"]).await;
    let events = named_events(&server.stream_text(MESSAGES, body(json!({}))).await);
    let first_block = events.iter().position(|(name, _)| name == "content_block_start").unwrap();
    assert!(events[2..first_block].iter().any(|(name, _)| name == "ping"), "{events:?}");
    fold(&events);
}
