//! Input items and the chat messages they come to. Neighbouring items of one assistant turn (reasoning, text, calls)
//! become one message, as the model wrote them; every message remembers which item it came from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::conversation::Parts;
use crate::error::{ApiError, cut};
use crate::openai::fields::kind;
use crate::rename::Renames;
use crate::vision::is_media;

/// Begins `encrypted_content` of this server. The rest is the text itself: it has been shown to the caller anyway, and
/// callers that keep nothing else get their reasoning back this way.
const SEALED: &str = "m3.";

/// The `encrypted_content` of a reasoning text.
pub fn seal(text: &str) -> String {
    format!("{SEALED}{}", STANDARD.encode(text))
}

fn unseal(sealed: &str) -> Option<String> {
    STANDARD.decode(sealed.strip_prefix(SEALED)?).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// `input` as items with ids. Text alone is a user's message.
pub fn read(input: Option<Value>) -> Result<Vec<Value>, ApiError> {
    let list = match input {
        None => return Err(ApiError::invalid("input", "input is missing; send text or a list of items")),
        Some(Value::String(text)) => {
            let content = json!([{"type": "input_text", "text": text}]);
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Some(Value::Array(list)) => list,
        Some(other) => {
            let sentence = format!("input is {}; expected text or a list of items", kind(&other));
            return Err(ApiError::invalid("input", sentence));
        }
    };
    list.into_iter().enumerate().map(|(at, item)| with_id(item, at)).collect()
}

fn with_id(item: Value, at: usize) -> Result<Value, ApiError> {
    let Value::Object(mut object) = item else {
        let path = format!("input[{at}]");
        return Err(ApiError::invalid(&path, format!("{path} is {}; expected an object", kind(&item))));
    };
    if !object.contains_key("type") && object.contains_key("role") {
        object.insert("type".into(), "message".into());
    }
    if object.get("id").is_none_or(Value::is_null) {
        let prefix = match object.get("type").and_then(Value::as_str) {
            Some("message") => "msg",
            Some("reasoning") => "rs",
            Some("function_call") => "fc",
            Some("function_call_output") => "fco",
            _ => "item",
        };
        object.insert("id".into(), super::items::new_id(prefix).into());
    }
    Ok(Value::Object(object))
}

/// Messages in the making.
#[derive(Default)]
pub struct Conversation {
    messages: Vec<Map<String, Value>>,
    /// Where each message came from, as a path of the request.
    origins: Vec<String>,
    /// Further paths: of calls within messages.
    calls: Vec<(String, String)>,
    /// The last message is an assistant's that the next item may add to.
    open: bool,
}

impl Conversation {
    /// The system message, before everything else.
    pub fn instructions(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            let message = json!({"role": "system", "content": text});
            self.push(message, "instructions".to_owned());
        }
    }

    /// Adds items; `source` is the field they come from.
    pub fn extend(&mut self, items: &[Value], source: &str) -> Result<(), ApiError> {
        for (at, item) in items.iter().enumerate() {
            // Items of earlier responses were checked then and have no path in this request.
            let path = if source == "input" { format!("input[{at}]") } else { source.to_owned() };
            self.add(item, path)?;
        }
        Ok(())
    }

    /// The messages, and the paths they are to be called by.
    pub fn finish(self, mut renames: Renames) -> (Vec<Value>, Renames) {
        for (at, origin) in self.origins.iter().enumerate() {
            renames.add(format!("messages[{at}]"), origin.clone());
        }
        self.calls.into_iter().for_each(|(from, to)| renames.add(from, to));
        (self.messages.into_iter().map(Value::Object).collect(), renames)
    }

    fn add(&mut self, item: &Value, path: String) -> Result<(), ApiError> {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => self.message(item, path),
            Some("reasoning") => self.reasoning(item, path),
            Some("function_call") => self.call(item, path),
            Some("function_call_output") => self.result(item, path),
            Some(other) => {
                let (param, name) = (format!("{path}.type"), cut(other, 60));
                let sentence = format!(
                    "{param} is \"{name}\"; this server takes message, reasoning, function_call and \
                     function_call_output items"
                );
                Err(ApiError::unsupported(param, sentence))
            }
            None => {
                let param = format!("{path}.type");
                Err(ApiError::invalid(&param, format!("{param} is missing")))
            }
        }
    }

    fn push(&mut self, message: Value, path: String) {
        if let Value::Object(message) = message {
            self.messages.push(message);
            self.origins.push(path);
        }
        self.open = false;
    }

    /// The assistant's turn that this item belongs to, begun if need be.
    fn assistant(&mut self, path: String) -> &mut Map<String, Value> {
        if !self.open {
            self.push(json!({"role": "assistant", "content": ""}), path);
            self.open = true;
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    fn message(&mut self, item: &Value, path: String) -> Result<(), ApiError> {
        let content = content(item.get("content"), &path)?;
        match item.get("role").and_then(Value::as_str) {
            Some("assistant") => {
                if let Some(origin) = content.first_medium() {
                    let sentence =
                        format!("{origin} is an image or video of the assistant; it says text only");
                    return Err(ApiError::unsupported(origin, sentence));
                }
                let (content, _) = content.finish(0);
                append(self.assistant(path), "content", content.as_str().unwrap_or_default());
                Ok(())
            }
            Some(role) => {
                let content = self.content(content);
                let message = json!({"role": role, "content": content});
                self.push(message, path);
                Ok(())
            }
            None => Err(ApiError::invalid(format!("{path}.role"), format!("{path}.role is missing"))),
        }
    }

    fn reasoning(&mut self, item: &Value, path: String) -> Result<(), ApiError> {
        let parts = |name: &str| {
            let texts = item.get(name).and_then(Value::as_array).into_iter().flatten();
            let texts = texts.filter_map(|part| part.get("text").and_then(Value::as_str));
            Some(texts.collect::<String>()).filter(|text| !text.is_empty())
        };
        let sealed = || item.get("encrypted_content").and_then(Value::as_str).and_then(unseal);
        // Another server's sealed reasoning cannot be read, and its summary is the next best.
        let Some(text) = parts("content").or_else(sealed).or_else(|| parts("summary")) else { return Ok(()) };
        // Reasoning begins a turn: whatever the assistant said before it was another one.
        let said = self.open
            && self
                .messages
                .last()
                .is_some_and(|last| last["content"] != "" || last.contains_key("tool_calls"));
        self.open &= !said;
        append(self.assistant(path), "reasoning_content", &text);
        Ok(())
    }

    fn call(&mut self, item: &Value, path: String) -> Result<(), ApiError> {
        let call_id = text(item, "call_id", &path)?;
        let function = json!({"name": item.get("name"), "arguments": item.get("arguments")});
        let call = json!({"id": call_id, "type": "function", "function": function});
        let message = self.assistant(path.clone());
        let Value::Array(calls) = message.entry("tool_calls").or_insert_with(|| json!([])) else {
            unreachable!("tool_calls is only written here")
        };
        calls.push(call);
        let (call, message) = (calls.len() - 1, self.messages.len() - 1);
        self.calls.push((format!("messages[{message}].tool_calls[{call}].function"), path));
        Ok(())
    }

    fn result(&mut self, item: &Value, path: String) -> Result<(), ApiError> {
        let call_id = text(item, "call_id", &path)?;
        let output = match item.get("output") {
            None | Some(Value::Null) => Parts::default(),
            Some(output @ (Value::String(_) | Value::Array(_))) => {
                content_at(Some(output), &format!("{path}.output"))?
            }
            Some(other) => {
                let param = format!("{path}.output");
                let sentence = format!("{param} is {}; expected text or a list of parts", kind(other));
                return Err(ApiError::invalid(param, sentence));
            }
        };
        let output = self.content(output);
        let message = json!({"role": "tool", "tool_call_id": call_id, "content": output});
        self.push(message, path);
        Ok(())
    }

    /// The content of the message that is pushed next.
    fn content(&mut self, parts: Parts) -> Value {
        let (content, names) = parts.finish(self.messages.len());
        self.calls.extend(names);
        content
    }
}

fn append(message: &mut Map<String, Value>, name: &str, text: &str) {
    match message.entry(name).or_insert_with(|| "".into()) {
        Value::String(old) => old.push_str(text),
        other => *other = text.into(),
    }
}

fn text<'a>(item: &'a Value, name: &str, path: &str) -> Result<&'a str, ApiError> {
    let param = format!("{path}.{name}");
    match item.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null) => Err(ApiError::invalid(&param, format!("{param} is missing"))),
        Some(Value::String(_)) => Err(ApiError::invalid(&param, format!("{param} is empty"))),
        Some(other) => {
            Err(ApiError::invalid(&param, format!("{param} is {}; expected a string", kind(other))))
        }
    }
}

