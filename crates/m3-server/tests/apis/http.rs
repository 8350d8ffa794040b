//! Methods, paths, bodies and packets: what does not depend on the API.

use serde_json::{Value, json};

use crate::support::{EOS, Server, events, ids, says, user};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_methods_paths_and_bodies_have_the_shape_of_their_api() {
    let server = Server::start(says("a"), &["--max-body-mb", "1"]).await;
    let send = async |method: &str, path: &str, kind: &str, body: Vec<u8>| {
        let request = server.client.request(method.parse().unwrap(), format!("{}{path}", server.base));
        let response = request.header("content-type", kind).body(body).send().await.unwrap();
        let status = response.status().as_u16();
        let allow = response.headers().get("allow").map(|allow| allow.to_str().unwrap().to_owned());
        (status, allow, response.json::<Value>().await.unwrap_or_default())
    };
    let large = format!("{{\"x\":\"{}\"}}", "a".repeat(1 << 20)).into_bytes();
    for path in
        ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/generate", "/tokenize", "/detokenize"]
    {
        for (method, kind, body, expected) in [
            ("DELETE", "application/json", b"{}".to_vec(), 405),
            ("POST", "text/plain", b"{}".to_vec(), 415),
            ("POST", "application/json", b"{".to_vec(), 400),
            ("POST", "application/json", b"[]".to_vec(), 400),
            ("POST", "application/json", b"{\"a\":1,\"a\":2}".to_vec(), 400),
            ("POST", "application/json", large.clone(), 413),
        ] {
            let (status, allow, answer) = send(method, path, kind, body).await;
            assert_eq!(status, expected, "{method} {path}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().len() > 5, "{method} {path}: {answer}");
            assert_eq!(answer["type"] == "error", path == "/v1/messages", "{answer}");
            assert_eq!(allow.is_some(), expected == 405);
        }
        let (status, allow, _) = send("OPTIONS", path, "application/json", Vec::new()).await;
        assert_eq!(
            (status, allow.as_deref().is_some_and(|allow| allow.contains("POST"))),
            (204, true),
            "{path}"
        );
        assert_eq!(
            send("POST", &format!("{path}/nothing/at/all"), "application/json", b"{}".to_vec()).await.0,
            404
        );
    }
    for path in [
        "/v1/responses/%FF",
        "/v1/models/%FF",
        "/v1/responses/x?stream=maybe",
        "/v1/responses/x/input_items?limit=-1",
    ] {
        let (status, _, answer) = send("GET", path, "application/json", Vec::new()).await;
        assert_eq!(
            (status, answer["error"]["type"].as_str()),
            (400, Some("invalid_request_error")),
            "{path}: {answer}"
        );
    }
    let head = server.client.head(format!("{}/health", server.base)).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(server.client.head(format!("{}/nothing", server.base)).send().await.unwrap().status(), 404);
    assert_eq!(send("OPTIONS", "/nothing", "application/json", Vec::new()).await.0, 404);
}

/// The packet table of M3's format check, end to end: a scripted answer of many short tokens at 8 ms a step.
#[tokio::test(flavor = "multi_thread")]
async fn streamed_packets_are_neither_crumbs_nor_lumps() {
    let words: String = (0..200).map(|at| format!("word{at} 汉字 ")).collect();
    let script = json!({"script": ids(&words), "eos": EOS, "step_us": 3000});
    let body = json!({"messages": user("x"), "temperature": 0});
    let sizes = |events: &[Value]| -> Vec<usize> {
        let content = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        content.map(|text| text.chars().count()).filter(|size| *size > 0).collect()
    };
    let server = Server::start(script.clone(), &[]).await;
    let streamed = server.stream("/v1/chat/completions", body.clone()).await;
    let shaped = sizes(&streamed);
    let tiny = shaped.iter().filter(|size| **size < 5).count() as f64 / shaped.len() as f64;
    assert!(tiny <= 0.05 && shaped.iter().all(|size| *size <= 200), "{shaped:?}");
    let joined: String =
        streamed.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, words);
    let off = Server::start(script, &["--stream-gather-ms", "0"]).await;
    let single = sizes(&off.stream("/v1/chat/completions", body).await);
    assert!(
        single.len() > shaped.len() * 3,
        "{} packets, {} when every token is sent",
        shaped.len(),
        single.len()
    );
    assert_eq!(single.iter().sum::<usize>(), shaped.iter().sum::<usize>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_gets_comments_before_and_between_tokens() {
    let slow = json!({"script": ids("one two"), "eos": EOS, "step_us": 300_000});
    let server = Server::start(slow, &["--heartbeat-secs", "0.1"]).await;
    let text = server.stream_text("/v1/chat/completions", json!({"messages": user("x")})).await;
    assert!(text.starts_with(": heartbeat\n\n"), "{text}");
    assert!(text.matches(": heartbeat").count() >= 3, "{text}");
    assert!(events(&text).len() >= 2);
    assert!(text.ends_with("data: [DONE]\n\n"));
}
