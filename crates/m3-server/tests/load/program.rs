//! `m3 serve` as a process whose memory, counters and end can be looked at.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support;

/// What is served by what.
pub(crate) enum Model {
    /// Scripted tokens with these settings, by the plugin beside the program.
    Null(Value),
    /// The trained miniature on the CPU.
    Trained,
}

pub(crate) struct Program {
    child: Mutex<Child>,
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    _model: Option<TempDir>,
    /// Standard error, unless it was sent elsewhere.
    log: Option<PathBuf>,
    _folder: TempDir,
}

impl Program {
    /// A ready server on a free port.
    pub(crate) async fn start(model: Model, flags: &[&str]) -> Self {
        Self::start_in(Command::new(env!("CARGO_BIN_EXE_m3")), model, flags, None).await
    }

    /// The same, where `command` ends in the program's path and `log` gets standard error.
    pub(crate) async fn start_in(
        mut command: Command,
        model: Model,
        flags: &[&str],
        log: Option<File>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, backend, kept) = match model {
            Model::Null(settings) => {
                let dir = support::model_dir(&settings);
                (dir.path().to_owned(), plugin(), Some(dir))
            }
            Model::Trained => (root().join("models/m3-nano"), "cpu".to_owned(), None),
        };
        command.arg("serve").arg(path).args(["--backend", &backend, "--served-model-name", "nano"]);
        if !flags.contains(&"--port") {
            command.args(["--port", "0"]);
        }
        command.args(flags).env_remove("M3_LOG").env_remove("M3_API_KEY").env_remove("M3_ADMIN_API_KEY");
        let path = folder.path().join("log");
        let kept_log = log.is_none().then(|| path.clone());
        let log = log.unwrap_or_else(|| File::create(path).unwrap());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let base = address(child.stdout.take().unwrap());
        let program = Program {
            child: Mutex::new(child),
            base,
            client: support::client(),
            _model: kept,
            log: kept_log,
            _folder: folder,
        };
        program.wait_for("/ready", 200).await;
        program
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child().id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.as_ref().map_or_else(String::new, |path| std::fs::read_to_string(path).unwrap())
    }

    pub(crate) async fn status(&self, path: &str) -> u16 {
        let answer = self.client.get(format!("{}{path}", self.base)).send().await;
        answer.map_or(0, |answer| answer.status().as_u16())
    }

    pub(crate) async fn wait_for(&self, path: &str, status: u16) -> Duration {
        let start = Instant::now();
        while self.status(path).await != status {
            let ended = self.child().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended with {ended:?}: {}", self.log());
            assert!(start.elapsed() < Duration::from_secs(120), "{path} is not {status}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        start.elapsed()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.client.post(format!("{}{path}", self.base)).json(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or(Value::Null))
    }

    /// The first sample whose line starts with `name` and contains `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> f64 {
        // The tenant's key opens it where there are keys.
        let asked = self.client.get(format!("{}/metrics", self.base)).bearer_auth("tenant");
        let text = asked.send().await.unwrap();
        let text = text.text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// `post` with a key.
    pub(crate) async fn keyed(&self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let sent = self.client.post(format!("{}{path}", self.base)).bearer_auth(key).json(body).send();
        let answer = sent.await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or(Value::Null))
    }

    /// MiB of memory that are its own or mapped, as Linux counts them.
    pub(crate) fn resident_mib(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says how much");
        line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() / 1024.0
    }

    /// Waits until nothing runs; then no page is lent, and once the cache is empty every page is free.
    pub(crate) async fn idle_pages(&self) -> Value {
        let start = Instant::now();
        let busy = async || {
            self.metric("m3_pages{", "leased").await
                + self.metric("m3_requests_running", "").await
                + self.metric("m3_requests_waiting", "").await
        };
        while busy().await > 0.0 {
            assert!(start.elapsed() < Duration::from_secs(60), "pages are lent although nothing is asked");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let cached = self.metric("m3_pages{", "cached").await;
        let (status, answer) = self.post("/flush_cache", &json!({})).await;
        assert_eq!(status, 200, "{answer}");
        let page = async |state: &str| self.metric("m3_pages{", state).await;
        let (free, total) = (page("free").await, self.metric("m3_pages_total", "").await);
        assert_eq!((page("leased").await, page("cached").await, free), (0.0, 0.0, total));
        json!({"total": total, "cached_before_the_flush": cached, "in_use_after_it": total - free})
    }

    /// Ends it without a word.
    pub(crate) fn kill(&self) {
        let mut child = self.child();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks it to end; gives its exit code and how long that took.
    pub(crate) fn stop(&self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        kill_process(Pid::from_child(&self.child()), Signal::TERM).unwrap();
        loop {
            if let Some(status) = self.child().try_wait().unwrap() {
                return (status.code(), start.elapsed());
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already where the test ended it.
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn address(output: ChildStdout) -> String {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    // Nobody may be left who cannot write.
    std::thread::spawn(move || output.read_to_end(&mut Vec::new()));
    line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("no address: {line}")).to_owned()
}

fn plugin() -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_m3")).with_file_name("libm3_backend_null.so");
    assert!(path.exists(), "{} is missing: cargo build -p backend-null-plugin", path.display());
    path.to_str().unwrap().to_owned()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
