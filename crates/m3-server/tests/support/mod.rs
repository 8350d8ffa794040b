//! A server over the scripted backend, in this process, for one test. The model is the bundled one with a script in
//! its config, so that template, tokenizer and checkpoint are real and only the arithmetic is not.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "every test file uses another part")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use m3_core::text::tokenizer::Tokenizer;
use m3_server::args::{Options, parse};
use m3_server::backends::Linked;
use m3_server::serve::serve_until;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

inventory::submit! {
    Linked(backend_null::LINKED)
}

/// End of message in the bundled model's vocabulary.
pub const EOS: u32 = 980;

pub struct Server {
    pub base: String,
    pub client: reqwest::Client,
    pub stop: mpsc::Sender<()>,
    pub task: JoinHandle<anyhow::Result<()>>,
    pub dir: TempDir,
}

/// A client of its own, with its own connections.
pub fn client() -> reqwest::Client {
    m3_server::tls::provide();
    reqwest::Client::new()
}

pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano")
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_dir(&bundled()).unwrap()
}

/// Token ids of text in which markers are markers.
pub fn ids(text: &str) -> Vec<u32> {
    tokenizer().encode_special(text).unwrap()
}

/// A script that says `text` and ends the turn.
pub fn says(text: &str) -> Value {
    json!({"script": ids(text), "eos": EOS})
}

/// The bundled model's folder with `m3_null` in its config; the weights are linked, not copied.
pub fn model_dir(null: &Value) -> TempDir {
    model_dir_with(|config| config["m3_null"] = null.clone())
}

/// The bundled model's folder with a changed config.
pub fn model_dir_with(change: impl Fn(&mut Value)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(bundled()).unwrap() {
        let path = entry.unwrap().path().canonicalize().unwrap();
        let name = path.file_name().unwrap().to_owned();
        if name == "config.json" {
            let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            change(&mut config);
            std::fs::write(dir.path().join(name), config.to_string()).unwrap();
        } else {
            std::os::unix::fs::symlink(&path, dir.path().join(name)).unwrap();
        }
    }
    dir
}

impl Server {
    /// A ready server with a free port; `flags` as on the command line.
    pub async fn start(null: Value, flags: &[&str]) -> Self {
        let server = Self::start_unready(model_dir(&null), flags).await;
        server.wait_ready().await;
        server
    }

    pub async fn start_unready(dir: TempDir, flags: &[&str]) -> Self {
        let model = dir.path().to_str().unwrap();
        let fixed = ["serve", model, "--backend", "null", "--port", "0", "--served-model-name", "nano"];
        let words: Vec<String> = fixed.iter().chain(flags).map(|word| (*word).to_owned()).collect();
        let options = Options::read(&parse(&words).unwrap()).unwrap();
        let (stop, stops) = mpsc::channel(4);
        let (address_in, address) = oneshot::channel();
        let task = tokio::spawn(serve_until(options, move |bound| address_in.send(bound).unwrap(), stops));
        let base = format!("http://{}", address.await.unwrap());
        Server { base, client: client(), stop, task, dir }
    }

    pub async fn wait_ready(&self) {
        let start = Instant::now();
        while self.get("/ready").await.0 != 200 {
            assert!(start.elapsed() < Duration::from_secs(60), "not ready: {:?}", self.get("/ready").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.client.get(format!("{}{path}", self.base)).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.client.post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    /// The answer to a good request.
    pub async fn good(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The whole text of a stream.
    pub async fn stream_text(&self, path: &str, mut body: Value) -> String {
        body["stream"] = true.into();
        let response = self.client.post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        response.text().await.unwrap()
    }

    /// The events of a stream, which must end in `[DONE]`.
    pub async fn stream(&self, path: &str, body: Value) -> Vec<Value> {
        events(&self.stream_text(path, body).await)
    }

    pub async fn metrics(&self) -> String {
        self.client.get(format!("{}/metrics", self.base)).send().await.unwrap().text().await.unwrap()
    }

    /// The first sample whose line starts with `name` and contains `label`.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics().await;
        let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
        let line = line.unwrap_or_else(|| panic!("no {name} {label} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until nothing runs, then checks that every page is accounted for.
    pub async fn assert_no_leak(&self) {
        let start = Instant::now();
        loop {
            let leased = self.metric("m3_pages{", "leased").await;
            let running = self.metric("m3_requests_running", "").await;
            let waiting = self.metric("m3_requests_waiting", "").await;
            if leased + running + waiting == 0.0 {
                break;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{leased} pages leased, {running} running, {waiting} waiting"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let free = self.metric("m3_pages{", "free").await;
        let cached = self.metric("m3_pages{", "cached").await;
        assert_eq!(free + cached, self.metric("m3_pages_total", "").await);
    }
}

/// Events of a stream's text without comments.
pub fn events(text: &str) -> Vec<Value> {
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().expect("a stream has events");
    assert_eq!(*last, "[DONE]");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Folds a stream as a client does.
pub fn fold(events: &[Value], index: u64) -> Value {
    let mut message = json!({"role": null, "content": null, "reasoning_content": null, "tool_calls": []});
    let mut finish = Value::Null;
    let append = |slot: &mut Value, text: &Value| {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            *slot = format!("{}{text}", slot.as_str().unwrap_or("")).into();
        }
    };
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    for choice in choices.filter(|choice| choice["index"] == index) {
        let delta = &choice["delta"];
        if delta["role"].is_string() {
            assert!(message["role"].is_null(), "the role comes once");
            message["role"] = delta["role"].clone();
        }
        assert!(message["role"].is_string(), "the role comes first");
        assert!(delta["content"].as_str().unwrap_or("").is_empty() || delta["reasoning_content"].is_null());
        append(&mut message["content"], &delta["content"]);
        append(&mut message["reasoning_content"], &delta["reasoning_content"]);
        for call in delta["tool_calls"].as_array().unwrap_or(&Vec::new()) {
            let calls = message["tool_calls"].as_array_mut().unwrap();
            if call["id"].is_string() {
                assert_eq!(call["function"]["arguments"], "", "the name comes before the arguments");
                calls.push(json!({"name": call["function"]["name"], "arguments": ""}));
            }
            append(
                &mut calls[call["index"].as_u64().unwrap() as usize]["arguments"],
                &call["function"]["arguments"],
            );
        }
        if choice["finish_reason"].is_string() {
            assert!(finish.is_null(), "one finish reason");
            finish = choice["finish_reason"].clone();
        }
    }
    json!({"message": message, "finish_reason": finish})
}

pub fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// The shared folder when the released files lie in it; says loudly when they do not.
pub fn shared_data() -> Option<PathBuf> {
    m3_testdata::shared("tokenizer.reconstructed.json")
}
