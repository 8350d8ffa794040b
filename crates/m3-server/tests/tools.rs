//! The command-line tools as a user runs them: the real program, standard input and output.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use support::shared_data;

fn bundled() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/random/m3-nano").to_owned()
}

fn run(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // A program that refused its flags closes its input early.
    let _ = writer.join().unwrap();
    output
}

fn lines(args: &[&str], input: &[Value]) -> Vec<Value> {
    let input: String = input.iter().map(|line| format!("{line}\n")).collect();
    let output = run(args, &input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn render_gives_prompt_and_ids_and_an_error_per_bad_line() {
    let model = bundled();
    let answers = lines(
        &["render", "--model", &model],
        &[
            json!({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"thinking_mode": "enabled"}}),
            json!({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false}),
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            json!({"tools": []}),
        ],
    );
    assert!(answers[0]["prompt"].as_str().unwrap().ends_with("]~b]ai\n<mm:think>"));
    assert!(answers[0]["token_ids"].as_array().unwrap().len() > 3);
    assert!(answers[1]["prompt"].as_str().unwrap().ends_with("[e~[\n"));
    assert!(answers[2]["error"].is_string() && answers[3]["error"].is_string(), "{answers:?}");
}

#[test]
fn render_matches_the_reference_renders() {
    let Some(data) = shared_data() else { return };
    let cases: Value =
        serde_json::from_slice(&std::fs::read(data.join("template_cases.json")).unwrap()).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    let input: Vec<Value> = cases
        .iter()
        .map(|case| {
            json!({"messages": case["messages"], "tools": case["tools"], "chat_template_kwargs": case["kwargs"],
                "add_generation_prompt": case["add_generation_prompt"]})
        })
        .collect();
    let template = data.join("chat_template.m3.jinja");
    let tokenizer = data.join("tokenizer.reconstructed.json");
    let flags = ["--chat-template", template.to_str().unwrap(), "--tokenizer", tokenizer.to_str().unwrap()];
    let answers = lines(&[&["render"][..], &flags].concat(), &input);
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(&answers) {
        if case["rendered"].is_null() {
            assert!(answer["error"].is_string(), "{}", case["id"]);
        } else {
            assert_eq!(
                (&answer["prompt"], &answer["token_ids"]),
                (&case["rendered"], &case["token_ids"]),
                "{}",
                case["id"]
            );
        }
    }
}

#[test]
fn parse_takes_text_chunks_and_token_chunks_alike() {
    let ns = "]<]minimax[>[";
    let text = format!(
        "<mm:think>r</mm:think>Sure.{ns}<tool_call>\n{ns}<invoke name=\"f\">{ns}<n>7{ns}</n>{ns}</invoke>\n{ns}</tool_call>"
    );
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}]);
    let model = bundled();
    let encoded = run(&["tokenize", &model, "--text", &text], "");
    let encoded: Value = serde_json::from_slice(&encoded.stdout).unwrap();
    let tokens: Vec<Vec<Value>> =
        encoded["tokens"].as_array().unwrap().chunks(3).map(<[Value]>::to_vec).collect();
    let chunks: Vec<String> = text.chars().map(String::from).collect();
    let answers = lines(
        &["parse", "--model", &model],
        &[
            json!({"text": text, "tools": tools, "thinking_mode": "adaptive"}),
            json!({"chunks": chunks, "tools": tools}),
            json!({"token_chunks": tokens, "tools": tools}),
            json!({"text": "x", "thinking_mode": "sometimes"}),
            json!({}),
            json!({"text": "x", "chunks": ["x"]}),
        ],
    );
    let expected =
        json!({"reasoning": "r", "content": "Sure.", "tool_calls": [{"name": "f", "arguments": {"n": 7}}]});
    assert_eq!(answers[..3], [expected.clone(), expected.clone(), expected]);
    assert!(answers[3]["error"].is_string() && answers[4]["error"].is_string());
    assert!(answers[5]["error"].as_str().unwrap().contains("2 of text, chunks"), "{}", answers[5]);
}

