//! `/v1/responses`.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::support::{Server, says};
use crate::{named_events, two_calls, weather};

const RESPONSES: &str = "/v1/responses";

fn tools() -> Value {
    json!([{"type": "function", "name": "get_weather", "parameters": weather()}])
}

/// The object without what differs between two runs.
fn bare(mut response: Value) -> Value {
    for name in ["id", "created_at", "completed_at"] {
        response[name] = Value::Null;
    }
    for item in response["output"].as_array_mut().unwrap() {
        item["id"] = Value::Null;
        item["call_id"] = Value::Null;
    }
    response["usage"]["input_tokens_details"] = Value::Null;
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_in_openai_s_order_and_end_with_the_whole_response() {
    let server = Server::start(says(&two_calls()), &[]).await;
    let body = json!({"input": "Weather?", "tools": tools(), "temperature": 0});
    let whole = server.good(RESPONSES, body.clone()).await;
    let text = server.stream_text(RESPONSES, body).await;
    assert!(!text.contains("[DONE]"));
    let events = named_events(&text);
    let mut kinds: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    kinds.dedup();
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    let part = |delta: &'static str, done: &'static str| {
        [
            "response.output_item.added",
            "response.content_part.added",
            delta,
            done,
            "response.content_part.done",
            "response.output_item.done",
        ]
    };
    let mut expected = vec!["response.created", "response.in_progress"];
    expected.extend(part("response.reasoning_text.delta", "response.reasoning_text.done"));
    expected.extend(part("response.output_text.delta", "response.output_text.done"));
    expected.extend(call);
    expected.extend(call);
    expected.push("response.completed");
    assert_eq!(kinds, expected);
    for (at, (name, event)) in events.iter().enumerate() {
        assert_eq!(event["type"], name.as_str());
        assert_eq!(event["sequence_number"], at);
    }
    let last = &events.last().unwrap().1["response"];
    assert_eq!(bare(last.clone()), bare(whole.clone()));
    assert_eq!(events[0].1["response"]["status"], "in_progress");
    let output = whole["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!(output[0]["content"][0]["text"], "Let me look.");
    assert_eq!(output[1]["content"][0]["text"], "One moment. ");
    let arguments: Value = serde_json::from_str(output[3]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"location": "Köln 🌶", "days": 3}));
    assert_eq!((&whole["status"], &whole["incomplete_details"]), (&json!("completed"), &Value::Null));
    server.assert_no_leak().await;
}

