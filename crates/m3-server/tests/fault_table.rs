//! The table of docs/faults.md: it is whole, and every test it names is one. Beside it, faults that only show when two
//! requests or two forms of one answer are compared over HTTP.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Server, events, fold, ids, says, user};

const CHAT: &str = "/v1/chat/completions";
const NS: &str = "]<]minimax[>[";

/// Every entry that must have a row, by area.
const ENTRIES: [(&str, &[u32]); 13] = [
    ("A", &[1, 2, 4, 5, 7, 8, 10, 11, 13, 14]),
    ("B", &[1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28]),
    ("C", &[1, 3, 4, 6, 7, 9, 10]),
    ("D", &[2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17]),
    ("E", &[1, 3, 4, 6, 7, 9, 10, 12]),
    ("F", &[1, 3, 4, 6, 7, 9]),
    ("G", &[1, 3, 4, 6, 7, 9, 10, 12, 13]),
    ("H", &[1, 2, 4, 5, 7, 8, 10]),
    ("I", &[1, 3, 4, 6, 7, 9, 10, 12, 13]),
    ("K", &[2, 3, 5, 6, 8, 9, 11]),
    ("M", &[2, 3, 5, 6, 8]),
    ("N", &[1, 3, 4, 6, 7, 9, 10, 12]),
    ("S-T", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
];

/// Names of every test in the `.rs` files below a folder.
fn tests_below(folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests_of(&std::fs::read_to_string(&path).unwrap(), names);
        }
    }
}

/// Functions right below an attribute that makes them tests.
fn tests_of(source: &str, names: &mut Vec<String>) {
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
            && std::mem::take(&mut marked)
        {
            names.push(rest.split(['(', '<']).next().unwrap().to_owned());
        }
    }
}

#[test]
fn the_table_of_faults_is_whole_and_names_tests_that_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let table = std::fs::read_to_string(crates.join("../docs/faults.md")).unwrap();
    let mut known = Vec::new();
    tests_below(crates, &mut known);
    tests_below(&crates.join("../tests/tests"), &mut known);
    let rows: Vec<(&str, Vec<&str>)> = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|row| (row.split('|').nth(1).unwrap().trim(), row.split('`').skip(1).step_by(2).collect()))
        .collect();
    for (entry, tests) in &rows {
        for test in tests {
            assert!(
                known.iter().any(|name| name == test),
                "docs/faults.md names {test} for {entry}, which is no test"
            );
        }
    }
    let measured: Vec<u32> = (1..=28).collect();
    let entries = ENTRIES.iter().copied().chain([("S", measured.as_slice())]);
    for entry in
        entries.flat_map(|(area, numbers)| numbers.iter().map(move |number| format!("{area}{number}")))
    {
        let found = rows.iter().filter(|(row, tests)| *row == entry && !tests.is_empty()).count();
        assert_eq!(found, 1, "rows of {entry} in docs/faults.md");
    }
}

fn call_of(city: &str) -> String {
    format!(
        "{NS}<tool_call>\n{NS}<invoke name=\"f\">{NS}<city>{city}{NS}</city>{NS}</invoke>\n{NS}</tool_call>"
    )
}

