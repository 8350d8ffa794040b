//! The body of `POST /v1/chat/completions`, checked and brought into the shape the template and the parser take.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value};

use super::accepted::take_accepted;
use super::constraint::Constraint;
use super::fields::{Fields, kind};
use super::generation::{Generation, Limits, alternatives};
use super::refused::{REFUSED_IN_CHAT, take_refused};
use super::thinking::{ReasoningDelivery, Thinking, ThinkingDefaults};
use super::tool_choice::{ToolChoice, ToolMode};
use crate::conversation;
use crate::error::ApiError;
use crate::vision::{MediaOptions, MediaPart};

/// A chat request that can be rendered.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub generation: Generation,
    /// For the template; see [`conversation::normalise`].
    pub messages: Vec<Value>,
    /// Images and videos in `messages`, in the order in which they are rendered.
    pub media: Vec<MediaPart>,
    /// As sent; empty when `tool_choice` is `none`.
    pub tools: Vec<Value>,
    /// Read tool calls from the output.
    pub parse_tools: bool,
    pub parallel_tool_calls: bool,
    pub tool_choice: ToolChoice,
    /// What the content must be.
    pub constraint: Option<Constraint>,
    /// Alternatives per token; `None` = no log-probabilities.
    pub logprobs: Option<u32>,
    pub thinking_mode: ThinkingMode,
    /// Further variables of the template, `thinking_mode` included when it was asked for.
    pub template_kwargs: Map<String, Value>,
    pub add_generation_prompt: bool,
    /// The last message is the beginning of the answer.
    pub continue_final: bool,
    /// Repeat that beginning in front of the answer.
    pub echo: bool,
    pub reasoning: ReasoningDelivery,
    /// Reasoning is sent as it comes; off = in one piece.
    pub stream_reasoning: bool,
    /// Most tokens of reasoning.
    pub thinking_budget: Option<u32>,
}

impl ChatRequest {
    /// Reads a body. `defaults` are the server's `chat_template_kwargs`.
    pub fn read(body: Value, limits: Limits, defaults: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        take_refused(&mut fields, REFUSED_IN_CHAT)?;
        take_accepted(&mut fields);
        let messages: Vec<Value> = list(&mut fields, "messages")?;
        let mut tools = conversation::read_tools(list(&mut fields, "tools")?)?;
        let tool_choice = ToolChoice::take(&mut fields, &tools)?;
        let parse_tools = tool_choice.mode != ToolMode::Off;
        if !parse_tools {
            tools.clear();
        }
        let defaults = ThinkingDefaults { template_kwargs: defaults, forced: limits.always_thinks };
        let thinking = Thinking::take(&mut fields, defaults)?;
        let ending = Ending::take(&mut fields, &messages)?;
        let media_options = MediaOptions::take(&mut fields)?;
        let mut conversation = conversation::normalise(&messages)?;
        for part in &mut conversation.media {
            part.options = part.options.or(media_options[part.kind as usize]);
        }
        let request = ChatRequest {
            messages: conversation.messages,
            media: conversation.media,
            tools,
            parse_tools,
            parallel_tool_calls: fields.switch("parallel_tool_calls", true)?,
            tool_choice,
            constraint: Constraint::take(&mut fields)?,
            logprobs: logprobs(&mut fields, limits)?,
            thinking_mode: thinking.mode.unwrap_or_default(),
            template_kwargs: thinking.template_kwargs,
            add_generation_prompt: ending.generation_prompt,
            continue_final: ending.continue_final,
            echo: ending.echo,
            reasoning: thinking.delivery,
            stream_reasoning: thinking.stream_reasoning,
            thinking_budget: thinking.budget,
            generation: Generation::take(&mut fields, limits)?,
        };
        request.generation.check_choices(1, limits)?;
        fields.finish("/v1/chat/completions")?;
        Ok(request)
    }
}

/// How the prompt ends.
struct Ending {
    generation_prompt: bool,
    continue_final: bool,
    echo: bool,
}

impl Ending {
    /// `continue_final_message`, or `prefix` or `partial` at the last message, leave it open for the model to go on
    /// with; then there is no generation prompt.
    fn take(fields: &mut Fields, messages: &[Value]) -> Result<Self, ApiError> {
        let asked = fields.take::<bool>("continue_final_message")?;
        let prompted = fields.take::<bool>("add_generation_prompt")?;
        let partial = conversation::last_is_partial(messages)?;
        if partial && asked == Some(false) {
            let sentence =
                "continue_final_message is false, and the last message says that it is to be continued";
            return Err(ApiError::invalid("continue_final_message", sentence));
        }
        let continue_final = asked.unwrap_or(partial);
        if continue_final && prompted == Some(true) {
            let sentence = "add_generation_prompt and continue_final_message cannot both be true: the answer starts \
                            either after a generation prompt or inside the last message";
            return Err(ApiError::invalid("add_generation_prompt", sentence));
        }
        let echo = fields.switch("echo", false)?;
        if continue_final {
            conversation::check_open(messages)?;
        }
        if echo && !continue_final {
            let sentence = "echo needs continue_final_message: a chat answer has no other text to repeat";
            return Err(ApiError::invalid("echo", sentence));
        }
        Ok(Ending { generation_prompt: prompted.unwrap_or(true) && !continue_final, continue_final, echo })
    }
}

impl ChatRequest {
    /// Where the answer starts: the generation prompt decides it, and an open message is past its reasoning.
    pub fn start_mode(&self) -> ThinkingMode {
        match (self.continue_final, self.add_generation_prompt) {
            (true, _) => ThinkingMode::Disabled,
            (false, true) => self.thinking_mode,
            (false, false) => ThinkingMode::default(),
        }
    }

    /// Text of the last message.
    pub fn final_text(&self) -> &str {
        self.messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default()
    }

    /// What is repeated in front of the answer.
    pub fn echo_text(&self) -> Option<String> {
        self.echo.then(|| self.final_text().to_owned())
    }
}

fn list(fields: &mut Fields, name: &str) -> Result<Vec<Value>, ApiError> {
    match fields.take_value(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(ApiError::invalid(name, format!("{name} is {}; expected a list", kind(&other)))),
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
