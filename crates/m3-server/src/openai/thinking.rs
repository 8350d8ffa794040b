//! Whether to think, how long, and how the reasoning is sent, under the many names clients have for it. It decides
//! the template's variables, the parser's start state and the budget; docs/serving.md has the same precedence as a
//! table. What the efforts above none mean is the model's business: its template does not know them.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use crate::error::{ApiError, cut};

/// What the server was started with.
#[derive(Clone, Copy, Debug)]
pub struct ThinkingDefaults<'a> {
    /// Variables of the template that requests can override.
    pub template_kwargs: &'a Map<String, Value>,
    /// The model cannot answer without thinking (`--force-thinking`): asking it to is 400.
    pub forced: bool,
}

/// What a request's fields come to.
#[derive(Debug, Default)]
pub struct Thinking {
    /// `None` = nothing was said, neither by the request nor by the server's defaults.
    pub mode: Option<ThinkingMode>,
    /// Further variables of the template, `thinking_mode` included when it was asked for.
    pub template_kwargs: Map<String, Value>,
    /// Most tokens of reasoning; `None` = no limit.
    pub budget: Option<u32>,
    pub delivery: ReasoningDelivery,
    /// Reasoning is sent as it comes; off = in one piece when it is complete.
    pub stream_reasoning: bool,
}

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningDelivery {
    /// Into fields of its own.
    #[default]
    Separate,
    /// Into the content, between its markers.
    Inline,
    /// Nowhere: it is thought and not sent.
    Omitted,
}

/// Modes that were asked for, and the field that did.
type Asked = Option<(ThinkingMode, String)>;

impl Thinking {
    /// The most explicit field wins: `chat_template_kwargs`, `thinking`, `enable_thinking`, `reasoning.enabled`,
    /// `reasoning_effort`, `reasoning.effort`, then the server's defaults.
    pub fn take(fields: &mut Fields, defaults: ThinkingDefaults<'_>) -> Result<Self, ApiError> {
        const KWARGS: &str = "chat_template_kwargs";
        let given: Map<String, Value> = fields.take(KWARGS)?.unwrap_or_default();
        let by_kwargs = named(check_kwargs(KWARGS, &given)?, "chat_template_kwargs.thinking_mode");
        let field = ThinkingField::take(fields)?;
        let by_switch = named(fields.take::<bool>("enable_thinking")?.map(on_or_off), "enable_thinking");
        let effort = mode_of_effort("reasoning_effort", fields.take_value("reasoning_effort"))?;
        let by_effort = named(effort, "reasoning_effort");
        let reasoning = Reasoning::take(fields)?;
        let by_default =
            named(check_kwargs(KWARGS, defaults.template_kwargs)?, "--default-chat-template-kwargs");
        let asked = by_kwargs.or(field.mode).or(by_switch).or(reasoning.enabled);
        let asked = asked.or(by_effort).or(reasoning.effort).or(by_default);
        let mode = if defaults.forced { Some(forced(asked)?) } else { asked.map(|(mode, _)| mode) };
        let mut template_kwargs = defaults.template_kwargs.clone();
        template_kwargs.extend(given);
        template_kwargs.shift_remove("enable_thinking");
        if let Some(mode) = mode {
            template_kwargs.insert("thinking_mode".into(), mode_name(mode).into());
        }
        let budget = budget(fields, "thinking_token_budget")?.or(field.budget).or(reasoning.budget);
        Ok(Thinking {
            mode,
            template_kwargs,
            budget,
            delivery: delivery(fields, reasoning.exclude)?,
            stream_reasoning: fields.switch("stream_reasoning", true)?,
        })
    }
}

fn named(mode: Option<ThinkingMode>, field: &str) -> Asked {
    mode.map(|mode| (mode, field.to_owned()))
}

/// The mode of a model that always thinks.
fn forced(asked: Asked) -> Result<ThinkingMode, ApiError> {
    match asked {
        Some((ThinkingMode::Disabled, field)) => {
            let sentence =
                format!("{field} turns thinking off, and this model always thinks (--force-thinking)");
            Err(ApiError::unsupported(field, sentence))
        }
        _ => Ok(ThinkingMode::Enabled),
    }
}

/// `include_reasoning: false` and `reasoning.exclude` win over where it would go; of the two names for that,
/// `reasoning_split`, the model maker's, wins over `separate_reasoning`.
fn delivery(fields: &mut Fields, exclude: bool) -> Result<ReasoningDelivery, ApiError> {
    let include = fields.switch("include_reasoning", true)?;
    let separate = fields.take::<bool>("separate_reasoning")?;
    let split = fields.take::<bool>("reasoning_split")?;
    Ok(match (include && !exclude, split.or(separate).unwrap_or(true)) {
        (false, _) => ReasoningDelivery::Omitted,
        (true, true) => ReasoningDelivery::Separate,
        (true, false) => ReasoningDelivery::Inline,
    })
}

fn budget(fields: &mut Fields, name: &str) -> Result<Option<u32>, ApiError> {
    // vLLM's clients say -1 for no limit.
    let budget = fields.whole(name, -1, i64::from(u32::MAX))?;
    Ok(budget.and_then(|budget| u32::try_from(budget).ok()))
}

