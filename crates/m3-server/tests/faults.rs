//! Clients that leave, stall or flood, and backends that break: a clear answer, right health, nothing lost for others.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Server, events, user};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let server = Server::start(json!({"step_us": 1000}), &[]).await;
    let endless = json!({"prompt": [1, 2, 3], "max_tokens": 20_000, "ignore_eos": true, "stream": true});
    for round in 0..40u64 {
        let request = server.client.post(format!("{}{RAW}", server.base)).json(&endless).send();
        let Ok(response) = tokio::time::timeout(Duration::from_millis(round % 7 * 4), request).await else {
            continue;
        };
        let mut response = response.unwrap();
        for _ in 0..round % 5 {
            response.chunk().await.unwrap();
        }
    }
    let mut whole = endless.clone();
    whole["stream"] = false.into();
    for _ in 0..10 {
        let request = server.client.post(format!("{}{RAW}", server.base)).json(&whole).send();
        assert!(tokio::time::timeout(Duration::from_millis(30), request).await.is_err());
    }
    server.assert_no_leak().await;
    assert!(server.metric("m3_requests_aborted_total", "").await >= 10.0);
    server.good(RAW, json!({"prompt": [1], "max_tokens": 3})).await;
}

/// Opens a connection with a small window and sends one request without ever reading.
async fn never_read(server: &Server, body: &Value) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let text = body.to_string();
    let head = format!(
        "POST {RAW} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_aborted_and_told_so() {
    let server = Server::start(json!({}), &["--stream-buffer", "64"]).await;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 30_000, "ignore_eos": true, "stream": true, "logprobs": 20});
    let mut stalled = never_read(&server, &body).await;
    let start = Instant::now();
    while server.metric("m3_requests_aborted_total", "").await == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "still not aborted");
        let other = server.good(RAW, json!({"prompt": [9], "max_tokens": 5, "ignore_eos": true})).await;
        assert_eq!(other["usage"]["completion_tokens"], 5, "others are served meanwhile");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), async {
        let mut buffer = [0u8; 65_536];
        while !text[text.len().saturating_sub(100)..].windows(12).any(|window| window == b"data: [DONE]") {
            let length = stalled.read(&mut buffer).await.unwrap();
            assert!(length > 0, "the stream ends with [DONE]");
            text.extend_from_slice(&buffer[..length]);
        }
    });
    read.await.unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(
        text.contains("\"slow_client\""),
        "the last event is an error: {}",
        &text[text.len().saturating_sub(300)..]
    );
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_backend_answers_everyone_and_turns_health_red() {
    for (fault, at) in [("panic_at", 20), ("fault_at", 20)] {
        let server = Server::start(json!({fault: at, "step_us": 1000}), &[]).await;
        let body = json!({"prompt": [1, 2, 3], "max_tokens": 1000, "ignore_eos": true});
        let (whole, stream, second) = tokio::join!(
            server.post(RAW, body.clone()),
            server.stream_text(RAW, body.clone()),
            server.post(RAW, body.clone())
        );
        for (status, answer) in [whole, second] {
            assert_eq!((status, answer["error"]["code"].as_str()), (500, Some("engine_error")), "{answer}");
        }
        let events = events(&stream);
        assert_eq!(
            events.last().unwrap()["error"]["type"],
            "server_error",
            "a started stream ends with an error event"
        );
        for path in ["/health", "/ready", "/live"] {
            let (status, body) = server.get(path).await;
            assert_eq!((status, body["status"].as_str()), (503, Some("dead")), "{path} {body}");
        }
        let (status, answer) = server.post(RAW, body).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (503, Some("engine_dead")));
        assert_eq!(server.metric("m3_engine_dead", "").await, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_numbers_in_one_row_are_that_request_s_alone() {
    let server = Server::start(json!({"nan_row": 0, "step_us": 2000}), &[]).await;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 20, "ignore_eos": true});
    let all = tokio::join!(
        server.post(RAW, body.clone()),
        server.post(RAW, body.clone()),
        server.post(RAW, body.clone())
    );
    let mut statuses = [all.0.0, all.1.0, all.2.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 500]);
    assert_eq!(server.get("/health").await.0, 200);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_broken_by_comments_also_before_the_first_token() {
    let server = Server::start(json!({"step_us": 400_000}), &["--heartbeat-secs", "0.1"]).await;
    let text = server.stream_text(RAW, json!({"prompt": [1], "max_tokens": 2, "ignore_eos": true})).await;
    let first = text.find("data: ").unwrap();
    assert!(text[..first].matches(": heartbeat\n\n").count() >= 2, "{text}");
    assert_eq!(events(&text).last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_device_turns_ready_red_but_not_live_and_probes_never_wait_for_it() {
    let server = Server::start(json!({"step_us": 1_500_000}), &["--watchdog-timeout", "0.3"]).await;
    let request = server.good(RAW, json!({"prompt": [1], "max_tokens": 1, "ignore_eos": true}));
    let probe = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        let start = Instant::now();
        let (status, body) = server.get("/ready").await;
        assert_eq!((status, body["status"].as_str()), (503, Some("stalled")), "{body}");
        assert_eq!(server.get("/live").await.0, 200);
        assert!(
            start.elapsed() < Duration::from_millis(400),
            "the step takes 1.5 s, two probes took {:?}",
            start.elapsed()
        );
    };
    let (answer, ()) = tokio::join!(request, probe);
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    assert_eq!(server.get("/ready").await.0, 200, "a step has finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_under_load_are_those_of_a_quiet_server() {
    let server =
        Server::start(json!({}), &["--max-running-requests", "16", "--chunked-prefill-size", "64"]).await;
    let body = |at: u64| json!({"prompt": vec![at + 1; 3 + at as usize * 5], "max_tokens": 40, "temperature": 0, "ignore_eos": true, "return_token_ids": true});
    let mut quiet = Vec::new();
    for at in 0..64 {
        quiet.push(server.good(RAW, body(at)).await["choices"][0]["token_ids"].clone());
    }
    let busy = futures_util::future::join_all((0..64).map(|at| server.good(RAW, body(at)))).await;
    for (at, answer) in busy.iter().enumerate() {
        assert_eq!(answer["choices"][0]["token_ids"], quiet[at], "answer {at}");
    }
    let streams = futures_util::future::join_all((0..64).map(|at| server.stream(RAW, body(at)))).await;
    for (at, events) in streams.iter().enumerate() {
        let ids: Vec<Value> = events
            .iter()
            .flat_map(|event| event["choices"][0]["token_ids"].as_array().unwrap().clone())
            .collect();
        assert_eq!(Value::Array(ids), quiet[at], "stream {at}");
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_turns_ready_red_at_once_and_lets_streams_finish() {
    let server = Server::start(json!({"step_us": 5000}), &[]).await;
    let body = json!({"messages": user("x"), "max_tokens": 100, "ignore_eos": true});
    let streams = futures_util::future::join_all((0..10).map(|_| server.stream(CHAT, body.clone())));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.stop.send(()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (status, ready) = server.get("/ready").await;
        assert_eq!((status, ready["status"].as_str()), (503, Some("draining")));
        assert_eq!((server.get("/live").await.0, server.get("/health").await.0), (200, 200));
        let (status, refused) = server.post(CHAT, body.clone()).await;
        assert_eq!((status, refused["error"]["code"].as_str()), (503, Some("draining")));
    };
    let (streams, ()) = tokio::join!(streams, stop);
    for events in streams {
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
    server.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_takes_too_long_ends_streams_with_an_error() {
    let server = Server::start(json!({"step_us": 2000}), &["--shutdown-timeout", "0.2"]).await;
    let stream = server.stream_text(RAW, json!({"prompt": [1], "max_tokens": 30_000, "ignore_eos": true}));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.stop.send(()).await.unwrap();
    };
    let (text, ()) = tokio::join!(stream, stop);
    let events = events(&text);
    assert_eq!(events.last().unwrap()["error"]["code"], "aborted", "{}", events.last().unwrap());
    tokio::time::timeout(Duration::from_secs(20), server.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_shard_stops_the_start_with_the_file_s_name() {
    let dir = support::model_dir(&json!({}));
    let shard = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::remove_file(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 1000]).unwrap();
    let server = Server::start_unready(dir, &[]).await;
    let error = server.task.await.unwrap().unwrap_err();
    assert!(format!("{error:#}").contains("model.safetensors"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_tokenizer_says_both_ways_out() {
    let dir = support::model_dir(&json!({}));
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    let server = Server::start_unready(dir, &[]).await;
    let error = format!("{:#}", server.task.await.unwrap().unwrap_err());
    assert!(error.contains("--tokenizer") && error.contains("--skip-tokenizer-init"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_the_model_cannot_take_stop_the_start() {
    for (flags, part) in [
        (vec!["--page-size", "64"], "128"),
        (vec!["--context-length", "100k"], "32768"),
        (vec!["--quantization", "mxfp8"], "none"),
        (vec!["--context-length", "32768", "--kv-cache-memory-bytes", "64K"], "--kv-cache-memory-bytes"),
    ] {
        let server = Server::start_unready(support::model_dir(&json!({})), &flags).await;
        let error = format!("{:#}", server.task.await.unwrap().unwrap_err());
        assert!(error.contains(part), "{flags:?}: {error}");
    }
}

/// A copy of the bundled folder's `name`, changed.
fn rewrite(dir: &std::path::Path, name: &str, change: impl Fn(&mut Value)) {
    let file = dir.join(name);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut json);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(file, json.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn token_ids_outside_the_vocabulary_end_the_start() {
    let eos = |json: &mut Value| json["eos_token_id"] = json!([980, 5000]);
    let added = |json: &mut Value| {
        let mut token = json["added_tokens"][0].clone();
        (token["id"], token["content"]) = (json!(2000), json!("<far>"));
        json["added_tokens"].as_array_mut().unwrap().push(token);
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: [(&str, Change<'_>, [&str; 2]); 2] = [
        ("generation_config.json", &eos, ["eos_token_id 5000", "tokens"]),
        ("tokenizer.json", &added, ["ids up to 2000", "vocabulary has"]),
    ];
    for (name, change, parts) in cases {
        let dir = support::model_dir(&json!({}));
        rewrite(dir.path(), name, change);
        let server = Server::start_unready(dir, &[]).await;
        let error = format!("{:#}", server.task.await.unwrap().unwrap_err());
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_type_the_backend_lacks_is_named_as_the_flag_names_it() {
    let words = ["serve", "--backend", "cpu", "--port", "0", "--kv-cache-dtype", "fp8"].map(str::to_owned);
    let options = m3_server::args::Options::read(&m3_server::args::parse(&words).unwrap()).unwrap();
    let error = m3_server::boot::boot(&options, &|_| {}).err().unwrap().to_string();
    assert!(error.contains("--kv-cache-dtype is fp8") && error.contains("float32, bfloat16"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_model_is_there_only_probes_and_metrics_answer() {
    let words: Vec<String> = ["serve", "--port", "0"].map(str::to_owned).to_vec();
    let options = m3_server::args::Options::read(&m3_server::args::parse(&words).unwrap()).unwrap();
    let app = m3_server::app::App::new(options.http, m3_server::place::first_name(&options.model))
        .expect("a server");
    app.phase.set(m3_core::load::Progress::Loading { done_bytes: 50, total_bytes: 100 });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = m3_server::routes::router(std::sync::Arc::clone(&app), m3_server::routes::Door::Only);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = support::client();
    let get = async |path: &str| {
        let response = client.get(format!("{base}{path}")).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, body) = get("/ready").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["phase"], &body["percent"]), (503, &json!("loading"), &json!(43)));
    assert_eq!((get("/live").await.0, get("/health").await.0), (200, 503));
    assert!(get("/metrics").await.1.contains("m3_load_percent{model_name=\"m3-nano\"} 43"));
    let (status, body) = get("/v1/models").await;
    assert_eq!(status, 503);
    assert!(body.contains("loading (43 %)"), "{body}");
}