/// B20: the same answer as chat's, read from the same events.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_says_what_chat_says() {
    let server = Server::start(says(&two_calls()), &[]).await;
    let function =
        json!([{"type": "function", "function": {"name": "get_weather", "parameters": weather()}}]);
    let messages = json!([{"role": "user", "content": "Weather?"}]);
    let chat = server.good("/v1/chat/completions", json!({"messages": messages, "tools": function})).await;
    let response = server.good(RESPONSES, json!({"input": "Weather?", "tools": tools()})).await;
    let message = &chat["choices"][0]["message"];
    assert_eq!(response["output"][0]["content"][0]["text"], message["reasoning_content"]);
    assert_eq!(response["output"][1]["content"][0]["text"], message["content"]);
    for at in 0..2 {
        assert_eq!(
            response["output"][2 + at]["arguments"],
            message["tool_calls"][at]["function"]["arguments"]
        );
    }
    assert_eq!(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    let reasoning = &response["usage"]["output_tokens_details"]["reasoning_tokens"];
    assert!(reasoning.as_u64().unwrap() > 0);
    assert_eq!(*reasoning, chat["usage"]["completion_tokens_details"]["reasoning_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_response_is_incomplete_with_the_reason_in_both_forms() {
    let server = Server::start(says("one two three four five six seven eight"), &[]).await;
    let body = json!({"input": "count", "max_output_tokens": 3});
    let whole = server.good(RESPONSES, body.clone()).await;
    assert_eq!(whole["status"], "incomplete");
    assert_eq!(whole["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(
        (&whole["output"][0]["status"], &whole["usage"]["output_tokens"]),
        (&json!("incomplete"), &json!(3))
    );
    let events = named_events(&server.stream_text(RESPONSES, body).await);
    let (name, last) = events.last().unwrap();
    assert_eq!(name, "response.incomplete");
    assert_eq!(bare(last["response"].clone()), bare(whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_from_what_is_stored() {
    let server = Server::start(says("<mm:think>r</mm:think>a"), &[]).await;
    let first = server.good(RESPONSES, json!({"input": "one", "instructions": "be brief"})).await;
    let id = first["id"].as_str().unwrap();
    let second = server.good(RESPONSES, json!({"input": "two", "previous_response_id": id})).await;
    assert_eq!(second["previous_response_id"], id);
    // The same conversation sent in full has the same prompt; instructions are not carried over.
    let mut items = vec![json!({"role": "user", "content": "one"})];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"role": "user", "content": "two"}));
    let full = server.good(RESPONSES, json!({"input": items})).await;
    assert_eq!(second["usage"]["input_tokens"], full["usage"]["input_tokens"]);
    assert!(
        second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64().map(|n| n / 2)
    );
    let (status, got) = server.get(&format!("{RESPONSES}/{id}")).await;
    assert_eq!((status, got), (200, first.clone()));
    let (_, list) = server.get(&format!("{RESPONSES}/{id}/input_items")).await;
    assert_eq!(list["data"][0]["content"][0]["text"], "one");
    assert_eq!(list["has_more"], false);
    // An item may be referred to by its id alone.
    let reference = json!({"type": "item_reference", "id": first["output"][1]["id"]});
    let by_reference =
        json!({"input": [{"role": "user", "content": "one"}, reference, {"role": "user", "content": "x"}]});
    server.good(RESPONSES, by_reference).await;
    let response = server.client.delete(format!("{}{RESPONSES}/{id}", server.base)).send().await.unwrap();
    assert_eq!(
        response.json::<Value>().await.unwrap(),
        json!({"id": id, "object": "response", "deleted": true})
    );
    assert_eq!(server.get(&format!("{RESPONSES}/{id}")).await.0, 404);
    let (status, error) = server.post(RESPONSES, json!({"input": "x", "previous_response_id": id})).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("previous_response_id")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_stored_is_not() {
    let server = Server::start(says("a"), &["--max-stored-responses", "2"]).await;
    let loose = server.good(RESPONSES, json!({"input": "x", "store": false})).await;
    assert_eq!(loose["store"], false);
    assert_eq!(server.get(&format!("{RESPONSES}/{}", loose["id"].as_str().unwrap())).await.0, 404);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let kept = server.good(RESPONSES, json!({"input": "x"})).await;
        ids.push(kept["id"].as_str().unwrap().to_owned());
    }
    let mut found = Vec::new();
    for id in &ids {
        found.push(server.get(&format!("{RESPONSES}/{id}")).await.0);
    }
    assert_eq!(found, [404, 200, 200], "the oldest one is forgotten");
    let off = Server::start(says("a"), &["--max-stored-responses", "0"]).await;
    assert_eq!(off.good(RESPONSES, json!({"input": "x"})).await["store"], false);
    assert_eq!(off.post(RESPONSES, json!({"input": "x", "background": true})).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_does_not_see_another_s() {
    let server = Server::start(says("a"), &["--api-key", "k1", "--api-key", "k2"]).await;
    let send = |key: &'static str, body: Value| {
        server.client.post(format!("{}{RESPONSES}", server.base)).bearer_auth(key).json(&body).send()
    };
    let made: Value = send("k1", json!({"input": "secret"})).await.unwrap().json().await.unwrap();
    let id = made["id"].as_str().unwrap();
    let url = format!("{}{RESPONSES}/{id}", server.base);
    assert_eq!(server.client.get(&url).bearer_auth("k1").send().await.unwrap().status(), 200);
    assert_eq!(server.client.get(&url).bearer_auth("k2").send().await.unwrap().status(), 404);
    assert_eq!(server.client.delete(&url).bearer_auth("k2").send().await.unwrap().status(), 404);
    assert_eq!(send("k2", json!({"input": "x", "previous_response_id": id})).await.unwrap().status(), 400);
}

async fn wait_for(server: &Server, id: &str, status: &str) -> Value {
    let start = Instant::now();
    loop {
        let (_, got) = server.get(&format!("{RESPONSES}/{id}")).await;
        if got["status"] == status {
            return got;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "still {}", got["status"]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_the_background_is_polled_followed_and_cancelled() {
    let server = Server::start(says("one two three"), &[]).await;
    let begun = server.good(RESPONSES, json!({"input": "x", "background": true})).await;
    assert_eq!(begun["status"], "in_progress");
    let id = begun["id"].as_str().unwrap();
    let ended = wait_for(&server, id, "completed").await;
    assert_eq!(ended["output"][0]["content"][0]["text"], "one two three");
    let follow =
        |query: &str| server.client.get(format!("{}{RESPONSES}/{id}?stream=true{query}", server.base)).send();
    let all = named_events(&follow("").await.unwrap().text().await.unwrap());
    assert_eq!(all.last().unwrap().0, "response.completed");
    let rest = named_events(&follow("&starting_after=3").await.unwrap().text().await.unwrap());
    assert_eq!(rest[..], all[4..]);
    let (_, unchanged) = server.post(&format!("{RESPONSES}/{id}/cancel"), json!({})).await;
    assert_eq!(unchanged["status"], "completed");

    let slow = Server::start(json!({"step_us": 3000}), &[]).await;
    let endless = json!({"input": "x", "background": true, "ignore_eos": true, "max_output_tokens": 20_000});
    let begun = slow.good(RESPONSES, endless).await;
    let id = begun["id"].as_str().unwrap();
    let (status, cancelled) = slow.post(&format!("{RESPONSES}/{id}/cancel"), json!({})).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    slow.assert_no_leak().await;
    assert_eq!(slow.get(&format!("{RESPONSES}/{id}")).await.1["status"], "cancelled");
    let loose = slow.good(RESPONSES, json!({"input": "x", "max_output_tokens": 1})).await;
    let path = format!("{RESPONSES}/{}/cancel", loose["id"].as_str().unwrap());
    assert_eq!(slow.post(&path, json!({})).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlong_conversation_is_refused_or_cut_and_says_so() {
    let server = Server::start(says("a"), &["--context-length", "300"]).await;
    let turn = |at: usize| json!({"role": if at.is_multiple_of(2) { "user" } else { "assistant" }, "content": format!("{at} {}", "word ".repeat(20))});
    let items: Vec<Value> = (0..21).map(turn).collect();
    let (status, error) = server.post(RESPONSES, json!({"input": items})).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")), "{error}");
    assert_eq!(error["error"]["param"], "input");
    let cut =
        server.good(RESPONSES, json!({"input": items, "truncation": "auto", "max_output_tokens": 10})).await;
    let left_out = cut["truncated_messages"].as_u64().unwrap();
    assert!(left_out > 0 && left_out % 2 == 0, "whole turns: {left_out}");
    assert!(cut["usage"]["input_tokens"].as_u64().unwrap() <= 290);
    let short = server.good(RESPONSES, json!({"input": "hi", "truncation": "auto"})).await;
    assert!(short.get("truncated_messages").is_none());
    let huge = json!({"input": "word ".repeat(2000), "truncation": "auto"});
    assert_eq!(server.post(RESPONSES, huge).await.0, 400, "one turn that is too long cannot be cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_comes_back_through_encrypted_content() {
    let server = Server::start(says("<mm:think>deep</mm:think>a"), &[]).await;
    let body = json!({"input": "one", "store": false, "include": ["reasoning.encrypted_content"]});
    let first = server.good(RESPONSES, body).await;
    let mut item = first["output"][0].clone();
    assert!(item["encrypted_content"].is_string());
    let ask = |item: Value| {
        json!({"store": false, "input": [{"role": "user", "content": "one"}, item,
            {"role": "assistant", "content": "a"}, {"role": "user", "content": "two"}]})
    };
    let whole = server.good(RESPONSES, ask(item.clone())).await["usage"]["input_tokens"].clone();
    item.as_object_mut().unwrap().remove("content");
    assert_eq!(server.good(RESPONSES, ask(item.clone())).await["usage"]["input_tokens"], whole);
    item["encrypted_content"] = "gAAAA of another server".into();
    assert!(server.good(RESPONSES, ask(item)).await["usage"]["input_tokens"].as_u64() < whole.as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_belong_to_the_text() {
    let server = Server::start(says("<mm:think>think</mm:think>Hello there, friend."), &[]).await;
    let body = json!({"input": "x", "top_logprobs": 2, "include": ["message.output_text.logprobs"]});
    let whole = server.good(RESPONSES, body.clone()).await;
    let part = &whole["output"][1]["content"][0];
    let joined = |list: &Value| -> String {
        list.as_array().unwrap().iter().map(|entry| entry["token"].as_str().unwrap()).collect()
    };
    assert_eq!(joined(&part["logprobs"]), "Hello there, friend.");
    let events = named_events(&server.stream_text(RESPONSES, body).await);
    let deltas = events.iter().filter(|(name, _)| name == "response.output_text.delta");
    let streamed: String = deltas.map(|(_, event)| joined(&event["logprobs"])).collect();
    assert_eq!(streamed, "Hello there, friend.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_ends_with_response_failed() {
    let server = Server::start(json!({"fault_at": 20, "step_us": 1000}), &[]).await;
    let body = json!({"input": "x", "ignore_eos": true, "max_output_tokens": 1000});
    let events = named_events(&server.stream_text(RESPONSES, body).await);
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["response"]["status"]), ("response.failed", &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_fields_of_this_api() {
    let server = Server::start(says("a"), &[]).await;
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": [{"role": "alien", "content": "x"}]}), "input[0].role"),
        (json!({"input": "x", "max_output_tokens": -1}), "max_output_tokens"),
        (json!({"input": "x", "max_output_tokens": 100_000_000}), "max_output_tokens"),
        (json!({"input": "x", "temperature": 5}), "temperature"),
        (json!({"input": "x", "tools": [{"type": "function", "name": "a b"}]}), "tools[0].name"),
        (json!({"input": "x", "tools": [{"type": "web_search_preview"}]}), "tools[0].type"),
        (json!({"input": [{"type": "function_call_output", "call_id": "c9", "output": "r"}]}), "input[0]"),
        (json!({"input": "x", "model": "gpt-4"}), "model"),
    ] {
        let (status, answer) = server.post(RESPONSES, body.clone()).await;
        assert!(status == 400 || status == 404, "{body}: {status} {answer}");
        let given = answer["error"]["param"].as_str().unwrap_or("");
        assert!(given.starts_with(param), "{body}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().contains("messages["), "{answer}");
    }
}
