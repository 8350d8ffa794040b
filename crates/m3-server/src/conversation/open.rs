//! A last message that the model is to go on with.

use serde_json::Value;

use crate::error::ApiError;

/// Whether the last message says so itself (`prefix` or `partial`, as some clients send it). 400 where any other does.
pub fn last_is_partial(messages: &[Value]) -> Result<bool, ApiError> {
    let says_so = |message: &Value| {
        let names = ["prefix", "partial"];
        names.into_iter().find(|name| message.get(name) == Some(&Value::Bool(true)))
    };
    let Some((last, earlier)) = messages.split_last() else { return Ok(false) };
    for (at, message) in earlier.iter().enumerate() {
        if let Some(name) = says_so(message) {
            let param = format!("messages[{at}].{name}");
            let sentence = format!("{param} cannot be honoured: only the last message can be left open");
            return Err(ApiError::unsupported(&param, sentence));
        }
    }
    Ok(says_so(last).is_some())
}

/// Only an answer's text can be left open: a call or a reasoning that was begun has no place to go on from.
pub fn check_open(messages: &[Value]) -> Result<(), ApiError> {
    let at = messages.len().saturating_sub(1);
    let refuse = |field: &str, sentence: &str| {
        let param = format!("messages[{at}].{field}");
        Err(ApiError::invalid(&param, format!("{param}: {sentence}")))
    };
    let last = messages.last().unwrap_or(&Value::Null);
    if last["role"] != "assistant" {
        return refuse("role", "a message that is to be continued has the role \"assistant\"");
    }
    if last.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty()) {
        return refuse("tool_calls", "a message with calls cannot be continued");
    }
    let empty = match &last["content"] {
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => parts.is_empty(),
        _ => true,
    };
    if empty {
        return refuse("content", "a message that is to be continued needs some text");
    }
    Ok(())
}
