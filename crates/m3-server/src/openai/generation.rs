//! What both generation routes share: sampling settings, limits, stops and how the answer is delivered.
//! Ranges are checked here; what depends on the prompt's length is checked when the prompt is known.

use std::sync::Arc;

use super::fields::{Fields, kind, short_number};
use super::token_lists;
use super::words;
use crate::error::ApiError;
use crate::generate::StopExpressions;

/// What the served model allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub vocab_size: u32,
    pub max_logprobs: u32,
    /// Answers that one request may ask for: more could never be running and waiting together.
    pub max_choices: usize,
    /// The model cannot answer without thinking.
    pub always_thinks: bool,
}

/// The shared fields, checked. `None` = the model's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    pub model: Option<String>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    /// 0 = off.
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub seed: Option<u64>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub logit_bias: Vec<(u32, f32)>,
    /// Only these may be sampled.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Texts that no answer has, however they are cut into tokens.
    pub bad_words: Vec<String>,
    pub max_tokens: Option<u32>,
    pub min_tokens: u32,
    pub stop: Vec<String>,
    /// Expressions that end the content behind what they match.
    pub stop_expressions: Option<Arc<StopExpressions>>,
    pub stop_token_ids: Vec<u32>,
    pub include_stop: bool,
    /// Control tokens that the model samples are no text.
    pub skip_special: bool,
    pub ignore_eos: bool,
    pub n: u32,
    /// Answers made, of which the `n` likeliest are given; at least `n`.
    pub best_of: u32,
    /// Alternatives per token of the prompt.
    pub prompt_logprobs: Option<u32>,
    pub repetition: Option<RepetitionDetection>,
    pub delivery: Delivery,
    pub priority: i32,
    /// `cache_salt` and `extra_key` together.
    pub cache_salt: Option<String>,
    /// The client's own name for the request.
    pub request_id: Option<String>,
}

/// When an answer that goes round in circles is ended: some pattern of `min_pattern_size` to `max_pattern_size`
/// tokens stands `min_count` times in a row at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepetitionDetection {
    pub min_pattern_size: u32,
    pub max_pattern_size: u32,
    pub min_count: u32,
}

/// How the answer travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub stream: bool,
    pub include_usage: bool,
    /// Usage on every chunk.
    pub continuous_usage: bool,
    /// Token ids beside the text.
    pub token_ids: bool,
    /// `token_id:7` instead of text in log-probabilities.
    pub tokens_as_ids: bool,
    /// Tokens that a packet waits for; `None` = the server's setting.
    pub interval: Option<u32>,
}

#[derive(Default)]
struct StreamOptions {
    include_usage: bool,
    continuous_usage_stats: bool,
}

impl StreamOptions {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        const FIELD: &str = "stream_options";
        let Some(object) = fields.take_value(FIELD) else { return Ok(Self::default()) };
        let mut given = Fields::within(FIELD, object)?;
        // Pads events against an onlooker's guesses; there is nothing to pad here.
        given.take_value("include_obfuscation");
        let include_usage = given.switch("include_usage", false)?;
        let continuous_usage_stats = given.switch("continuous_usage_stats", false)?;
        given.finish(FIELD)?;
        Ok(StreamOptions { include_usage, continuous_usage_stats })
    }
}

/// Most answers to one prompt.
pub const MAX_CHOICES: i64 = 128;

