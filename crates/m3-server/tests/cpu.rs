//! The bundled model on the CPU backend: the whole path with real arithmetic.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{Server, user};

const CHAT: &str = "/v1/chat/completions";

async fn server(flags: &[&str]) -> Server {
    let fixed = ["--backend", "cpu", "--kv-cache-memory-bytes", "64M", "--threads", "1"];
    Server::start(json!({}), &[&fixed, flags].concat()).await
}

fn text_of(events: &[Value]) -> String {
    let deltas =
        events.iter().flat_map(|event| event["choices"].as_array().unwrap()).map(|choice| &choice["delta"]);
    deltas
        .flat_map(|delta| [&delta["reasoning_content"], &delta["content"]])
        .filter_map(Value::as_str)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_says_what_the_whole_answer_says_and_the_cache_changes_nothing() {
    // In bfloat16 the rounding may depend on how many rows a step has.
    let server = server(&["--dtype", "float32"]).await;
    let body = json!({"messages": user(&"word ".repeat(200)), "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let first = server.good(CHAT, body.clone()).await;
    let second = server.good(CHAT, body.clone()).await;
    let message = |answer: &Value| answer["choices"][0]["message"].clone();
    assert_eq!(message(&first), message(&second));
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() >= 128, "{second}");
    let parts =
        [&first["choices"][0]["message"]["reasoning_content"], &first["choices"][0]["message"]["content"]];
    let whole: String = parts.iter().filter_map(|part| part.as_str()).collect();
    assert_eq!(text_of(&server.stream(CHAT, body).await), whole);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_has_three_names_and_a_seed_repeats() {
    let server = server(&[]).await;
    let answer = async |fields: Value| {
        let mut body = json!({"messages": user("Say something."), "max_tokens": 16, "ignore_eos": true, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.good(CHAT, body).await["choices"][0]["token_ids"].clone()
    };
    let greedy = answer(json!({"temperature": 0})).await;
    assert_eq!(greedy, answer(json!({"top_k": 1})).await);
    assert_eq!(greedy, answer(json!({"top_p": 0})).await);
    let seeded = json!({"seed": 11, "temperature": 1.5});
    assert_eq!(answer(seeded.clone()).await, answer(seeded).await);
    assert_ne!(
        answer(json!({"temperature": 2})).await,
        answer(json!({"temperature": 2})).await,
        "no seed, no repetition"
    );
    let ban = json!({"temperature": 0, "logit_bias": {greedy[0].to_string(): -100}});
    assert_ne!(answer(ban).await[0], greedy[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scoring_agrees_with_sampling() {
    let server = server(&[]).await;
    let prompt = support::ids("The quick brown fox");
    let body = json!({"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": true, "logprobs": 1, "return_token_ids": true});
    let sampled = server.good("/v1/completions", body).await["choices"][0].clone();
    let mut whole = prompt.clone();
    whole.extend(sampled["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32));
    let body = json!({"prompt": whole, "max_tokens": 0, "echo": true, "logprobs": 1});
    let scored = server.good("/v1/completions", body).await["choices"][0].clone();
    for at in 0..8 {
        let one = sampled["logprobs"]["token_logprobs"][at].as_f64().unwrap();
        let other = scored["logprobs"]["token_logprobs"][prompt.len() + at].as_f64().unwrap();
        assert!((one - other).abs() < 0.05, "token {at}: {one} sampled, {other} scored");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_ranks_answer_like_one() {
    let body =
        json!({"messages": user("Say something."), "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let mut answers = Vec::new();
    for tp in ["1", "2"] {
        let server = server(&["--dtype", "float32", "--tp", tp]).await;
        answers.push(server.good(CHAT, body.clone()).await["choices"][0]["message"].clone());
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_one_request_serve_many_one_after_the_other() {
    let server = server(&["--kv-cache-memory-bytes", "3M", "--max-running-requests", "8"]).await;
    let context = server.metric("m3_context_tokens", "").await as usize;
    let body = json!({"prompt": vec![7; 200], "max_tokens": 100, "temperature": 0, "ignore_eos": true});
    let all =
        futures_util::future::join_all((0..8).map(|_| server.good("/v1/completions", body.clone()))).await;
    assert!(all.iter().all(|answer| answer["usage"]["completion_tokens"] == 100), "context {context}");
    let (status, _) =
        server.post("/v1/completions", json!({"prompt": vec![7; context + 1], "max_tokens": 1})).await;
    assert_eq!(status, 400);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_alone_can_be_served_for_measurements() {
    let folder = tempfile::tempdir().unwrap();
    let nano =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano/config.json");
    std::fs::copy(nano, folder.path().join("config.json")).unwrap();
    let flags = ["--backend", "cpu", "--kv-cache-memory-bytes", "64M", "--threads", "1"];
    let dummy = ["--load-format", "dummy", "--skip-tokenizer-init"];
    let server = Server::start_unready(folder, &[&flags[..], &dummy].concat()).await;
    server.wait_ready().await;
    let body = json!({"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "ignore_eos": true, "return_token_ids": true});
    let first = server.good("/v1/completions", body.clone()).await;
    assert_eq!(first["usage"]["completion_tokens"], 8, "{first}");
    let second = server.good("/v1/completions", body).await;
    assert_eq!(first["choices"][0]["token_ids"], second["choices"][0]["token_ids"]);
    server.assert_no_leak().await;
}
