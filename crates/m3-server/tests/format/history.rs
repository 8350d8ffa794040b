//! Conversations with tools in their past, and the rank of roles.

use serde_json::{Value, json};

use super::limits::long_context;
use super::support::{Server, says, user};
use super::{CHAT, NS, block, calls, element, invoke, object, refused, tool};

async fn server() -> Server {
    Server::start(says("ok"), &[]).await
}

fn called(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A question, an assistant's calls, then these results.
fn history(calls: &Value, results: &[Value]) -> Value {
    let mut messages = vec![
        json!({"role": "user", "content": "Weather?"}),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
    ];
    messages.extend(results.iter().cloned());
    json!({"messages": messages, "temperature": 0})
}

fn result(id: &str, content: &Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

async fn prompt(server: &Server, body: Value) -> String {
    let answer = server.good("/v1/chat/completions/render", body).await;
    answer["prompt"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_for_no_call_is_refused_by_its_id() {
    let server = server().await;
    let body = history(&json!([called("c1", "f", &json!("{}"))]), &[result("c2", &json!("sunny"))]);
    let (param, message) = refused(&server, body).await;
    assert!(param.starts_with("messages[2]") && message.contains("c2"), "{param}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_result_is_refused_by_its_id() {
    let server = server().await;
    let both = json!([called("c1", "f", &json!("{}")), called("c2", "f", &json!("{}"))]);
    let (_, message) = refused(&server, history(&both, &[result("c1", &json!("sunny"))])).await;
    assert!(message.contains("c2"), "{message}");
    let whole = history(&both, &[result("c2", &json!("rainy")), result("c1", &json!("sunny"))]);
    let text = prompt(&server, whole).await;
    assert!(text.find("sunny").unwrap() < text.find("rainy").unwrap(), "results follow their calls: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_an_object_is_refused() {
    let server = server().await;
    for content in [json!({"temperature": 20}), json!(20), json!([20]), json!(true)] {
        let body = history(&json!([called("c1", "f", &json!("{}"))]), &[result("c1", &content)]);
        let (param, message) = refused(&server, body).await;
        assert!(param.starts_with("messages[2].content"), "{content}: {param}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_json_are_refused_and_empty_ones_are_fine() {
    let server = server().await;
    for bad in ["{", "{'a': 1}", "city=Paris", "[1]", "3"] {
        let body = history(&json!([called("c1", "f", &json!(bad))]), &[result("c1", &json!("r"))]);
        let (param, _) = refused(&server, body).await;
        assert_eq!(param, "messages[1].tool_calls[0].function.arguments", "{bad}");
    }
    for fine in [json!("{}"), json!(""), json!({}), json!(null), json!("{\"a\": {\"b\": [1]}}")] {
        let body = history(&json!([called("c1", "f", &fine)]), &[result("c1", &json!("r"))]);
        server.good(CHAT, body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_points_and_hyphens_go_in_and_come_out() {
    let name = "my-tool.v2";
    let script = block(&invoke(name, &element("a", "1")));
    let server = Server::start(says(&script), &[]).await;
    let mut body = history(&json!([called("c1", name, &json!("{\"a\": 1}"))]), &[result("c1", &json!("r"))]);
    body["tools"] = json!([tool(name, &object(json!({"a": {"type": "integer"}})))]);
    assert!(prompt(&server, body.clone()).await.contains(&format!("<invoke name=\"{name}\">")));
    assert_eq!(calls(&server, body).await, [(name.to_owned(), json!({"a": 1}))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_the_past_that_is_no_longer_declared_breaks_nothing() {
    let script = format!("Once more. {}", block(&invoke("old_tool", &element("a", "x"))));
    let server = Server::start(says(&script), &[]).await;
    let mut body =
        history(&json!([called("c1", "old_tool", &json!("{\"a\": \"y\"}"))]), &[result("c1", &json!("r"))]);
    body["tools"] = json!([tool("new_tool", &object(json!({})))]);
    assert_eq!(calls(&server, body.clone()).await, [("old_tool".to_owned(), json!({"a": "x"}))]);
    let message = server.good(CHAT, body).await["choices"][0]["message"].clone();
    assert_eq!(message["content"].as_str().map(str::trim), Some("Once more."));
}

#[tokio::test(flavor = "multi_thread")]
async fn root_outranks_system_and_stands_first() {
    let server = server().await;
    let messages = json!([{"role": "root", "content": "Answer in French."},
        {"role": "system", "content": "Answer in German."}, {"role": "user", "content": "hi"}]);
    let text = prompt(&server, json!({"messages": messages})).await;
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    assert!(place("]~b]system\nAnswer in French.") < place("]~b]developer\nAnswer in German."), "{text}");
    let late = json!([{"role": "system", "content": "a"}, {"role": "root", "content": "b"}, {"role": "user", "content": "hi"}]);
    assert_eq!(refused(&server, json!({"messages": late})).await.0, "messages[1].role");
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_every_form_are_read_alike() {
    let server = server().await;
    let plain = prompt(&server, json!({"messages": user("hi")})).await;
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    assert_eq!(prompt(&server, json!({"messages": parts})).await, plain);
    for empty in [json!(null), json!([]), json!("")] {
        let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": empty},
            {"role": "user", "content": "hi"}]);
        server.good(CHAT, json!({"messages": messages})).await;
    }
    let missing =
        json!([{"role": "user", "content": "q"}, {"role": "assistant"}, {"role": "user", "content": "hi"}]);
    server.good(CHAT, json!({"messages": missing})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_fifty_thousand_characters_is_read_whole() {
    let server = long_context(says("ok")).await;
    let long: String = (0..5000).map(|line| format!("line {line:04}\n")).collect();
    assert!(long.len() >= 50_000);
    let body = history(&json!([called("c1", "f", &json!("{}"))]), &[result("c1", &json!(long))]);
    assert!(prompt(&server, body.clone()).await.contains(&long));
    server.good(CHAT, body).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_ten_thousand_characters_go_in_whole() {
    let server = server().await;
    let text = "0123456789".repeat(1000);
    let arguments = json!({"text": text}).to_string();
    let body = history(&json!([called("c1", "f", &json!(arguments))]), &[result("c1", &json!("r"))]);
    assert!(prompt(&server, body).await.contains(&format!("{NS}<text>{text}{NS}</text>")));
}
