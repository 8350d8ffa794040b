//! Whether to think, under the many names clients have for it. It decides the template's variables and the parser's
//! start state; how much is thought is the model's business, so efforts above none change nothing.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use crate::error::{ApiError, cut};

/// What a request's fields come to.
#[derive(Debug, Default)]
pub struct Thinking {
    /// `None` = nothing was said, neither by the request nor by the server's defaults.
    pub mode: Option<ThinkingMode>,
    /// Further variables of the template, `thinking_mode` included when it was asked for.
    pub template_kwargs: Map<String, Value>,
    /// Think, but do not send it.
    pub exclude: bool,
}

impl Thinking {
    /// The most explicit field wins: `chat_template_kwargs`, `thinking`, `enable_thinking`, `reasoning.enabled`,
    /// `reasoning_effort`, `reasoning.effort`, then the server's defaults.
    pub fn take(fields: &mut Fields, defaults: &Map<String, Value>) -> Result<Self, ApiError> {
        const KWARGS: &str = "chat_template_kwargs";
        let given: Map<String, Value> = fields.take(KWARGS)?.unwrap_or_default();
        let explicit = check_kwargs(KWARGS, &given)?;
        let by_field = mode_of_thinking(fields)?;
        let by_switch = fields.take::<bool>("enable_thinking")?.map(on_or_off);
        let by_effort = mode_of_effort("reasoning_effort", fields.take_value("reasoning_effort"))?;
        let reasoning = Reasoning::take(fields)?;
        let by_default = check_kwargs(KWARGS, defaults)?;
        let asked = explicit.or(by_field).or(by_switch).or(reasoning.enabled);
        let mode = asked.or(by_effort).or(reasoning.effort).or(by_default);
        let mut template_kwargs = defaults.clone();
        template_kwargs.extend(given);
        template_kwargs.shift_remove("enable_thinking");
        if let Some(mode) = mode {
            template_kwargs.insert("thinking_mode".into(), mode_name(mode).into());
        }
        Ok(Thinking { mode, template_kwargs, exclude: reasoning.exclude })
    }
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

/// `reasoning: {"effort", "enabled", "exclude"}`, as routers send it.
#[derive(Default)]
struct Reasoning {
    enabled: Option<ThinkingMode>,
    effort: Option<ThinkingMode>,
    exclude: bool,
}

impl Reasoning {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let object = match fields.take_value("reasoning") {
            None => return Ok(Self::default()),
            Some(Value::Object(object)) => object,
            Some(other) => {
                let sentence = format!("reasoning is {}; expected an object with effort", kind(&other));
                return Err(ApiError::invalid("reasoning", sentence));
            }
        };
        let mut reasoning = Self::default();
        for (key, value) in object.into_iter().filter(|(_, value)| !value.is_null()) {
            let param = format!("reasoning.{key}");
            match (key.as_str(), &value) {
                ("effort", _) => reasoning.effort = mode_of_effort(&param, Some(value))?,
                ("enabled", Value::Bool(on)) => reasoning.enabled = Some(on_or_off(*on)),
                ("exclude", Value::Bool(on)) => reasoning.exclude = *on,
                ("enabled" | "exclude", other) => {
                    let sentence = format!("{param} is {}; expected true or false", kind(other));
                    return Err(ApiError::invalid(param, sentence));
                }
                _ => {
                    let sentence = format!("{param} cannot be honoured; send effort, enabled or exclude");
                    return Err(ApiError::unsupported(param, sentence));
                }
            }
        }
        Ok(reasoning)
    }
}

const EFFORTS: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"];

/// The template knows thinking and not thinking; the model decides how much.
fn mode_of_effort(param: &str, effort: Option<Value>) -> Result<Option<ThinkingMode>, ApiError> {
    let Some(effort) = effort else { return Ok(None) };
    match effort.as_str() {
        Some("none" | "minimal") => Ok(Some(ThinkingMode::Disabled)),
        Some(name) if EFFORTS.contains(&name) => Ok(None),
        Some(other) => {
            let sentence = format!("{param} is \"{other}\"; expected one of {}", EFFORTS.join(", "));
            Err(ApiError::invalid(param, sentence))
        }
        None => {
            let sentence = format!("{param} is {}; expected one of {}", kind(&effort), EFFORTS.join(", "));
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
