//! Bodies of /v1/responses as clients send them, and what is refused.

use super::*;

fn read(body: Value) -> Result<ResponsesRequest, ApiError> {
    ResponsesRequest::read(body, |id| Err(ApiError::invalid("previous_response_id", id)))
}

fn messages(body: Value) -> Value {
    read(body).unwrap().chat["messages"].clone()
}

#[test]
fn text_and_instructions_become_two_messages() {
    let body = json!({"input": "hi", "instructions": "be kind"});
    assert_eq!(
        messages(body),
        json!([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}])
    );
}

#[test]
fn the_items_of_one_turn_become_one_message() {
    let body = json!({"input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one moment"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "r1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r2"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": super::input::seal("again 字")},
        {"type": "message", "role": "assistant", "content": "done"},
    ]});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        messages(body),
        json!([
            {"role": "user", "content": "ab"},
            {"role": "assistant", "content": "one moment", "reasoning_content": "think",
             "tool_calls": [call("c1", "f", "{\"a\":1}"), call("c2", "g", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "r1"},
            {"role": "tool", "tool_call_id": "c2", "content": "r2"},
            {"role": "assistant", "content": "done", "reasoning_content": "again 字"},
        ])
    );
}

#[test]
fn two_turns_without_a_question_between_stay_two() {
    let turn = |think: &str, say: &str| {
        [
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": think}]}),
            json!({"type": "message", "role": "assistant", "content": say}),
        ]
    };
    let items: Vec<Value> = [turn("t1", "s1"), turn("t2", "s2")].into_iter().flatten().collect();
    let messages = messages(json!({"input": items}));
    assert_eq!(messages[0], json!({"role": "assistant", "content": "s1", "reasoning_content": "t1"}));
    assert_eq!(messages[1], json!({"role": "assistant", "content": "s2", "reasoning_content": "t2"}));
}

#[test]
fn fields_get_their_chat_names() {
    let schema = json!({"type": "object"});
    let request = read(
        json!({"input": "x", "max_output_tokens": 7, "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}},
        "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": true}],
        "tool_choice": {"type": "function", "name": "f"}, "include": ["reasoning.encrypted_content"],
        "top_logprobs": 2, "seed": 5, "model": "m", "store": false, "stream": true}),
    )
    .unwrap();
    let chat = Value::Object(request.chat);
    assert_eq!(chat["max_tokens"], 7);
    assert_eq!(chat["reasoning_effort"], "high");
    assert_eq!(
        chat["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}})
    );
    assert_eq!(chat["tools"][0]["function"], json!({"name": "f", "parameters": schema, "strict": true}));
    assert_eq!(chat["tool_choice"], json!({"type": "function", "name": "f"}));
    assert_eq!((&chat["logprobs"], &chat["top_logprobs"]), (&json!(true), &json!(2)));
    assert_eq!((&chat["seed"], &chat["model"]), (&json!(5), &json!("m")));
    assert!(!request.store && request.stream && request.encrypted_reasoning);
    let allowed = read(json!({"input": "x", "tool_choice": {"type": "allowed_tools", "mode": "auto",
        "tools": [{"type": "function", "name": "f"}]}}))
    .unwrap();
    assert_eq!(
        allowed.chat["tool_choice"],
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})
    );
}

#[test]
fn what_cannot_be_honoured_is_named() {
    let image = json!([{"role": "user", "content": [{"type": "input_file", "file_url": "data:x"}]}]);
    for (field, value, param) in [
        ("input", json!(3), "input"),
        ("input", json!([3]), "input[0]"),
        ("input", json!([{"type": "computer_call", "id": "c"}]), "input[0].type"),
        ("input", json!([{"role": "user", "content": 3}]), "input[0].content"),
        ("input", image, "input[0].content[0].type"),
        ("input", json!([{"type": "function_call_output", "call_id": "c", "output": {}}]), "input[0].output"),
        ("input", json!([{"type": "function_call", "name": "f"}]), "input[0].call_id"),
        ("instructions", json!(3), "instructions"),
        ("tools", json!([{"type": "web_search"}]), "tools[0].type"),
        ("tools", json!([{"type": "mcp", "server_url": "x"}]), "tools[0].type"),
        ("tool_choice", json!({"type": "file_search"}), "tool_choice.type"),
        (
            "tool_choice",
            json!({"type": "allowed_tools", "tools": [{"type": "mcp"}]}),
            "tool_choice.tools[0].type",
        ),
        ("include", json!(["x"]), "include[0]"),
        ("truncation", json!("middle"), "truncation"),
        ("text", json!({"verbosity": "loud"}), "text.verbosity"),
        ("conversation", json!("conv_1"), "conversation"),
        ("prompt", json!({"id": "p"}), "prompt"),
        ("metadata", json!("x"), "metadata"),
        ("previous_response_id", json!("resp_x"), "previous_response_id"),
    ] {
        let mut body = json!({"input": "x"});
        body[field] = value;
        let error = read(body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{field}: {}", error.message);
    }
    let hosted = read(json!({"input": "x", "tools": [{"type": "code_interpreter"}]})).unwrap_err();
    assert!(hosted.message.contains("code_interpreter"), "{}", hosted.message);
    assert!(read(json!({"input": "x", "background": true, "store": false})).is_err());
}

#[test]
fn what_is_wrong_with_a_call_is_told_of_its_item() {
    let call =
        |name: &str| json!({"type": "function_call", "call_id": name, "name": name, "arguments": "{}"});
    let request = read(json!({"input": [{"role": "user", "content": "x"}, call("a"), call("b")]})).unwrap();
    let error = ApiError::invalid(
        "messages[1].tool_calls[1].function.name",
        "messages[1].tool_calls[1].function.name is",
    );
    assert_eq!(request.renames.apply(error).param.as_deref(), Some("input[2].name"));
}

#[test]
fn refusals_of_the_chat_route_are_told_in_this_api_s_words() {
    let request = read(json!({"instructions": "s", "input": [{"role": "alien", "content": "x"}]})).unwrap();
    let error = ApiError::invalid("messages[1].role", "messages[1].role is \"alien\"");
    let error = request.renames.apply(error);
    assert_eq!(
        (error.param.as_deref(), error.message.as_str()),
        (Some("input[0].role"), "input[0].role is \"alien\"")
    );
}
