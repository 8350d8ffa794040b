//! The body of `POST /v1/completions`.

use serde_json::Value;

use super::accepted::take_accepted;
use super::constraint::Constraint;
use super::fields::{Fields, kind, shown};
use super::generation::{Generation, Limits, alternatives};
use super::refused::take_refused;
use crate::error::ApiError;
use crate::vision::MediaOptions;

/// A completion request, checked.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    pub generation: Generation,
    pub prompts: Vec<Prompt>,
    pub echo: bool,
    /// Alternatives per token; `None` = no log-probabilities.
    pub logprobs: Option<u32>,
    /// Marker texts in a text prompt become control tokens, because the caller rendered it.
    pub parse_special: bool,
    /// Only so many of the last tokens of each prompt are kept; -1 = as many as fit.
    pub keep_last: Option<i64>,
    /// Tokens that were cut for it; known when the prompts are.
    pub num_cut: usize,
    /// What the text must be.
    pub constraint: Option<Constraint>,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// Most prompts in one body.
pub const MAX_PROMPTS: usize = 1024;
/// OpenAI's default for this route, used as far as the context has room.
pub const DEFAULT_MAX_TOKENS: u32 = 16;

impl CompletionRequest {
    /// Reads a body.
    pub fn read(body: Value, limits: Limits) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        take_refused(&mut fields, &[])?;
        take_accepted(&mut fields);
        // Prompts of this route show no media; SGLang's route reads its own before it comes here.
        MediaOptions::take(&mut fields)?;
        let logprobs = alternatives(&mut fields, "logprobs", limits)?;
        let request = CompletionRequest {
            prompts: prompts(fields.take_value("prompt"))?,
            echo: fields.switch("echo", false)?,
            logprobs,
            parse_special: fields.switch("parse_special", true)?,
            keep_last: keep_last(&mut fields)?,
            num_cut: 0,
            constraint: Constraint::take(&mut fields)?,
            generation: Generation::take(&mut fields, limits)?,
        };
        request.generation.check_choices(request.prompts.len(), limits)?;
        fields.finish("/v1/completions")?;
        Ok(request)
    }
}

/// `truncate_prompt_tokens`.
fn keep_last(fields: &mut Fields) -> Result<Option<i64>, ApiError> {
    const NAME: &str = "truncate_prompt_tokens";
    match fields.whole(NAME, -1, i64::from(u32::MAX))? {
        Some(0) => {
            let sentence = format!("{NAME} is 0; it must be -1 or a number of tokens of at least 1");
            Err(ApiError::invalid(NAME, sentence))
        }
        kept => Ok(kept),
    }
}

fn prompts(prompt: Option<Value>) -> Result<Vec<Prompt>, ApiError> {
    let wrong = |value: &Value| {
        let sentence = format!("prompt is {}; expected text, token ids, or a list of either", kind(value));
        ApiError::invalid("prompt", sentence)
    };
    let list = match prompt {
        None => return Err(ApiError::invalid("prompt", "prompt is missing")),
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(&other)),
    };
    if list.is_empty() {
        return Err(ApiError::invalid("prompt", "prompt is an empty list"));
    }
    if list.iter().all(Value::is_number) {
        return Ok(vec![Prompt::Tokens(ids(&list, "prompt")?)]);
    }
    if list.len() > MAX_PROMPTS {
        let sentence = format!("prompt has {} entries; this server takes up to {MAX_PROMPTS}", list.len());
        return Err(ApiError::invalid("prompt", sentence));
    }
    let one = |(at, value): (usize, Value)| match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(list) => ids(&list, &format!("prompt[{at}]")).map(Prompt::Tokens),
        other => {
            let param = format!("prompt[{at}]");
            Err(ApiError::invalid(&param, format!("{param} is {}; expected text or token ids", kind(&other))))
        }
    };
    list.into_iter().enumerate().map(one).collect()
}

/// Token ids; whether they are in the vocabulary is the engine's check.
pub fn ids(list: &[Value], param: &str) -> Result<Vec<u32>, ApiError> {
    let one = |(at, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            ApiError::invalid(
                format!("{param}[{at}]"),
                format!("{param}[{at}] is {}; expected a token id", shown(value)),
            )
        })
    };
    list.iter().enumerate().map(one).collect()
}
