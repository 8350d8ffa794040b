//! The program as a process: keys in the environment, signals, exit codes, and what its log says and does not.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::user;

const CHAT: &str = "/v1/chat/completions";

/// `m3 serve` with the bundled model on the CPU.
pub(crate) struct Program {
    child: Child,
    pub(crate) base: String,
    /// Everything it writes to its log.
    log: Receiver<String>,
}

impl Program {
    pub(crate) fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
        command.args([
            "serve",
            "--port",
            "0",
            "--backend",
            "cpu",
            "--threads",
            "1",
            "--kv-cache-memory-bytes",
            "128M",
        ]);
        command.args(flags).env_remove("M3_LOG").env_remove("M3_API_KEY").env_remove("M3_ADMIN_API_KEY");
        command.envs(variables.iter().copied()).current_dir(root());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (sender, log) = channel();
        let mut written = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = written.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let base = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Program { child, base, log }
    }

    pub(crate) fn signal(&self) {
        let id = i32::try_from(self.child.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// The exit code and the log, once it has ended by itself.
    pub(crate) fn end(mut self, limit: Duration) -> (Option<i32>, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), self.log.recv_timeout(Duration::from_secs(5)).unwrap());
            }
            assert!(start.elapsed() < limit, "the program has not ended after {limit:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) async fn wait_ready(&self, client: &reqwest::Client) {
        let start = Instant::now();
        while client
            .get(format!("{}/ready", self.base))
            .send()
            .await
            .map_or(0, |answer| answer.status().as_u16())
            != 200
        {
            assert!(start.elapsed() < Duration::from_secs(120), "not ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_a_signal_lets_streams_finish_and_the_program_ends_with_0() {
    let program = Program::start(&["--shutdown-timeout", "120"], &[]);
    let client = crate::support::client();
    program.wait_ready(&client).await;
    let body = json!({"messages": user("Count."), "max_tokens": 60, "ignore_eos": true, "stream": true});
    let streams = (0..10).map(|_| client.post(format!("{}{CHAT}", program.base)).json(&body).send());
    let mut streams = futures_util::future::join_all(streams).await;
    for stream in &mut streams {
        stream.as_mut().unwrap().chunk().await.unwrap();
    }
    program.signal();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let ready = client.get(format!("{}/ready", program.base)).send().await.unwrap();
    assert_eq!(
        (ready.status().as_u16(), ready.json::<Value>().await.unwrap()["status"].as_str()),
        (503, Some("draining"))
    );
    for stream in streams {
        let text = stream.unwrap().text().await.unwrap();
        assert!(
            text.contains("\"finish_reason\":\"length\"") && text.ends_with("data: [DONE]\n\n"),
            "{text}"
        );
    }
    assert_eq!(program.end(Duration::from_secs(60)).0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_a_drain_that_takes_too_long_ends_streams_with_an_error_and_the_program_with_0() {
    let program = Program::start(&["--shutdown-timeout", "0.3", "--context-length", "4096"], &[]);
    let client = crate::support::client();
    program.wait_ready(&client).await;
    let body = json!({"messages": user("Count."), "max_tokens": 3000, "ignore_eos": true, "stream": true});
    let stream = client.post(format!("{}{CHAT}", program.base)).json(&body).send().await.unwrap();
    program.signal();
    let text = stream.text().await.unwrap();
    assert!(text.contains("\"code\":\"aborted\""), "{}", &text[text.len().saturating_sub(400)..]);
    assert_eq!(program.end(Duration::from_secs(60)).0, Some(0));
}

/// What a client sends and gets must be in no line, at the level that says the most.
#[tokio::test(flavor = "multi_thread")]
async fn n10_no_prompt_answer_media_or_key_is_logged() {
    let keys = [("M3_API_KEY", "key-one-of-env\nkey-two-of-env"), ("M3_ADMIN_API_KEY", "key-of-admin")];
    let program = Program::start(&["--log-format", "json", "--log-level", "trace"], &keys);
    let client = crate::support::client();
    program.wait_ready(&client).await;
    let ask = async |key: &str, path: &str, body: &Value| {
        let request = client.post(format!("{}{path}", program.base)).bearer_auth(key);
        let answer = request.header("x-request-id", "named-by-me").json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let good = json!({"messages": user("hunter2 is my word"), "max_tokens": 8, "ignore_eos": true, "user": "person-77"});
    assert_eq!(ask("wrong-key-guess", CHAT, &good).await.0, 401);
    let (status, answer) = ask("key-two-of-env", CHAT, &good).await;
    assert_eq!(status, 200, "{answer}");
    let media = format!("data:image/png;base64,{}", "QUJDRA".repeat(200_000));
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": media}}]}]});
    let (status, refused) = ask("key-one-of-env", CHAT, &image).await;
    assert_eq!(status, 400);
    assert!(refused.to_string().len() < 2000, "a refusal does not send the media back");
    assert_eq!(
        ask("key-one-of-env", CHAT, &json!({"messages": "hunter3", "tool_choice": "hunter4"})).await.0,
        400
    );
    assert_eq!(ask("key-of-admin", "/admin/log_level", &json!({"level": "info"})).await.0, 200);
    let info = client
        .get(format!("{}/server_info", program.base))
        .bearer_auth("key-one-of-env")
        .send()
        .await
        .unwrap();
    let info = info.text().await.unwrap();
    program.signal();
    let (code, log) = program.end(Duration::from_secs(60));
    assert_eq!(code, Some(0));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 10 && log.contains("named-by-me"), "the log names requests:\n{log}");
    let text = answer["choices"][0]["message"].to_string();
    let said = answer["choices"][0]["message"]["reasoning_content"]
        .as_str()
        .or(answer["choices"][0]["message"]["content"].as_str());
    for private in ["hunter", "person-77", "QUJDRAQUJDRA", "key-one", "key-two", "key-of-admin", "wrong-key"]
    {
        assert!(!log.contains(private), "{private} is in the log");
        assert!(!info.contains(private), "{private} is in /server_info");
    }
    assert!(said.is_some_and(|said| said.len() < 4 || !log.contains(said)), "{text} is in the log");
}

#[test]
fn n10_keys_are_not_shown_by_a_wrong_command_line() {
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
        let output = command.arg("serve").args(flags).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for flags in [
        &["--api-key", "very-secret", "--port", "99999"][..],
        &["--admin-api-key", "very-secret", "--admin-api-key", "other-secret"],
        &["--api-key", "very-secret", "/no/such/model"],
    ] {
        let (code, text) = run(flags);
        assert!(matches!(code, Some(1 | 2)), "{flags:?} {code:?}");
        assert!(!text.contains("secret"), "{text}");
    }
}
