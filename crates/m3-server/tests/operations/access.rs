//! Keys, the admin's port, limits, TLS and other origins.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::free_port;
use crate::support::{Server, says, user};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";

async fn status(server: &Server, method: &str, path: &str, key: Option<&str>) -> (u16, HeaderMap, Value) {
    let request = server.client.request(method.parse().unwrap(), format!("{}{path}", server.base));
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    let response = request.json(&json!({})).send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.json().await.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_what_changes_the_server_needs_its_own_key() {
    let with_both = Server::start(says("a"), &["--api-key", "user", "--admin-api-key", "admin"]).await;
    let with_one = Server::start(says("a"), &["--api-key", "user"]).await;
    let admin = [
        "/flush_cache",
        "/reset_prefix_cache",
        "/abort_request",
        "/configure_logging",
        "/admin/log_level",
        "/admin/drain",
        "/admin/resume",
        "/admin/nothing",
    ];
    for path in admin {
        for key in [None, Some("user"), Some("adminx"), Some("")] {
            let (code, headers, body) = status(&with_both, "POST", path, key).await;
            assert_eq!(
                (code, body["error"]["code"].as_str()),
                (401, Some("invalid_api_key")),
                "{path} {key:?}"
            );
            assert_eq!(headers["www-authenticate"], "Bearer");
        }
        let (code, ..) = status(&with_both, "POST", path, Some("admin")).await;
        assert!(![401, 403].contains(&code), "{path} {code}");
        let (code, _, body) = status(&with_one, "POST", path, Some("user")).await;
        assert_eq!((code, body["error"]["code"].as_str()), (403, Some("admin_only")), "{path}: {body}");
    }
    // There is nothing that loads code or unpickles, with whatever key.
    for path in [
        "/load_lora_adapter_from_tensors",
        "/update_weights_from_tensor",
        "/load_lora_adapter",
        "/v1/load_lora_adapter",
    ] {
        assert_eq!(status(&with_both, "POST", path, Some("admin")).await.0, 401, "{path}");
        assert_eq!(status(&with_both, "POST", path, Some("user")).await.0, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_metrics_move_to_the_admin_s_port_and_name_no_tenant() {
    let port = free_port();
    let server = Server::start(says("a"), &["--admin-port", &port, "--api-key", "key-of-a-tenant"]).await;
    let admin = format!("http://127.0.0.1:{port}");
    let asked = server.client.post(format!("{}{CHAT}", server.base)).bearer_auth("key-of-a-tenant");
    let asked = asked
        .header("x-request-id", "tenant-7-request")
        .json(&json!({"messages": user("a secret"), "user": "tenant-7"}));
    assert_eq!(asked.send().await.unwrap().status(), 200);
    for path in ["/metrics", "/flush_cache", "/admin/drain"] {
        let (code, _, body) = status(&server, "GET", path, Some("key-of-a-tenant")).await;
        assert_eq!((code, body["error"]["code"].as_str()), (404, Some("not_found")), "{path}");
    }
    let get = async |path: &str| {
        let response =
            server.client.get(format!("{admin}{path}")).bearer_auth("key-of-a-tenant").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (code, text) = get("/metrics").await;
    assert_eq!(code, 200);
    assert!(text.contains("m3_requests_total{model_name=\"nano\"} 1\n"), "{text}");
    for private in ["tenant", "key-of", "secret", "127.0.0.1"] {
        assert!(!text.contains(private), "{private} in {text}");
    }
    assert_eq!((get("/live").await.0, get("/v1/models").await.0), (200, 404));
    let drained = server.client.post(format!("{admin}/admin/drain")).send().await.unwrap();
    assert_eq!(drained.json::<Value>().await.unwrap(), json!({"draining": true, "running": 0}));
    assert_eq!(server.get("/ready").await.1["status"], "draining");
    assert_eq!(server.client.post(format!("{admin}/admin/resume")).send().await.unwrap().status(), 200);
    assert_eq!(server.get("/ready").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_a_rate_are_429_with_when_to_come_again() {
    let flags = ["--api-key", "a", "--api-key", "b", "--key-rate-limit", "3/min", "--rate-limit", "5/min"];
    let server = Server::start(says("x"), &flags).await;
    let ask = async |key: &str| {
        let request = server.client.post(format!("{}{RAW}", server.base)).bearer_auth(key);
        let response = request.json(&json!({"prompt": [1], "max_tokens": 1})).send().await.unwrap();
        let wait = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), wait, response.json::<Value>().await.unwrap())
    };
    for _ in 0..3 {
        assert_eq!(ask("a").await.0, 200);
    }
    let (code, wait, body) = ask("a").await;
    assert_eq!((code, body["error"]["code"].as_str()), (429, Some("rate_limit_exceeded")));
    assert_eq!(body["error"]["type"], "rate_limit_error");
    assert!((1..=20).contains(&wait.unwrap().parse::<u32>().unwrap()));
    assert!(
        body["error"]["message"].as_str().unwrap().starts_with("this key is limited to 3 requests in 60 s")
    );
    assert_eq!((ask("b").await.0, ask("b").await.0), (200, 200));
    assert!(
        ask("b").await.2["error"]["message"].as_str().unwrap().starts_with("this server is limited to 5")
    );
    assert_eq!(status(&server, "GET", "/v1/models", Some("a")).await.0, 200, "only work is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_are_counted_until_the_last_byte_is_out() {
    let server = Server::start(json!({"step_us": 20_000}), &["--key-max-concurrent-requests", "2"]).await;
    let long = json!({"prompt": [1], "max_tokens": 30_000, "ignore_eos": true, "stream": true});
    let open = async || server.client.post(format!("{}{RAW}", server.base)).json(&long).send().await.unwrap();
    let (first, second) = (open().await, open().await);
    let third = open().await;
    assert_eq!(
        (first.status(), second.status(), third.status().as_u16()),
        (reqwest::StatusCode::OK, reqwest::StatusCode::OK, 429)
    );
    assert_eq!(third.json::<Value>().await.unwrap()["error"]["code"], "concurrency_limit_exceeded");
    drop(first);
    for _ in 0..200 {
        if open().await.status() == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the place of a client that left was not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_origins_may_ask_only_when_they_were_named() {
    let closed = Server::start(says("a"), &[]).await;
    let open =
        Server::start(says("a"), &["--allowed-origins", "[\"https://chat.example\"]", "--api-key", "k"])
            .await;
    let preflight = async |server: &Server, origin: &str| {
        let request = server.client.request("OPTIONS".parse().unwrap(), format!("{}{CHAT}", server.base));
        let request = request.header("origin", origin).header("access-control-request-method", "POST");
        let request = request.header("access-control-request-headers", "authorization,content-type");
        let response = request.send().await.unwrap();
        let named = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        (named("access-control-allow-origin"), named("access-control-allow-headers"))
    };
    assert_eq!(preflight(&closed, "https://chat.example").await, (None, None));
    let (origin, headers) = preflight(&open, "https://chat.example").await;
    assert_eq!(origin.as_deref(), Some("https://chat.example"));
    assert!(headers.unwrap().contains("authorization"));
    assert_eq!(preflight(&open, "https://evil.example").await.0, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_every_port_speaks_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let flags = [
        "--ssl-certfile",
        certificate.to_str().unwrap(),
        "--ssl-keyfile",
        key.to_str().unwrap(),
        "--admin-port",
        &port,
    ];
    let server = Server::start_unready(crate::support::model_dir(&says("a")), &flags).await;
    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let main = server.base.rsplit(':').next().unwrap().to_owned();
    for port in [main, port] {
        let response = client.get(format!("https://localhost:{port}/live")).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(
            server.client.get(format!("http://localhost:{port}/live")).send().await.is_err(),
            "plain text is not answered"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_request() {
    let server = Server::start(says("a"), &[]).await;
    for (path, given) in [("/v1/models", Some("mine-3")), ("/nowhere", Some("mine-4")), ("/health", None)] {
        let request = server.client.get(format!("{}{path}", server.base));
        let request = given.into_iter().fold(request, |request, id| request.header("x-request-id", id));
        let response = request.send().await.unwrap();
        let named = response.headers()["x-request-id"].to_str().unwrap().to_owned();
        assert!(given.map_or(named.len() == 32, |given| named == given), "{path}: {named}");
    }
}
