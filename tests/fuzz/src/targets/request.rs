//! Bodies of every route that reads one: no answer is a server's fault, refusals have their form, and an answer that
//! repeats is the same as a stream.
//!
//! Head line: method and path. Text: the body.

use serde_json::{Value, json};

use super::{markup, without_values};
use crate::Target;
use crate::mutate::{Dialect, cut};
use crate::server::{Reply, Server};
use crate::sse;

/// Routes whose answers come both ways.
const STREAMED: [&str; 5] =
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/generate"];

#[derive(Default)]
pub(super) struct Requests {
    server: Option<Server>,
}

impl Target for Requests {
    fn name(&self) -> &'static str {
        "request"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    /// Markup, and every field that any route knows.
    fn words(&self) -> Vec<String> {
        let document = m3_server::openapi::document();
        let bodies = document["components"]["schemas"].as_object().into_iter().flatten();
        let fields = bodies.flat_map(|(_, body)| body["properties"].as_object().into_iter().flatten());
        markup().into_iter().chain(fields.map(|(name, _)| name.clone())).collect()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        let (head, body) = cut(input);
        let head = String::from_utf8_lossy(head).into_owned();
        let Some((method, path)) = head.split_once(' ').filter(|(_, path)| is_path(path)) else {
            return Ok("no route".to_owned());
        };
        if !["POST", "PUT", "GET", "DELETE"].contains(&method) {
            return Ok("no method".to_owned());
        }
        if self.server.is_none() {
            let flags = ["--context-length", "1024", "--max-stored-responses", "64"];
            self.server = Some(Server::start(&json!({}), &flags).map_err(|error| format!("{error:#}"))?);
        }
        let Some(server) = &self.server else { return Err("no server".to_owned()) };
        let reply = server.send(method, path, body.to_vec()).map_err(|error| format!("{error:#}"))?;
        let signature = judge(path, &reply)?;
        match serde_json::from_slice::<Value>(body) {
            Ok(body) if reply.status == 200 && method == "POST" && STREAMED.contains(&path) => {
                let both = sse::compare(server, path, &repeatable(path, body))?;
                Ok(format!("{path} {signature} {both}"))
            }
            _ => Ok(format!("{path} {signature}")),
        }
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/_-.".contains(letter))
}

/// The form of one answer.
fn judge(path: &str, reply: &Reply) -> Result<String, String> {
    let Reply { status, content_type, text } = reply;
    if *status >= 500 {
        return Err(format!("{status}: {text}"));
    }
    if content_type.starts_with("text/event-stream") {
        // `/invocations` answers in the form of the route that its body is for.
        let of_body = path == "/invocations" && text.starts_with("event: ");
        let named = of_body || path.starts_with("/v1/responses") || path.starts_with("/v1/messages");
        let events = sse::read(text, !named)?;
        return Ok(format!("{status} {}", events.last().map_or("", |event| &event.name)));
    }
    if *status < 400 {
        return Ok(status.to_string());
    }
    let answer = reply.json();
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    if message.is_empty() || !answer["error"]["type"].is_string() {
        return Err(format!("{status} without a reason: {text}"));
    }
    let place = answer["error"]["param"].as_str().unwrap_or_default();
    Ok(format!("{status} {} {}", without_values(place), without_values(message)))
}

/// The same request with an answer that comes again.
fn repeatable(path: &str, mut body: Value) -> Value {
    let settings = if path == "/generate" { &mut body["sampling_params"] } else { &mut body };
    match settings {
        Value::Array(list) if list.is_empty() => *settings = json!({"temperature": 0}),
        Value::Array(list) => {
            list.iter_mut().filter(|one| one.is_object()).for_each(|one| one["temperature"] = 0.into())
        }
        Value::Object(_) | Value::Null => settings["temperature"] = 0.into(),
        _ => {}
    }
    if let Some(members) = body.as_object_mut() {
        // Marks of one request, and answers that come later.
        for name in ["request_id", "rid", "background", "store", "previous_response_id", "metadata", "seed"] {
            members.shift_remove(name);
        }
    }
    body
}
