//! A server that is killed in the middle of its work and started again on the same port.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::asking::{Api, Ask};
use crate::program::{Model, Program};
use crate::{echo, record, size};

/// Greedy answers to the same prompts.
async fn answers(program: &Program) -> Vec<String> {
    let mut texts = Vec::new();
    for prompt in ["Repeat: one two three", "What is 12 + 30?", "Hello"] {
        let body = json!({
            "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 24, "seed": 1,
            "logprobs": true,
        });
        let (status, answer) = program.post("/v1/chat/completions", &body).await;
        assert_eq!(status, 200, "{answer}");
        texts.push(answer["choices"][0].to_string());
    }
    texts
}

/// A port that was free a moment ago and stays the same over the restarts.
fn port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Streams that are running, then are not; every client must hear of it.
async fn killed_in_the_middle(program: &Program, streams: u64) {
    let asks = (0..streams).map(|number| Ask { api: Api::Completions, stream: true, number, repeats: 20 });
    let open = join_all(asks.map(|ask| async move { ask })).await;
    let sent = open.iter().map(|ask| ask.send(&program.client, &program.base));
    let mut open: Vec<reqwest::Response> = join_all(sent).await.into_iter().map(Result::unwrap).collect();
    for stream in &mut open {
        assert!(stream.chunk().await.unwrap().is_some());
    }
    program.kill();
    for stream in open {
        let end = tokio::time::timeout(Duration::from_secs(10), stream.text()).await;
        let end = end.expect("a client is not left waiting");
        assert!(end.is_err() || !end.unwrap().contains("[DONE]"), "no stream pretends to be whole");
    }
}

async fn cycles(model: impl Fn() -> Model, flags: &[&str], streams: u64, cycles: u32) -> Value {
    let port = port();
    let flags = [flags, &["--port", &port]].concat();
    let mut program = Program::start(model(), &flags).await;
    let expected = answers(&program).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..cycles {
        killed_in_the_middle(&program, streams).await;
        let begun = std::time::Instant::now();
        // The port is asked for at once: a start that cannot have it ends, and so does this test.
        program = Program::start(model(), &flags).await;
        slowest = slowest.max(begun.elapsed());
        assert_eq!(answers(&program).await, expected, "the same answers as before");
        program.idle_pages().await;
    }
    let (code, _) = program.stop();
    assert_eq!(code, Some(0));
    json!({"kills": cycles, "streams_running_each_time": streams, "same_answers": true,
        "slowest_start_to_ready_s": (slowest.as_secs_f64() * 100.0).round() / 100.0})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_starts_again_on_its_port_with_the_same_answers() {
    let times = size(1, 20);
    let cpu =
        cycles(|| Model::Trained, &["--kv-cache-memory-bytes", "256M", "--threads", "1"], 8, times).await;
    let scripted = cycles(|| Model::Null(echo(20_000)), &["--max-running-requests", "128"], 100, times).await;
    record("restart", &json!({"cpu": cpu, "null": scripted}));
}
