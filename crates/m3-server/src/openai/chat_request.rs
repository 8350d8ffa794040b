//! The body of `POST /v1/chat/completions`, checked and brought into the shape the template and the parser take.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use super::generation::{Generation, Limits, check_alternatives};
use super::refused::take_refused;
use crate::conversation;
use crate::error::ApiError;

/// A chat request that can be rendered.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub generation: Generation,
    /// For the template; see [`conversation::normalise`].
    pub messages: Vec<Value>,
    /// As sent; empty when `tool_choice` is `none`.
    pub tools: Vec<Value>,
    /// Read tool calls from the output.
    pub parse_tools: bool,
    pub parallel_tool_calls: bool,
    /// Alternatives per token; `None` = no log-probabilities.
    pub logprobs: Option<u32>,
    pub thinking_mode: ThinkingMode,
    /// Further variables of the template, `thinking_mode` included when it was asked for.
    pub template_kwargs: Map<String, Value>,
    pub add_generation_prompt: bool,
    /// Send the reasoning; off = it is thought but not sent.
    pub include_reasoning: bool,
}

impl ChatRequest {
    /// Reads a body. `defaults` are the server's `chat_template_kwargs`.
    pub fn read(body: Value, limits: Limits, defaults: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        take_refused(&mut fields)?;
        refuse_echo(&mut fields)?;
        let messages: Vec<Value> = list(&mut fields, "messages")?;
        let mut tools: Vec<Value> = list(&mut fields, "tools")?;
        conversation::check_tools(&tools)?;
        let parse_tools = tool_choice(&mut fields)?;
        if !parse_tools {
            tools.clear();
        }
        let (thinking_mode, template_kwargs) = thinking(&mut fields, defaults)?;
        let request = ChatRequest {
            messages: conversation::normalise(&messages)?,
            tools,
            parse_tools,
            parallel_tool_calls: fields.switch("parallel_tool_calls", true)?,
            logprobs: logprobs(&mut fields, limits)?,
            thinking_mode,
            template_kwargs,
            add_generation_prompt: fields.switch("add_generation_prompt", true)?,
            include_reasoning: fields.switch("include_reasoning", true)?,
            generation: Generation::take(&mut fields, limits)?,
        };
        fields.log_rest("/v1/chat/completions");
        Ok(request)
    }
}

fn list(fields: &mut Fields, name: &str) -> Result<Vec<Value>, ApiError> {
    match fields.take_value(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(ApiError::invalid(name, format!("{name} is {}; expected a list", kind(&other)))),
    }
}

fn refuse_echo(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.switch("echo", false)? {
        return Err(ApiError::unsupported(
            "echo",
            "echo cannot be honoured: a chat answer has no prompt text",
        ));
    }
    Ok(())
}

/// Whether calls may be made. Forcing one needs a grammar over the output; until there is one it is refused rather
/// than hoped for.
fn tool_choice(fields: &mut Fields) -> Result<bool, ApiError> {
    let unsupported = |what: &str| {
        let sentence = format!("tool_choice {what} cannot be enforced yet; send \"auto\" or \"none\"");
        Err(ApiError::unsupported("tool_choice", sentence))
    };
    match fields.take_value("tool_choice") {
        None => Ok(true),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => Ok(true),
            "none" => Ok(false),
            "required" | "any" => unsupported("\"required\""),
            other => {
                let sentence = format!("tool_choice is \"{other}\"; expected \"auto\" or \"none\"");
                Err(ApiError::invalid("tool_choice", sentence))
            }
        },
        Some(Value::Object(_)) => unsupported("that names a tool"),
        Some(other) => {
            let sentence = format!("tool_choice is {}; expected \"auto\" or \"none\"", kind(&other));
            Err(ApiError::invalid("tool_choice", sentence))
        }
    }
}