/// Variables for the template, `name` being where they came from: what the server sets itself must not be among
/// them. Gives the thinking mode they ask for.
pub fn check_kwargs(name: &str, kwargs: &Map<String, Value>) -> Result<Option<ThinkingMode>, ApiError> {
    for reserved in ["messages", "tools", "add_generation_prompt"] {
        if kwargs.contains_key(reserved) {
            let param = format!("{name}.{reserved}");
            let sentence = format!("{param} must be sent as a field of the request's own");
            return Err(ApiError::invalid(param, sentence));
        }
    }
    match (kwargs.get("thinking_mode"), kwargs.get("enable_thinking")) {
        (Some(Value::Null) | None, Some(Value::Bool(on))) => Ok(Some(on_or_off(*on))),
        (Some(Value::Null) | None, Some(Value::Null) | None) => Ok(None),
        (Some(Value::Null) | None, Some(other)) => {
            let param = format!("{name}.enable_thinking");
            let sentence = format!("{param} is {}; expected true or false", kind(other));
            Err(ApiError::invalid(param, sentence))
        }
        (Some(mode), _) => mode_of(&format!("{name}.thinking_mode"), mode).map(Some),
    }
}

fn on_or_off(on: bool) -> ThinkingMode {
    if on { ThinkingMode::Enabled } else { ThinkingMode::Disabled }
}

/// MiniMax's own field: `{"type": "adaptive"}`, with Anthropic's `budget_tokens`.
#[derive(Default)]
struct ThinkingField {
    mode: Asked,
    budget: Option<u32>,
}

impl ThinkingField {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let Some(object) = fields.take_value("thinking") else { return Ok(Self::default()) };
        if !object.is_object() {
            let sentence = format!("thinking is {}; expected an object with type", kind(&object));
            return Err(ApiError::invalid("thinking", sentence));
        }
        let mut inner = Fields::within("thinking", object)?;
        let Some(mode) = inner.take_value("type") else {
            return Err(ApiError::invalid("thinking.type", "thinking.type is missing"));
        };
        let mode = mode_of("thinking.type", &mode)?;
        let budget = budget(&mut inner, "budget_tokens")?;
        inner.finish("thinking")?;
        Ok(ThinkingField { mode: named(Some(mode), "thinking.type"), budget })
    }
}

/// `reasoning: {"effort", "enabled", "exclude", "max_tokens"}`, as routers send it.
#[derive(Default)]
struct Reasoning {
    enabled: Asked,
    effort: Asked,
    budget: Option<u32>,
    exclude: bool,
}

impl Reasoning {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let Some(object) = fields.take_value("reasoning") else { return Ok(Self::default()) };
        if !object.is_object() {
            let sentence = format!("reasoning is {}; expected an object with effort", kind(&object));
            return Err(ApiError::invalid("reasoning", sentence));
        }
        let mut inner = Fields::within("reasoning", object)?;
        let effort = mode_of_effort("reasoning.effort", inner.take_value("effort"))?;
        let enabled = switch(&mut inner, "enabled")?.map(on_or_off);
        let exclude = switch(&mut inner, "exclude")?.unwrap_or(false);
        let budget = budget(&mut inner, "max_tokens")?;
        // OpenAI's wish for a summary: M3's reasoning is given whole.
        inner.take_value("summary");
        inner.finish("reasoning")?;
        Ok(Reasoning {
            enabled: named(enabled, "reasoning.enabled"),
            effort: named(effort, "reasoning.effort"),
            budget,
            exclude,
        })
    }
}

fn switch(fields: &mut Fields, name: &str) -> Result<Option<bool>, ApiError> {
    match fields.take_value(name) {
        None => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(on)),
        Some(other) => {
            let param = format!("reasoning.{name}");
            let sentence = format!("{param} is {}; expected true or false", kind(&other));
            Err(ApiError::invalid(param, sentence))
        }
    }
}

/// The template knows thinking and not thinking; how much is the model's business. So `none` (or 0 on the scale from
/// 0 to 1) turns it off and every other effort changes nothing, unknown words included: that is what the model
/// maker's own service does with them.
fn mode_of_effort(param: &str, effort: Option<Value>) -> Result<Option<ThinkingMode>, ApiError> {
    let Some(effort) = effort else { return Ok(None) };
    match (&effort, effort.as_f64()) {
        (Value::String(name), _) => Ok((name == "none").then_some(ThinkingMode::Disabled)),
        (_, Some(share)) if (0.0..=1.0).contains(&share) => {
            Ok((share == 0.0).then_some(ThinkingMode::Disabled))
        }
        _ => {
            let given = super::fields::shown(&effort);
            let sentence =
                format!("{param} is {given}; expected a word such as none or high, or a number from 0 to 1");
            Err(ApiError::invalid(param, sentence))
        }
    }
}

/// `adaptive`, `enabled` or `disabled`, or 400.
pub fn mode_of(param: &str, mode: &Value) -> Result<ThinkingMode, ApiError> {
    match mode.as_str() {
        Some("adaptive") => Ok(ThinkingMode::Adaptive),
        Some("enabled") => Ok(ThinkingMode::Enabled),
        Some("disabled") => Ok(ThinkingMode::Disabled),
        _ => {
            let given = cut(&mode.to_string(), 100);
            let sentence = format!("{param} is {given}; expected adaptive, enabled or disabled");
            Err(ApiError::invalid(param, sentence))
        }
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

#[cfg(test)]
mod tests;
