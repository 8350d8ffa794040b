//! What is mended and what is refused.

use serde_json::{Value, json};

use super::*;

fn good(messages: Value) -> Value {
    Value::Array(normalise(messages.as_array().unwrap()).unwrap().messages)
}

/// The field that is named and the sentence.
fn refused(messages: Value) -> (String, String) {
    let error = normalise(messages.as_array().unwrap()).unwrap_err();
    assert_eq!(error.status, 400);
    (error.param.unwrap_or_default(), error.message)
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}})
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[test]
fn system_messages_are_joined_wherever_they_stand() {
    let turns = good(json!([
        {"role": "root", "content": "R"},
        {"role": "system", "content": "A"},
        {"role": "developer", "content": "B"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": [{"type": "text", "text": "C"}]},
    ]));
    assert_eq!(
        turns,
        json!([
            {"role": "root", "content": "R"},
            {"role": "system", "content": "A\n\nB\n\nC"},
            {"role": "user", "content": "hi"},
        ])
    );
}

#[test]
fn content_may_be_missing_null_empty_or_parts() {
    for content in [json!(null), json!(""), json!([])] {
        assert_eq!(good(json!([{"role": "user", "content": content}]))[0]["content"], "");
    }
    assert_eq!(good(json!([{"role": "user"}]))[0]["content"], "");
    let parts = json!([{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]);
    assert_eq!(good(json!([{"role": "user", "content": parts}]))[0]["content"], "abc");
}

#[test]
fn arguments_as_text_become_an_object_in_their_own_order() {
    let arguments = "{\"b\":1.0,\"a\":[1,null]}";
    let turns = good(json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": null,
         "tool_calls": [{"id": "c", "type": "function", "function": {"name": "my-tool.v2", "arguments": arguments}}]},
        result("c", json!(null)),
    ]));
    let parsed = &turns[1]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(parsed.to_string(), "{\"b\":1.0,\"a\":[1,null]}");
    assert_eq!(turns[2]["content"], "");
    for empty in [json!(""), json!(null), json!("{}"), json!({})] {
        let turns = good(json!([{"role": "assistant", "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": empty}}]}]));
        assert_eq!(turns[0]["tool_calls"][0]["function"]["arguments"], json!({}));
    }
}

#[test]
fn results_are_put_into_the_order_of_their_calls() {
    let turns = good(json!([
        {"role": "assistant", "content": "", "tool_calls": [call("c1"), call("c2")]},
        result("c2", json!("second")),
        result("c1", json!("first")),
        {"role": "user", "content": "go on"},
    ]));
    assert_eq!((&turns[1]["content"], &turns[2]["content"]), (&json!("first"), &json!("second")));
}

#[test]
fn calls_and_results_that_do_not_match_are_refused_by_id() {
    let assistant = json!({"role": "assistant", "content": "", "tool_calls": [call("c1"), call("c2")]});
    let (param, text) = refused(json!([assistant, result("c1", json!("r")), result("zz", json!("r"))]));
    assert_eq!((param.as_str(), text.contains("\"zz\"")), ("messages[2].tool_call_id", true));
    let (_, text) = refused(json!([assistant, result("c1", json!("r"))]));
    assert!(text.contains("\"c2\""), "{text}");
    let (_, text) = refused(json!([assistant, result("c1", json!("r")), result("c1", json!("r"))]));
    assert!(text.contains("answered twice"), "{text}");
    let (_, text) = refused(json!([assistant, {"role": "user", "content": "x"}]));
    assert!(text.contains("has no tool message"), "{text}");
    let (param, _) = refused(json!([{"role": "user", "content": "x"}, result("c1", json!("r"))]));
    assert_eq!(param, "messages[1].role");
    let (param, text) = refused(json!([assistant, result("c1", json!({"a": 1})), result("c2", json!(""))]));
    assert_eq!(param, "messages[1].content");
    assert!(text.contains("is an object"), "{text}");
    let (param, _) =
        refused(json!([{"role": "assistant", "tool_calls": [call("c"), call("c")]}, result("c", json!(""))]));
    assert_eq!(param, "messages[0].tool_calls[1].id");
    good(json!([{"role": "user", "content": "x"}, assistant]));
}

#[test]
fn calls_or_results_without_ids_are_taken_in_order() {
    let bare = json!({"name": "f", "arguments": {"a": 1}});
    let turns = good(json!([{"role": "assistant", "tool_calls": [bare]}, {"role": "tool", "content": "r"}]));
    assert_eq!(turns[0]["tool_calls"][0]["function"], bare);
    let two = json!({"role": "assistant", "tool_calls": [call("c1"), call("c2")]});
    let without = |text: &str| json!({"role": "tool", "content": text});
    let turns = good(json!([two, without("first"), without("second")]));
    assert_eq!((&turns[1]["content"], &turns[2]["content"]), (&json!("first"), &json!("second")));
    assert_eq!(refused(json!([two, without("first")])).0, "messages[1].tool_call_id");
    assert_eq!(
        refused(json!([two, result("c1", json!("")), without("second")])).0,
        "messages[2].tool_call_id"
    );
    let bare = json!({"function": {"name": "f", "arguments": "{}"}});
    good(json!([{"role": "assistant", "tool_calls": [bare]}, {"role": "tool", "content": "r"}]));
}

#[test]
fn reasoning_is_read_under_either_name_and_never_from_the_text() {
    let turns = good(json!([
        {"role": "assistant", "content": "a", "reasoning_content": "r1"},
        {"role": "assistant", "content": "a", "reasoning": "r2"},
        {"role": "assistant", "content": "quotes </mm:think> here"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "r3"}]},
    ]));
    let reasoning: Vec<&str> = (0..4).map(|at| turns[at]["reasoning_content"].as_str().unwrap()).collect();
    assert_eq!(reasoning, ["r1", "r2", "", "r3"]);
    assert_eq!(turns[2]["content"], "quotes </mm:think> here");
}

