//! `m3 bench` against a server whose pace is known.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use m3_server::args::parse;
use m3_server::bench::{BenchOptions, measure};
use serde_json::{Value, json};
use support::{Server, ids, says};

/// Said again and again.
const WORDS: &str = "one two three four five ";

async fn bench(server: &Server, flags: &str) -> Value {
    let line = format!("bench {} --quiet {flags}", server.base);
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let options = BenchOptions::read(&parse(&words).unwrap()).unwrap();
    serde_json::to_value(measure(&options).await.unwrap()).unwrap()
}

fn near(value: &Value, least: f64, most: f64) {
    let value = value.as_f64().unwrap();
    assert!((least..=most).contains(&value), "{value} is not from {least} to {most}");
}

/// 10 ms a step; every token sent as it comes.
async fn paced() -> Server {
    Server::start(json!({"script": ids(WORDS), "step_us": 10_000}), &["--stream-gather-ms", "0"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_exact_and_times_are_the_servers() {
    let server = paced().await;
    let report = bench(&server, "--num-prompts 8 --concurrency 2,4 --input-len 200 --output-len 20").await;
    assert_eq!(report["model"], "nano");
    for (run, at_once) in report["runs"].as_array().unwrap().iter().zip([2, 4]) {
        assert_eq!(
            (&run["concurrency"], &run["completed"], &run["failed"]),
            (&json!(at_once), &json!(8), &json!(0))
        );
        assert_eq!(run["total_output_tokens"], 160, "ignore_eos gives exactly what was asked for");
        // Lengths are learnt from the server's own counts.
        near(&run["total_input_tokens"], 8.0 * 180.0, 8.0 * 220.0);
        near(&run["ttft_ms"]["min"], 9.0, 1e4);
        // A later point of the sweep does not find the prompts of the one before; the template's beginning it does.
        near(&run["total_cached_tokens"], 0.0, 8.0 * 128.0);
        // A step is 10 ms; a busy machine may be slower, never faster.
        near(&run["tpot_ms"]["min"], 9.0, 500.0);
        assert!(run["ttft_ms"]["p99"].as_f64() >= run["ttft_ms"]["p50"].as_f64());
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_prefixes_and_conversations_are_found_in_the_cache() {
    let server = paced().await;
    for (flags, cached) in [
        ("--trace shared-prefix --prefix-len 900 --prefix-groups 1 --input-len 100", true),
        ("--trace conversation --turns 3 --input-len 600", true),
        ("--trace random --input-len 600", false),
    ] {
        let report = bench(&server, &format!("{flags} --num-prompts 6 --concurrency 1 --output-len 8")).await;
        let run = &report["runs"][0];
        assert_eq!((&run["completed"], &run["failed"]), (&json!(6), &json!(0)), "{run}");
        // The template's own beginning is found in every case.
        let share =
            run["total_cached_tokens"].as_f64().unwrap() / run["total_input_tokens"].as_f64().unwrap();
        assert_eq!(share > 0.35, cached, "{flags}: {share} {run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_of_arrivals_is_kept() {
    let server = Server::start(json!({"script": ids(WORDS)}), &[]).await;
    let report =
        bench(&server, "--num-prompts 40 --request-rate 40 --concurrency 40 --input-len 60 --output-len 2")
            .await;
    // About a second for forty arrivals; Poisson's spread and a busy machine are allowed for.
    near(&report["runs"][0]["duration"], 0.5, 20.0);
    near(&report["runs"][0]["request_throughput"], 2.0, 80.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_and_keys_work_and_failures_are_counted() {
    let server = Server::start(says("a"), &["--api-key", "k", "--context-length", "2048"]).await;
    let report =
        bench(&server, "--api-key k --endpoint completions --num-prompts 3 --input-len 50 --output-len 4")
            .await;
    assert_eq!(report["runs"][0]["completed"], 3);
    assert!(report["url"].as_str().unwrap().ends_with("/v1/completions"));
    let report = bench(&server, "--api-key k --num-prompts 3 --input-len 5000 --output-len 4").await;
    let run = &report["runs"][0];
    assert_eq!((&run["completed"], &run["failed"]), (&json!(0), &json!(3)));
    assert!(run["failures"][0][0].as_str().unwrap().contains("400"), "{run}");
    let words: Vec<String> = ["bench", &server.base, "--quiet"].map(str::to_owned).to_vec();
    let error = measure(&BenchOptions::read(&parse(&words).unwrap()).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
}

/// The program itself, not its parts: what it needs before its first request is there.
#[test]
fn the_program_says_what_is_wrong_instead_of_panicking() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_m3"))
        .args(["bench", &address, "--num-prompts", "1", "--quiet"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&address["http://".len()..]) && !told.contains("panicked"), "{told}");
}
