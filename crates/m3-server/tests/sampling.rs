//! What requests say about sampling and stopping, over HTTP on the scripted backend.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Value, json};
use support::{EOS, Server, ids, says, user};

const CHAT: &str = "/v1/chat/completions";
const RAW: &str = "/v1/completions";

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

fn with(mut body: Value, fields: Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn min_tokens_holds_off_stop_strings_and_stop_ids() {
    let server = Server::start(says("a.b.c.d"), &[]).await;
    let body = json!({"messages": user("x"), "temperature": 0, "stop": ["."], "logprobs": true});
    let first = server.good(CHAT, body.clone()).await;
    assert_eq!((content(&first), first["choices"][0]["stop_reason"].as_str()), ("a", Some(".")));
    for least in 1..=7 {
        let answer = server.good(CHAT, with(body.clone(), json!({"min_tokens": least}))).await;
        let choice = &answer["choices"][0];
        let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap();
        assert!(tokens >= least, "{least}: {answer}");
        assert_eq!(choice["finish_reason"], "stop");
        let expected = match least {
            ..=2 => "a",
            3..=4 => "a.b",
            5..=6 => "a.b.c",
            _ => "a.b.c.d",
        };
        assert_eq!(content(&answer), expected, "{least}");
        let events = server.stream(CHAT, with(body.clone(), json!({"min_tokens": least}))).await;
        let streamed: String =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(streamed, expected);
    }
    let dot = ids(".")[0];
    let body = json!({"prompt": "x", "temperature": 0, "stop_token_ids": [dot], "max_tokens": 20});
    let early = server.good(RAW, body.clone()).await;
    assert_eq!(
        (early["choices"][0]["text"].as_str(), &early["choices"][0]["stop_reason"]),
        (Some("a"), &json!(dot))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ignore_eos_gives_exactly_as_many_tokens_as_asked() {
    let server = Server::start(says("hi"), &[]).await;
    for most in [1, 2, 3, 17, 128] {
        let body = json!({"prompt": "x", "max_tokens": most, "ignore_eos": true, "return_token_ids": true});
        for answer in [
            server.good(RAW, body.clone()).await,
            server.good(RAW, with(body.clone(), json!({"min_tokens": most}))).await,
        ] {
            assert_eq!(answer["usage"]["completion_tokens"], most);
            assert_eq!(answer["choices"][0]["token_ids"].as_array().unwrap().len(), most);
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_allowed_ids_are_sampled() {
    let server = Server::start(json!({}), &[]).await;
    let body = json!({"prompt": "x", "max_tokens": 50, "allowed_token_ids": [70, 71, EOS], "return_token_ids": true,
        "ignore_eos": true, "logprobs": 2});
    let answer = server.good(RAW, body.clone()).await;
    let sampled = answer["choices"][0]["token_ids"].as_array().unwrap();
    assert_eq!(sampled.len(), 50);
    assert!(sampled.iter().all(|id| [70, 71, u64::from(EOS)].contains(&id.as_u64().unwrap())), "{sampled:?}");
    let image = ids("]<]image[>[")[0];
    let (status, refused) = server.post(RAW, with(body, json!({"allowed_token_ids": [image]}))).await;
    assert_eq!((status, refused["error"]["param"].as_str()), (400, Some("allowed_token_ids")));
    // What leaves no token between them ends the answer.
    let against = json!({"prompt": "x", "max_tokens": 9, "allowed_token_ids": [70], "bad_words": ["F"]});
    let answer = server.good(RAW, against).await;
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
        (&json!(""), &json!("stop"))
    );
    assert_eq!(server.get("/health").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_words_never_appear() {
    let server = Server::start(json!({}), &[]).await;
    let plain = json!({"prompt": "x", "max_tokens": 400, "ignore_eos": true, "seed": 3});
    let words = ["a", "e", " t", "1"];
    let free = server.good(RAW, plain.clone()).await;
    assert!(words.iter().any(|word| free["choices"][0]["text"].as_str().unwrap().contains(word)));
    let kept = server.good(RAW, with(plain, json!({"bad_words": words}))).await;
    let text = kept["choices"][0]["text"].as_str().unwrap();
    assert!(words.iter().all(|word| !text.contains(word)) && text.len() > 100, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thinking_budget_is_kept_to_the_token() {
    let server = Server::start(json!({"script": ids("<mm:think>one two three four five")}), &[]).await;
    for (budget, most) in [(0u64, 40), (3, 40), (10, 40)] {
        let body = json!({"messages": user("x"), "temperature": 0, "thinking_token_budget": budget,
            "max_tokens": most, "return_token_ids": true});
        let answer = server.good(CHAT, body).await;
        let close = ids("</mm:think>")[0];
        let sampled = answer["choices"][0]["token_ids"].as_array().unwrap();
        // The opener, the budget, the closer.
        assert_eq!(sampled.iter().position(|id| *id == close), Some(budget as usize + 1), "{answer}");
        assert!(!content(&answer).is_empty());
    }
    let server = Server::start(json!({"script": ids("one two three four five")}), &[]).await;
    let enabled = json!({"messages": user("x"), "temperature": 0, "max_tokens": 40,
        "thinking": {"type": "enabled", "budget_tokens": 4}});
    let answer = server.good(CHAT, enabled).await;
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 4, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_goes_where_the_request_wants_it() {
    let server = Server::start(says("<mm:think>so so</mm:think>yes"), &[]).await;
    let body = json!({"messages": user("x"), "temperature": 0});
    for (fields, reasoning, text) in [
        (json!({}), json!("so so"), "yes"),
        (json!({"separate_reasoning": false}), Value::Null, "<mm:think>so so</mm:think>yes"),
        (json!({"reasoning_split": false}), Value::Null, "<mm:think>so so</mm:think>yes"),
        (json!({"include_reasoning": false}), Value::Null, "yes"),
        (json!({"stream_reasoning": false}), json!("so so"), "yes"),
    ] {
        let whole = server.good(CHAT, with(body.clone(), fields.clone())).await;
        let message = &whole["choices"][0]["message"];
        assert_eq!(
            (&message["reasoning_content"], message["content"].as_str()),
            (&reasoning, Some(text)),
            "{fields}"
        );
        let events = server.stream(CHAT, with(body.clone(), fields.clone())).await;
        let part = |name: &str| -> Vec<String> {
            let texts = events.iter().filter_map(|event| event["choices"][0]["delta"][name].as_str());
            texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(part("content").concat(), text, "{fields}");
        assert_eq!(part("reasoning_content").concat(), reasoning.as_str().unwrap_or(""), "{fields}");
        if fields["stream_reasoning"] == false {
            assert_eq!(part("reasoning_content").len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_goes_round_in_circles_is_ended() {
    let server = Server::start(json!({"script": ids("abc")}), &[]).await;
    let body = json!({"messages": user("x"), "temperature": 0, "max_tokens": 200,
        "repetition_detection": {"max_pattern_size": 8, "min_count": 4}});
    let answer = server.good(CHAT, body.clone()).await;
    let choice = &answer["choices"][0];
    let pattern = ids("abc").len() as u64;
    assert_eq!(answer["usage"]["completion_tokens"], pattern * 4);
    assert_eq!(
        (choice["finish_reason"].as_str(), choice["stop_reason"].as_str()),
        (Some("stop"), Some("repetition_detected"))
    );
    let later = server.good(CHAT, with(body.clone(), json!({"min_tokens": 30}))).await;
    assert_eq!(later["usage"]["completion_tokens"], 30);
    let never = server.good(CHAT, with(body, json!({"repetition_detection": {"max_pattern_size": 0}}))).await;
    assert_eq!(never["choices"][0]["finish_reason"], "length");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_of_several_answers_are_given_and_all_are_counted() {
    let server = Server::start(json!({}), &[]).await;
    let body = json!({"prompt": "x", "max_tokens": 8, "ignore_eos": true, "seed": 5, "logprobs": 0});
    let all = server.good(RAW, with(body.clone(), json!({"n": 6}))).await;
    let mean = |choice: &Value| {
        let list = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        list.iter().map(|logprob| logprob.as_f64().unwrap()).sum::<f64>() / list.len() as f64
    };
    let mut ranked: Vec<Value> = all["choices"].as_array().unwrap().clone();
    ranked.sort_by(|left, right| mean(right).total_cmp(&mean(left)));
    let best = server.good(RAW, with(body.clone(), json!({"n": 2, "best_of": 6}))).await;
    let texts = |choices: &[Value]| choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>();
    assert_eq!(texts(best["choices"].as_array().unwrap()), texts(&ranked[..2]));
    assert_eq!(best["usage"]["completion_tokens"], 48);
    assert_eq!(best["choices"][1]["index"], 1);
    let chat = server
        .good(CHAT, json!({"messages": user("x"), "max_tokens": 4, "ignore_eos": true, "n": 1, "best_of": 3}))
        .await;
    assert_eq!(chat["choices"].as_array().unwrap().len(), 1);
    assert!(chat["choices"][0]["logprobs"].is_null(), "scores that were not asked for are not given");
    for (path, body) in [
        ("/generate", json!({"text": "x", "sampling_params": {"best_of": 3, "max_new_tokens": 2}})),
        ("/v1/responses", json!({"input": "x", "best_of": 3})),
        ("/v1/messages", json!({"messages": user("x"), "max_tokens": 2, "best_of": 3})),
    ] {
        let (status, refused) = server.post(path, body).await;
        assert_eq!(status, 400, "{path}: {refused}");
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_of_the_prompt_are_given_once_per_token_and_finite() {
    let server = Server::start(json!({}), &[]).await;
    let prompt = ids("some words here");
    let body = json!({"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 3, "logit_bias": {"70": -100}});
    let answer = server.good(RAW, body.clone()).await;
    let scores = answer["choices"][0]["prompt_logprobs"].as_array().unwrap();
    assert_eq!(scores.len(), prompt.len());
    assert!(scores[0].is_null());
    for (entry, token) in scores.iter().zip(&prompt).skip(1) {
        let own = &entry[token.to_string()];
        assert!(
            own["logprob"].as_f64().unwrap().is_finite() && own["rank"].as_u64().unwrap() >= 1,
            "{entry}"
        );
        assert!(
            own["decoded_token"].is_string() && (3..=4).contains(&entry.as_object().unwrap().len()),
            "{entry}"
        );
    }
    let echoed = server.good(RAW, with(body, json!({"echo": true, "logprobs": 1}))).await;
    let choice = &echoed["choices"][0];
    assert_eq!(choice["prompt_logprobs"], answer["choices"][0]["prompt_logprobs"]);
    assert!(choice["logprobs"]["top_logprobs"][1].as_object().unwrap().len() <= 2);
    let chat = server
        .good(CHAT, json!({"messages": user("x"), "max_tokens": 1, "prompt_logprobs": 0, "n": 2}))
        .await;
    let scores = chat["prompt_logprobs"].as_array().unwrap().len() as u64;
    assert_eq!(chat["usage"]["prompt_tokens"], scores);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_message_can_be_gone_on_with() {
    let server = Server::start(says(" and more"), &[]).await;
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well [e~["}]);
    let body = json!({"messages": messages, "temperature": 0, "continue_final_message": true});
    let answer = server.good(CHAT, body.clone()).await;
    assert_eq!(content(&answer), " and more");
    let echoed = server.good(CHAT, with(body.clone(), json!({"echo": true}))).await;
    assert_eq!(content(&echoed), "Well [e~[ and more");
    let rendered =
        server.good("/tokenize", with(body.clone(), json!({"add_generation_prompt": false}))).await;
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(prompt.ends_with("]~b]ai\n</mm:think>Well [e~["), "{prompt}");
    assert_eq!(
        rendered["tokens"].as_array().unwrap().last().unwrap().as_u64().unwrap() as u32,
        *ids("[").last().unwrap()
    );
    let mut partial = json!({"messages": messages, "temperature": 0});
    partial["messages"][1]["partial"] = true.into();
    assert_eq!(content(&server.good(CHAT, partial).await), " and more");
    for (fields, param) in [
        (json!({"messages": user("x")}), "messages[0].role"),
        (json!({"messages": [{"role": "assistant", "content": ""}]}), "messages[0].content"),
        (json!({"add_generation_prompt": true}), "add_generation_prompt"),
        (json!({"continue_final_message": false, "echo": true}), "echo"),
        (
            json!({"messages": [{"role": "assistant", "content": "a", "prefix": true}, {"role": "user", "content": "b"}]}),
            "messages[0].prefix",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": "a", "partial": true}], "continue_final_message": false}),
            "continue_final_message",
        ),
    ] {
        let (status, refused) = server.post(CHAT, with(body.clone(), fields)).await;
        assert_eq!((status, refused["error"]["param"].as_str()), (400, Some(param)), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_s_name_of_a_request_is_in_its_id() {
    let server = Server::start(says("a"), &[]).await;
    let answer = server.good(CHAT, json!({"messages": user("x"), "request_id": "mine-1"})).await;
    assert_eq!(answer["id"], "chatcmpl-mine-1");
    let answer = server.good(RAW, json!({"prompt": "x", "rid": "r.2"})).await;
    assert_eq!(answer["id"], "cmpl-r.2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_its_own_stream_interval() {
    let server =
        Server::start(json!({"script": ids("abcd"), "step_us": 2000}), &["--stream-gather-ms", "0"]).await;
    let body = json!({"prompt": "x", "max_tokens": 40, "ignore_eos": true, "temperature": 0});
    let packets = async |interval: u32| {
        let events = server.stream(RAW, with(body.clone(), json!({"stream_interval": interval}))).await;
        events.iter().filter(|event| !event["choices"][0]["text"].as_str().unwrap_or("").is_empty()).count()
    };
    let (fine, coarse) = (packets(1).await, packets(20).await);
    assert!(coarse * 4 < fine, "{coarse} packets of 20 tokens against {fine} of one");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_regex_ends_the_content_behind_its_first_match() {
    let server = Server::start(says("one 22 three 4444 five"), &[]).await;
    let chat = json!({"messages": user("x"), "temperature": 0, "thinking": {"type": "disabled"}});
    let raw = json!({"prompt": "x", "temperature": 0, "max_tokens": 100});
    for (stop, text, cause) in [
        (json!("[0-9]{3}"), "one 22 three 444", "[0-9]{3}"),
        (json!(["never", "[a-z]+ [0-9]"]), "one 2", "[a-z]+ [0-9]"),
    ] {
        let answer = server.good(CHAT, with(chat.clone(), json!({"stop_regex": stop}))).await;
        assert_eq!(content(&answer), text);
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(cause)));
        let events = server.stream(CHAT, with(chat.clone(), json!({"stop_regex": stop}))).await;
        let streamed: String =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(streamed, text);
        let answer = server.good(RAW, with(raw.clone(), json!({"stop_regex": stop}))).await;
        assert_eq!(answer["choices"][0]["text"], text);
        let native = json!({"text": "x", "sampling_params": {"stop_regex": stop, "max_new_tokens": 100,
            "temperature": 0}});
        let answer = server.good("/generate", native).await;
        assert_eq!(
            (&answer["text"], &answer["meta_info"]["finish_reason"]["matched"]),
            (&json!(text), &json!(cause))
        );
    }
    let free = server.good(CHAT, with(chat.clone(), json!({"stop_regex": ["zzz"]}))).await;
    assert_eq!(content(&free), "one 22 three 4444 five");
    for (stop, part) in
        [(json!("a$"), "stop_regex 0"), (json!(["a", "("]), "stop_regex 1"), (json!(3), "stop_regex must")]
    {
        let (status, body) = server.post(CHAT, with(chat.clone(), json!({"stop_regex": stop}))).await;
        let message = body["error"]["message"].as_str().unwrap().to_owned();
        assert!(status == 400 && body["error"]["param"] == "stop_regex" && message.contains(part), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncate_prompt_tokens_keeps_the_end_of_a_raw_prompt() {
    let server = Server::start(json!({}), &["--context-length", "64"]).await;
    let long: Vec<u32> = (0..100).map(|id| id % 50).collect();
    let ask = |kept: i64| json!({"prompt": long, "max_tokens": 4, "temperature": 0, "truncate_prompt_tokens": kept});
    let cut = server.good(RAW, ask(10)).await;
    let by_hand = server.good(RAW, json!({"prompt": long[90..], "max_tokens": 4, "temperature": 0})).await;
    assert_eq!(cut["choices"], by_hand["choices"]);
    assert_eq!(cut["usage"]["prompt_tokens"], 10);
    assert_eq!(server.good(RAW, ask(-1)).await["usage"]["prompt_tokens"], 60);
    let response = server.client.post(format!("{}{RAW}", server.base)).json(&ask(10)).send().await.unwrap();
    assert_eq!(response.headers()["x-truncated-prompt-tokens"], "90", "nothing is cut in silence");
    for (kept, path, body) in [
        ("0", RAW, ask(0)),
        ("200", RAW, ask(200)),
        ("chat", CHAT, json!({"messages": user("x"), "truncate_prompt_tokens": 5})),
    ] {
        let (status, answer) = server.post(path, body).await;
        assert_eq!(status, 400, "{kept}: {answer}");
    }
}
