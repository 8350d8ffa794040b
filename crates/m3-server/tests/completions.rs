//! Raw completions: prompts in every form, echo with log-probabilities, and ids in and out without a tokenizer.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{Server, ids, says};

const PATH: &str = "/v1/completions";

#[tokio::test(flavor = "multi_thread")]
async fn text_and_ids_give_the_same_answer_streamed_or_not() {
    let server = Server::start(says("one two three"), &[]).await;
    let whole = server.good(PATH, json!({"prompt": "Count: ", "max_tokens": 50})).await;
    assert_eq!(whole["choices"][0]["text"], "one two three");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    let by_ids = server.good(PATH, json!({"prompt": ids("Count: "), "max_tokens": 50})).await;
    assert_eq!(by_ids["choices"], whole["choices"]);
    let events = server.stream(PATH, json!({"prompt": "Count: ", "max_tokens": 50})).await;
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "one two three");
    let several = server.good(PATH, json!({"prompt": ["a", "b b b"], "n": 2, "max_tokens": 50})).await;
    let indices: Vec<u64> = several["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert_eq!(
        several["usage"]["prompt_tokens"].as_u64().unwrap() as usize,
        ids("a").len() + ids("b b b").len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_is_sixteen_tokens() {
    let server = Server::start(json!({}), &[]).await;
    let answer = server.good(PATH, json!({"prompt": "x", "ignore_eos": true})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn echo_with_log_probabilities_scores_the_prompt() {
    let server = Server::start(json!({}), &[]).await;
    let prompt = "The quick brown fox, Köln 🌶 and 汉字.";
    let body = json!({"prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 0, "temperature": 0});
    let answer = server.good(PATH, body).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], prompt);
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), ids(prompt).len());
    assert!(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    for at in 1..tokens.len() {
        assert!(logprobs["token_logprobs"][at].as_f64().unwrap() < 0.0);
        let top = logprobs["top_logprobs"][at].as_object().unwrap();
        assert!(top.contains_key(tokens[at].as_str().unwrap()), "the token itself is among the alternatives");
        let best = top.values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max);
        assert!(best >= logprobs["token_logprobs"][at].as_f64().unwrap());
    }
    let offsets: Vec<u64> =
        logprobs["text_offset"].as_array().unwrap().iter().map(|offset| offset.as_u64().unwrap()).collect();
    assert!(
        offsets.is_sorted() && offsets[0] == 0 && *offsets.last().unwrap() < prompt.chars().count() as u64
    );
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &choice["finish_reason"]),
        (&json!(0), &json!("length"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_do_not_depend_on_the_cache_or_on_streaming() {
    let server = Server::start(json!({}), &[]).await;
    let prompt = "word ".repeat(300);
    let body = json!({"prompt": prompt, "echo": true, "logprobs": 2, "max_tokens": 3, "temperature": 0, "ignore_eos": true});
    let first = server.good(PATH, body.clone()).await;
    let second = server.good(PATH, body.clone()).await;
    assert_eq!(first["choices"], second["choices"]);
    let mut folded = (String::new(), Vec::new(), Vec::new());
    for event in server.stream(PATH, body).await {
        let choice = &event["choices"][0];
        folded.0 += choice["text"].as_str().unwrap();
        folded.1.extend(choice["logprobs"]["token_logprobs"].as_array().unwrap().clone());
        folded.2.extend(choice["logprobs"]["text_offset"].as_array().unwrap().clone());
    }
    let choice = &first["choices"][0];
    assert_eq!(folded.0, choice["text"].as_str().unwrap());
    assert_eq!(Value::Array(folded.1), choice["logprobs"]["token_logprobs"]);
    assert_eq!(Value::Array(folded.2), choice["logprobs"]["text_offset"]);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn echo_without_scores_and_a_prompt_that_ends_inside_a_character() {
    let server = Server::start(says("x"), &[]).await;
    let answer = server.good(PATH, json!({"prompt": "Hello ", "echo": true, "max_tokens": 5})).await;
    assert_eq!(answer["choices"][0]["text"], "Hello x");
    let mut cut = ids("Hello ");
    let emoji = ids("🌶");
    cut.extend(&emoji[..emoji.len() - 1]);
    let events = server.stream(PATH, json!({"prompt": cut, "max_tokens": 5})).await;
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "x", "no text of the prompt in the output");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_character_over_several_tokens_never_breaks() {
    let text = "🌶️😊 und 汉字 äöü";
    let server = Server::start(says(text), &[]).await;
    for _ in 0..5 {
        let events = server.stream(PATH, json!({"prompt": "x", "max_tokens": 200})).await;
        let texts: Vec<&str> =
            events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert!(texts.iter().all(|piece| !piece.contains('\u{fffd}')));
        assert_eq!(texts.concat(), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_can_be_named_by_id() {
    let server = Server::start(says("ab"), &[]).await;
    let body =
        json!({"prompt": "x", "logprobs": 0, "return_tokens_as_token_ids": true, "return_token_ids": true});
    let choice = server.good(PATH, body).await["choices"][0].clone();
    let script = ids("ab");
    assert_eq!(choice["token_ids"], json!(script));
    assert_eq!(choice["prompt_token_ids"], json!(ids("x")));
    assert_eq!(choice["logprobs"]["tokens"][0], format!("token_id:{}", script[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_tokenizer_ids_go_in_and_out() {
    let dir = support::model_dir(&json!({"script": [5, 6, 7], "eos": 980}));
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    std::fs::remove_file(dir.path().join("chat_template.jinja")).unwrap();
    let server = Server::start_unready(dir, &["--skip-tokenizer-init"]).await;
    server.wait_ready().await;
    let answer = server.good(PATH, json!({"prompt": [1, 2, 3], "max_tokens": 10, "logprobs": 1})).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["token_ids"], &choice["text"], &choice["finish_reason"]),
        (&json!([5, 6, 7]), &json!(""), &json!("stop"))
    );
    assert_eq!(choice["logprobs"]["tokens"], json!(["token_id:5", "token_id:6", "token_id:7"]));
    let events = server.stream(PATH, json!({"prompt": [1, 2, 3], "max_tokens": 10})).await;
    let streamed: Vec<Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["token_ids"].as_array().unwrap().clone())
        .collect();
    assert_eq!(streamed, [5, 6, 7]);
    let (status, error) = server.post(PATH, json!({"prompt": "text"})).await;
    assert_eq!((status, error["error"]["code"].as_str()), (400, Some("no_tokenizer")));
    let (status, _) = server.post("/v1/chat/completions", json!({"messages": support::user("x")})).await;
    assert_eq!(status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn markers_in_a_raw_prompt_are_markers_unless_told_otherwise() {
    let server = Server::start(json!({}), &[]).await;
    let count = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let special = server.good(PATH, json!({"prompt": "]~b]", "max_tokens": 1})).await;
    let ordinary =
        server.good(PATH, json!({"prompt": "]~b]", "max_tokens": 1, "parse_special": false})).await;
    assert_eq!(count(&special), 1);
    assert!(count(&ordinary) > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn control_tokens_are_text_only_when_asked_for() {
    let server = Server::start(json!({"script": [ids("a")[0], support::EOS, ids("b")[0]]}), &[]).await;
    let body =
        |skip: bool| json!({"prompt": "x", "max_tokens": 3, "ignore_eos": true, "skip_special_tokens": skip});
    assert_eq!(server.good(PATH, body(true)).await["choices"][0]["text"], "ab");
    assert_eq!(server.good(PATH, body(false)).await["choices"][0]["text"], "a[e~[b");
}
