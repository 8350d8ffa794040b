//! The body of `POST /v1/messages`: what is this API's own is read here, the rest goes on as a chat request.

use serde_json::{Map, Value, json};

use super::blocks::Conversation;
use crate::error::{ApiError, cut};
use crate::openai::fields::{Fields, kind};
use crate::rename::Renames;

/// A request as the chat request it comes to.
#[derive(Clone, Debug)]
pub struct MessagesRequest {
    /// The body of the chat request.
    pub chat: Map<String, Value>,
    pub renames: Renames,
    pub stream: bool,
}

const RENAMES: &[(&str, &str)] = &[
    ("/v1/chat/completions", "/v1/messages"),
    ("max_completion_tokens", "max_tokens"),
    ("stop", "stop_sequences"),
    ("response_format", "output_config.format"),
    ("reasoning_effort", "output_config.effort"),
];

/// Fields that would change the answer and that need what this server does not have.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    ("container", "this server runs no containers"),
    ("mcp_servers", "this server calls no other servers"),
    ("context_management", "contexts are not edited here"),
];

/// Fields that change nothing here.
const IGNORED: [&str; 7] =
    ["metadata", "service_tier", "cache_control", "diagnostics", "inference_geo", "betas", "speed"];

impl MessagesRequest {
    /// Reads a body; `counting` needs no `max_tokens`. `keep_billing` leaves the volatile line of some agents' system
    /// texts in place.
    pub fn read(body: Value, counting: bool, keep_billing: bool) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        for (name, why) in REFUSED {
            if fields.take_value(name).is_some_and(|value| value != json!([])) {
                return Err(ApiError::unsupported(*name, format!("{name} cannot be honoured: {why}")));
            }
        }
        IGNORED.iter().for_each(|name| drop(fields.take_value(name)));
        let mut chat = Map::new();
        let (messages, mut renames) = conversation(&mut fields, keep_billing)?;
        if messages.last().is_some_and(|last| last["role"] == "assistant") {
            // The answer is to go on from there.
            chat.insert("continue_final_message".into(), true.into());
            chat.insert("add_generation_prompt".into(), false.into());
        }
        chat.insert("messages".into(), Value::Array(messages));
        match fields.take_value("max_tokens") {
            Some(most) => drop(chat.insert("max_tokens".into(), most)),
            None if counting => {}
            None => return Err(ApiError::invalid("max_tokens", "max_tokens is missing")),
        }
        if let Some(stop) = fields.take_value("stop_sequences") {
            chat.insert("stop".into(), stop);
        }
        tools(&mut fields, &mut chat)?;
        for at in 0..chat.get("tools").and_then(Value::as_array).map_or(0, Vec::len) {
            renames.add(format!("tools[{at}].function"), format!("tools[{at}]"));
            renames.add(format!("tools[{at}].function.parameters"), format!("tools[{at}].input_schema"));
        }
        thinking(&mut fields, &mut chat)?;
        output_config(&mut fields, &mut chat)?;
        let stream = fields.switch("stream", false)?;
        // Sampling settings have the same names there, and this engine's own fields their chat names here.
        fields.into_rest().into_iter().for_each(|(name, value)| {
            chat.entry(name).or_insert(value);
        });
        Ok(MessagesRequest { chat, renames, stream })
    }
}

fn conversation(fields: &mut Fields, keep_billing: bool) -> Result<(Vec<Value>, Renames), ApiError> {
    let mut conversation = Conversation::new(fields.take_value("system").as_ref(), keep_billing)?;
    let messages = match fields.take_value("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        Some(Value::Array(_)) => {
            let sentence = "messages is empty; at least one message is needed";
            return Err(ApiError::invalid("messages", sentence));
        }
        None => return Err(ApiError::invalid("messages", "messages is missing")),
        Some(other) => {
            return Err(ApiError::invalid(
                "messages",
                format!("messages is {}; expected a list", kind(&other)),
            ));
        }
    };
    conversation.extend(&messages)?;
    Ok(conversation.finish(Renames::new(RENAMES)))
}

/// Tools with `input_schema`, and the choice among them.
fn tools(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let list: Vec<Value> = match fields.take_value("tools") {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(ApiError::invalid("tools", format!("tools is {}; expected a list", kind(&other))));
        }
    };
    let list = list.iter().enumerate().map(|(at, one)| tool(one, at)).collect::<Result<Vec<_>, _>>()?;
    if !list.is_empty() {
        chat.insert("tools".into(), Value::Array(list));
    }
    match fields.take_value("tool_choice") {
        None => Ok(()),
        Some(choice) => tool_choice(Fields::within("tool_choice", choice)?, chat),
    }
}

