//! The body of `POST /v1/responses`: what is this API's own is read here, the rest goes on as a chat request.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::input::{self, Conversation};
use super::store::History;
use super::tools;
use crate::error::ApiError;
use crate::openai::fields::{Fields, kind};
use crate::rename::Renames;

/// A request in two halves: the chat request it comes to, and what only this API knows.
#[derive(Clone, Debug)]
pub struct ResponsesRequest {
    /// The body of the chat request.
    pub chat: Map<String, Value>,
    pub renames: Renames,
    /// Fields that every response object repeats.
    pub echo: Map<String, Value>,
    /// This request's own input items, with ids.
    pub items: Vec<Value>,
    pub previous: Option<Arc<History>>,
    pub store: bool,
    pub background: bool,
    pub stream: bool,
    pub logprobs: bool,
    pub encrypted_reasoning: bool,
    /// Leave out the oldest turns of a conversation that is too long.
    pub truncate: bool,
}

/// What a chat field is called here.
const RENAMES: &[(&str, &str)] = &[
    ("/v1/chat/completions", "/v1/responses"),
    ("messages", "input"),
    ("prompt", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("response_format.json_schema", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
];

/// Fields that would change the answer and that need what this server does not have.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    ("conversation", "conversations are not kept here; send previous_response_id"),
    ("prompt", "prompt templates are not kept here; send input"),
    ("messages", "send input"),
    ("context_management", "contexts are not compacted here"),
    ("max_tool_calls", "it counts calls of hosted tools, which this server has none of"),
    ("moderation", "there is no moderation model"),
];

/// Fields that are repeated in the response and change nothing.
const ECHOED: [&str; 8] = [
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "service_tier",
    "access_programs",
];

const INCLUDABLE: [&str; 9] = [
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "computer_call.output.image_url",
];

impl ResponsesRequest {
    /// Reads a body. `previous` finds the history of an earlier response.
    pub fn read(
        body: Value,
        previous: impl Fn(&str) -> Result<Arc<History>, ApiError>,
    ) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        refuse(&mut fields)?;
        let include = include(&mut fields)?;
        let previous_id: Option<String> = fields.take("previous_response_id")?;
        let previous = previous_id.as_deref().map(previous).transpose()?;
        let instructions = instructions(&mut fields)?;
        let items = input::read(fields.take_value("input"))?;
        let mut echo = echo(&mut fields)?;
        echo.insert("instructions".into(), instructions.clone().map_or(Value::Null, Value::String));
        echo.insert("previous_response_id".into(), json!(previous_id));
        let (chat_tools, tools_echo) = tools::read(fields.take_value("tools"))?;
        let choice = fields.take_value("tool_choice");
        let chat_choice = choice.as_ref().map(tools::choice).transpose()?;
        echo.insert("tools".into(), m3_core::text::exact::plain(tools_echo));
        echo.insert("tool_choice".into(), choice.unwrap_or_else(|| "auto".into()));
        let switches = Switches::take(&mut fields)?;
        let top_logprobs = fields.take_value("top_logprobs");
        let logprobs = include.logprobs || top_logprobs.as_ref().is_some_and(|top| *top != json!(0));
        let mut chat = Map::new();
        text_format(&mut fields, &mut chat, &mut echo)?;
        reasoning(&mut fields, &mut chat, &mut echo)?;
        if let Some(most) = fields.take_value("max_output_tokens") {
            chat.insert("max_tokens".into(), most);
        }
        if logprobs {
            chat.insert("logprobs".into(), true.into());
            chat.insert("top_logprobs".into(), top_logprobs.unwrap_or_else(|| json!(0)));
        }
        if !chat_tools.is_empty() {
            chat.insert("tools".into(), Value::Array(chat_tools));
        }
        chat.extend(chat_choice.map(|choice| ("tool_choice".into(), choice)));
        let mut conversation = Conversation::default();
        conversation.instructions(instructions.as_deref());
        let history = previous.as_ref().map(|history| history.items()).unwrap_or_default();
        conversation.extend(&history, "previous_response_id")?;
        conversation.extend(&items, "input")?;
        let (messages, mut renames) = conversation.finish(Renames::new(RENAMES));
        let num_tools = chat.get("tools").and_then(Value::as_array).map_or(0, Vec::len);
        (0..num_tools).for_each(|at| renames.add(format!("tools[{at}].function"), format!("tools[{at}]")));
        chat.insert("messages".into(), Value::Array(messages));
        // Sampling settings and this engine's own fields have their chat names here too.
        fields.into_rest().into_iter().for_each(|(name, value)| {
            chat.entry(name).or_insert(value);
        });
        Ok(ResponsesRequest {
            chat,
            renames,
            echo,
            items,
            previous,
            store: switches.store,
            background: switches.background,
            stream: switches.stream,
            logprobs,
            encrypted_reasoning: include.encrypted_reasoning,
            truncate: switches.truncate,
        })
    }
}

fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, why) in REFUSED {
        if fields.take_value(name).is_some() {
            return Err(ApiError::unsupported(*name, format!("{name} cannot be honoured: {why}")));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Include {
    logprobs: bool,
    encrypted_reasoning: bool,
}

fn include(fields: &mut Fields) -> Result<Include, ApiError> {
    let names: Vec<String> = fields.take("include")?.unwrap_or_default();
    if let Some(at) = names.iter().position(|name| !INCLUDABLE.contains(&name.as_str())) {
        let sentence =
            format!("include[{at}] is \"{}\"; expected one of {}", names[at], INCLUDABLE.join(", "));
        return Err(ApiError::invalid(format!("include[{at}]"), sentence));
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    Ok(Include {
        logprobs: has("message.output_text.logprobs"),
        encrypted_reasoning: has("reasoning.encrypted_content"),
    })
}

fn instructions(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    match fields.take_value("instructions") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let sentence = format!("instructions is {}; expected a string", kind(&other));
            Err(ApiError::invalid("instructions", sentence))
        }
    }
}

fn echo(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut echo = Map::new();
    for name in ECHOED {
        echo.insert(name.into(), fields.take_value(name).unwrap_or(Value::Null));
    }
    match &echo["metadata"] {
        Value::Null => echo.insert("metadata".into(), json!({})),
        Value::Object(_) => None,
        other => {
            let sentence = format!("metadata is {}; expected an object", kind(other));
            return Err(ApiError::invalid("metadata", sentence));
        }
    };
    echo.insert("service_tier".into(), "default".into());
    Ok(echo)
}

struct Switches {
    store: bool,
    background: bool,
    stream: bool,
    truncate: bool,
}

impl Switches {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let truncation: Option<String> = fields.take("truncation")?;
        let truncate = match truncation.as_deref() {
            None | Some("disabled") => false,
            Some("auto") => true,
            Some(other) => {
                let sentence = format!("truncation is \"{other}\"; expected auto or disabled");
                return Err(ApiError::invalid("truncation", sentence));
            }
        };
        // Its one member pads events against an onlooker's guesses; there is nothing to pad here.
        if let Some(options) = fields.take_value("stream_options") {
            let mut options = Fields::within("stream_options", options)?;
            options.take_value("include_obfuscation");
            options.finish("stream_options")?;
        }
        fields.take_value("client_metadata");
        let switches = Switches {
            store: fields.switch("store", true)?,
            background: fields.switch("background", false)?,
            stream: fields.switch("stream", false)?,
            truncate,
        };
        if switches.background && !switches.store {
            let sentence =
                "background is true and store is false; a response in the background must be stored";
            return Err(ApiError::invalid("background", sentence));
        }
        Ok(switches)
    }
}

/// `text: {"format", "verbosity"}`. The format is chat's `response_format` without its inner object.
fn text_format(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let text = match fields.take_value("text") {
        None => json!({}),
        Some(text @ Value::Object(_)) => text,
        Some(other) => {
            return Err(ApiError::invalid("text", format!("text is {}; expected an object", kind(&other))));
        }
    };
    let mut members = Fields::within("text", text.clone())?;
    members.take_value("format");
    members.take_value("verbosity");
    members.finish("text")?;
    let format = text.get("format").filter(|format| !format.is_null()).cloned();
    let format = format.unwrap_or_else(|| json!({"type": "text"}));
    match format.get("type").and_then(Value::as_str) {
        Some("text") => {}
        Some("json_schema") => {
            let mut inner = format.as_object().cloned().unwrap_or_default();
            inner.shift_remove("type");
            chat.insert("response_format".into(), json!({"type": "json_schema", "json_schema": inner}));
        }
        // Others are known or refused by the chat route.
        _ => {
            chat.insert("response_format".into(), format.clone());
        }
    }
    let verbosity = text.get("verbosity").cloned().filter(|verbosity| !verbosity.is_null());
    let verbosity = verbosity.unwrap_or_else(|| "medium".into());
    if !["low", "medium", "high"].iter().any(|known| verbosity == *known) {
        let sentence = "text.verbosity must be low, medium or high";
        return Err(ApiError::invalid("text.verbosity", sentence));
    }
    echo.insert("text".into(), json!({"format": format, "verbosity": verbosity}));
    Ok(())
}

/// `reasoning: {"effort", "summary"}`. The reasoning itself is sent, so a summary is not made.
fn reasoning(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let mut given = match fields.take_value("reasoning") {
        None => Map::new(),
        Some(Value::Object(given)) => given,
        Some(other) => {
            let sentence = format!("reasoning is {}; expected an object with effort", kind(&other));
            return Err(ApiError::invalid("reasoning", sentence));
        }
    };
    let (effort, summary) = (given.shift_remove("effort"), given.shift_remove("summary"));
    echo.insert("reasoning".into(), json!({"effort": effort, "summary": summary}));
    given.shift_remove("generate_summary");
    if let Some(effort) = effort.filter(|effort| !effort.is_null()) {
        chat.insert("reasoning_effort".into(), effort);
    }
    // `enabled` and `exclude` are chat's own.
    if !given.is_empty() {
        chat.insert("reasoning".into(), Value::Object(given));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
