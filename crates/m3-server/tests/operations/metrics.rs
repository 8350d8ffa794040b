//! `/metrics` and the dashboard over it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::process::root;
use crate::support::{Server, says, user};

const CHAT: &str = "/v1/chat/completions";

/// Names by kind.
fn kinds(text: &str) -> BTreeMap<String, String> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    heads
        .map(|head| head.split_once(' ').unwrap())
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

/// Every name of a series in a query.
fn names(query: &str) -> Vec<&str> {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = query.split(|other| !letter(other));
    words.filter(|word| ["m3_", "vllm:", "sglang:"].iter().any(|prefix| word.starts_with(prefix))).collect()
}

fn queries(panel: &Value, all: &mut Vec<String>) {
    match panel {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "expr" || name == "query" => all.push(text.to_owned()),
                    _ => queries(value, all),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, all)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_asks_only_for_what_there_is() {
    let server = Server::start(says("a"), &[]).await;
    server.good(CHAT, json!({"messages": user("x")})).await;
    assert_eq!(server.post(CHAT, json!({"messages": 3})).await.0, 400);
    let text = server.metrics().await;
    let kinds = kinds(&text);
    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(root().join("docs/grafana/m3.json")).unwrap()).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    let asked: BTreeSet<&str> = all.iter().flat_map(|query| names(query)).collect();
    assert!(asked.len() > 25, "{asked:?}");
    for name in asked {
        let bare = name.strip_suffix("_bucket").unwrap_or(name);
        let kind =
            kinds.get(bare).unwrap_or_else(|| panic!("the dashboard asks for {name}, which is not measured"));
        assert_eq!(kind == "histogram", bare != name, "{name} is a {kind}");
    }
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let (open, close) =
                (query.matches(['(', '{', '[']).count(), query.matches([')', '}', ']']).count());
            assert!(open == close && !target["refId"].is_null(), "{query}");
        }
    }
}

/// Names and labels that dashboards and routers in use rely on.
#[tokio::test(flavor = "multi_thread")]
async fn both_projects_names_are_there_with_their_labels() {
    let server = Server::start(says("a"), &[]).await;
    server.good(CHAT, json!({"messages": user("x"), "max_tokens": 5})).await;
    let text = server.metrics().await;
    let kinds = kinds(&text);
    let gauges = "sglang:num_running_reqs sglang:num_queue_reqs sglang:token_usage sglang:num_used_tokens \
        sglang:gen_throughput sglang:cache_hit_rate sglang:max_total_num_tokens sglang:page_size \
        sglang:kv_available_tokens sglang:kv_evictable_tokens sglang:utilization sglang:context_len \
        sglang:http_requests_active vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc \
        vllm:gpu_cache_usage_perc vllm:cache_config_info vllm:num_requests_waiting_by_reason";
    let counters = "sglang:prompt_tokens_total sglang:generation_tokens_total sglang:cached_tokens_total \
        sglang:num_requests_total sglang:num_aborted_requests_total sglang:http_requests_total \
        sglang:http_responses_total vllm:prompt_tokens_total vllm:generation_tokens_total vllm:request_success_total \
        vllm:num_preemptions_total vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total";
    let histograms = "sglang:time_to_first_token_seconds sglang:inter_token_latency_seconds \
        sglang:e2e_request_latency_seconds sglang:queue_time_seconds vllm:time_to_first_token_seconds \
        vllm:inter_token_latency_seconds vllm:request_time_per_output_token_seconds vllm:e2e_request_latency_seconds \
        vllm:request_queue_time_seconds vllm:request_prefill_time_seconds vllm:request_decode_time_seconds \
        vllm:request_prompt_tokens vllm:request_generation_tokens vllm:request_inference_time_seconds \
        vllm:request_params_max_tokens vllm:request_params_n";
    for (kind, list) in [("gauge", gauges), ("counter", counters), ("histogram", histograms)] {
        for name in list.split_whitespace() {
            assert_eq!(kinds.get(name).map(String::as_str), Some(kind), "{name}");
        }
    }
    let has = |line: &str| assert!(text.contains(line), "{line} is not in\n{text}");
    has("sglang:num_running_reqs{model_name=\"nano\",engine_type=\"unified\"} 0\n");
    has("vllm:num_requests_running{model_name=\"nano\",engine=\"0\"} 0\n");
    has("vllm:request_params_max_tokens_sum{model_name=\"nano\",engine=\"0\"} 5\n");
    has(
        "sglang:http_responses_total{model_name=\"nano\",engine_type=\"unified\",endpoint=\"/v1/chat/completions\",status_code=\"200\",method=\"POST\"} 1\n",
    );
    for bound in ["0.001", "0.002", "0.01", "0.025", "80"] {
        has(&format!(
            "vllm:inter_token_latency_seconds_bucket{{model_name=\"nano\",engine=\"0\",le=\"{bound}\"}}"
        ));
    }
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut seen = BTreeSet::new();
    for line in lines {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok() && seen.insert(series), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn misses_and_refusals_say_why() {
    let server = Server::start(says("a"), &["--chunked-prefill-size", "256"]).await;
    let prompt = |first: u64| json!({"prompt": (0..300).map(|at| if at < 200 { first } else { at }).collect::<Vec<_>>(), "max_tokens": 1});
    let of = async |reason: &str| server.metric("m3_prefix_misses_total", reason).await;
    server.good("/v1/completions", json!({"prompt": [1], "max_tokens": 1})).await;
    assert_eq!((of("short").await, of("new").await), (1.0, 0.0));
    server.good("/v1/completions", prompt(7)).await;
    server.good("/v1/completions", prompt(7)).await;
    assert_eq!(of("new").await, 1.0, "the second one missed nothing");
    let later: Vec<u64> = (0..300).map(|at| if at < 150 { 7 } else { 9 }).collect();
    server.good("/v1/completions", json!({"prompt": later, "max_tokens": 1})).await;
    assert_eq!(of("diverged").await, 1.0);
    assert_eq!(server.post("/v1/completions", json!({"prompt": [1], "max_tokens": -1})).await.0, 400);
    assert_eq!(server.metric("m3_refusals_total", "invalid_value").await, 1.0);
    assert!(server.metric("m3_backend_step_seconds_total", "").await > 0.0);
    assert!(server.metric("m3_memory_bytes", "pages").await > 0.0);
}

/// A collector that keeps what it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn traces_carry_the_request_s_id_and_its_sender_s_trace() {
    use std::sync::{Arc, Mutex};
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let collect = move |body: axum::body::Bytes| {
        keep.lock().unwrap().extend_from_slice(&body);
        std::future::ready(([("content-type", "application/x-protobuf")], ""))
    };
    let router = axum::Router::new().route("/v1/traces", axum::routing::post(collect));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let program = crate::process::Program::start(&["--otlp-traces-endpoint", &address], &[]);
    let client = crate::support::client();
    program.wait_ready(&client).await;
    let asked = client.post(format!("{}{CHAT}", program.base)).header("x-request-id", "traced-by-me");
    let asked = asked.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let body = json!({"messages": user("hunter2"), "max_tokens": 3, "ignore_eos": true});
    assert_eq!(asked.json(&body).send().await.unwrap().status(), 200);
    program.signal();
    assert_eq!(program.end(std::time::Duration::from_secs(60)).0, Some(0));
    let kept = kept.lock().unwrap();
    let has = |bytes: &[u8]| kept.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(b"traced-by-me") && has(b"/v1/chat/completions"), "{}", String::from_utf8_lossy(&kept));
    assert!(has(b"\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c"), "the sender's trace");
    assert!(!has(b"hunter2"));
}
