//! Constrained output through HTTP on the bundled model with real arithmetic. Its weights are random, so whatever holds
//! here holds by the grammar alone: at temperature 1, streamed or not, for content and for tool calls.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use serde_json::{Map, Value, json};
use support::{Server, says, user};

const CHAT: &str = "/v1/chat/completions";

async fn server() -> Server {
    let flags = ["--backend", "cpu", "--kv-cache-memory-bytes", "64M", "--threads", "1"];
    Server::start(json!({}), &flags).await
}

fn request(fields: Value) -> Value {
    let mut body = json!({"messages": user("Go."), "temperature": 1, "max_tokens": 400,
        "thinking": {"type": "disabled"}});
    let map: &mut Map<String, Value> = body.as_object_mut().unwrap();
    map.extend(fields.as_object().unwrap().clone());
    body
}

fn weather() -> Value {
    json!([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
        "properties": {"unit": {"enum": ["celsius", "kelvin"]}, "days": {"type": "integer", "minimum": 1,
        "maximum": 14}, "at": {"type": "array", "items": {"type": "object", "properties": {"hot":
        {"type": "boolean"}}, "required": ["hot"], "additionalProperties": false}, "minItems": 1, "maxItems": 2}},
        "required": ["unit", "at"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "stop_it", "parameters": {"type": "object", "properties": {}}}}])
}

fn assert_weather(arguments: &str) {
    let value: Value = serde_json::from_str(arguments).unwrap();
    assert!(["celsius", "kelvin"].iter().any(|unit| value["unit"] == *unit), "{arguments}");
    assert!(value.get("days").is_none_or(|days| (1..=14).contains(&days.as_i64().unwrap())), "{arguments}");
    let at = value["at"].as_array().unwrap_or_else(|| panic!("{arguments}"));
    assert!((1..=2).contains(&at.len()) && at.iter().all(|one| one["hot"].is_boolean()), "{arguments}");
}

/// The message that streamed deltas add up to.
fn folded(events: &[Value]) -> Value {
    let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            calls.resize(calls.len().max(index + 1), Default::default());
            calls[index].0.push_str(call["function"]["name"].as_str().unwrap_or_default());
            calls[index].1.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    let calls: Vec<Value> = calls
        .into_iter()
        .map(|(name, arguments)| json!({"function": {"name": name, "arguments": arguments}}))
        .collect();
    json!({"content": content, "tool_calls": calls})
}

