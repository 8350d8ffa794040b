//! Reasoning effort and thinking modes, on an ordinary build and on one that always thinks.

use serde_json::{Value, json};

use super::support::{Server, says, user};
use super::{CHAT, refused, with};

const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

fn question() -> Value {
    json!({"messages": user("hi"), "temperature": 0})
}

/// The prompt that is served and the mode that was decided.
async fn rendered(server: &Server, fields: Value) -> (Value, Value) {
    let answer = server.good("/v1/chat/completions/render", with(question(), &fields)).await;
    (answer["prompt"].clone(), answer["thinking_mode"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_effort_is_accepted_and_minimal_acts_as_low() {
    for flags in [&[][..], &["--force-thinking"]] {
        let server = Server::start(says("ok"), flags).await;
        for effort in EFFORTS {
            server.good(CHAT, with(question(), &json!({"reasoning_effort": effort}))).await;
        }
        let low = rendered(&server, json!({"reasoning_effort": "low"})).await;
        assert_eq!(rendered(&server, json!({"reasoning_effort": "minimal"})).await, low, "{flags:?}");
        assert_ne!(low.1, "disabled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_efforts_are_ignored() {
    for flags in [&[][..], &["--force-thinking"]] {
        let server = Server::start(says("ok"), flags).await;
        let plain = rendered(&server, json!({})).await;
        for effort in ["ultra", "", "HIGH "] {
            assert_eq!(rendered(&server, json!({"reasoning_effort": effort})).await, plain, "{effort:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_always_thinks_refuses_to_stop_thinking() {
    let server = Server::start(says("ok"), &["--force-thinking"]).await;
    assert_eq!(rendered(&server, json!({})).await.1, "enabled");
    let none = refused(&server, with(question(), &json!({"reasoning_effort": "none"}))).await;
    assert_eq!(none.0, "reasoning_effort");
    for effort in EFFORTS {
        let both = json!({"reasoning_effort": effort, "thinking": {"type": "disabled"}});
        assert_eq!(refused(&server, with(question(), &both)).await.0, "thinking.type", "{effort}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_thinking_type_is_accepted_and_others_are_not() {
    let server = Server::start(says("</mm:think>ok"), &[]).await;
    for mode in ["adaptive", "enabled", "disabled"] {
        let fields = json!({"thinking": {"type": mode}});
        assert_eq!(rendered(&server, fields.clone()).await.1, mode);
        let answer = server.good(CHAT, with(question(), &fields)).await;
        assert_eq!(answer["choices"][0]["message"]["content"], "ok", "{mode}");
    }
    let (param, _) = refused(&server, with(question(), &json!({"thinking": {"type": "sometimes"}}))).await;
    assert_eq!(param, "thinking.type");
}
