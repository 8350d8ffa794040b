//! Faults reported of other servers, each tried on this one over HTTP with its own input: the parsers (A, B), the shape
//! of answers and usage (D), text and stop strings (E). docs/faults.md says where the others are.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{EOS, Server, ids, says, tokenizer, user};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";
const NS: &str = "]<]minimax[>[";

/// Ids of a text letter by letter, markers included: nothing arrives in one piece.
fn letters(text: &str) -> Value {
    let ids: Vec<u32> = text.bytes().flat_map(|byte| byte_token(byte).into_iter()).collect();
    json!({"script": ids, "eos": EOS})
}

/// The token that is this single byte.
fn byte_token(byte: u8) -> Option<u32> {
    let tokenizer = tokenizer();
    (0..tokenizer.vocab_len() as u32).find(|id| tokenizer.token_bytes(*id) == Some(&[byte]))
}

fn joined(events: &[Value], field: &str) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
}

/// Reasoning and content of the whole answer, which the stream must say as well.
async fn both(server: &Server, body: Value) -> (String, String) {
    let whole = server.good(CHAT, body.clone()).await;
    let message = &whole["choices"][0]["message"];
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let events = server.stream(CHAT, body).await;
    let (reasoning, content) = (text("reasoning_content"), text("content"));
    assert_eq!(
        (joined(&events, "reasoning_content"), joined(&events, "content")),
        (reasoning.clone(), content.clone())
    );
    (reasoning, content)
}

fn greedy(text: &str) -> Value {
    json!({"messages": user(text), "temperature": 0})
}

