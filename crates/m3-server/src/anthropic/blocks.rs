//! Messages of blocks and the chat messages they come to. Tool results stand in a user's message here and are messages
//! of their own there; every chat message remembers where it came from.

use serde_json::{Value, json};

use super::image::image_part;
use crate::conversation::Parts;
use crate::error::{ApiError, cut};
use crate::openai::fields::kind;
use crate::rename::Renames;

/// A line that some agents put before their system text and that differs in every request: with it no prefix would
/// ever be found in the cache.
const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// Chat messages in the making.
pub struct Conversation {
    messages: Vec<Value>,
    origins: Vec<String>,
    /// Further paths: of calls within messages.
    calls: Vec<(String, String)>,
}

impl Conversation {
    /// Begins with the system text. `keep_billing` leaves the volatile line in it.
    pub fn new(system: Option<&Value>, keep_billing: bool) -> Result<Self, ApiError> {
        let mut conversation = Conversation { messages: Vec::new(), origins: Vec::new(), calls: Vec::new() };
        let texts = match system {
            None => Vec::new(),
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(blocks)) => {
                let texts =
                    blocks.iter().enumerate().map(|(at, block)| text_block(block, &format!("system[{at}]")));
                texts.collect::<Result<_, _>>()?
            }
            Some(other) => {
                let sentence = format!("system is {}; expected text or a list of text blocks", kind(other));
                return Err(ApiError::invalid("system", sentence));
            }
        };
        let texts = texts.into_iter().map(|text| if keep_billing { text } else { without_billing(text) });
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        if !texts.is_empty() {
            conversation.push(json!({"role": "system", "content": texts.join("\n\n")}), "system".to_owned());
        }
        Ok(conversation)
    }

    /// Adds the messages of the request.
    pub fn extend(&mut self, messages: &[Value]) -> Result<(), ApiError> {
        for (at, message) in messages.iter().enumerate() {
            self.add(message, format!("messages[{at}]"))?;
        }
        Ok(())
    }

    /// The chat messages, and the paths they are to be called by.
    pub fn finish(self, mut renames: Renames) -> (Vec<Value>, Renames) {
        for (at, origin) in self.origins.iter().enumerate() {
            renames.add(format!("messages[{at}]"), origin.clone());
        }
        self.calls.into_iter().for_each(|(from, to)| renames.add(from, to));
        (self.messages, renames)
    }

    fn push(&mut self, message: Value, origin: String) {
        self.messages.push(message);
        self.origins.push(origin);
    }

    fn add(&mut self, message: &Value, path: String) -> Result<(), ApiError> {
        let Value::Object(object) = message else {
            return Err(ApiError::invalid(&path, format!("{path} is {}; expected an object", kind(message))));
        };
        let text = Value::Array(vec![json!({"type": "text", "text": object.get("content")})]);
        let content = match object.get("content") {
            Some(Value::String(_)) => &text,
            Some(blocks @ Value::Array(_)) => blocks,
            other => {
                let (param, given) = (format!("{path}.content"), other.map_or("missing", kind));
                let sentence = format!("{param} is {given}; expected text or a list of blocks");
                return Err(ApiError::invalid(param, sentence));
            }
        };
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        match object.get("role").and_then(Value::as_str) {
            Some("user") => self.user(blocks, path),
            Some("assistant") => self.assistant(blocks, path),
            Some("system") => {
                let text = blocks.iter().enumerate();
                let text = text.map(|(at, block)| text_block(block, &format!("{path}.content[{at}]")));
                let text = text.collect::<Result<String, _>>()?;
                self.push(json!({"role": "system", "content": text}), path);
                Ok(())
            }
            role => {
                let (param, role) = (format!("{path}.role"), cut(role.unwrap_or(""), 60));
                Err(ApiError::invalid(&param, format!("{param} is \"{role}\"; expected user or assistant")))
            }
        }
    }

    /// Results come before the text beside them, because they answer the turn before.
    fn user(&mut self, blocks: &[Value], path: String) -> Result<(), ApiError> {
        let (mut parts, mut results) = (Parts::default(), 0);
        for (at, block) in blocks.iter().enumerate() {
            let block_path = format!("{path}.content[{at}]");
            if type_of(block, &block_path)? == "tool_result" {
                let id = string(block, "tool_use_id", &block_path)?;
                let content = result_parts(block.get("content"), &format!("{block_path}.content"))?;
                let content = self.content(content);
                let message = json!({"role": "tool", "tool_call_id": id, "content": content});
                self.push(message, block_path);
                results += 1;
            } else {
                add_block(&mut parts, block, &block_path)?;
            }
        }
        if results == 0 || !parts.is_empty() {
            let content = self.content(parts);
            self.push(json!({"role": "user", "content": content}), path);
        }
        Ok(())
    }

    /// The content of the message that is pushed next.
    fn content(&mut self, parts: Parts) -> Value {
        let (content, names) = parts.finish(self.messages.len());
        self.calls.extend(names);
        content
    }

    /// Blocks may come in any order: thinking, text and calls each have their place in M3's form.
    fn assistant(&mut self, blocks: &[Value], path: String) -> Result<(), ApiError> {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        for (at, block) in blocks.iter().enumerate() {
            let block_path = format!("{path}.content[{at}]");
            match type_of(block, &block_path)? {
                "thinking" => thinking.push_str(string(block, "thinking", &block_path)?),
                // Another server's, which nobody else can read.
                "redacted_thinking" => {}
                "tool_use" => {
                    let id = string(block, "id", &block_path)?;
                    let function = json!({"name": block.get("name"), "arguments": block.get("input")});
                    let from =
                        format!("messages[{}].tool_calls[{}].function", self.messages.len(), calls.len());
                    self.calls.push((format!("{from}.arguments"), format!("{block_path}.input")));
                    self.calls.push((from, block_path));
                    calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                _ => text.push_str(&text_block(block, &block_path)?),
            }
        }
        let mut message = json!({"role": "assistant", "content": text, "reasoning_content": thinking});
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        self.push(message, path);
        Ok(())
    }
}

