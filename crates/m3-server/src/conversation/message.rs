//! One message, read and checked by itself. Its images and videos keep their places between its texts.

use m3_core::text::exact;
use serde_json::{Map, Value, json};

use super::tools::valid_name;
use crate::error::ApiError;
use crate::openai::fields::kind;
use crate::strict::Strict;
use crate::vision::{MediaPart, is_media, read_medium};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Root,
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    const ALL: [(&'static str, Role); 6] = [
        ("root", Role::Root),
        ("system", Role::System),
        ("developer", Role::Developer),
        ("user", Role::User),
        ("assistant", Role::Assistant),
        ("tool", Role::Tool),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }
}

/// A message in one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub role: Role,
    /// Index in the request, for error paths.
    pub at: usize,
    /// Its texts, joined without a separator as the template does it.
    pub text: String,
    /// Images and videos, each with the byte of `text` that it stands before; in order.
    pub media: Vec<(usize, MediaPart)>,
    pub reasoning: String,
    pub calls: Vec<Call>,
    /// Of a tool result.
    pub call_id: Option<String>,
}

/// A tool call of an earlier answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: Option<String>,
    pub name: String,
    pub arguments: Map<String, Value>,
}

impl Turn {
    /// A turn that says nothing.
    pub fn empty(role: Role, at: usize) -> Self {
        let (text, reasoning) = (String::new(), String::new());
        Turn { role, at, text, media: Vec::new(), reasoning, calls: Vec::new(), call_id: None }
    }

    /// The shape the template reads. An assistant's reasoning is always given, if only empty: the template would
    /// otherwise look for it in the text and cut a text that merely quotes the closing marker.
    pub fn into_value(self) -> Value {
        let mut value = json!({ "role": self.role.name(), "content": self.content() });
        if self.role == Role::Assistant {
            value["reasoning_content"] = Value::String(self.reasoning);
            if !self.calls.is_empty() {
                value["tool_calls"] = self.calls.into_iter().map(Call::into_value).collect();
            }
        }
        if let Some(id) = self.call_id {
            value["tool_call_id"] = Value::String(id);
        }
        value
    }
}

impl Turn {
    /// Text alone, or the parts that the template has markers for.
    fn content(&self) -> Value {
        if self.media.is_empty() {
            return Value::String(self.text.clone());
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        for (place, part) in &self.media {
            parts.extend(text_part(&self.text[from..*place]));
            parts.push(json!({ "type": part.kind.word() }));
            from = *place;
        }
        parts.extend(text_part(&self.text[from..]));
        Value::Array(parts)
    }
}

fn text_part(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!({ "type": "text", "text": text }))
}

impl Call {
    fn into_value(self) -> Value {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        json!({ "id": self.id, "type": "function", "function": function })
    }
}

/// Reads message number `at`.
pub(super) fn read(message: &Value, at: usize) -> Result<Turn, ApiError> {
    let path = format!("messages[{at}]");
    let Value::Object(message) = message else {
        return Err(ApiError::invalid(&path, format!("{path} is {}; expected an object", kind(message))));
    };
    let role = role(message, &path)?;
    check_names(message, &path)?;
    let mut turn = Turn::empty(role, at);
    read_content(&mut turn, message.get("content"), &path)?;
    match role {
        Role::Assistant => read_assistant(&mut turn, message, &path)?,
        Role::Tool => turn.call_id = text_field(message, "tool_call_id", &path)?.map(str::to_owned),
        _ => {}
    }
    if role != Role::Assistant && message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
        let param = format!("{path}.tool_calls");
        return Err(ApiError::invalid(&param, format!("{param}: only role \"assistant\" has tool calls")));
    }
    Ok(turn)
}

/// Fields that are read, or that the template has no place for and that change nothing (`name`, `refusal`).
const KNOWN: [&str; 9] = [
    "role",
    "content",
    "name",
    "refusal",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "reasoning_content",
    "reasoning",
];

