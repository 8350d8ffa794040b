//! Frozen ranks, dead backends, full disks, idleness: what the probes say, and how soon.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, model_dir, says};

const RAW: &str = "/v1/completions";

/// Waits until a probe answers with a status; how long that took, and its body.
async fn until(server: &Server, path: &str, status: u16) -> (Duration, Value) {
    let start = Instant::now();
    loop {
        let (got, body) = server.get(path).await;
        if got == status {
            return (start.elapsed(), body);
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{path} is {got}, not {status}: {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_a_frozen_rank_turns_ready_red_and_after_the_hard_limit_live_too() {
    let flags = ["--watchdog-timeout", "0.5", "--live-timeout", "2", "--tp", "2"];
    let server = Server::start(json!({"freeze_at": 3, "freeze_rank": 1}), &flags).await;
    let body = json!({"prompt": [1], "max_tokens": 100, "ignore_eos": true});
    let hung = server.client.post(format!("{}{RAW}", server.base)).json(&body).send();
    let hung = tokio::spawn(hung);
    let (after, ready) = until(&server, "/ready", 503).await;
    assert_eq!(ready["status"], "stalled", "{ready}");
    assert!(after < Duration::from_secs(10), "{after:?}");
    assert_eq!(server.get("/health").await.0, 503);
    assert_eq!(server.get("/startup").await.0, 200, "it had started");
    let (_, live) = until(&server, "/live", 503).await;
    assert_eq!(live["status"], "stalled");
    hung.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_an_idle_engine_whose_device_went_away_is_noticed_before_anyone_asks() {
    let flags = ["--watchdog-timeout", "0.5", "--idle-probe-secs", "0.3"];
    let well = Server::start(json!({}), &flags).await;
    let frozen = Server::start(json!({"freeze_at": 1}), &flags).await;
    let (_, ready) = until(&frozen, "/ready", 503).await;
    assert!(["stalled", "unwell"].contains(&ready["status"].as_str().unwrap()), "{ready}");
    assert_eq!(well.get("/ready").await.0, 200);
    let start = Instant::now();
    while well.metric("m3_idle_probes_total", "ok").await < 2.0 {
        assert!(start.elapsed() < Duration::from_secs(20), "idle engines are not probed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(well.metric("m3_idle_probes_total", "failed").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_a_dead_backend_turns_ready_and_live_red() {
    let server = Server::start(json!({"fault_at": 2}), &[]).await;
    let body = json!({"prompt": [1], "max_tokens": 10, "ignore_eos": true});
    assert_eq!(server.post(RAW, body).await.0, 500);
    let (after, ready) = until(&server, "/ready", 503).await;
    assert_eq!(ready["status"], "dead");
    assert!(ready["reason"].as_str().unwrap().contains("rank 0"), "{ready}");
    assert!(after < Duration::from_secs(2), "{after:?}");
    assert_eq!(server.get("/live").await.0, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_a_full_disk_turns_ready_red_and_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let server =
        Server::start_unready(model_dir(&says("a")), &["--watch-disk", folder, "--min-free-disk", "8000T"])
            .await;
    let start = Instant::now();
    while server.get("/ready").await.1["status"] != "unwell" {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", server.get("/ready").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, ready) = server.get("/ready").await;
    assert_eq!(status, 503);
    assert!(ready["reason"].as_str().unwrap().contains(folder), "{ready}");
    // It still answers: what is asked is answered, only nothing new should be sent here.
    assert_eq!((server.get("/health").await.0, server.get("/live").await.0), (200, 200));
    server.good(RAW, json!({"prompt": [1], "max_tokens": 1})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n3_probes_answer_at_once_during_a_long_step() {
    let server = Server::start(json!({"token_us": 3000}), &[]).await;
    let long = server.good(RAW, json!({"prompt": vec![1; 1500], "max_tokens": 1, "ignore_eos": true}));
    let probes = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut slowest = Duration::ZERO;
        for path in ["/health", "/ready", "/live", "/startup", "/metrics", "/health"] {
            let start = Instant::now();
            assert_eq!(server.get(path).await.0, 200, "{path}");
            slowest = slowest.max(start.elapsed());
        }
        slowest
    };
    let start = Instant::now();
    let (_, slowest) = tokio::join!(long, probes);
    assert!(start.elapsed() > Duration::from_secs(3), "the step takes 4.5 s");
    // 100 ms on a machine of one's own; the step takes 45 times as long.
    assert!(slowest < Duration::from_millis(1000), "a probe took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_tells_phase_and_percent_until_the_model_is_there() {
    let server = Server::start_unready(model_dir(&says("a")), &[]).await;
    let (status, body) = server.get("/startup").await;
    if status == 503 {
        assert!(body["percent"].as_u64().unwrap() <= 100 && body["phase"].as_str().is_some(), "{body}");
    }
    server.wait_ready().await;
    assert_eq!(
        server.get("/startup").await,
        (200, json!({"status": "ready", "phase": "ready", "percent": 100}))
    );
}

/// A thousand requests that come and go at random: what is not cached is free afterwards, and a queue that holds
/// requests is never one that nothing runs from.
#[tokio::test(flavor = "multi_thread")]
async fn i3_i4_a_full_server_never_stands_still_with_requests_waiting() {
    let flags = ["--max-running-requests", "4", "--watchdog-timeout", "5", "--max-queued-requests", "4000"];
    let server = Server::start(json!({"max_pages": 12, "step_us": 200}), &flags).await;
    let ask = async |at: u64| {
        let body = json!({"prompt": vec![at % 900 + 1; 1 + (at * 37 % 300) as usize], "max_tokens": 1 + at % 40, "ignore_eos": true});
        if at.is_multiple_of(3) {
            let request = server.client.post(format!("{}{RAW}", server.base)).json(&body).send();
            // Leaves at some moment, whatever the request is at.
            let _ = tokio::time::timeout(Duration::from_millis(at % 50), request).await;
        } else {
            server.good(RAW, body).await;
        }
    };
    let all = futures_util::future::join_all((0..1000).map(ask));
    let watch = async {
        for _ in 0..20 {
            assert_ne!(server.get("/ready").await.1["status"], "stalled");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::join!(all, watch);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i12_a_prompt_larger_than_the_pool_is_refused_and_others_run() {
    let server = Server::start(json!({"max_pages": 8}), &[]).await;
    let large = json!({"prompt": vec![1; 3000], "max_tokens": 1});
    let small = json!({"prompt": [1, 2], "max_tokens": 5, "ignore_eos": true});
    let (refused, answered) = tokio::join!(server.post(RAW, large), server.good(RAW, small));
    assert_eq!((refused.0, refused.1["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
    let sentence = refused.1["error"]["message"].as_str().unwrap();
    assert!(
        sentence.contains("3000") && sentence.contains("1024"),
        "eight pages hold 1,024 tokens: {sentence}"
    );
    assert_eq!(answered["usage"]["completion_tokens"], 5);
    server.assert_no_leak().await;
}
