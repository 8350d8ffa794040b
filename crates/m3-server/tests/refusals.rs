//! What is refused, and in which shape: OpenAI's, for our own checks and for axum's.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{Server, user};

const CHAT: &str = "/v1/chat/completions";

fn assert_shape(status: u16, body: &Value, expected: u16) {
    assert_eq!(status, expected, "{body}");
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    assert!(
        error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_openai_s_shape() {
    let server = Server::start(json!({}), &["--max-body-mb", "1"]).await;
    for (method, path, content_type, body, expected) in [
        ("GET", "/nowhere", "", "", 404),
        ("GET", CHAT, "", "", 405),
        ("POST", "/v1/models", "application/json", "{}", 405),
        ("POST", CHAT, "text/plain", "{}", 415),
        ("POST", CHAT, "application/json", "{", 400),
        ("POST", CHAT, "application/json", "[]", 400),
        ("POST", CHAT, "application/json", "", 400),
        ("POST", CHAT, "application/json", "{\"messages\":[]}", 400),
        ("POST", CHAT, "application/json", "{\"messages\":\"hi\"}", 400),
        ("POST", "/v1/completions", "application/json", "{}", 400),
        ("POST", "/tokenize", "application/json", "{}", 400),
        ("POST", "/detokenize", "application/json", "{\"tokens\":[99999]}", 400),
        ("GET", "/v1/models/other", "", "", 404),
    ] {
        let mut request = server.client.request(method.parse().unwrap(), format!("{}{path}", server.base));
        if !content_type.is_empty() {
            request = request.header("content-type", content_type).body(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        assert_shape(status, &response.json().await.unwrap(), expected);
    }
    let large = "x".repeat(1_100_000);
    let (status, body) = server.post(CHAT, json!({"messages": user(&large)})).await;
    assert_shape(status, &body, 413);
    assert!(server.metric("m3_http_errors_total", "4xx").await >= 14.0);
}

/// Nothing in a tool or in the choice of one is ignored without a word, whichever API it comes through; what the
/// official clients send is no surprise.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_tools_and_of_their_choice_are_known_or_refused_by_name() {
    let server = Server::start(support::says("fine"), &[]).await;
    let function = json!({"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true});
    let flat = extended(&function, &json!({"type": "function"}));
    let block = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}, "type": "custom",
        "cache_control": {"type": "ephemeral"}});
    let chat = json!({"messages": user("hi"), "tools": [{"type": "function", "function": function}]});
    let response = json!({"input": "hi", "tools": [flat]});
    let message = json!({"messages": user("hi"), "max_tokens": 8, "tools": [block]});
    for (path, body) in [(CHAT, &chat), ("/v1/responses", &response), ("/v1/messages", &message)] {
        server.good(path, body.clone()).await;
    }
    for (path, body, place, param) in [
        (CHAT, &chat, "/tools/0", "tools[0].odd"),
        (CHAT, &chat, "/tools/0/function", "tools[0].function.odd"),
        ("/v1/responses", &response, "/tools/0", "tools[0].odd"),
        ("/v1/messages", &message, "/tools/0", "tools[0].odd"),
    ] {
        let mut body = body.clone();
        body.pointer_mut(place).unwrap()["odd"] = json!(1);
        let (status, answer) = server.post(path, body).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("\"odd\""), "{path}: {answer}");
        assert!(path == "/v1/messages" || answer["error"]["param"] == param, "{path}: {answer}");
    }
    for (path, body, choice, param) in [
        (CHAT, &chat, json!({"type": "function", "function": {"name": "f"}, "odd": 1}), "tool_choice.odd"),
        ("/v1/responses", &response, json!({"type": "function", "name": "f", "odd": 1}), "tool_choice.odd"),
        ("/v1/messages", &message, json!({"type": "tool", "name": "f", "odd": 1}), "tool_choice.odd"),
    ] {
        let (status, answer) = server.post(path, extended(body, &json!({"tool_choice": choice}))).await;
        assert_eq!(status, 400, "{path}: {answer}");
        let named = answer["error"]["param"] == param || path == "/v1/messages";
        assert!(named && answer.to_string().contains("odd"), "{path}: {answer}");
    }
}

/// `body` with more fields.
fn extended(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_named() {
    let server = Server::start(json!({}), &[]).await;
    for (fields, status, param) in [
        (json!({"temperature": 5}), 400, "temperature"),
        (json!({"model": "other"}), 404, "model"),
        (json!({"tool_choice": "required"}), 400, "tool_choice"),
        (json!({"response_format": {"type": "yaml"}}), 400, "response_format.type"),
        (json!({"max_tokens": 1_000_000}), 400, "max_tokens"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}),
            400,
            "messages[0].content[0]",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            400,
            "tools[0].function.name",
        ),
    ] {
        let mut body = json!({"messages": user("hi")});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (got, answer) = server.post(CHAT, body).await;
        assert_shape(got, &answer, status);
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
    for name in ["nano", server.dir.path().to_str().unwrap()] {
        server.good(CHAT, json!({"messages": user("hi"), "model": name, "max_tokens": 1})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_over_long_prompt_is_400_with_both_numbers_and_hurts_nobody() {
    let server = Server::start(json!({"step_us": 2000}), &["--context-length", "512"]).await;
    let other = server.good(CHAT, json!({"messages": user("hi"), "max_tokens": 40, "ignore_eos": true}));
    let long = server.post("/v1/completions", json!({"prompt": vec![5; 600], "max_tokens": 4}));
    let (other, (status, body)) = tokio::join!(other, long);
    assert_shape(status, &body, 400);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("600") && message.contains("512"), "{message}");
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert_eq!(other["usage"]["completion_tokens"], 40);
    let (status, body) =
        server.post("/v1/completions", json!({"prompt": vec![5; 500], "max_tokens": 13})).await;
    assert_shape(status, &body, 400);
    let answer = server.good("/v1/completions", json!({"prompt": vec![5; 500], "ignore_eos": true})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 12, "the default gives way to the room");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_fills_the_context_is_told_that_it_needs_room() {
    let server = Server::start(json!({}), &["--context-length", "512"]).await;
    for max_tokens in [json!(null), json!(1), json!(600)] {
        let body = json!({"prompt": vec![5; 512], "max_tokens": max_tokens});
        let (status, body) = server.post("/v1/completions", body).await;
        assert_shape(status, &body, 400);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("512") && message.contains("room for at least one more token"), "{message}");
    }
    let body = json!({"prompt": vec![5; 512], "max_tokens": 0, "echo": true, "logprobs": 1});
    server.good("/v1/completions", body).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_admitted_or_refused_as_a_whole() {
    let flags = ["--max-running-requests", "2", "--max-queued-requests", "2"];
    let server = Server::start(json!({"step_us": 3000}), &flags).await;
    let (status, body) = server.post("/v1/completions", json!({"prompt": [1, 2], "n": 5})).await;
    assert_shape(status, &body, 400);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains('5') && message.contains("up to 4"), "{message}");
    let four = json!({"prompt": [[1], [2]], "n": 2, "max_tokens": 3, "ignore_eos": true});
    let answer = server.good("/v1/completions", four.clone()).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 4);
    let first = json!({"prompt": [7], "max_tokens": 200, "ignore_eos": true});
    let first = server.post("/v1/completions", first);
    let later = async {
        while server.metric("m3_requests_running", "").await < 1.0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let before = server.metric("m3_requests_total", "").await;
        let answer = server.post("/v1/completions", four).await;
        (before, server.metric("m3_requests_total", "").await, answer)
    };
    let ((status, _), (before, after, (refused, body))) = tokio::join!(first, later);
    assert_eq!(status, 200);
    assert_shape(refused, &body, 429);
    assert_eq!(before, after, "none of the four was admitted");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_stands_twice_in_a_body_is_400() {
    let server = Server::start(json!({}), &[]).await;
    for (body, param) in [
        ("{\"messages\":[],\"temperature\":0,\"temperature\":1}", Value::Null),
        (
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\
             {\"city\":1,\"city\":2}}}]}]}",
            json!("messages[0].tool_calls[0].function.arguments"),
        ),
    ] {
        let request = server.client.post(format!("{}{CHAT}", server.base));
        let response = request.header("content-type", "application/json").body(body).send().await.unwrap();
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        assert_shape(status, &answer, 400);
        assert!(answer["error"]["message"].as_str().unwrap().contains("stands twice"), "{answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_outside_the_vocabulary_is_400() {
    let server = Server::start(json!({}), &[]).await;
    let (status, body) = server.post("/v1/completions", json!({"prompt": [1, 5000]})).await;
    assert_shape(status, &body, 400);
    assert!(body["error"]["message"].as_str().unwrap().contains("5000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_asked_for_everywhere_but_on_probes() {
    let server = Server::start(json!({}), &["--api-key", "first", "--api-key", "second"]).await;
    for path in ["/health", "/live", "/ready"] {
        assert_eq!(server.get(path).await.0, 200, "{path}");
    }
    let ask = |key: Option<&str>, path: &str| {
        let mut request = server.client.get(format!("{}{path}", server.base));
        if let Some(key) = key {
            request = request.header("authorization", key);
        }
        request.send()
    };
    for key in [
        None,
        Some("Bearer wrong"),
        Some("Bearer firs"),
        Some("Bearer firstx"),
        Some("first"),
        Some("Bearer "),
    ] {
        for path in ["/v1/models", "/metrics", "/nowhere"] {
            let response = ask(key, path).await.unwrap();
            assert_eq!(response.status(), 401, "{key:?} {path}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], "invalid_api_key");
        }
    }
    for key in ["Bearer first", "bearer second"] {
        assert_eq!(ask(Some(key), "/v1/models").await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_429_with_a_hint_and_nothing_is_lost() {
    let server = Server::start(
        json!({"step_us": 3000}),
        &["--max-running-requests", "1", "--max-queued-requests", "1"],
    )
    .await;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 60, "ignore_eos": true});
    let requests: Vec<_> = (0..8)
        .map(|_| server.client.post(format!("{}/v1/completions", server.base)).json(&body).send())
        .collect();
    let mut counts = (0, 0);
    for request in requests.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        let response = request.await.unwrap().unwrap();
        if response.status() == 200 {
            counts.0 += 1;
            assert_eq!(response.json::<Value>().await.unwrap()["usage"]["completion_tokens"], 60);
        } else {
            counts.1 += 1;
            assert_eq!(response.headers()["retry-after"], "1");
            let status = response.status().as_u16();
            let body: Value = response.json().await.unwrap();
            assert_shape(status, &body, 429);
            assert_eq!(body["error"]["type"], "rate_limit_error");
        }
    }
    assert!(counts.0 >= 2 && counts.1 >= 1, "{counts:?}");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_say_what_they_accept_and_ids_match() {
    let server = Server::start(json!({}), &["--served-model-name", "extra"]).await;
    let (_, list) = server.get("/v1/models").await;
    let names: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|card| card["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["nano", "extra"]);
    let card = &list["data"][0];
    assert_eq!((card["owned_by"].as_str(), card["max_model_len"].as_u64()), (Some("sglang"), Some(32768)));
    assert_eq!(card["capabilities"]["input_modalities"], json!(["text", "image", "video"]));
    let request = server
        .client
        .post(format!("{}{CHAT}", server.base))
        .json(&json!({"messages": user("x"), "max_tokens": 1}));
    let response = request.try_clone().unwrap().send().await.unwrap();
    let header = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(response.json::<Value>().await.unwrap()["id"], header.as_str());
    let response = request.header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!(response.json::<Value>().await.unwrap()["id"], "chatcmpl-mine-1");
}
