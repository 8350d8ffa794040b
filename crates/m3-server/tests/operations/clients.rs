//! Clients that stall or send too much, and answers that take too long.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, events, says, user};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.base.trim_start_matches("http://")).await.unwrap()
}

/// Everything until the server closes.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await;
    // A reset is an end too.
    let _ = read.expect("the server lets a stalled client go");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_or_a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::start(says("a"), &["--client-timeout", "0.4"]).await;
    let start = Instant::now();
    let mut head = connect(&server).await;
    head.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\nx-a: ").await.unwrap();
    let mut body = connect(&server).await;
    let begun = format!(
        "POST {RAW} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    body.write_all(begun.as_bytes()).await.unwrap();
    let (head, body) = tokio::join!(read_all(&mut head), read_all(&mut body));
    assert!(!head.contains("200 OK"), "{head}");
    assert!(body.starts_with("HTTP/1.1 408") && body.contains("slow_client"), "{body}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_is_given_up_like_one_that_stalls() {
    let server = Server::start(says("a"), &["--client-timeout", "0.5"]).await;
    let mut stream = connect(&server).await;
    let head = format!(
        "POST {RAW} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let start = Instant::now();
    // A byte every tenth of a second is never silent for long, and never ends either.
    while start.elapsed() < Duration::from_secs(20) {
        let mut answer = [0; 64];
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut answer)).await;
        if let Ok(read) = read {
            let text = String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned();
            assert!(text.starts_with("HTTP/1.1 408"), "{text}");
            return;
        }
        if stream.write_all(b" ").await.is_err() {
            return;
        }
    }
    panic!("a trickling client was waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_large_are_431() {
    let server = Server::start(says("a"), &["--max-header-bytes", "8192"]).await;
    let get = |headers: Vec<(String, String)>| {
        let request = server.client.get(format!("{}/live", server.base));
        headers.into_iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    let large = vec![("x-large".to_owned(), "a".repeat(20_000))];
    let many = (0..200).map(|at| (format!("x-{at}"), "a".to_owned())).collect();
    for headers in [large, many] {
        assert_eq!(get(headers).await.unwrap().status(), 431);
    }
    assert_eq!(get(vec![("x-small".to_owned(), "a".repeat(2000))]).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_of_its_answer_is_let_go() {
    let flags = ["--client-timeout", "0.5", "--stream-buffer", "1048576"];
    let server = Server::start(json!({"step_us": 200}), &flags).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream =
        socket.connect(server.base.trim_start_matches("http://").parse().unwrap()).await.unwrap();
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 30_000, "ignore_eos": true, "stream": true, "logprobs": 20}).to_string();
    let head = format!(
        "POST {RAW} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let start = Instant::now();
    while server.metric("m3_requests_aborted_total", "").await < 1.0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the request of a client that never reads goes on"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_too_long_is_504_or_ends_with_an_error() {
    let server = Server::start(json!({"step_us": 5000}), &["--request-timeout", "0.5"]).await;
    let body = json!({"prompt": [1], "max_tokens": 30_000, "ignore_eos": true});
    let start = Instant::now();
    let (status, answer) = server.post(RAW, body.clone()).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (504, Some("deadline_exceeded")), "{answer}");
    let events = events(&server.stream_text(RAW, body).await);
    assert_eq!(events.last().unwrap()["error"]["code"], "deadline_exceeded");
    assert!(events.len() > 2, "what was there in time was sent");
    assert!(start.elapsed() < Duration::from_secs(10));
    server.assert_no_leak().await;
    assert_eq!(
        server.good(CHAT, json!({"messages": user("x"), "max_tokens": 2})).await["usage"]["completion_tokens"],
        2
    );
}

/// Every prompt is a nonce, and the scripted backend's tokens are a hash of the prompt: an answer of another's is no
/// other stream's own.
#[tokio::test(flavor = "multi_thread")]
async fn n12_a_thousand_streams_at_once_each_get_their_own_answer() {
    const STREAMS: u32 = 1000;
    let flags = ["--max-running-requests", "128", "--max-queued-requests", "2000"];
    let server = Server::start(json!({}), &flags).await;
    let body = |at: u32| {
        let nonce = [at % 199, at / 199, 7, at * 31 % 199];
        json!({"prompt": nonce, "max_tokens": 6, "temperature": 0, "ignore_eos": true, "return_token_ids": true})
    };
    let mut quiet = Vec::new();
    for at in 0..STREAMS {
        quiet.push(server.good(RAW, body(at)).await["choices"][0]["token_ids"].clone());
    }
    let different: std::collections::HashSet<String> = quiet.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), quiet.len(), "no two nonces have one answer");
    let ask = async |at: u32| {
        let events = server.stream(RAW, body(at)).await;
        let ids = events
            .iter()
            .flat_map(|event| event["choices"][0]["token_ids"].as_array().cloned().unwrap_or_default());
        Value::Array(ids.collect())
    };
    let answers = futures_util::future::join_all((0..STREAMS).map(ask)).await;
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, quiet[at], "stream {at}");
    }
    server.assert_no_leak().await;
}