impl Generation {
    /// Takes the shared fields.
    pub fn take(fields: &mut Fields, limits: Limits) -> Result<Self, ApiError> {
        let penalty =
            |fields: &mut Fields, name| fields.number(name, -2.0, 2.0).map(|p| p.unwrap_or(0.0) as f32);
        let small = |number: Option<f64>| number.map(|number| number as f32);
        let max_tokens = max_tokens(fields)?;
        let n = fields.whole("n", 1, MAX_CHOICES)?.unwrap_or(1) as u32;
        let generation = Generation {
            model: fields.take("model")?,
            temperature: small(fields.number("temperature", 0.0, 2.0)?),
            top_p: small(fields.number("top_p", 0.0, 1.0)?),
            top_k: fields.whole("top_k", -1, i64::from(u32::MAX))?.map(|k| k.max(0) as u32),
            min_p: small(fields.number("min_p", 0.0, 1.0)?),
            seed: seed(fields)?,
            repetition_penalty: repetition_penalty(fields)?,
            presence_penalty: penalty(fields, "presence_penalty")?,
            frequency_penalty: penalty(fields, "frequency_penalty")?,
            logit_bias: token_lists::logit_bias(fields, limits.vocab_size)?,
            allowed_token_ids: token_lists::allowed_token_ids(fields, limits.vocab_size)?,
            bad_words: words::bad_words(fields)?,
            max_tokens,
            min_tokens: fields.whole("min_tokens", 0, i64::from(u32::MAX))?.unwrap_or(0) as u32,
            stop: words::stop(fields)?,
            stop_expressions: words::stop_regex(fields)?,
            stop_token_ids: token_lists::stop_token_ids(fields, limits.vocab_size)?,
            include_stop: fields.switch("include_stop_str_in_output", false)?
                | fields.switch("no_stop_trim", false)?,
            skip_special: fields.switch("skip_special_tokens", true)?,
            ignore_eos: fields.switch("ignore_eos", false)?,
            n,
            best_of: fields.whole("best_of", 1, MAX_CHOICES)?.map_or(n, |best_of| best_of as u32),
            prompt_logprobs: alternatives(fields, "prompt_logprobs", limits)?,
            repetition: RepetitionDetection::take(fields)?,
            delivery: Delivery::take(fields)?,
            priority: fields.whole("priority", i64::from(i32::MIN), i64::from(i32::MAX))?.unwrap_or(0) as i32,
            cache_salt: cache_salt(fields)?,
            request_id: request_id(fields)?,
        };
        generation.check_lengths()?;
        generation.check_delivery()?;
        Ok(generation)
    }

    /// 400 when the answers to this many prompts could never all be admitted; waiting would not help.
    pub fn check_choices(&self, num_prompts: usize, limits: Limits) -> Result<(), ApiError> {
        let asked = num_prompts.saturating_mul(self.best_of as usize);
        if asked <= limits.max_choices {
            return Ok(());
        }
        let name = if self.best_of > self.n { "best_of" } else { "n" };
        let param = if num_prompts > limits.max_choices { "prompt" } else { name };
        let sentence = format!(
            "the request asks for {asked} answers ({num_prompts} prompts, {name} is {}); this server runs and queues \
             up to {} at a time",
            self.best_of, limits.max_choices
        );
        Err(ApiError::invalid(param, sentence))
    }

    /// What a stream cannot carry: it sends answers before all of them are known, and scores of the prompt have no
    /// place in it.
    fn check_delivery(&self) -> Result<(), ApiError> {
        if self.best_of < self.n {
            let sentence = format!("best_of is {}; it must be at least n, which is {}", self.best_of, self.n);
            return Err(ApiError::invalid("best_of", sentence));
        }
        if self.delivery.stream && self.best_of > self.n {
            let sentence = "best_of above n cannot be streamed: which answers are best is known at their end";
            return Err(ApiError::invalid("best_of", sentence));
        }
        if self.delivery.stream && self.prompt_logprobs.is_some() {
            let sentence = "prompt_logprobs cannot be streamed; leave stream out";
            return Err(ApiError::invalid("prompt_logprobs", sentence));
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<(), ApiError> {
        match self.max_tokens {
            Some(most) if self.min_tokens > most => {
                let message = format!(
                    "min_tokens is {}; it must be at most max_tokens, which is {most}",
                    self.min_tokens
                );
                Err(ApiError::invalid("min_tokens", message))
            }
            _ => Ok(()),
        }
    }
}

impl Delivery {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let options = StreamOptions::take(fields)?;
        Ok(Delivery {
            stream: fields.switch("stream", false)?,
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            token_ids: fields.switch("return_token_ids", false)?,
            tokens_as_ids: fields.switch("return_tokens_as_token_ids", false)?,
            interval: fields.whole("stream_interval", 1, 1 << 20)?.map(|tokens| tokens as u32),
        })
    }
}

impl RepetitionDetection {
    /// Longest pattern, in tokens: each length costs a comparison per token.
    const MAX_PATTERN: i64 = 1024;

