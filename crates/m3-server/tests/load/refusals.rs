//! Kinds of bad request, each with its status and sentence, and beside each a good request that must not notice.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::asking::{APIS, Ask, Came};
use crate::program::{Model, Program};
use crate::{echo, record, size};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";
const KEYS: [&str; 4] = ["--api-key", "tenant", "--admin-api-key", "admin"];

/// A bad request as it goes over the wire, and what must come back.
pub(crate) struct Bad {
    pub(crate) kind: &'static str,
    method: &'static str,
    path: &'static str,
    /// Besides `Host`, `Connection` and the body's length.
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    status: u16,
    /// A part of the answer's sentence; empty where HTTP itself was broken and nothing more can be said.
    sentence: &'static str,
}

fn bad(kind: &'static str, path: &'static str, body: impl Into<Vec<u8>>, answer: (u16, &'static str)) -> Bad {
    let headers =
        vec![("authorization", "Bearer tenant".to_owned()), ("content-type", "application/json".to_owned())];
    Bad { kind, method: "POST", path, headers, body: body.into(), status: answer.0, sentence: answer.1 }
}

fn chat(kind: &'static str, change: Value, answer: (u16, &'static str)) -> Bad {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4});
    for (name, value) in change.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    bad(kind, CHAT, body.to_string(), answer)
}

fn raw(kind: &'static str, body: &Value, answer: (u16, &'static str)) -> Bad {
    bad(kind, RAW, body.to_string(), answer)
}

fn with_headers(mut bad: Bad, headers: &[(&'static str, &str)]) -> Bad {
    bad.headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    bad
}

/// Wrong as HTTP or JSON, or asked by somebody who may not.
fn outer() -> Vec<Bad> {
    let good = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let json_only = ("content-type", "application/json");
    let asked = |kind, path, key: &'static str, answer| {
        with_headers(bad(kind, path, good.clone(), answer), &[("authorization", key), json_only])
    };
    let get = |kind, path, answer| Bad { method: "GET", ..bad(kind, path, "", answer) };
    let many: Vec<(&str, String)> = (0..200).map(|_| ("x-filler", "y".to_owned())).collect();
    vec![
        bad("no JSON", RAW, "{\"prompt\": ", (400, "EOF while parsing")),
        bad("JSON that is no object", RAW, "[1, 2]", (400, "object")),
        bad("a key twice", RAW, r#"{"prompt": "x", "prompt": "y"}"#, (400, "prompt")),
        bad("nested too deep", RAW, "[".repeat(4000), (400, "recursion")),
        bad("no UTF-8", RAW, b"{\"prompt\": \"\xff\xfe\"}".as_slice(), (400, "unicode")),
        with_headers(
            bad("no JSON by its type", RAW, good.clone(), (415, "application/json")),
            &[("authorization", "Bearer tenant"), ("content-type", "text/plain")],
        ),
        bad("a body that is too large", RAW, vec![b' '; 1_100_000], (413, "1048576")),
        bad("no such route", "/v1/nothing", "{}", (404, "/v1/nothing")),
        get("a wrong method", RAW, (405, "does not take GET")),
        with_headers(bad("no key", RAW, good.clone(), (401, "API key")), &[json_only]),
        asked("a wrong key", RAW, "Bearer tenanx", (401, "API key")),
        asked("a tenant at the admin's door", "/flush_cache", "Bearer tenant", (401, "admin key")),
        Bad { headers: many, ..bad("too many header fields", RAW, good.clone(), (431, "")) },
    ]
}

/// Wrong in what is asked.
fn inner() -> Vec<Bad> {
    let tool = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let image = |url: &str| json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]});
    let result =
        json!([{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "y"}]);
    vec![
        chat("a field nobody knows", json!({"temprature": 1}), (400, "temprature")),
        chat("another model", json!({"model": "gpt"}), (404, "gpt")),
        chat("messages of the wrong type", json!({"messages": "hello"}), (400, "messages")),
        chat("no messages", json!({"messages": []}), (400, "messages")),
        chat(
            "a role nobody knows",
            json!({"messages": [{"role": "wizard", "content": "x"}]}),
            (400, "wizard"),
        ),
        chat("a temperature out of range", json!({"temperature": 5}), (400, "temperature")),
        chat("a top_p out of range", json!({"top_p": 1.5}), (400, "top_p")),
        chat("too many answers", json!({"n": 129}), (400, "128")),
        chat("more tokens than the context has", json!({"max_tokens": 100_000_000}), (400, "100000000")),
        raw("a prompt beyond the context", &json!({"prompt": vec![5; 40_000]}), (400, "context")),
        raw("a token outside of the vocabulary", &json!({"prompt": [999_999]}), (400, "999999")),
        chat("too many stop strings", json!({"stop": vec!["x"; 17]}), (400, "16")),
        chat(
            "a tool that is not there",
            json!({"tools": tool, "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            (400, "g"),
        ),
        chat(
            "a result without a call",
            json!({"messages": result}),
            (400, "no tool call of an assistant message"),
        ),
        chat(
            "a schema that is none",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "wrong"}}}}),
            (400, "type must be one of"),
        ),
        chat(
            "a setting that runs code",
            json!({"logits_processors": ["os.system"]}),
            (400, "logits_processors"),
        ),
        chat(
            "an image from elsewhere",
            image("http://169.254.169.254/latest"),
            (400, "fetches no remote media"),
        ),
        chat("an image that is none", image("data:image/png;base64,AAAA"), (400, "messages[0].content[0]")),
    ]
}

