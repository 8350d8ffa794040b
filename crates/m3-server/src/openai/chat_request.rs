//! The body of `POST /v1/chat/completions`, checked and brought into the shape the template and the parser take.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use super::generation::{Generation, Limits, alternatives};
use super::refused::take_refused;
use super::thinking::Thinking;
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
        let thinking = Thinking::take(&mut fields, defaults)?;
        let request = ChatRequest {
            messages: conversation::normalise(&messages)?,
            tools,
            parse_tools,
            parallel_tool_calls: fields.switch("parallel_tool_calls", true)?,
            logprobs: logprobs(&mut fields, limits)?,
            thinking_mode: thinking.mode.unwrap_or_default(),
            template_kwargs: thinking.template_kwargs,
            add_generation_prompt: fields.switch("add_generation_prompt", true)?,
            include_reasoning: fields.switch("include_reasoning", true)? && !thinking.exclude,
            generation: Generation::take(&mut fields, limits)?,
        };
        request.generation.check_choices(1, limits)?;
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
    let top = alternatives(fields, "top_logprobs", limits)?;
    match (wanted, top) {
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs to be true")),
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}