    fn take(fields: &mut Fields) -> Result<Option<Self>, ApiError> {
        const NAME: &str = "repetition_detection";
        let object = match fields.take_value(NAME) {
            None => return Ok(None),
            Some(object @ serde_json::Value::Object(_)) => object,
            Some(other) => {
                let sentence =
                    format!("{NAME} is {}; expected an object with max_pattern_size", kind(&other));
                return Err(ApiError::invalid(NAME, sentence));
            }
        };
        let mut inner = Fields::within(NAME, object)?;
        let most = inner.whole("max_pattern_size", 0, Self::MAX_PATTERN)?.unwrap_or(0) as u32;
        let least = inner.whole("min_pattern_size", 0, Self::MAX_PATTERN)?.unwrap_or(0).max(1) as u32;
        let count = inner.whole("min_count", 2, 1 << 20)?.unwrap_or(2) as u32;
        inner.finish(NAME)?;
        if most > 0 && least > most {
            let param = format!("{NAME}.min_pattern_size");
            let sentence =
                format!("{param} is {least}; it must be at most max_pattern_size, which is {most}");
            return Err(ApiError::invalid(param, sentence));
        }
        let detection = Self { min_pattern_size: least, max_pattern_size: most, min_count: count };
        Ok((most > 0).then_some(detection))
    }
}

/// `extra_key` separates cache entries as `cache_salt` does; a client that sends both wants both.
fn cache_salt(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let salt = fields.text("cache_salt")?.filter(|salt| !salt.is_empty());
    let extra = fields.text("extra_key")?.filter(|key| !key.is_empty());
    Ok(match (salt, extra) {
        (salt, None) => salt,
        // Lengths first, so that no two pairs read alike.
        (salt, Some(extra)) => {
            let salt = salt.unwrap_or_default();
            Some(format!("{}:{salt}{extra}", salt.len()))
        }
    })
}

/// `request_id` or `rid`: becomes part of the answer's id.
fn request_id(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let (first, second) = (fields.text("request_id")?, fields.text("rid")?);
    let (name, id) = match (first, second) {
        (Some(id), _) => ("request_id", id),
        (None, Some(id)) => ("rid", id),
        (None, None) => return Ok(None),
    };
    if is_request_id(&id) {
        return Ok(Some(id));
    }
    let sentence = format!("{name} is \"{id}\"; expected 1 to 128 letters, digits or one of - _ .");
    Err(ApiError::invalid(name, sentence))
}

/// Whether a client's name for a request can stand in a header and an id.
pub fn is_request_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(plain)
}

/// `max_completion_tokens` wins over `max_tokens`.
fn max_tokens(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let most = i64::from(u32::MAX);
    let old = fields.whole("max_tokens", 0, most)?;
    let new = fields.whole("max_completion_tokens", 0, most)?;
    Ok(new.or(old).map(|tokens| tokens as u32))
}

/// Any 64-bit integer; the sign is only part of the bits.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(number) = fields.take::<serde_json::Number>("seed")? else { return Ok(None) };
    let bits = number.as_u64().or_else(|| number.as_i64().map(|seed| seed as u64));
    bits.map(Some).ok_or_else(|| {
        ApiError::invalid("seed", format!("seed is {number}; it must be a whole number of 64 bits"))
    })
}

fn repetition_penalty(fields: &mut Fields) -> Result<Option<f32>, ApiError> {
    let Some(penalty) = fields.number("repetition_penalty", 0.0, 100.0)? else { return Ok(None) };
    if penalty < 1e-3 {
        let message =
            format!("repetition_penalty is {}; it must be from 0.001 to 100", short_number(penalty));
        return Err(ApiError::invalid("repetition_penalty", message));
    }
    Ok(Some(penalty as f32))
}

/// Takes a number of alternatives within the server's limit.
pub fn alternatives(fields: &mut Fields, name: &str, limits: Limits) -> Result<Option<u32>, ApiError> {
    Ok(fields.whole(name, 0, i64::from(limits.max_logprobs))?.map(|asked| asked as u32))
}