#[test]
fn names_and_refusals_change_nothing_and_audio_is_400() {
    let plain = good(json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]));
    let named = good(json!([
        {"role": "user", "content": "x", "name": "Ann", "audio": null, "id": "m1"},
        {"role": "assistant", "content": "y", "refusal": null, "annotations": [], "audio": null, "prefix": false},
    ]));
    assert_eq!(named, plain);
    for (field, value) in [
        ("audio", json!({"id": "a"})),
        ("tools", json!([])),
        ("prefix", json!(true)),
        ("partial", json!("yes")),
    ] {
        let mut message = json!({"role": "user", "content": "y"});
        message[field] = value;
        let (param, text) = refused(json!([message]));
        assert_eq!(param, format!("messages[0].{field}"));
        assert!(text.contains("cannot be honoured"), "{text}");
    }
    assert_eq!(refused(json!([{"role": "user", "content": "x", "name": 3}])).0, "messages[0].name");
}

#[test]
fn a_key_that_stands_twice_in_arguments_is_named() {
    let call = |arguments: &str| json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
    for text in ["{\"city\":1,\"city\":2}", "{\"a\":[{\"city\":1,\"b\":2,\"city\":1}]}"] {
        let (param, text) = refused(call(text));
        assert_eq!(param, "messages[0].tool_calls[0].function.arguments");
        assert!(text.contains("the key \"city\" stands twice"), "{text}");
    }
}

#[test]
fn wrong_shapes_name_their_path() {
    for (messages, param) in [
        (json!([]), "messages"),
        (json!([1]), "messages[0]"),
        (json!([{"content": "x"}]), "messages[0].role"),
        (json!([{"role": "alien", "content": "x"}]), "messages[0].role"),
        (json!([{"role": "function", "name": "f", "content": "x"}]), "messages[0].role"),
        (
            json!([{"role": "assistant", "function_call": {"name": "f"}, "tool_calls": [call("c")]}]),
            "messages[0].function_call",
        ),
        (json!([{"role": "user", "content": "x"}, {"role": "root", "content": "x"}]), "messages[1].role"),
        (json!([{"role": "user", "content": 7}]), "messages[0].content"),
        (json!([{"role": "user", "content": [{"text": "x"}]}]), "messages[0].content[0].type"),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"detail": "low"}}]}]),
            "messages[0].content[0].image_url.url",
        ),
        (json!([{"role": "user", "content": [{"type": "audio"}]}]), "messages[0].content[0].type"),
        (json!([{"role": "user", "tool_calls": [call("c")]}]), "messages[0].tool_calls"),
        (json!([{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls"),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "a\"b"}}]}]),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            json!([{"role": "assistant", "function_call": {"arguments": "{}"}}]),
            "messages[0].function_call.name",
        ),
        (json!([{"role": "assistant", "function_call": "f"}]), "messages[0].function_call"),
    ] {
        assert_eq!(refused(messages.clone()).0, param, "{messages}");
    }
}

#[test]
fn tools_are_checked_by_field() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    check_tools(&[tool("f"), tool("my-tool.v2"), json!({"function": {"name": "bare"}})]).unwrap();
    for (tools, param) in [
        (vec![json!({"type": "web"})], "tools[0].type"),
        (vec![json!({"defer_loading": true, "function": {"name": "f"}})], "tools[0].defer_loading"),
        (vec![json!({"type": "function"})], "tools[0].function"),
        (vec![json!({"function": {}})], "tools[0].function.name"),
        (vec![json!({"function": {"name": 3}})], "tools[0].function.name"),
        (vec![tool("a b")], "tools[0].function.name"),
        (vec![tool(&"x".repeat(257))], "tools[0].function.name"),
        (vec![json!({"function": {"name": "f", "parameters": []}})], "tools[0].function.parameters"),
        (vec![tool("f"), tool("f")], "tools[1].function.name"),
        (vec![json!({"function": {"name": "f"}, "name": "f"})], "tools[0].name"),
        (vec![json!({"function": {"name": "f", "paramaters": {}}})], "tools[0].function.paramaters"),
        (vec![json!({"function": {"name": "f", "strict": "yes"}})], "tools[0].function.strict"),
        (vec![json!({"function": {"name": "f"}, "strict": 1})], "tools[0].strict"),
    ] {
        assert_eq!(check_tools(&tools).unwrap_err().param.as_deref(), Some(param));
    }
}

#[test]
fn members_that_only_concern_the_transport_are_not_shown_to_the_model() {
    let function = json!({"name": "f", "description": "d", "strict": true, "parameters": {"type": "object"},
        "returns": {"type": "string"}});
    let mut marked = function.clone();
    marked["cache_control"] = json!({"type": "ephemeral"});
    marked["defer_loading"] = json!(false);
    let entry = |function: &Value| {
        json!({"type": "function", "function": function, "strict": null,
        "cache_control": {"type": "ephemeral"}})
    };
    assert_eq!(read_tools(vec![entry(&marked)]).unwrap(), [entry(&function)]);
}

#[test]
fn the_old_function_form_becomes_a_call_and_its_result() {
    let turns = good(json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"a\":1}"}},
        {"role": "function", "name": "f", "content": "r"},
    ]));
    let function = json!({"name": "f", "arguments": {"a": 1}});
    assert_eq!(turns[1]["tool_calls"], json!([{"id": null, "type": "function", "function": function}]));
    assert_eq!(turns[2], json!({"role": "tool", "content": "r"}));
}
