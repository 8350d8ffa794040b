//! `/generate` and aborting by name.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{EOS, Server, events, ids, says};

const GENERATE: &str = "/generate";

#[tokio::test(flavor = "multi_thread")]
async fn one_prompt_is_answered_as_sglang_does() {
    let server = Server::start(says("The quick brown fox"), &[]).await;
    let body =
        json!({"text": "x", "sampling_params": {"temperature": 0, "max_new_tokens": 50}, "rid": "mine"});
    let whole = server.good(GENERATE, body.clone()).await;
    assert_eq!(whole["text"], "The quick brown fox");
    assert_eq!(whole["output_ids"], json!(ids("The quick brown fox")));
    let meta = &whole["meta_info"];
    assert_eq!(
        (&meta["id"], &meta["finish_reason"]),
        (&json!("mine"), &json!({"type": "stop", "matched": EOS}))
    );
    assert_eq!(meta["completion_tokens"], ids("The quick brown fox").len() + 1);
    assert_eq!(meta["prompt_tokens"], 1);
    let mut streamed = events(&server.stream_text(GENERATE, body).await);
    let mut before = String::new();
    for chunk in &streamed {
        let text = chunk["text"].as_str().unwrap();
        assert!(text.starts_with(&before), "every chunk has the whole text so far");
        text.clone_into(&mut before);
    }
    let mut last = streamed.pop().unwrap();
    let mut whole = whole.clone();
    for answer in [&mut last, &mut whole] {
        answer["meta_info"]["e2e_latency"] = Value::Null;
        answer["meta_info"]["cached_tokens"] = Value::Null;
    }
    assert_eq!(last, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_answered_with_lists() {
    let server = Server::start(json!({}), &[]).await;
    let settings = json!({"max_new_tokens": 4, "ignore_eos": true, "n": 2});
    let answers =
        server.good(GENERATE, json!({"input_ids": [[1, 2], [3]], "sampling_params": settings})).await;
    assert_eq!(answers.as_array().unwrap().len(), 4);
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["output_ids"].as_array().unwrap().len(), 4);
        assert_eq!(answer["meta_info"]["finish_reason"], json!({"type": "length", "length": 4}));
    }
    let one = server.good(GENERATE, json!({"text": ["x"], "sampling_params": {"max_new_tokens": 1}})).await;
    assert!(one.is_array());
    let default = server.good(GENERATE, json!({"text": "x", "sampling_params": {"ignore_eos": true}})).await;
    assert_eq!(default["meta_info"]["completion_tokens"], 128);
    let chunks = events(
        &server
            .stream_text(GENERATE, json!({"text": ["x", "y"], "sampling_params": {"max_new_tokens": 2}}))
            .await,
    );
    assert!(chunks.iter().any(|chunk| chunk["index"] == 0) && chunks.iter().any(|chunk| chunk["index"] == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_of_prompt_and_output_have_one_entry_a_token() {
    let server = Server::start(says("fox"), &[]).await;
    let body = json!({"text": "The quick brown", "return_logprob": true, "logprob_start_len": 0,
        "top_logprobs_num": 2, "return_text_in_logprobs": true});
    let meta = server.good(GENERATE, body).await["meta_info"].clone();
    let input = meta["input_token_logprobs"].as_array().unwrap();
    assert_eq!(input.len(), ids("The quick brown").len());
    assert_eq!(input[0][0], Value::Null);
    assert!(input[1..].iter().all(|entry| entry[0].as_f64().unwrap() <= 0.0));
    let text: String = input.iter().map(|entry| entry[2].as_str().unwrap()).collect();
    assert_eq!(text, "The quick brown");
    assert_eq!(meta["output_token_logprobs"].as_array().unwrap().len(), ids("fox").len());
    assert_eq!(meta["output_top_logprobs"][0].as_array().unwrap().len(), 2);
    assert_eq!(meta["input_top_logprobs"].as_array().unwrap().len(), input.len());
    let later = json!({"text": "The quick brown", "return_logprob": true, "logprob_start_len": 2});
    let later = server.good(GENERATE, later).await["meta_info"]["input_token_logprobs"].clone();
    assert_eq!(later.as_array().unwrap().len(), input.len() - 2);
    let none = json!({"text": "x", "return_logprob": true});
    assert_eq!(server.good(GENERATE, none).await["meta_info"]["input_token_logprobs"], json!([]));
    let single = json!({"input_ids": [5], "return_logprob": true, "logprob_start_len": 0});
    let single = server.good(GENERATE, single).await["meta_info"]["input_token_logprobs"].clone();
    assert_eq!(single, json!([[null, 5, null]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_aborted_by_name() {
    let server = Server::start(json!({"step_us": 2000}), &[]).await;
    let endless = |rid: &str| json!({"text": "x", "rid": rid, "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let abort = async |body: Value, expected: u64| {
        for _ in 0..200 {
            let aborted = server.good("/abort_request", body.clone()).await["aborted"].as_u64().unwrap();
            if aborted == expected {
                return;
            }
            assert_eq!(aborted, 0);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing to abort");
    };
    let (answer, ()) = tokio::join!(server.good(GENERATE, endless("a")), abort(json!({"rid": "a"}), 1));
    assert_eq!(answer["meta_info"]["finish_reason"]["type"], "abort");
    let (answer, ()) =
        tokio::join!(server.good(GENERATE, endless("b")), abort(json!({"abort_all": true}), 1));
    assert_eq!(answer["meta_info"]["finish_reason"]["type"], "abort");
    assert_eq!(server.good("/abort_request", json!({"rid": "unknown"})).await["aborted"], 0);
    assert_eq!(server.post("/abort_request", json!({})).await.0, 400);
    // A chat request goes by the caller's own id.
    let chat =
        json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 20_000, "ignore_eos": true});
    let url = format!("{}/v1/chat/completions", server.base);
    let send = server.client.post(url).header("x-request-id", "r7").json(&chat).send();
    let (response, ()) = tokio::join!(send, abort(json!({"rid": "chatcmpl-r7"}), 1));
    assert_eq!(response.unwrap().status(), 503);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_fields_of_this_api() {
    let server = Server::start(says("a"), &[]).await;
    for (body, param) in [
        (json!({"text": "x", "sampling_params": {"temperature": 9}}), "sampling_params.temperature"),
        (json!({"text": "x", "sampling_params": {"max_new_tokens": -1}}), "sampling_params.max_new_tokens"),
        (json!({"text": "x", "sampling_params": {"n": 1, "best_of": 3}}), "sampling_params.best_of"),
        (json!({"input_ids": []}), "input_ids"),
        (json!({"input_ids": [[1], ["x"]]}), "input_ids[1][0]"),
        (json!({"input_ids": [99_999_999]}), "input_ids"),
        (json!({"text": "x", "return_logprob": true, "top_logprobs_num": 5000}), "top_logprobs_num"),
        (json!({"text": ["x", "y"], "rid": ["a", "b", "c"]}), "rid"),
    ] {
        let (status, answer) = server.post(GENERATE, body.clone()).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{body}: {answer}");
    }
}
