//! Bodies of /v1/messages as clients send them, and what is refused.

use super::*;

fn read(body: Value) -> Result<MessagesRequest, ApiError> {
    MessagesRequest::read(body, false, false)
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
    body[field] = value;
    body
}

fn messages(body: Value) -> Value {
    read(body).unwrap().chat["messages"].clone()
}

#[test]
fn blocks_find_their_places_in_any_order() {
    let body = with(
        "messages",
        json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "one moment"},
                {"type": "thinking", "thinking": "hm", "signature": "any"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "text", "text": "and "},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "r"}]},
                {"type": "text", "text": "more"}]},
        ]),
    );
    assert_eq!(
        messages(body),
        json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "one moment", "reasoning_content": "hm", "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "r"},
            {"role": "user", "content": "and more"},
        ])
    );
}

#[test]
fn what_is_wrong_with_a_call_is_told_of_its_block() {
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": [1]});
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "text", "text": "y"}, call]}]);
    let request = read(with("messages", messages)).unwrap();
    for (chat, own) in [("arguments", "input"), ("name", "name")] {
        let error = ApiError::invalid(format!("messages[1].tool_calls[0].function.{chat}"), "no");
        let path = format!("messages[1].content[1].{own}");
        assert_eq!(request.renames.apply(error).param, Some(path));
    }
}

/// C6: a line that differs in every request would make every prompt new to the cache.
#[test]
fn a_volatile_first_line_is_left_out_unless_kept() {
    let system = |hash: &str| {
        json!([{"type": "text", "text": format!("x-anthropic-billing-header: cc_version=1; cch={hash};\nBe kind.")},
            {"type": "text", "text": "And brief.", "cache_control": {"type": "ephemeral"}}])
    };
    let first = messages(with("system", system("AAAAA")));
    assert_eq!(first, messages(with("system", system("BBBBB"))));
    assert_eq!(first[0], json!({"role": "system", "content": "Be kind.\n\nAnd brief."}));
    let kept = MessagesRequest::read(with("system", system("AAAAA")), false, true).unwrap();
    assert!(kept.chat["messages"][0]["content"].as_str().unwrap().contains("cch=AAAAA"));
    assert_eq!(messages(with("system", json!("plain")))[0]["content"], "plain");
}

/// C7: marks for the cache change no token.
#[test]
fn cache_marks_change_nothing() {
    let content = |marked: usize| {
        let block = |at: usize| {
            let mut block = json!({"type": "text", "text": format!("t{at}")});
            if at == marked {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
            block
        };
        with("messages", json!([{"role": "user", "content": [block(0), block(1)]}]))
    };
    assert_eq!(messages(content(0)), messages(content(1)));
}

#[test]
fn fields_get_their_chat_names() {
    let mut body = with("stop_sequences", json!(["END"]));
    body["tools"] = json!([{"name": "f", "type": "custom", "description": "d", "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"}, "eager_input_streaming": true, "allowed_callers": ["direct"],
        "strict": null}]);
    body["tool_choice"] = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    body["top_k"] = json!(40);
    body["metadata"] = json!({"user_id": "u"});
    let chat = Value::Object(read(body).unwrap().chat);
    assert_eq!(chat["stop"], json!(["END"]));
    let function = json!({"name": "f", "parameters": {"type": "object"}, "description": "d"});
    assert_eq!(chat["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(chat["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    assert_eq!(chat["parallel_tool_calls"], json!(false));
    assert_eq!(chat["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
    assert_eq!((&chat["top_k"], &chat["max_tokens"], chat.get("metadata")), (&json!(40), &json!(5), None));
    for (given, wanted) in [("auto", "auto"), ("any", "required"), ("none", "none")] {
        assert_eq!(read(with("tool_choice", json!({"type": given}))).unwrap().chat["tool_choice"], wanted);
    }
}

#[test]
fn what_cannot_be_honoured_is_named() {
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let image = user(json!([{"type": "image", "source": {"type": "file", "file_id": "x"}}]));
    for (field, value, param) in [
        ("messages", image, "messages[0].content[0].source.type"),
        ("messages", user(json!([{"type": "document"}])), "messages[0].content[0].type"),
        ("messages", user(json!([{"type": "tool_result"}])), "messages[0].content[0].tool_use_id"),
        ("messages", user(json!(3)), "messages[0].content"),
        ("messages", json!([]), "messages"),
        ("messages", json!([{"role": "alien", "content": "x"}]), "messages[0].role"),
        ("system", json!([{"type": "image"}]), "system[0].type"),
        ("tools", json!([{"type": "web_search_20250305", "name": "web_search"}]), "tools[0].type"),
        ("tools", json!([{"name": "f"}]), "tools[0].input_schema"),
        ("tools", json!([{"name": "f", "input_schema": {}, "schema": {}}]), "tools[0].schema"),
        ("tools", json!([{"name": "f", "input_schema": {}, "parameters": {}}]), "tools[0].parameters"),
        (
            "tools",
            json!([{"name": "f", "input_schema": {}, "allowed_callers": ["x"]}]),
            "tools[0].allowed_callers",
        ),
        ("tool_choice", json!({"type": "maybe"}), "tool_choice.type"),
        ("tool_choice", json!({"type": "auto", "name": "f"}), "tool_choice.name"),
        ("tool_choice", json!({"type": "tool", "name": "f", "force": true}), "tool_choice.force"),
        ("tool_choice", json!("auto"), "tool_choice"),
        ("thinking", json!({"type": "enabled", "display": "loud"}), "thinking.display"),
        ("thinking", json!("on"), "thinking"),
        ("container", json!("c"), "container"),
        ("mcp_servers", json!([{"url": "x"}]), "mcp_servers"),
        ("max_tokens", json!(null), "max_tokens"),
    ] {
        let error = read(with(field, value)).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{field}: {}", error.message);
    }
    assert!(
        MessagesRequest::read(with("max_tokens", json!(null)), true, false).is_ok(),
        "counting needs no limit"
    );
}

#[test]
fn a_message_that_ends_with_the_assistant_is_continued() {
    let body =
        with("messages", json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]));
    let chat = Value::Object(read(body).unwrap().chat);
    assert_eq!(
        (&chat["continue_final_message"], &chat["add_generation_prompt"]),
        (&json!(true), &json!(false))
    );
    let omitted = read(with("thinking", json!({"type": "adaptive", "display": "omitted"}))).unwrap();
    assert_eq!(omitted.chat["include_reasoning"], false);
}