fn pair(reasoning: &str, content: &str) -> (String, String) {
    (reasoning.to_owned(), content.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_markers_letter_by_letter_are_no_content() {
    let server = Server::start(letters("<mm:think>r</mm:think>a"), &[]).await;
    assert_eq!(both(&server, greedy("x")).await, pair("r", "a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_the_prompt_s_own_markers_do_not_decide_the_start() {
    let server = Server::start(says("r</mm:think>a"), &[]).await;
    let mut body = greedy("Use <mm:think> and </mm:think> so: <mm:think>x</mm:think>");
    body["chat_template_kwargs"] = json!({"thinking_mode": "enabled"});
    assert_eq!(both(&server, body).await, pair("r", "a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_stray_closers_in_a_later_turn_are_dropped() {
    let server = Server::start(says("</mm:think></mm:think>Hello."), &[]).await;
    for mode in ["adaptive", "disabled"] {
        let messages = json!([{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Say it again."}]);
        let body = json!({"messages": messages, "temperature": 0, "thinking": {"type": mode}});
        assert_eq!(both(&server, body).await, pair("", "Hello."), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_no_token_of_the_reasoning_is_lost() {
    let server = Server::start(says("<mm:think>one two three</mm:think>a"), &[]).await;
    assert_eq!(both(&server, greedy("x")).await, pair("one two three", "a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_a_finish_reason_is_the_same_in_a_stream_and_at_once() {
    let call = format!("{NS}<tool_call>{NS}<invoke name=\"f\">{NS}<a>1{NS}</a>{NS}</invoke>{NS}</tool_call>");
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (script, fields, reason) in [
        (call.as_str(), json!({"tools": tools}), "tool_calls"),
        (&call, json!({"tools": tools, "tool_choice": "auto"}), "tool_calls"),
        (&call, json!({"tools": tools, "tool_choice": "none"}), "stop"),
        (&call, json!({}), "tool_calls"),
        ("plain", json!({"tools": tools}), "stop"),
        (&call, json!({"tools": tools, "max_tokens": 4}), "length"),
        ("a STOP b", json!({"stop": "STOP"}), "stop"),
    ] {
        let server = Server::start(says(script), &[]).await;
        let mut body = greedy("x");
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let whole = server.good(CHAT, body.clone()).await;
        let events = server.stream(CHAT, body).await;
        assert_eq!(whole["choices"][0]["finish_reason"], reason, "{fields}");
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], reason, "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_every_choice_of_a_stream_ends_with_a_reason() {
    let cut = format!("{NS}<tool_call>{NS}<invoke name=\"f\">{NS}<a>some text");
    let server = Server::start(json!({"script": ids(&cut)}), &[]).await;
    let mut body = greedy("x");
    body["n"] = 3.into();
    body["max_tokens"] = ids(&cut).len().into();
    let events = server.stream(CHAT, body).await;
    for index in 0..3 {
        let of_choice = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
        let reasons: Vec<&Value> = of_choice
            .filter(|choice| choice["index"] == index && !choice["finish_reason"].is_null())
            .map(|choice| &choice["finish_reason"])
            .collect();
        assert_eq!(reasons, ["length"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_cached_tokens_are_told_in_both_forms() {
    let server = Server::start(says("a"), &[]).await;
    let mut body = greedy(&"word ".repeat(300));
    server.good(CHAT, body.clone()).await;
    let whole = server.good(CHAT, body.clone()).await;
    body["stream_options"] = json!({"include_usage": true});
    let events = server.stream(CHAT, body).await;
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached(&whole) > 0);
    assert_eq!(cached(&whole), cached(events.last().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_usage_of_a_stream_never_falls_and_ends_at_the_sampled_tokens() {
    let server = Server::start(says("<mm:think>one two</mm:think>three four five"), &[]).await;
    let mut body = greedy("x");
    let whole = server.good(CHAT, body.clone()).await;
    body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    body["return_token_ids"] = true.into();
    let events = server.stream(CHAT, body).await;
    let counts: Vec<u64> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last().copied(), whole["usage"]["completion_tokens"].as_u64());
    let sampled: usize =
        events.iter().filter_map(|event| event["choices"][0]["token_ids"].as_array().map(Vec::len)).sum();
    // The id that ended the turn is counted and is not sent.
    assert_eq!(counts.last().copied(), Some(sampled as u64 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_reasoning_tokens_are_told_in_both_forms() {
    let server = Server::start(says("<mm:think>one two</mm:think>three"), &[]).await;
    let mut body = greedy("x");
    let whole = server.good(CHAT, body.clone()).await;
    body["stream_options"] = json!({"include_usage": true});
    let events = server.stream(CHAT, body).await;
    let reasoning =
        |answer: &Value| answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64();
    assert_eq!(reasoning(&whole), Some(ids("one two").len() as u64));
    assert_eq!(reasoning(&whole), reasoning(events.last().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_one_id_in_the_header_and_in_every_chunk() {
    let server = Server::start(says("a b c"), &[]).await;
    let mut body = greedy("x");
    body["stream"] = true.into();
    let response = server.client.post(format!("{}{CHAT}", server.base)).json(&body).send().await.unwrap();
    let header = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let text = response.text().await.unwrap();
    assert!(support::events(&text).iter().all(|event| event["id"] == header.as_str()), "{header}: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_the_default_fits_the_context_and_an_excess_is_400_with_both_numbers() {
    let server = Server::start(json!({}), &["--context-length", "1024"]).await;
    let prompt = vec![7; 1000];
    let answer = server.good(RAW, json!({"prompt": prompt, "max_tokens": 24, "ignore_eos": true})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 24);
    let mut chat = greedy(&"word ".repeat(100));
    chat["ignore_eos"] = true.into();
    let answer = server.good(CHAT, chat).await;
    assert_eq!(answer["usage"]["total_tokens"], 1024, "an answer without a limit fills the context");
    let (status, refused) = server.post(RAW, json!({"prompt": prompt, "max_tokens": 200})).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!((status, refused["error"]["param"].as_str()), (400, Some("max_tokens")));
    assert!(message.contains("1000") && message.contains("200") && message.contains("1024"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_a_conversation_is_never_cut() {
    let server = Server::start(says("a"), &[]).await;
    let mut chat = greedy("x");
    chat["truncate_prompt_tokens"] = 5.into();
    let (status, refused) = server.post(CHAT, chat).await;
    assert_eq!((status, refused["error"]["param"].as_str()), (400, Some("truncate_prompt_tokens")));
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_a_seed_with_several_answers_gives_a_set_that_repeats() {
    let server = Server::start(json!({}), &[]).await;
    let body =
        json!({"prompt": "x", "n": 3, "seed": 7, "temperature": 1, "max_tokens": 12, "ignore_eos": true});
    let texts = |answer: &Value| -> Vec<Value> {
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].clone()).collect()
    };
    let first = texts(&server.good(RAW, body.clone()).await);
    assert_eq!(first, texts(&server.good(RAW, body).await));
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2], "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn e1_characters_of_several_tokens_arrive_whole() {
    let text = "🌶️😊 and 汉字";
    let server = Server::start(letters(text), &[]).await;
    for _ in 0..20 {
        let events = server.stream(CHAT, greedy("reply with 🌶️😊 and 汉字")).await;
        assert_eq!(joined(&events, "content"), text);
        assert!(events.iter().all(|event| !event.to_string().contains('\u{fffd}')));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e3_ten_thousand_undecodable_bytes_come_out_in_linear_time() {
    let lone = byte_token(0x9f).unwrap();
    let server = Server::start(json!({"script": [lone]}), &[]).await;
    let start = std::time::Instant::now();
    let body = json!({"prompt": "x", "max_tokens": 10_000, "ignore_eos": true, "temperature": 0});
    let events = server.stream(RAW, body).await;
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text.chars().filter(|letter| *letter == '\u{fffd}').count(), 10_000);
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_a_prompt_that_ends_inside_a_character_is_not_repeated() {
    let server = Server::start(says("next"), &[]).await;
    let mut prompt = ids("Hello ");
    prompt.extend("🌶".bytes().take(2).filter_map(byte_token));
    let body = json!({"prompt": prompt, "max_tokens": 20, "temperature": 0});
    let events = server.stream(RAW, body.clone()).await;
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "next");
    assert_eq!(server.good(RAW, body).await["choices"][0]["text"], "next");
}

/// The content up to a stop string, streamed and at once.
async fn stopped(text: &str, stop: Value, fields: Value) -> (String, String) {
    let server = Server::start(letters(text), &[]).await;
    let mut body = greedy("x");
    body["stop"] = stop;
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let whole = server.good(CHAT, body.clone()).await;
    let told = both(&server, body).await;
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(whole["choices"][0]["message"]["content"].as_str().unwrap_or_default(), told.1);
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn e6_a_stop_string_over_two_tokens_leaks_nothing() {
    assert_eq!(stopped("The quick brown fox", json!(["own fox"]), json!({})).await.1, "The quick br");
}

#[tokio::test(flavor = "multi_thread")]
async fn e7_text_around_a_stop_string_is_sent_once() {
    let text = "own own own fo own fox and more";
    assert_eq!(stopped(text, json!(["own fox"]), json!({})).await.1, "own own own fo ");
    let kept = stopped(text, json!(["own fox"]), json!({"include_stop_str_in_output": true})).await;
    assert_eq!(kept.1, "own own own fo own fox");
}

#[tokio::test(flavor = "multi_thread")]
async fn e9_nothing_behind_the_stop_string_is_flushed() {
    assert_eq!(
        stopped("one two three four five six", json!(["five"]), json!({})).await.1,
        "one two three four "
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn e10_a_stop_string_of_wide_characters() {
    assert_eq!(stopped("你。。好吗", json!(["。好"]), json!({})).await.1, "你。");
}

#[tokio::test(flavor = "multi_thread")]
async fn e12_stop_strings_are_for_the_content_alone() {
    let call =
        format!("{NS}<tool_call>{NS}<invoke name=\"f\">{NS}<a>x\n\ny{NS}</a>{NS}</invoke>{NS}</tool_call>");
    let server = Server::start(says(&format!("<mm:think>a\n\nb</mm:think>c{call}\n\nd")), &[]).await;
    let mut body = greedy("x");
    body["stop"] = json!(["\n\n"]);
    let answer = server.good(CHAT, body).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(
        (message["reasoning_content"].as_str(), message["content"].as_str()),
        (Some("a\n\nb"), Some("c"))
    );
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"a\":\"x\\n\\ny\"}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}
