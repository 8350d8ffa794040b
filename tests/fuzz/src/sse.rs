//! A strict reader of server-sent events, and the comparison of a stream with the answer in one piece.

use serde_json::{Map, Value, json};

use crate::server::{Reply, Server};

/// One event: its name, where the route gives names, and its data.
#[derive(Debug, Clone)]
pub struct Event {
    /// Empty without a name.
    pub name: String,
    /// Null for `[DONE]`.
    pub data: Value,
}

/// Reads a whole stream. Each block is one comment, or an optional `event:` line and one `data:` line of JSON; the last
/// one is `[DONE]` where `done` says so, and nowhere else.
///
/// # Errors
/// What breaks the form.
pub fn read(text: &str, done: bool) -> Result<Vec<Event>, String> {
    let Some(body) = text.strip_suffix("\n\n") else {
        return Err(format!("the stream ends inside a block: {text:?}"));
    };
    let mut events = Vec::new();
    for block in body.split("\n\n") {
        if block.starts_with(": ") && !block.contains('\n') {
            continue;
        }
        let (name, data) = match block.split_once('\n') {
            Some((name, data)) => {
                (name.strip_prefix("event: ").ok_or_else(|| format!("a strange block: {block:?}"))?, data)
            }
            None => ("", block),
        };
        let data = data.strip_prefix("data: ").ok_or_else(|| format!("a block without data: {block:?}"))?;
        if data.contains(['\n', '\r']) {
            return Err(format!("data of several lines: {block:?}"));
        }
        let data = match data {
            "[DONE]" => Value::Null,
            _ => serde_json::from_str(data).map_err(|error| format!("{error}: {data:?}"))?,
        };
        events.push(Event { name: name.to_owned(), data });
    }
    let ends: Vec<usize> =
        events.iter().enumerate().filter(|(_, event)| event.data.is_null()).map(|(at, _)| at).collect();
    let expected = if done { vec![events.len() - 1] } else { Vec::new() };
    if ends != expected {
        return Err(format!("[DONE] stands at {ends:?} of {} events", events.len()));
    }
    if done {
        events.pop();
    }
    Ok(events)
}

/// Asks both ways and compares; gives the answer's shape in a word.
///
/// # Errors
/// What differs, or what is wrong with either.
pub fn compare(server: &Server, path: &str, body: &Value) -> Result<String, String> {
    let ask = |stream: bool| {
        let mut body = body.clone();
        body["stream"] = stream.into();
        server.send("POST", path, body.to_string().into_bytes()).map_err(|error| format!("{path}: {error:#}"))
    };
    let (whole, streamed) = (ask(false)?, ask(true)?);
    if whole.status >= 500 || streamed.status >= 500 {
        return Err(format!("{path} {body}: {whole:?} {streamed:?}"));
    }
    if whole.status != 200 || streamed.status != 200 {
        // Some fields are for one of the two alone.
        return Ok(format!("{} {}", whole.status, streamed.status));
    }
    let told = folded(path, &streamed).map_err(|error| format!("{path} {body}: {error}"))?;
    let whole = whole_of(path, &whole);
    if told != whole {
        return Err(format!("{path} {body}: streamed {told}, whole {whole}"));
    }
    Ok(shape(&whole))
}

fn shape(answer: &Value) -> String {
    match answer {
        Value::Object(members) => {
            let parts = members.iter().map(|(key, value)| format!("{key}:{}", shape(value)));
            parts.collect::<Vec<_>>().join(" ")
        }
        Value::Array(items) => format!("[{}]", items.iter().take(4).map(shape).collect::<Vec<_>>().join(" ")),
        Value::String(text)
            if text.len() < 16 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_') =>
        {
            text.clone()
        }
        Value::String(text) => if text.is_empty() { "empty" } else { "text" }.to_owned(),
        Value::Null => "null".to_owned(),
        _ => "value".to_owned(),
    }
}

/// What both forms must agree on, from the whole answer.
fn whole_of(path: &str, reply: &Reply) -> Value {
    let answer = reply.json();
    match path {
        "/v1/chat/completions" => {
            let choices = list(&answer["choices"]).map(|choice| {
                let message = &choice["message"];
                let calls = list(&message["tool_calls"]).map(|call| call["function"].clone());
                json!({"reasoning": text(&message["reasoning_content"]), "content": text(&message["content"]),
                    "calls": calls.collect::<Vec<_>>(), "finish": choice["finish_reason"]})
            });
            choices.collect()
        }
        "/v1/completions" => list(&answer["choices"])
            .map(|choice| json!({"text": choice["text"], "finish": choice["finish_reason"]}))
            .collect(),
        "/v1/responses" => without_ids(answer),
        "/v1/messages" => {
            json!({"content": without_signatures(&answer["content"]), "stop": answer["stop_reason"]})
        }
        _ if answer.is_array() => list(&answer).map(generated).collect(),
        _ => json!([generated(&answer)]),
    }
}

fn generated(answer: &Value) -> Value {
    json!({"text": answer["text"], "finish": answer["meta_info"]["finish_reason"]})
}

fn folded(path: &str, reply: &Reply) -> Result<Value, String> {
    if !reply.content_type.starts_with("text/event-stream") {
        return Err(format!("the stream is {:?}", reply.content_type));
    }
    let named = matches!(path, "/v1/responses" | "/v1/messages");
    let events = read(&reply.text, !named)?;
    if events.iter().any(|event| event.name.is_empty() == named) {
        return Err(format!("events with and without names: {:?}", reply.text));
    }
    let last = events.last().ok_or("no events")?.data.clone();
    match path {
        "/v1/chat/completions" => chat(&events),
        "/v1/completions" => Ok(completions(&events)),
        "/v1/responses" => Ok(without_ids(last["response"].clone())),
        "/v1/messages" => messages(&events),
        _ => Ok(latest(&events)),
    }
}

