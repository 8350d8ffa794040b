//! Calls that come out: schemas of every kind, deep and long values, many tools, the choice of a tool.

use serde_json::{Value, json};

use super::support::{Server, says, user};
use super::{CHAT, block, calls, element, invoke, object, refused, tool};

/// The arguments of the only call of a model that says these parameters.
async fn arguments(parameters: &str, schema: &Value) -> Value {
    let server = Server::start(says(&block(&invoke("f", parameters))), &[]).await;
    let body = json!({"messages": user("x"), "tools": [tool("f", schema)], "temperature": 0});
    let mut calls = calls(&server, body).await;
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_of_at_the_top_keeps_the_type_of_each_branch() {
    let branch = |properties: Value| json!({"properties": properties});
    let list = |kind: &str| json!({"l": {"type": "array", "items": {"type": kind}}});
    let schema = |branches: Value| json!({"type": "object", "oneOf": branches});
    let number = branch(json!({"n": {"type": "number"}}));
    let items = element("l", &format!("{}{}", element("item", "12"), element("item", "34")));
    let all = schema(json!([number, branch(list("string")), branch(list("integer"))]));
    assert_eq!(arguments(&element("n", "42"), &all).await, json!({"n": 42}));
    let strings = schema(json!([number, branch(list("string"))]));
    assert_eq!(arguments(&items, &strings).await, json!({"l": ["12", "34"]}));
    let integers = schema(json!([number, branch(list("integer"))]));
    assert_eq!(arguments(&items, &integers).await, json!({"l": [12, 34]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn four_levels_of_nesting_keep_their_types() {
    let schema = object(json!({"a": object(json!({"b": {"type": "array", "items":
        object(json!({"c": object(json!({"d": {"type": "integer"}, "e": {"type": "boolean"}}))}))}}))}));
    let inner =
        |number: &str| element("item", &element("c", &(element("d", number) + &element("e", "true"))));
    let parameters = element("a", &element("b", &(inner("1") + &inner("2"))));
    let expected = json!({"a": {"b": [{"c": {"d": 1, "e": true}}, {"c": {"d": 2, "e": true}}]}});
    assert_eq!(arguments(&parameters, &schema).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_tools_are_shown_in_order_and_the_last_one_can_be_called() {
    let server = Server::start(says(&block(&invoke("tool_29", &element("x", "7")))), &[]).await;
    let tools: Vec<Value> =
        (0..30).map(|at| tool(&format!("tool_{at}"), &object(json!({"x": {"type": "integer"}})))).collect();
    let body = json!({"messages": user("x"), "tools": tools, "temperature": 0});
    let rendered = server.good("/v1/chat/completions/render", body.clone()).await;
    let prompt = rendered["prompt"].as_str().unwrap();
    let places: Vec<usize> =
        (0..30).map(|at| prompt.find(&format!("\"tool_{at}\"")).expect("every tool is shown")).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(calls(&server, body).await, [("tool_29".to_owned(), json!({"x": 7}))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_ten_thousand_characters_come_out_whole() {
    let text: String = (0..1000).map(|line| format!("row {line:04}\n")).collect();
    let schema = object(json!({"content": {"type": "string"}}));
    assert_eq!(arguments(&element("content", &text), &schema).await, json!({"content": text}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_properties_is_kept_in_and_out() {
    let names = ["zulu", "alpha", "mike", "bravo", "yankee", "kilo"];
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let parameters: String = names.iter().map(|name| element(name, "v")).collect();
    let server = Server::start(says(&block(&invoke("f", &parameters))), &[]).await;
    let body =
        json!({"messages": user("x"), "tools": [tool("f", &object(properties.into()))], "temperature": 0});
    let in_order = |text: &str| {
        let places: Vec<usize> =
            names.iter().map(|name| text.find(&format!("\"{name}\"")).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
    };
    let rendered = server.good("/v1/chat/completions/render", body.clone()).await;
    in_order(rendered["prompt"].as_str().unwrap());
    let answer = server.good(CHAT, body).await;
    in_order(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_a_tool_that_is_not_there_is_refused() {
    let server = Server::start(says("ok"), &[]).await;
    let body = json!({"messages": user("x"), "tools": [tool("f", &object(json!({})))],
        "tool_choice": {"type": "function", "function": {"name": "absent"}}});
    let (param, message) = refused(&server, body).await;
    assert!(param.starts_with("tool_choice") && message.contains("absent"), "{param}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_call_is_made_and_fits_its_schema() {
    let server = Server::start(says("I would rather talk."), &[]).await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "f"}})] {
        let body = json!({"messages": user("x"), "tools": [tool("f", &schema)], "tool_choice": choice,
            "thinking": {"type": "disabled"}, "max_tokens": 400});
        let calls = calls(&server, body).await;
        assert!(!calls.is_empty());
        for (name, arguments) in calls {
            assert_eq!(name, "f");
            assert!(arguments["n"].is_i64() || arguments["n"].is_u64(), "{arguments}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_have_ids_and_indexes_of_their_own() {
    let invokes: String = (0..5).map(|at| invoke("f", &element("x", &at.to_string()))).collect();
    let server = Server::start(says(&block(&invokes)), &[]).await;
    let body = json!({"messages": user("x"), "temperature": 0,
        "tools": [tool("f", &object(json!({"x": {"type": "integer"}})))]});
    let expected: Vec<(String, Value)> = (0..5).map(|at| ("f".to_owned(), json!({"x": at}))).collect();
    assert_eq!(calls(&server, body.clone()).await, expected);
    let answer = server.good(CHAT, body).await;
    let ids: std::collections::HashSet<&str> = answer["choices"][0]["message"]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 5);
}
