//! The server over the scripted backend, in this process, asked over HTTP.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use m3_server::args::{Options, parse};
use m3_server::backends::Linked;
use m3_server::serve::serve_until;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

inventory::submit! {
    Linked(backend_null::LINKED)
}

/// Longest time for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(40);

/// The tests' random model.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano")
}

/// A running server; it ends with the value.
pub struct Server {
    runtime: Option<Runtime>,
    base: String,
    client: reqwest::Client,
    stop: mpsc::Sender<()>,
    task: Option<JoinHandle<Result<()>>>,
    _dir: TempDir,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// HTTP's status.
    pub status: u16,
    /// The body's type as the header has it.
    pub content_type: String,
    /// The body.
    pub text: String,
}

impl Reply {
    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Server {
    /// Starts one whose config has `null` under `m3_null`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(null: &Value, flags: &[&str]) -> Result<Self> {
        let dir = model_dir(null)?;
        let model = dir.path().to_str().context("the temporary folder's path is not UTF-8")?;
        let fixed = ["serve", model, "--backend", "null", "--port", "0", "--served-model-name", "nano"];
        let words: Vec<String> = fixed.iter().chain(flags).map(|word| (*word).to_owned()).collect();
        let options = Options::read(&parse(&words).map_err(|error| anyhow!("{error}"))?)
            .map_err(|error| anyhow!("{error}"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stop, stops) = mpsc::channel(4);
        let (bound, address) = oneshot::channel();
        let task = runtime.spawn(serve_until(options, move |address| _ = bound.send(address), stops));
        let base =
            format!("http://{}", runtime.block_on(address).context("the server did not open its port")?);
        // The media fetcher has reqwest built without a choice of cryptography; a second server finds it made.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(ANSWER_TIME).build()?;
        let server = Server { runtime: Some(runtime), base, client, stop, task: Some(task), _dir: dir };
        let begun = Instant::now();
        while server.send("GET", "/ready", Vec::new())?.status != 200 {
            if begun.elapsed() > ANSWER_TIME {
                bail!("the server was not ready after {ANSWER_TIME:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Sends one request and reads the whole answer.
    ///
    /// # Errors
    /// When no whole answer comes.
    pub fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Result<Reply> {
        let runtime = self.runtime.as_ref().context("the server has ended")?;
        let request = self.client.request(method.parse()?, format!("{}{path}", self.base));
        let request = request.header("content-type", "application/json").body(body);
        runtime.block_on(async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            let header =
                response.headers().get("content-type").map(|value| value.to_str().map(str::to_owned));
            let content_type = header.transpose()?.unwrap_or_default();
            let bytes = response.bytes().await?;
            let text = String::from_utf8(bytes.to_vec()).context("the answer is not UTF-8")?;
            Ok(Reply { status, content_type, text })
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (Some(runtime), Some(task)) = (self.runtime.take(), self.task.take()) else { return };
        let stop = self.stop.clone();
        let ended = runtime.block_on(async move {
            // A server that has ended by itself listens no more.
            let _ = stop.send(()).await;
            tokio::time::timeout(ANSWER_TIME, task).await
        });
        if !matches!(ended, Ok(Ok(Ok(())))) {
            eprintln!("the server did not end well: {ended:?}");
        }
        runtime.shutdown_background();
    }
}

/// The bundled folder with another config; the weights are linked.
fn model_dir(null: &Value) -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    for entry in std::fs::read_dir(bundled())? {
        let path = entry?.path().canonicalize()?;
        let name = path.file_name().unwrap_or_default().to_owned();
        if name == "config.json" {
            let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            config["m3_null"] = null.clone();
            std::fs::write(dir.path().join(name), config.to_string())?;
        } else {
            std::os::unix::fs::symlink(&path, dir.path().join(name))?;
        }
    }
    Ok(dir)
}