fn logprobs(fields: &mut Fields, limits: Limits) -> Result<Option<u32>, ApiError> {
    let wanted = fields.switch("logprobs", false)?;
    let top = fields.take::<i64>("top_logprobs")?;
    match (wanted, top) {
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs to be true")),
        (true, top) => check_alternatives("top_logprobs", top.unwrap_or(0), limits).map(Some),
    }
}

/// The effective mode and the template's variables. An explicit `chat_template_kwargs.thinking_mode` wins over
/// `thinking`, that over `reasoning_effort`, that over the server's default.
fn thinking(
    fields: &mut Fields,
    defaults: &Map<String, Value>,
) -> Result<(ThinkingMode, Map<String, Value>), ApiError> {
    let given: Map<String, Value> = fields.take("chat_template_kwargs")?.unwrap_or_default();
    for reserved in ["messages", "tools", "add_generation_prompt"] {
        if given.contains_key(reserved) {
            let param = format!("chat_template_kwargs.{reserved}");
            return Err(ApiError::invalid(&param, format!("{param} must be sent as a field of its own")));
        }
    }
    let explicit = mode_of_kwargs(&given)?;
    let by_field = mode_of_thinking(fields)?;
    let by_effort = mode_of_effort(fields);
    let by_default = mode_of_kwargs(defaults)?;
    let mode = explicit.or(by_field).or(by_effort).or(by_default);
    let mut kwargs = defaults.clone();
    kwargs.extend(given);
    kwargs.shift_remove("enable_thinking");
    if let Some(mode) = mode {
        kwargs.insert("thinking_mode".into(), mode_name(mode).into());
    }
    Ok((mode.unwrap_or_default(), kwargs))
}

fn mode_of_kwargs(kwargs: &Map<String, Value>) -> Result<Option<ThinkingMode>, ApiError> {
    match (kwargs.get("thinking_mode"), kwargs.get("enable_thinking")) {
        (Some(Value::Null) | None, Some(Value::Bool(on))) => {
            Ok(Some(if *on { ThinkingMode::Enabled } else { ThinkingMode::Disabled }))
        }
        (Some(Value::Null) | None, _) => Ok(None),
        (Some(mode), _) => mode_of("chat_template_kwargs.thinking_mode", mode).map(Some),
    }
}

/// MiniMax's own field: `{"type": "adaptive"}`.
fn mode_of_thinking(fields: &mut Fields) -> Result<Option<ThinkingMode>, ApiError> {
    match fields.take_value("thinking") {
        None => Ok(None),
        Some(Value::Object(thinking)) => match thinking.get("type") {
            Some(mode) => mode_of("thinking.type", mode).map(Some),
            None => Err(ApiError::invalid("thinking.type", "thinking.type is missing")),
        },
        Some(other) => Err(ApiError::invalid(
            "thinking",
            format!("thinking is {}; expected an object with type", kind(&other)),
        )),
    }
}

/// Efforts other than none have no effect on M3's template, and unknown ones are ignored.
fn mode_of_effort(fields: &mut Fields) -> Option<ThinkingMode> {
    let effort = fields.take_value("reasoning_effort")?;
    matches!(effort.as_str(), Some("none" | "minimal")).then_some(ThinkingMode::Disabled)
}

/// `adaptive`, `enabled` or `disabled`, or 400.
pub fn mode_of(param: &str, mode: &Value) -> Result<ThinkingMode, ApiError> {
    match mode.as_str() {
        Some("adaptive") => Ok(ThinkingMode::Adaptive),
        Some("enabled") => Ok(ThinkingMode::Enabled),
        Some("disabled") => Ok(ThinkingMode::Disabled),
        _ => Err(ApiError::invalid(
            param,
            format!("{param} is {mode}; expected adaptive, enabled or disabled"),
        )),
    }
}

/// The template's word.
pub fn mode_name(mode: ThinkingMode) -> &'static str {
    match mode {
        ThinkingMode::Adaptive => "adaptive",
        ThinkingMode::Enabled => "enabled",
        ThinkingMode::Disabled => "disabled",
    }
}