/// Refuses what would change the answer and cannot be honoured; the rest is ignored and named at debug level.
fn check_names(message: &Map<String, Value>, path: &str) -> Result<(), ApiError> {
    for name in ["name", "refusal"] {
        text_field(message, name, path)?;
    }
    for (name, value) in message.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())) {
        let why = match (name.as_str(), value) {
            (_, Value::Null | Value::Bool(false)) => continue,
            ("audio", _) => "this server takes text only",
            ("tools", _) => "M3's template shows tools in one place; give them beside messages",
            ("prefix" | "partial", Value::Bool(true)) if message["role"] == "assistant" => continue,
            ("prefix" | "partial", _) => "only the last message, of the role \"assistant\", can be left open",
            _ => {
                tracing::debug!("ignored field: {path}.{name}");
                continue;
            }
        };
        let param = format!("{path}.{name}");
        return Err(ApiError::unsupported(&param, format!("{param} cannot be honoured: {why}")));
    }
    Ok(())
}

fn role(message: &Map<String, Value>, path: &str) -> Result<Role, ApiError> {
    let param = format!("{path}.role");
    let name = text_field(message, "role", path)?;
    let name = name.ok_or_else(|| ApiError::invalid(&param, format!("{param} is missing")))?;
    if name == "function" {
        // The old form of a tool result; its call, in the old form too, had no id.
        return Ok(Role::Tool);
    }
    let role = Role::ALL.iter().find(|(known, _)| *known == name).map(|(_, role)| *role);
    role.ok_or_else(|| {
        let known = Role::ALL.map(|(name, _)| name).join(", ");
        ApiError::invalid(&param, format!("{param} is \"{name}\"; expected one of {known}"))
    })
}

/// A string field; `null` is absent.
fn text_field<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<Option<&'a str>, ApiError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let param = format!("{path}.{name}");
            Err(ApiError::invalid(&param, format!("{param} is {}; expected a string", kind(other))))
        }
    }
}

fn read_content(turn: &mut Turn, content: Option<&Value>, path: &str) -> Result<(), ApiError> {
    match content {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) => {
            turn.text.push_str(text);
            Ok(())
        }
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .try_for_each(|(at, part)| read_part(turn, part, &format!("{path}.content[{at}]"))),
        Some(other) => {
            let param = format!("{path}.content");
            let sentence = format!("{param} is {}; expected a string, a list of parts or null", kind(other));
            Err(ApiError::invalid(&param, sentence))
        }
    }
}

/// Parts are joined without a separator, as the template does it.
fn read_part(turn: &mut Turn, part: &Value, path: &str) -> Result<(), ApiError> {
    let object = match part {
        Value::String(text) => {
            turn.text.push_str(text);
            return Ok(());
        }
        Value::Object(object) => object,
        other => {
            return Err(ApiError::invalid(path, format!("{path} is {}; expected an object", kind(other))));
        }
    };
    let type_path = format!("{path}.type");
    let part_type = text_field(object, "type", path)?;
    let part_type =
        part_type.ok_or_else(|| ApiError::invalid(&type_path, format!("{type_path} is missing")))?;
    let needed = |name: &str| -> Result<&str, ApiError> {
        let param = format!("{path}.{name}");
        text_field(object, name, path)?
            .ok_or_else(|| ApiError::invalid(&param, format!("{param} is missing")))
    };
    match part_type {
        "text" | "input_text" | "output_text" => turn.text.push_str(needed("text")?),
        "refusal" => turn.text.push_str(needed("refusal")?),
        "thinking" | "reasoning" if turn.role == Role::Assistant => {
            turn.reasoning.push_str(needed(part_type)?)
        }
        media if is_media(media) => {
            if !matches!(turn.role, Role::User | Role::Tool) {
                let role = turn.role.name();
                let sentence = format!(
                    "{type_path} is \"{media}\" in a message of role \"{role}\"; images and videos stand in messages \
                     of user and tool"
                );
                return Err(ApiError::unsupported(&type_path, sentence));
            }
            turn.media.push((turn.text.len(), read_medium(object, media, path)?));
        }
        other => {
            let sentence =
                format!("{type_path} is \"{other}\"; this server takes text, image_url and video_url parts");
            return Err(ApiError::invalid(&type_path, sentence));
        }
    }
    Ok(())
}

