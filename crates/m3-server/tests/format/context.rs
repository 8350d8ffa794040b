//! Prompts of the lengths that M3's own service promises: just under half a million and a million tokens, and above.

use serde_json::{Value, json};

use super::limits::long_context;
use super::support::{ids, says, user};
use super::{CHAT, refused};

/// A chat whose prompt is a little below `tokens`, and never above.
fn prompt_below(tokens: usize) -> Value {
    let line = "a line of plain text that is repeated\n";
    let lines = (tokens - 1000) / ids(&line.repeat(100)).len() * 100;
    json!({"messages": user(&line.repeat(lines)), "temperature": 0, "max_tokens": 4})
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_just_under_half_a_million_and_a_million_tokens_are_answered() {
    let server = long_context(says("read")).await;
    for tokens in [524_288, 1_048_576] {
        let answer = server.good(CHAT, prompt_below(tokens)).await;
        let read = answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
        assert!(read <= tokens && read > tokens - 8000, "{read} of {tokens}");
        assert_eq!(answer["choices"][0]["message"]["content"], "read");
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_prompt_is_refused_with_both_numbers_and_hurts_nobody() {
    let server = long_context(says("read")).await;
    let (param, message) = refused(&server, prompt_below(1_100_000)).await;
    assert!(message.contains("1048576"), "{param}: {message}");
    server.good(CHAT, json!({"messages": user("hi")})).await;
}
