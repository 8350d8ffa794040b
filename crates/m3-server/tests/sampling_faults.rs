//! Faults of samplers (K) tried with real arithmetic: the bundled model on the CPU in float32, where a row's numbers do
//! not depend on what shares its step.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::Server;

const RAW: &str = "/v1/completions";

async fn server() -> Server {
    let flags =
        ["--backend", "cpu", "--kv-cache-memory-bytes", "64M", "--threads", "1", "--dtype", "float32"];
    Server::start(json!({}), &flags).await
}

fn body(fields: Value) -> Value {
    let mut body =
        json!({"prompt": "The quick brown", "max_tokens": 12, "ignore_eos": true, "return_token_ids": true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn tokens(server: &Server, fields: Value) -> Value {
    server.good(RAW, body(fields)).await["choices"][0]["token_ids"].clone()
}

/// Every number of an answer is finite: JSON has no others, and what cannot be sampled is a large negative one.
fn check_finite(answer: &Value) {
    for choice in answer["choices"].as_array().unwrap() {
        let own = choice["logprobs"]["token_logprobs"].as_array().unwrap().iter();
        let top = choice["logprobs"]["top_logprobs"].as_array().unwrap();
        let top = top.iter().flat_map(|map| map.as_object().unwrap().values());
        for number in own.chain(top) {
            assert!(number.as_f64().is_some_and(f64::is_finite), "{choice}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k2_greedy_and_drawn_rows_with_barred_tokens_share_a_step() {
    let server = server().await;
    let greedy = tokens(&server, json!({"temperature": 0})).await;
    let barred = json!({greedy[0].to_string(): -100, greedy[1].to_string(): -100});
    let mixed = futures_util::future::join_all((0..8).map(|at| {
        let temperature = if at % 2 == 0 { 0.0 } else { 1.3 };
        server.good(RAW, body(json!({"temperature": temperature, "logit_bias": barred, "logprobs": 5})))
    }));
    for answer in mixed.await {
        check_finite(&answer);
        let sampled = answer["choices"][0]["token_ids"].as_array().unwrap();
        assert!(!sampled.contains(&greedy[0]) && !sampled.contains(&greedy[1]), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k3_tiny_temperatures_are_greedy() {
    let server = server().await;
    let greedy = tokens(&server, json!({"temperature": 0})).await;
    for temperature in [1e-4, 1e-6, 1e-30] {
        assert_eq!(
            tokens(&server, json!({"temperature": temperature, "seed": 1})).await,
            greedy,
            "{temperature}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k5_a_top_k_above_the_vocabulary_is_no_limit() {
    let server = server().await;
    let free = tokens(&server, json!({"seed": 4, "temperature": 1, "top_p": 1})).await;
    for top_k in [300_000u32, 4_000_000_000] {
        let fields = json!({"seed": 4, "temperature": 1, "top_p": 1, "top_k": top_k});
        assert_eq!(tokens(&server, fields).await, free);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k6_min_p_cuts_the_unlikely() {
    let server = server().await;
    let draw = |min_p: f64| {
        let fields = json!({"temperature": 1, "top_p": 1, "min_p": min_p, "n": 64, "max_tokens": 1, "logprobs": 1, "seed": 9});
        server.good(RAW, body(fields))
    };
    let worst = |answer: &Value| {
        let choices = answer["choices"].as_array().unwrap().iter();
        let below = choices.map(|choice| {
            let top = choice["logprobs"]["top_logprobs"][0].as_object().unwrap();
            let best = top.values().filter_map(Value::as_f64).fold(f64::MIN, f64::max);
            choice["logprobs"]["token_logprobs"][0].as_f64().unwrap() - best
        });
        below.fold(0.0, f64::min)
    };
    assert!(worst(&draw(0.0).await) < 0.5f64.ln(), "without it something unlikely is drawn");
    assert!(worst(&draw(0.5).await) >= 0.5f64.ln() - 1e-3);
}

#[tokio::test(flavor = "multi_thread")]
async fn k8_a_seeded_answer_repeats_beside_others_without_a_seed() {
    let server = server().await;
    let seeded = json!({"seed": 21, "temperature": 1.2});
    let alone = tokens(&server, seeded.clone()).await;
    for _ in 0..3 {
        let others =
            futures_util::future::join_all((0..5).map(|_| tokens(&server, json!({"temperature": 1.5}))));
        let (together, _) = tokio::join!(tokens(&server, seeded.clone()), others);
        assert_eq!(together, alone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k9_without_a_seed_answers_differ_and_with_one_they_do_not() {
    let server = server().await;
    let three = async |fields: Value| {
        [
            tokens(&server, fields.clone()).await,
            tokens(&server, fields.clone()).await,
            tokens(&server, fields).await,
        ]
    };
    let free = three(json!({"temperature": 0.7})).await;
    assert!(free[0] != free[1] || free[1] != free[2], "{free:?}");
    let seeded = three(json!({"temperature": 0.7, "seed": 3})).await;
    assert!(seeded[0] == seeded[1] && seeded[1] == seeded[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_the_arg_max_has_three_names_and_load_does_not_change_it() {
    let server = server().await;
    let greedy = tokens(&server, json!({"temperature": 0})).await;
    for fields in [json!({"top_k": 1, "temperature": 1.7}), json!({"top_p": 0, "temperature": 1.7})] {
        assert_eq!(tokens(&server, fields).await, greedy);
    }
    let load = futures_util::future::join_all((0..24).map(|_| tokens(&server, json!({"temperature": 2}))));
    let (inside, _) = tokio::join!(tokens(&server, json!({"temperature": 0})), load);
    assert_eq!(inside, greedy);
}

#[tokio::test(flavor = "multi_thread")]
async fn penalties_change_what_is_drawn() {
    let server = server().await;
    let repeats = |tokens: &Value| {
        let list = tokens.as_array().unwrap();
        list.len() - list.iter().map(Value::to_string).collect::<std::collections::HashSet<_>>().len()
    };
    let most = json!({"temperature": 0, "max_tokens": 60});
    let free = repeats(&tokens(&server, most.clone()).await);
    for (name, value) in [("repetition_penalty", 1.8), ("presence_penalty", 2.0), ("frequency_penalty", 2.0)]
    {
        let mut fields = most.clone();
        fields[name] = value.into();
        let kept = repeats(&tokens(&server, fields).await);
        assert!(kept < free, "{name}: {kept} repeats against {free}");
    }
}