fn read_assistant(turn: &mut Turn, message: &Map<String, Value>, path: &str) -> Result<(), ApiError> {
    let given = match text_field(message, "reasoning_content", path)? {
        Some(text) => Some(text),
        None => text_field(message, "reasoning", path)?,
    };
    if let Some(text) = given {
        text.clone_into(&mut turn.reasoning);
    }
    turn.calls = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => {
            let read = calls
                .iter()
                .enumerate()
                .map(|(at, call)| read_call(call, &format!("{path}.tool_calls[{at}]")));
            read.collect::<Result<_, _>>()?
        }
        Some(other) => {
            let param = format!("{path}.tool_calls");
            return Err(ApiError::invalid(&param, format!("{param} is {}; expected a list", kind(other))));
        }
    };
    // The old form of a single call.
    if let Some(call) = message.get("function_call").filter(|call| !call.is_null()) {
        let param = format!("{path}.function_call");
        if !turn.calls.is_empty() {
            let sentence = format!("{param} is the old form of tool_calls; send one of them");
            return Err(ApiError::invalid(&param, sentence));
        }
        turn.calls.push(read_function(call, call, (path, &param))?);
    }
    Ok(())
}

/// `{"id", "function": {"name", "arguments"}}`, or the inner object without its wrapper, as some clients send it.
fn read_call(call: &Value, path: &str) -> Result<Call, ApiError> {
    let function = call.get("function").or_else(|| call.get("name").is_some().then_some(call));
    read_function(call, function.unwrap_or(&Value::Null), (path, &format!("{path}.function")))
}

/// The paths are those of the call and of its function.
fn read_function(
    call: &Value,
    function: &Value,
    (path, function_path): (&str, &str),
) -> Result<Call, ApiError> {
    let (Value::Object(call), Value::Object(function)) = (call, function) else {
        return Err(ApiError::invalid(function_path, format!("{function_path} must be an object")));
    };
    let name_path = format!("{function_path}.name");
    let name = text_field(function, "name", function_path)?.unwrap_or("");
    if !valid_name(name) {
        let sentence =
            format!("{name_path} is \"{name}\"; expected 1 to 256 letters, digits or one of _ - . : /");
        return Err(ApiError::invalid(&name_path, sentence));
    }
    Ok(Call {
        id: text_field(call, "id", path)?.filter(|id| !id.is_empty()).map(str::to_owned),
        name: name.to_owned(),
        arguments: arguments(function.get("arguments"), &format!("{function_path}.arguments"))?,
    })
}

/// OpenAI sends JSON text; some clients send the object itself. Nothing and `""` mean no arguments.
fn arguments(given: Option<&Value>, param: &str) -> Result<Map<String, Value>, ApiError> {
    let parsed = match given {
        None | Some(Value::Null) => return Ok(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(Map::new()),
        Some(Value::String(text)) => {
            let Strict(parsed) = serde_json::from_slice(&exact::keep_integers(text.as_bytes()))
                .map_err(|error| ApiError::invalid(param, format!("{param}: {error}")))?;
            parsed
        }
        Some(other) => other.clone(),
    };
    if exact::integer(&parsed).is_some() {
        return Err(ApiError::invalid(param, format!("{param} is a number; expected a JSON object")));
    }
    match parsed {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => {
            Err(ApiError::invalid(param, format!("{param} is {}; expected a JSON object", kind(&other))))
        }
    }
}