/// SGLang's events hold everything so far; the last of each answer counts.
fn latest(events: &[Event]) -> Value {
    let mut answers: Vec<Value> = Vec::new();
    for Event { data, .. } in events {
        let index = data["index"].as_u64().unwrap_or(0) as usize;
        answers.resize_with(answers.len().max(index + 1), Value::default);
        answers[index] = generated(data);
    }
    answers.into()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The choices that chunks join to; the role once, first, and alone; one finish reason, last.
fn chat(events: &[Event]) -> Result<Value, String> {
    let mut choices: Vec<Value> = Vec::new();
    for choice in events.iter().flat_map(|event| list(&event.data["choices"])) {
        let (index, delta) = (choice["index"].as_u64().unwrap_or(0) as usize, &choice["delta"]);
        if delta["role"].is_string() {
            if choices.len() != index {
                return Err(format!("the role of choice {index} comes at the wrong time"));
            }
            choices.push(json!({"reasoning": "", "content": "", "calls": [], "finish": null}));
        }
        let Some(answer) = choices.get_mut(index) else {
            return Err(format!("choice {index} begins without a role"));
        };
        if !answer["finish"].is_null() {
            return Err(format!("choice {index} goes on after its end"));
        }
        let (reasoning, content) = (text(&delta["reasoning_content"]), text(&delta["content"]));
        if !reasoning.is_empty() && !content.is_empty() {
            return Err(format!("reasoning and content in one delta: {delta}"));
        }
        append(answer, "reasoning", &reasoning);
        append(answer, "content", &content);
        list(&delta["tool_calls"]).try_for_each(|call| take_call(answer, call))?;
        answer["finish"] = choice["finish_reason"].clone();
    }
    match choices.iter().find(|choice| choice["finish"].is_null()) {
        Some(choice) => Err(format!("no finish reason: {choice}")),
        None => Ok(choices.into()),
    }
}

fn append(answer: &mut Value, name: &str, more: &str) {
    answer[name] = (text(&answer[name]) + more).into();
}

fn take_call(answer: &mut Value, call: &Value) -> Result<(), String> {
    let Value::Array(calls) = &mut answer["calls"] else { return Err("no calls".to_owned()) };
    let (index, function) = (call["index"].as_u64().unwrap_or(0) as usize, &call["function"]);
    if call["id"].is_string() {
        if calls.len() != index || function["arguments"] != "" {
            return Err(format!("call {index} begins wrongly: {call}"));
        }
        calls.push(json!({"name": function["name"], "arguments": ""}));
        return Ok(());
    }
    if calls.len() != index + 1 {
        return Err(format!("a fragment of call {index} while {} is open", calls.len()));
    }
    append(&mut calls[index], "arguments", &text(&function["arguments"]));
    Ok(())
}

fn completions(events: &[Event]) -> Value {
    let mut choices: Vec<Value> = Vec::new();
    for choice in events.iter().flat_map(|event| list(&event.data["choices"])) {
        let index = choice["index"].as_u64().unwrap_or(0) as usize;
        while choices.len() <= index {
            choices.push(json!({"text": "", "finish": null}));
        }
        append(&mut choices[index], "text", &text(&choice["text"]));
        if !choice["finish_reason"].is_null() {
            choices[index]["finish"] = choice["finish_reason"].clone();
        }
    }
    choices.into()
}

/// Anthropic's blocks: each starts, grows and stops before the next.
fn messages(events: &[Event]) -> Result<Value, String> {
    let (mut blocks, mut open, mut stop): (Vec<Value>, Option<usize>, Value) =
        (Vec::new(), None, Value::Null);
    for Event { name, data } in events {
        let index = data["index"].as_u64().map(|index| index as usize);
        match name.as_str() {
            "content_block_start" if open.is_none() && index == Some(blocks.len()) => {
                open = index;
                let mut block = data["content_block"].clone();
                if block["type"] == "tool_use" {
                    block["input"] = "".into();
                }
                blocks.push(block);
            }
            "content_block_delta" if open.is_some() && index == open => {
                grow(&mut blocks[index.unwrap_or(0)], &data["delta"])
            }
            "content_block_stop" if open.is_some() && index == open => open = None,
            "message_delta" => stop = data["delta"]["stop_reason"].clone(),
            "message_start" | "message_stop" | "ping" => {}
            _ => return Err(format!("{name} {data} is out of order")),
        }
    }
    for block in blocks.iter_mut().filter(|block| block["type"] == "tool_use") {
        let input = text(&block["input"]);
        block["input"] = serde_json::from_str(&input).map_err(|error| format!("{error}: {input:?}"))?;
    }
    Ok(json!({"content": without_signatures(&blocks.into()), "stop": stop}))
}

fn grow(block: &mut Value, delta: &Value) {
    for (part, name) in
        [("text", "text"), ("thinking", "thinking"), ("partial_json", "input"), ("signature", "signature")]
    {
        if delta[part].is_string() {
            append(block, name, &text(&delta[part]));
        }
    }
}

fn without_signatures(content: &Value) -> Value {
    let strip = |block: &Value| {
        let members = block.as_object().cloned().unwrap_or_default();
        let kept = |(key, _): &(String, Value)| key != "signature" && key != "id";
        Value::Object(members.into_iter().filter(kept).collect())
    };
    list(content).map(strip).collect()
}

/// A response without what differs between two equal requests.
fn without_ids(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(key, _)| {
                !matches!(key.as_str(), "id" | "call_id" | "created_at" | "completed_at" | "usage")
            });
            Value::Object(kept.map(|(key, value)| (key, without_ids(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_ids).collect(),
        other => other,
    }
}