pub(crate) fn kinds() -> Vec<Bad> {
    let mut all = outer();
    all.extend(inner());
    all
}

impl Bad {
    /// Sends it over a connection of its own; gives the status and the error's sentence.
    pub(crate) async fn send(&self, base: &str) -> (u16, String) {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "content-length: {}\r\n\r\n", self.body.len()).unwrap();
        exchange(base, &[head.as_bytes(), &self.body].concat()).await
    }

    /// Whether it is as wrong on a server without keys and with the usual limits.
    pub(crate) fn needs_no_key(&self) -> bool {
        !matches!(self.status, 401 | 413)
    }

    pub(crate) async fn expect_refusal(&self, base: &str) {
        self.check(&self.send(base).await);
    }

    fn check(&self, (status, sentence): &(u16, String)) {
        assert_eq!(*status, self.status, "{}: {sentence}", self.kind);
        assert!(sentence.contains(self.sentence), "{}: {sentence:?} lacks {:?}", self.kind, self.sentence);
        assert!(sentence.len() < 1000, "{}: {} bytes of sentence", self.kind, sentence.len());
    }
}

async fn exchange(base: &str, bytes: &[u8]) -> (u16, String) {
    let mut connection = TcpStream::connect(base.trim_start_matches("http://")).await.unwrap();
    // A server may refuse before it has read all; then writing ends early.
    let _ = connection.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let start = body.find('{').unwrap_or(body.len());
    let error: Value = serde_json::Deserializer::from_str(&body[start..])
        .into_iter()
        .next()
        .and_then(Result::ok)
        .unwrap_or_default();
    (status, error["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// A body that comes a byte at a time.
async fn trickle(base: &str) -> (u16, String) {
    let mut connection = TcpStream::connect(base.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "POST {RAW} HTTP/1.1\r\nHost: server\r\nauthorization: Bearer tenant\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = connection.into_split();
    let writing = tokio::spawn(async move {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut answer = vec![0; 4096];
    let count = read.read(&mut answer).await.unwrap_or(0);
    writing.abort();
    let text = String::from_utf8_lossy(&answer[..count]).into_owned();
    (text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_bad_request_is_told_why_and_the_one_beside_it_is_unharmed() {
    let rounds = size(1u64, 10);
    let flags = [&KEYS[..], &["--max-body-mb", "1", "--client-timeout", "2"]].concat();
    let program = Program::start(Model::Null(echo(2000)), &flags).await;
    let kinds = kinds();
    let names: std::collections::BTreeSet<&str> = kinds.iter().map(|bad| bad.kind).collect();
    assert!(names.len() == kinds.len() && names.len() >= 24, "{} kinds", names.len());
    let mut number = 0;
    for round in 0..rounds {
        for bad in &kinds {
            number += 1;
            let beside =
                Ask { api: APIS[number as usize % APIS.len()], stream: round % 2 == 0, number, repeats: 2 };
            let (answer, came) =
                tokio::join!(bad.send(&program.base), beside.whole(&program.client, &program.base));
            if round == 0 {
                eprintln!("{}: {} {}", bad.kind, answer.0, answer.1);
            }
            bad.check(&answer);
            assert_eq!(came, Came::Right, "beside {}: {beside:?}", bad.kind);
        }
    }
    let beside = Ask { api: APIS[0], stream: true, number: number + 1, repeats: 2 };
    let ((status, answer), came) =
        tokio::join!(trickle(&program.base), beside.whole(&program.client, &program.base));
    assert!(status == 408 && answer.contains("slow_client"), "{answer}");
    assert_eq!(came, Came::Right);
    let (status, _) = exchange(&program.base, b"this is no HTTP\r\n\r\n").await;
    assert_eq!(status, 400);
    assert!(!program.log().contains("panicked"), "{}", program.log());
    record(
        "refusals",
        &json!({
            "kinds": kinds.len() + 2, "refused_as_they_should_be": number + 2, "good_ones_beside_them_right": number + 1,
        }),
    );
}