#[test]
fn parse_matches_the_cases_whole_and_by_characters() {
    let Some(data) = shared_data() else { return };
    let cases: Value =
        serde_json::from_slice(&std::fs::read(data.join("parser_cases.json")).unwrap()).unwrap();
    let cases = cases["batch"].as_array().unwrap();
    let whole = |case: &Value| json!({"text": case["text"], "tools": case["tools"], "thinking_mode": case["thinking_mode"]});
    let split = |case: &Value| {
        let chunks: Vec<String> = case["text"].as_str().unwrap().chars().map(String::from).collect();
        json!({"chunks": chunks, "tools": case["tools"], "thinking_mode": case["thinking_mode"]})
    };
    let input: Vec<Value> = cases.iter().flat_map(|case| [whole(case), split(case)]).collect();
    let answers = lines(&["parse"], &input);
    for (case, pair) in cases.iter().zip(answers.chunks(2)) {
        assert_eq!(pair[0], pair[1], "{}", case["id"]);
        let also = case["also_acceptable"].as_array().cloned().unwrap_or_default();
        let fits = std::iter::once(&case["expected"]).chain(&also).any(|expected| {
            ["reasoning", "content", "tool_calls"].iter().all(|key| pair[0][key] == expected[key])
        });
        assert!(fits, "{}: {} is none of {} and {also:?}", case["id"], pair[0], case["expected"]);
    }
}

#[test]
fn render_of_nothing_from_nowhere_is_an_error() {
    let output = run(&["render"], "\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing to render"));
    assert!(run(&["render", "--model", &bundled()], "").status.success());
}

#[test]
fn an_empty_template_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let model = bundled();
    let flags = ["--chat-template", file.path().to_str().unwrap(), "--tokenizer", &model];
    for command in ["render", "serve"] {
        let port: &[&str] = if command == "serve" { &["--port", "0"] } else { &[] };
        let args = [&[command][..], &flags, port].concat();
        let output = run(&args, "");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is empty"), "{output:?}");
    }
}

#[test]
fn a_folder_without_config_is_told_so_first_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for args in [vec!["serve", path], vec!["serve", path, "--skip-tokenizer-init"], vec!["chat", path]] {
        let output = run(&args, "");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains("config.json is not there"), "{text}");
    }
    std::fs::copy(format!("{}/config.json", bundled()), dir.path().join("config.json")).unwrap();
    let output = run(&["serve", path], "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("tokenizer.json") && text.matches("No such file").count() <= 1, "{text}");
}

#[test]
fn tokenize_goes_both_ways() {
    let model = bundled();
    let encoded: Value = serde_json::from_slice(&run(&["tokenize", &model], "Köln ]~b]").stdout).unwrap();
    let plain: Value =
        serde_json::from_slice(&run(&["tokenize", &model, "--no-special"], "Köln ]~b]").stdout).unwrap();
    assert!(encoded["count"].as_u64() < plain["count"].as_u64());
    let decoded = run(&["tokenize", &model, "--decode"], &encoded["tokens"].to_string());
    assert_eq!(String::from_utf8(decoded.stdout).unwrap(), "Köln ]~b]\n");
}

#[test]
fn serve_runs_the_bundled_model_and_ends_well_on_sigterm() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
    let flags = ["serve", "--port", "0", "--kv-cache-memory-bytes", "16M", "--threads", "1"];
    let mut child = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut first)
        .unwrap();
    let address = first.trim().strip_prefix("listening on http://").unwrap().to_owned();
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer
    };
    assert!(ask("/live").starts_with("HTTP/1.1 200"), "alive from the first moment");
    let start = std::time::Instant::now();
    while !ask("/ready").starts_with("HTTP/1.1 200") {
        assert!(start.elapsed().as_secs() < 60, "{}", ask("/ready"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(ask("/v1/models").contains("m3-nano"));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn chat_answers_lines_of_its_input() {
    let output = run(
        &["chat", "--max-tokens", "6", "--temperature", "0", "--kv-cache-memory-bytes", "16M"],
        "hello\n/reset\nhello\n/quit\n",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("[cut: length]").count(), 2, "{text}");
    let answers: Vec<&str> = text.split("[cut: length]").map(str::trim).collect();
    assert_eq!(answers[0], answers[1], "after a reset the same question has the same answer");
}

#[test]
fn backends_lists_the_linked_one_with_its_paths() {
    let output = run(&["backends"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("cpu (linked): score 10") && text.contains("moe_ffn:") && text.contains("chosen: cpu"),
        "{text}"
    );
    let output = run(&["backends", "--backend", "no-such"], "");
    assert!(String::from_utf8(output.stdout).unwrap().contains("no backend is named no-such"));
}

#[test]
fn wrong_command_lines_end_with_two_and_a_sentence() {
    for (args, part) in [
        (vec!["serve", "--max-runing-requests", "4"], "--max-running-requests"),
        (vec!["serve", "--enable-hisparse"], "no effect yet"),
        (vec!["servee"], "m3 serve"),
        (vec!["serve", "--log-level", "loud"], "error, warn, info"),
    ] {
        let output = run(&args, "");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with("m3: ") && text.contains(part), "{text}");
    }
    let output = run(&["serve", "/no/such/model"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/model"));
    assert!(run(&["--help"], "").status.success() && run(&["serve", "-h"], "").status.success());
}