#[tokio::test(flavor = "multi_thread")]
async fn f3_f7_json_fits_its_schema_on_every_endpoint_streamed_or_not() {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99},
        "s": {"enum": ["x", "y"]}, "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
        "required": ["n", "s", "l"], "additionalProperties": false});
    let check = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!((0..=99).contains(&value["n"].as_i64().unwrap()), "{text}");
        assert!(value["s"] == "x" || value["s"] == "y", "{text}");
        assert!(value["l"].as_array().unwrap().iter().all(Value::is_boolean), "{text}");
    };
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
    let body = request(json!({"response_format": format, "n": 4}));
    let answer = server.good(CHAT, body).await;
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        check(choice["message"]["content"].as_str().unwrap());
    }
    for _ in 0..4 {
        let events = server.stream(CHAT, request(json!({"response_format": format}))).await;
        check(folded(&events)["content"].as_str().unwrap());
    }
    let native = json!({"text": "Go", "sampling_params": {"json_schema": schema.to_string(), "temperature": 1,
        "max_new_tokens": 400}});
    check(server.good("/generate", native).await["text"].as_str().unwrap());
    let completion = json!({"prompt": "Go", "guided_json": schema, "max_tokens": 400, "temperature": 1});
    check(server.good("/v1/completions", completion).await["choices"][0]["text"].as_str().unwrap());
    let responses = json!({"input": "Go", "temperature": 1, "max_output_tokens": 400, "reasoning": {"effort": "none"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}});
    let answer = server.good("/v1/responses", responses).await;
    let text = &answer["output"].as_array().unwrap().last().unwrap()["content"][0]["text"];
    check(text.as_str().unwrap_or_else(|| panic!("{answer}")));
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_required_and_named_calls_are_made_and_valid() {
    let server = server().await;
    for round in 0..4 {
        let required = request(json!({"tools": weather(), "tool_choice": "required", "seed": round}));
        let message = server.good(CHAT, required).await["choices"][0].clone();
        let calls = message["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{message}"));
        // Random weights may go on calling until there is no room; then the last call is cut.
        let cut = usize::from(message["finish_reason"] == "length");
        assert!(!calls.is_empty());
        for call in &calls[..calls.len() - cut] {
            match call["function"]["name"].as_str().unwrap() {
                "get_weather" => assert_weather(call["function"]["arguments"].as_str().unwrap()),
                name => assert_eq!((name, call["function"]["arguments"].as_str()), ("stop_it", Some("{}"))),
            }
        }
        let choice = json!({"type": "function", "function": {"name": "get_weather"}});
        let named = request(json!({"tools": weather(), "tool_choice": choice, "seed": round}));
        let message = folded(&server.stream(CHAT, named).await);
        let calls = message["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{message}");
        assert_eq!(message["content"], "");
        assert_weather(calls[0]["function"]["arguments"].as_str().unwrap());
    }
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [{"type": "function", "function": {"name": "stop_it"}}]}});
    let answer = server.good(CHAT, request(json!({"tools": weather(), "tool_choice": allowed}))).await;
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "stop_it");
    let messages = json!({"messages": user("Go."), "max_tokens": 400, "temperature": 1,
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"b": {"type": "boolean"}},
        "required": ["b"]}}], "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}});
    let answer = server.good("/v1/messages", messages).await;
    let used = answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use");
    assert!(used.is_some_and(|block| block["input"]["b"].is_boolean()), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_expressions_and_grammars_hold() {
    let server = server().await;
    let content = async |fields: Value| {
        let answer = server.good(CHAT, request(fields)).await;
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let choice = content(json!({"structured_outputs": {"choice": ["red", "blue \"sky\""]}})).await;
    assert!(choice == "red" || choice == "blue \"sky\"", "{choice}");
    let digits = content(json!({"guided_regex": "[0-9]{3}-[a-c]"})).await;
    assert!(digits.len() == 5 && digits.as_bytes()[3] == b'-', "{digits}");
    // Random weights would open parentheses until there is no room to close them: "x" is made likelier.
    let x = server.good("/tokenize", json!({"prompt": "x"})).await["tokens"][0].to_string();
    for seed in 0..4 {
        let nested = json!({"ebnf": "root ::= \"(\" root \")\" | \"x\"", "seed": seed, "logit_bias": {(x.as_str()): 2}});
        let nested = content(nested).await;
        let depth = nested.len() / 2;
        assert_eq!(nested, "(".repeat(depth) + "x" + &")".repeat(depth));
    }
    let object = content(json!({"response_format": {"type": "json_object"}, "max_tokens": 3000,
        "logit_bias": {"0": 0}}))
    .await;
    assert!(object.starts_with('{'), "{object}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a11_thinking_stays_as_asked_under_a_grammar() {
    let script = says("a thought that is no { json</mm:think>true");
    let server = Server::start(script, &[]).await;
    let body = json!({"messages": user("Go."), "thinking": {"type": "enabled"}, "max_tokens": 100,
        "response_format": {"type": "json_schema", "json_schema": {"name": "b", "schema": {"type": "boolean"}}}});
    let answer = server.good(CHAT, body).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "a thought that is no { json", "{answer}");
    assert_eq!(message["content"], "true");
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_f6_what_cannot_be_honoured_is_400_with_its_place() {
    let server = Server::start(json!({}), &[]).await;
    let format = |schema: Value| {
        json!({"response_format": {"type": "json_schema",
        "json_schema": {"name": "n", "schema": schema}}})
    };
    let unique = json!([{"type": "function", "function": {"name": "f", "strict": true, "parameters":
        {"type": "object", "properties": {"s": {"type": "array", "uniqueItems": true}}}}}]);
    for (fields, param, part) in [
        (
            format(json!({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}})),
            "response_format.json_schema.schema",
            "/$defs/n",
        ),
        (
            format(json!({"properties": {"a": {"pattern": "(?=x)"}}})),
            "response_format.json_schema.schema",
            "/properties/a/pattern",
        ),
        (json!({"regex": "a("}), "regex", "regex"),
        (json!({"ebnf": "root ::= x"}), "ebnf", "x"),
        (json!({"tools": unique}), "tools", "/properties/s/uniqueItems"),
        (json!({"guided_choice": ["a"], "ignore_eos": true}), "ignore_eos", "complete"),
        (json!({"guided_choice": ["a"], "guided_regex": "b"}), "guided_choice", "both"),
    ] {
        let (status, answer) = server.post(CHAT, request(fields.clone())).await;
        assert_eq!(status, 400, "{fields}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
    }
}