fn tool_choice(mut choice: Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let wanted = match choice.text("type")?.as_deref().unwrap_or("") {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => json!({"type": "function", "function": {"name": choice.text("name")?}}),
        other => {
            let sentence =
                format!("tool_choice.type is \"{}\"; expected auto, any, tool or none", cut(other, 60));
            return Err(ApiError::invalid("tool_choice.type", sentence));
        }
    };
    chat.insert("tool_choice".into(), wanted);
    if let Some(one) = choice.take::<bool>("disable_parallel_tool_use")? {
        chat.insert("parallel_tool_calls".into(), (!one).into());
    }
    choice.finish("tool_choice")
}

/// Members that are read elsewhere or change nothing: arguments are always streamed as they come.
const TOOL: [&str; 5] = ["type", "name", "input_schema", "cache_control", "eager_input_streaming"];
/// Members that the function of a chat request has under the same names.
const OF_FUNCTION: [&str; 4] = ["description", "strict", "defer_loading", "input_examples"];

fn tool(tool: &Value, at: usize) -> Result<Value, ApiError> {
    let path = format!("tools[{at}]");
    let Value::Object(object) = tool else {
        return Err(ApiError::invalid(&path, format!("{path} is {}; expected an object", kind(tool))));
    };
    match object.get("type") {
        None | Some(Value::Null) => {}
        Some(custom) if custom == "custom" => {}
        Some(other) => {
            let (param, other) = (format!("{path}.type"), cut(other.as_str().unwrap_or(""), 60));
            let sentence = format!(
                "{param} is \"{other}\"; this server hosts no tools and only takes tools with input_schema, which the \
                 caller runs"
            );
            return Err(ApiError::unsupported(param, sentence));
        }
    }
    if !object.get("input_schema").is_some_and(Value::is_object) {
        let param = format!("{path}.input_schema");
        return Err(ApiError::invalid(&param, format!("{param} must be an object")));
    }
    let mut function = json!({"name": object.get("name"), "parameters": object.get("input_schema")});
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        if OF_FUNCTION.contains(&name.as_str()) {
            function[name] = value.clone();
        } else if !TOOL.contains(&name.as_str())
            && (name.as_str(), value) != ("allowed_callers", &json!(["direct"]))
        {
            let name = cut(name, 80);
            let sentence = format!("\"{name}\" of {path} is no member of a tool that this server knows");
            return Err(ApiError::invalid(format!("{path}.{name}"), sentence).with_code("unknown_field"));
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

/// `thinking`: nothing said means the server's default. What is not to be displayed is thought and not sent.
fn thinking(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let mut thinking: Map<String, Value> = match fields.take_value("thinking") {
        None => return Ok(()),
        Some(Value::Object(thinking)) => thinking,
        Some(other) => {
            let sentence = format!("thinking is {}; expected an object with type", kind(&other));
            return Err(ApiError::invalid("thinking", sentence));
        }
    };
    match thinking.shift_remove("display").unwrap_or_default().as_str() {
        Some("omitted") => drop(chat.insert("include_reasoning".into(), false.into())),
        None | Some("summarized" | "full") => {}
        Some(other) => {
            let sentence =
                format!("thinking.display is \"{}\"; expected summarized or omitted", cut(other, 60));
            return Err(ApiError::invalid("thinking.display", sentence));
        }
    }
    chat.insert("thinking".into(), Value::Object(thinking));
    Ok(())
}

/// `output_config: {"effort", "format"}`.
fn output_config(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let config: Map<String, Value> = fields.take("output_config")?.unwrap_or_default();
    let older = fields.take_value("output_format");
    if let Some(effort) = config.get("effort").filter(|effort| !effort.is_null()) {
        chat.insert("reasoning_effort".into(), effort.clone());
    }
    let Some(format) = config.get("format").cloned().filter(|format| !format.is_null()).or(older) else {
        return Ok(());
    };
    let schema = json!({"name": "output", "schema": format.get("schema"), "strict": true});
    chat.insert("response_format".into(), json!({"type": format.get("type"), "json_schema": schema}));
    Ok(())
}

#[cfg(test)]
mod tests;