fn content(content: Option<&Value>, path: &str) -> Result<Parts, ApiError> {
    content_at(content, &format!("{path}.content"))
}

/// Text, or parts.
fn content_at(content: Option<&Value>, path: &str) -> Result<Parts, ApiError> {
    let mut read = Parts::default();
    match content {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => read.text(text, path),
        Some(Value::Array(parts)) => {
            let mut parts = parts.iter().enumerate();
            parts.try_for_each(|(at, part)| add_part(&mut read, part, &format!("{path}[{at}]")))?;
        }
        Some(other) => {
            let sentence = format!("{path} is {}; expected text or a list of parts", kind(other));
            return Err(ApiError::invalid(path, sentence));
        }
    }
    Ok(read)
}

fn add_part(parts: &mut Parts, part: &Value, path: &str) -> Result<(), ApiError> {
    let param = format!("{path}.type");
    match part.get("type").and_then(Value::as_str) {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
            parts.text(text_or_empty(part, "text", path)?, path);
        }
        Some("refusal") => parts.text(text_or_empty(part, "refusal", path)?, path),
        // The chat side reads these very shapes.
        Some(media) if is_media(media) => parts.media(part.clone(), path),
        Some(media @ ("input_file" | "input_audio")) => {
            let sentence = format!("{param} is \"{media}\"; this server takes text, images and videos");
            return Err(ApiError::unsupported(param, sentence));
        }
        Some(other) => {
            let sentence = format!(
                "{param} is \"{}\"; this server takes input_text and input_image parts",
                cut(other, 60)
            );
            return Err(ApiError::invalid(param, sentence));
        }
        None => return Err(ApiError::invalid(&param, format!("{param} is missing"))),
    }
    Ok(())
}

fn text_or_empty<'a>(part: &'a Value, name: &str, path: &str) -> Result<&'a str, ApiError> {
    match part.get(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(ApiError::invalid(format!("{path}.{name}"), format!("{path}.{name} must be a string"))),
    }
}