fn tool() -> Value {
    json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_forced_calls_end_alike_in_both_forms() {
    let server = Server::start(says(&call_of("Paris")), &[]).await;
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "f"}})] {
        let body = json!({"messages": user("x"), "tools": tool(), "tool_choice": choice, "temperature": 0,
            "thinking": {"type": "disabled"}, "parallel_tool_calls": false, "max_tokens": 600});
        let whole = server.good(CHAT, body.clone()).await;
        let folded = fold(&server.stream(CHAT, body).await, 0);
        let first = &whole["choices"][0];
        assert_eq!(first["finish_reason"], "tool_calls", "{choice}: {whole}");
        assert_eq!(folded["finish_reason"], "tool_calls", "{choice}");
        let arguments = &first["message"]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(folded["message"]["tool_calls"][0]["arguments"], *arguments);
        assert!(serde_json::from_str::<Value>(arguments.as_str().unwrap()).unwrap()["city"].is_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_an_aborted_call_ends_with_an_event() {
    let long = format!("{NS}<tool_call>{NS}<invoke name=\"f\">{NS}<city>{}", "Paris ".repeat(400));
    let server = Server::start(json!({"script": ids(&long), "step_us": 3000}), &[]).await;
    let body = json!({"messages": user("x"), "tools": tool(), "temperature": 0, "ignore_eos": true});
    let stream = server.stream_text(CHAT, body);
    let abort = async {
        while server.metric("m3_requests_running", "").await < 1.0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        server.good("/abort_request", json!({"abort_all": true})).await;
    };
    let (text, ()) = tokio::join!(stream, abort);
    let last = events(&text).pop().unwrap();
    assert!(
        last["error"]["message"].is_string() || last["choices"][0]["finish_reason"].is_string(),
        "{last}"
    );
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_cut_call_ends_with_length_in_both_forms() {
    let script =
        format!("{NS}<tool_call>\n{NS}<invoke name=\"f\">{NS}<city>Rome{NS}</city>{NS}<b>2 and more");
    let server = Server::start(json!({"script": ids(&script)}), &[]).await;
    let cut = ids(&script).len() - 2;
    let body = json!({"messages": user("x"), "tools": tool(), "temperature": 0, "max_tokens": cut});
    let whole = server.good(CHAT, body.clone()).await;
    let folded = fold(&server.stream(CHAT, body).await, 0);
    let first = &whole["choices"][0];
    let arguments = &first["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!((&first["finish_reason"], &folded["finish_reason"]), (&json!("length"), &json!("length")));
    assert_eq!(folded["message"]["tool_calls"][0]["arguments"], *arguments);
    assert_eq!(serde_json::from_str::<Value>(arguments.as_str().unwrap()).unwrap()["city"], "Rome");
}

/// Tokens of a message's prompt that were computed, and those that were in the cache.
async fn counted(server: &Server, body: Value) -> (u64, u64) {
    let usage = server.good("/v1/messages", body).await["usage"].clone();
    (usage["input_tokens"].as_u64().unwrap(), usage["cache_read_input_tokens"].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_a_volatile_first_line_does_not_empty_the_cache() {
    let server = Server::start(says("ok"), &[]).await;
    let long = "the same instructions every time ".repeat(1000);
    let body = |hash: &str| {
        json!({"max_tokens": 4, "system": format!("x-anthropic-billing-header: cc_version=1; cch={hash};\n{long}"),
            "messages": [{"role": "user", "content": "hi"}]})
    };
    let (computed, cached) = counted(&server, body("AAAAA")).await;
    assert_eq!(cached, 0);
    let (fresh, cached) = counted(&server, body("BBBBB")).await;
    assert!(fresh < 256 && cached + 256 > computed, "{fresh} computed and {cached} cached of {computed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_marks_that_move_keep_every_hit() {
    let server = Server::start(says("ok"), &[]).await;
    let mut messages: Vec<Value> = Vec::new();
    let mut before = 0;
    for turn in 0..3 {
        for message in &mut messages {
            message["content"][0].as_object_mut().unwrap().remove("cache_control");
        }
        let text = format!("question {turn} {}", "with many words ".repeat(100));
        messages.push(json!({"role": "user", "content": [
            {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}));
        let (fresh, cached) = counted(&server, json!({"max_tokens": 4, "messages": messages})).await;
        assert!(cached + 256 > before, "turn {turn}: {cached} cached of {before}");
        before = fresh + cached;
        messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "ok"}]}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d15_eleven_images_are_no_server_error() {
    let server = Server::start(says("ok"), &[]).await;
    let pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
    let image = json!({"type": "image_url", "image_url": {"url": pixel}});
    let (status, answer) = server
        .post(CHAT, json!({"messages": [{"role": "user", "content": vec![image; 11]}], "max_tokens": 2}))
        .await;
    assert!(status == 200 || status == 400, "{status}: {answer}");
    if status == 400 {
        assert!(answer["error"]["param"].as_str().unwrap().starts_with("messages[0].content[0]"), "{answer}");
    }
    server.good(CHAT, json!({"messages": user("hi"), "max_tokens": 2})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f9_a_heavy_schema_holds_nobody_up() {
    let server = Server::start(says("ok"), &[]).await;
    let items: Vec<String> = (0..4000).map(|index| format!("value number {index}")).collect();
    let heavy = json!({"messages": user("x"), "max_tokens": 200, "thinking": {"type": "disabled"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": items}}}});
    let made = server.post(CHAT, heavy);
    let others = async {
        for _ in 0..20 {
            let begun = std::time::Instant::now();
            server.good(CHAT, json!({"messages": user("hi"), "max_tokens": 2})).await;
            assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    };
    let ((status, answer), ()) = tokio::join!(made, others);
    assert!(status == 200 || status == 400, "{status}: {answer}");
}
