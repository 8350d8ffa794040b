//! What both generation routes share: sampling settings, limits, stops and how the answer is delivered.
//! Ranges are checked here; what depends on the prompt's length is checked when the prompt is known.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::fields::{Fields, short_number};
use crate::error::ApiError;

/// What the served model allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub vocab_size: u32,
    pub max_logprobs: u32,
    /// Answers that one request may ask for: more could never be running and waiting together.
    pub max_choices: usize,
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
    pub max_tokens: Option<u32>,
    pub min_tokens: u32,
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<u32>,
    pub include_stop: bool,
    /// Control tokens that the model samples are no text.
    pub skip_special: bool,
    pub ignore_eos: bool,
    pub n: u32,
    pub delivery: Delivery,
    pub priority: i32,
    pub cache_salt: Option<String>,
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
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

/// Most stop strings of a request.
pub const MAX_STOPS: usize = 16;
/// Most bytes of one stop string, and of all together.
pub const MAX_STOP_BYTES: usize = 4096;
/// Most answers to one prompt.
pub const MAX_CHOICES: i64 = 128;

impl Generation {
    /// Takes the shared fields.
    pub fn take(fields: &mut Fields, limits: Limits) -> Result<Self, ApiError> {
        let penalty =
            |fields: &mut Fields, name| fields.number(name, -2.0, 2.0).map(|p| p.unwrap_or(0.0) as f32);
        let small = |number: Option<f64>| number.map(|number| number as f32);
        let max_tokens = max_tokens(fields)?;
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
            logit_bias: logit_bias(fields, limits.vocab_size)?,
            max_tokens,
            min_tokens: fields.whole("min_tokens", 0, i64::from(u32::MAX))?.unwrap_or(0) as u32,
            stop: stop(fields)?,
            stop_token_ids: stop_token_ids(fields, limits.vocab_size)?,
            include_stop: fields.switch("include_stop_str_in_output", false)?
                | fields.switch("no_stop_trim", false)?,
            skip_special: fields.switch("skip_special_tokens", true)?,
            ignore_eos: fields.switch("ignore_eos", false)?,
            n: fields.whole("n", 1, MAX_CHOICES)?.unwrap_or(1) as u32,
            delivery: Delivery::take(fields)?,
            priority: fields.whole("priority", i64::from(i32::MIN), i64::from(i32::MAX))?.unwrap_or(0) as i32,
            cache_salt: fields.take("cache_salt")?,
        };
        generation.check_lengths()?;
        Ok(generation)
    }

    /// 400 when the answers to this many prompts could never all be admitted; waiting would not help.
    pub fn check_choices(&self, num_prompts: usize, limits: Limits) -> Result<(), ApiError> {
        let asked = num_prompts.saturating_mul(self.n as usize);
        if asked <= limits.max_choices {
            return Ok(());
        }
        let param = if num_prompts > limits.max_choices { "prompt" } else { "n" };
        let sentence = format!(
            "the request asks for {asked} answers ({num_prompts} prompts, n is {}); this server runs and queues up \
             to {} at a time",
            self.n, limits.max_choices
        );
        Err(ApiError::invalid(param, sentence))
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
        let options: StreamOptions = fields.take("stream_options")?.unwrap_or_default();
        Ok(Delivery {
            stream: fields.switch("stream", false)?,
            include_usage: options.include_usage.unwrap_or(false),
            continuous_usage: options.continuous_usage_stats.unwrap_or(false),
            token_ids: fields.switch("return_token_ids", false)?,
            tokens_as_ids: fields.switch("return_tokens_as_token_ids", false)?,
        })
    }
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

fn logit_bias(fields: &mut Fields, vocab_size: u32) -> Result<Vec<(u32, f32)>, ApiError> {
    let given: BTreeMap<String, f64> = fields.take("logit_bias")?.unwrap_or_default();
    let mut biases = Vec::with_capacity(given.len());
    for (key, bias) in given {
        let token = key.trim().parse::<u32>().ok().filter(|token| *token < vocab_size).ok_or_else(|| {
            let message = format!("logit_bias names token \"{key}\"; ids go from 0 to {}", vocab_size - 1);
            ApiError::invalid("logit_bias", message)
        })?;
        if !(-100.0..=100.0).contains(&bias) {
            let message =
                format!("logit_bias of token {token} is {}; it must be from -100 to 100", short_number(bias));
            return Err(ApiError::invalid("logit_bias", message));
        }
        biases.push((token, bias as f32));
    }
    Ok(biases)
}

fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stop = match fields.take_value("stop") {
        None => Vec::new(),
        Some(value) => match serde_json::from_value(value) {
            Ok(OneOrMany::One(text)) => vec![text],
            Ok(OneOrMany::Many(list)) => list,
            Err(_) => return Err(ApiError::invalid("stop", "stop must be a string or a list of strings")),
        },
    };
    if stop.len() > MAX_STOPS {
        let message = format!("stop has {} strings; this server takes up to {MAX_STOPS}", stop.len());
        return Err(ApiError::invalid("stop", message));
    }
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop has an empty string; it needs at least one character"));
    }
    check_stop_bytes(&stop)?;
    Ok(stop)
}

/// Every answer keeps a search automaton over all stop strings, so their size is limited together.
fn check_stop_bytes(stop: &[String]) -> Result<(), ApiError> {
    if let Some(at) = stop.iter().position(|text| text.len() > MAX_STOP_BYTES) {
        let bytes = stop[at].len();
        let message = format!("stop string {at} has {bytes} bytes; this server takes up to {MAX_STOP_BYTES}");
        return Err(ApiError::invalid("stop", message));
    }
    let bytes: usize = stop.iter().map(String::len).sum();
    if bytes > MAX_STOP_BYTES {
        let message =
            format!("the stop strings have {bytes} bytes in all; this server takes up to {MAX_STOP_BYTES}");
        return Err(ApiError::invalid("stop", message));
    }
    Ok(())
}

fn stop_token_ids(fields: &mut Fields, vocab_size: u32) -> Result<Vec<u32>, ApiError> {
    let ids: Vec<u32> = fields.take("stop_token_ids")?.unwrap_or_default();
    match ids.iter().find(|id| **id >= vocab_size) {
        Some(id) => {
            let message = format!("stop_token_ids has {id}; ids go from 0 to {}", vocab_size - 1);
            Err(ApiError::invalid("stop_token_ids", message))
        }
        None => Ok(ids),
    }
}

/// Takes a number of alternatives within the server's limit.
pub fn alternatives(fields: &mut Fields, name: &str, limits: Limits) -> Result<Option<u32>, ApiError> {
    Ok(fields.whole(name, 0, i64::from(limits.max_logprobs))?.map(|asked| asked as u32))
}