fn without_billing(text: String) -> String {
    match text.strip_prefix(BILLING_LINE) {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start_matches('\n').to_owned(),
        None => text,
    }
}

fn result_parts(content: Option<&Value>, path: &str) -> Result<Parts, ApiError> {
    let mut parts = Parts::default();
    match content {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => parts.text(text, path),
        Some(Value::Array(blocks)) => {
            let mut blocks = blocks.iter().enumerate();
            blocks.try_for_each(|(at, block)| add_block(&mut parts, block, &format!("{path}[{at}]")))?;
        }
        Some(other) => {
            let sentence = format!("{path} is {}; expected text or a list of blocks", kind(other));
            return Err(ApiError::invalid(path, sentence));
        }
    }
    Ok(parts)
}

/// A text or image block.
fn add_block(parts: &mut Parts, block: &Value, path: &str) -> Result<(), ApiError> {
    match type_of(block, path)? {
        "image" => parts.media(image_part(block, path)?, path),
        _ => parts.text(&text_block(block, path)?, path),
    }
    Ok(())
}

fn type_of<'a>(block: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    if !block.is_object() {
        return Err(ApiError::invalid(path, format!("{path} is {}; expected a block", kind(block))));
    }
    string(block, "type", path)
}

pub(super) fn string<'a>(block: &'a Value, name: &str, path: &str) -> Result<&'a str, ApiError> {
    let param = format!("{path}.{name}");
    match block.get(name) {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(ApiError::invalid(&param, format!("{param} is missing"))),
        Some(other) => {
            Err(ApiError::invalid(&param, format!("{param} is {}; expected a string", kind(other))))
        }
    }
}

/// A text block's text; marks on it (`cache_control`, `citations`) change no token.
fn text_block(block: &Value, path: &str) -> Result<String, ApiError> {
    match type_of(block, path)? {
        "text" => Ok(string(block, "text", path)?.to_owned()),
        media @ ("image" | "document" | "container_upload" | "search_result") => {
            let param = format!("{path}.type");
            let sentence =
                format!("{param} is \"{media}\"; text, and images of users and tool results, are taken");
            Err(ApiError::unsupported(param, sentence))
        }
        other => {
            let (param, other) = (format!("{path}.type"), cut(other, 60));
            let sentence = format!("{param} is \"{other}\"; it has no meaning here");
            Err(ApiError::unsupported(param, sentence))
        }
    }
}
