//! Lists of texts in a request: stop strings and bad words. Their size is limited because every answer keeps a search
//! over all of them.

use std::sync::Arc;

use serde::Deserialize;

use super::fields::Fields;
use crate::error::ApiError;
use crate::generate::StopExpressions;

/// Most stop strings of a request.
pub const MAX_STOPS: usize = 16;
/// Most bytes of one stop string, and of all together; the same for bad words.
pub const MAX_STOP_BYTES: usize = 4096;
/// Most bad words of a request.
pub const MAX_BAD_WORDS: usize = 128;

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Texts that end the content.
pub(super) fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stop = one_or_many(fields, "stop")?;
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop has an empty string; it needs at least one character"));
    }
    check_bytes("stop", "stop string", &stop)?;
    Ok(stop)
}

/// Expressions that end the content.
pub(super) fn stop_regex(fields: &mut Fields) -> Result<Option<Arc<StopExpressions>>, ApiError> {
    const NAME: &str = "stop_regex";
    let sources = one_or_many(fields, NAME)?;
    if sources.is_empty() {
        return Ok(None);
    }
    check_bytes(NAME, "stop expression", &sources)?;
    let made = StopExpressions::new(sources);
    let refused = |(at, reason)| ApiError::invalid(NAME, format!("{NAME} {at} cannot be used: {reason}"));
    made.map(|made| Some(Arc::new(made))).map_err(refused)
}

fn one_or_many(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let list = match fields.take_value(name) {
        None => Vec::new(),
        Some(value) => match serde_json::from_value(value) {
            Ok(OneOrMany::One(text)) => vec![text],
            Ok(OneOrMany::Many(list)) => list,
            Err(_) => {
                return Err(ApiError::invalid(name, format!("{name} must be a string or a list of strings")));
            }
        },
    };
    if list.len() > MAX_STOPS {
        let message = format!("{name} has {} strings; this server takes up to {MAX_STOPS}", list.len());
        return Err(ApiError::invalid(name, message));
    }
    Ok(list)
}

/// Texts that no answer has.
pub(super) fn bad_words(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let words: Vec<String> = fields.take("bad_words")?.unwrap_or_default();
    if words.len() > MAX_BAD_WORDS {
        let message = format!("bad_words has {} texts; this server takes up to {MAX_BAD_WORDS}", words.len());
        return Err(ApiError::invalid("bad_words", message));
    }
    if words.iter().any(String::is_empty) {
        let message = "bad_words has an empty text; it needs at least one character";
        return Err(ApiError::invalid("bad_words", message));
    }
    check_bytes("bad_words", "bad word", &words)?;
    Ok(words)
}

fn check_bytes(param: &str, what: &str, texts: &[String]) -> Result<(), ApiError> {
    if let Some(at) = texts.iter().position(|text| text.len() > MAX_STOP_BYTES) {
        let bytes = texts[at].len();
        let message = format!("{what} {at} has {bytes} bytes; this server takes up to {MAX_STOP_BYTES}");
        return Err(ApiError::invalid(param, message));
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    if bytes > MAX_STOP_BYTES {
        let message =
            format!("the {what}s have {bytes} bytes in all; this server takes up to {MAX_STOP_BYTES}");
        return Err(ApiError::invalid(param, message));
    }
    Ok(())
}
