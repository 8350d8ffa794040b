//! Limits, ranges, roles, keys and names: what is accepted, and what is refused with which status.

use serde_json::{Value, json};

use super::support::{Server, model_dir_with, says, user};
use super::{CHAT, refused, with};

fn greeting() -> Value {
    json!({"messages": user("hi"), "temperature": 0})
}

/// A server whose context is as long as M3's, on pages that hold it.
pub(super) async fn long_context(null: Value) -> Server {
    let dir = model_dir_with(|config| {
        config["text_config"]["max_position_embeddings"] = 1_048_576.into();
        config["m3_null"] = null.clone();
        config["m3_null"]["max_pages"] = 20_000.into();
    });
    let server = Server::start_unready(dir, &["--chunked-prefill-size", "65536"]).await;
    server.wait_ready().await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_limit_is_refused_and_zero_is_tolerated() {
    let server = Server::start(says("hello"), &[]).await;
    for name in ["max_tokens", "max_completion_tokens"] {
        assert_eq!(refused(&server, with(greeting(), &json!({name: -1}))).await.0, name);
        let answer = server.good(CHAT, with(greeting(), &json!({name: 0}))).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_half_a_million_tokens_are_accepted() {
    let server = long_context(says("hello")).await;
    for limit in [512_000, 524_288] {
        for name in ["max_tokens", "max_completion_tokens"] {
            let answer = server.good(CHAT, with(greeting(), &json!({name: limit}))).await;
            assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_completion_limit_wins_and_length_means_exactly_so_many_tokens() {
    let server = Server::start(json!({}), &[]).await;
    for (fields, expected) in [
        (json!({"max_tokens": 7}), 7),
        (json!({"max_completion_tokens": 9}), 9),
        (json!({"max_tokens": 5, "max_completion_tokens": 11}), 11),
        (json!({"max_tokens": 50, "max_completion_tokens": 3}), 3),
    ] {
        let answer = server.good(CHAT, with(greeting(), &fields)).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "length", "{fields}");
        assert_eq!(answer["usage"]["completion_tokens"], expected, "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_range_are_refused_by_name() {
    let server = Server::start(says("hello"), &[]).await;
    for (name, value) in [
        ("temperature", json!(5)),
        ("temperature", json!(-0.1)),
        ("temperature", json!("warm")),
        ("top_p", json!(1.5)),
        ("top_p", json!(-0.5)),
        ("messages", json!([])),
        ("messages", json!(null)),
        ("n", json!(0)),
    ] {
        assert_eq!(refused(&server, with(greeting(), &json!({name: value}))).await.0, name, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_role_is_refused() {
    let server = Server::start(says("hello"), &[]).await;
    for role in ["robot", "", "User", "tool_response"] {
        let (param, message) = refused(&server, json!({"messages": [{"role": role, "content": "hi"}]})).await;
        assert!(param.starts_with("messages[0]"), "{role}: {param}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_key_is_401() {
    let server = Server::start(says("hello"), &["--api-key", "right"]).await;
    let ask = |key: Option<&str>| {
        let request = server.client.post(format!("{}{CHAT}", server.base)).json(&greeting());
        match key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
        .send()
    };
    assert_eq!(ask(None).await.unwrap().status(), 401);
    for wrong in ["wrong", "", "righ", "rightx"] {
        assert_eq!(ask(Some(wrong)).await.unwrap().status(), 401, "{wrong}");
    }
    assert_eq!(ask(Some("right")).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_404() {
    let server = Server::start(says("hello"), &[]).await;
    let (status, answer) = server.post(CHAT, with(greeting(), &json!({"model": "another"}))).await;
    assert_eq!((status, answer["error"]["param"].as_str()), (404, Some("model")), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_equal_prompts_is_cached() {
    let server = Server::start(says("hello"), &[]).await;
    let body = json!({"messages": user(&"some words ".repeat(200)), "temperature": 0});
    let cached = async || -> u64 {
        let answer = server.good(CHAT, body.clone()).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached().await, 0);
    assert!(cached().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_objects_are_made_too() {
    let server = Server::start(json!({}), &[]).await;
    let body = with(greeting(), &json!({"response_format": {"type": "json_object"}, "max_tokens": 400}));
    let answer = server.good(CHAT, with(body, &json!({"thinking": {"type": "disabled"}}))).await;
    if answer["choices"][0]["finish_reason"] == "stop" {
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
    } else {
        assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().trim_start().starts_with('{'));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_inside_objects_that_nobody_knows_are_refused_by_name() {
    let server = Server::start(says("hello"), &[]).await;
    let schema = |more: &str| json!({"name": "n", "schema": {"type": "object"}, "strict": true, more: 1});
    for (fields, name) in [
        (json!({"stream_options": {"usage": true}}), "stream_options.usage"),
        (json!({"response_format": {"type": "text", "schema": {}}}), "response_format.schema"),
        (json!({"response_format": {"type": "json_object", "json": {}}}), "response_format.json"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": schema("mode")}}),
            "response_format.json_schema.mode",
        ),
        (json!({"thinking": {"type": "enabled", "depth": 1}}), "thinking.depth"),
    ] {
        assert_eq!(refused(&server, with(greeting(), &fields)).await.0, name);
    }
    for (fields, name) in [
        (json!({"input": "hi", "text": {"style": "short"}}), "text.style"),
        (json!({"input": "hi", "stream_options": {"usage": true}}), "stream_options.usage"),
    ] {
        let (status, answer) = server.post("/v1/responses", fields).await;
        assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(name)), "{answer}");
    }
}
