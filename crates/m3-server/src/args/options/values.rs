//! Single flag values as numbers, words and durations within limits, and the refusals that name the flag.

use std::str::FromStr;
use std::time::Duration;

use crate::args::numbers::parse_count;
use crate::args::{ArgError, Parsed};

pub(super) fn conflict(first: &str, second: &str, reason: &'static str) -> ArgError {
    ArgError::Conflict { first: first.to_owned(), second: second.to_owned(), reason }
}

/// The value as typed is not shown again for keys: `expected` never repeats it.
pub(super) fn bad(flag: &str, value: &str, expected: &str) -> ArgError {
    ArgError::BadValue { flag: format!("--{flag}"), value: value.to_owned(), expected: expected.to_owned() }
}

pub(super) fn optional<T: FromStr>(
    parsed: &Parsed,
    name: &str,
    expected: &str,
) -> Result<Option<T>, ArgError> {
    let parse = |text: &str| text.parse().map_err(|_| bad(name, text, expected));
    parsed.value(name).map(parse).transpose()
}

/// A whole number from `least` to `most`.
pub(crate) fn count(parsed: &Parsed, name: &str, least: u64, most: u64) -> Result<Option<u64>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(None) };
    let number = parse_count(text).filter(|number| (least..=most).contains(number));
    number.map(Some).ok_or_else(|| bad(name, text, &format!("a whole number from {least} to {most}")))
}

pub(super) fn seconds(parsed: &Parsed, name: &str, default: f64) -> Result<Duration, ArgError> {
    let expected = "seconds from 0 to 86400";
    let seconds: f64 = optional(parsed, name, expected)?.unwrap_or(default);
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(bad(name, &seconds.to_string(), expected));
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn one_of<'a>(
    parsed: &'a Parsed,
    name: &str,
    allowed: &[&str],
) -> Result<Option<&'a str>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(None) };
    if allowed.contains(&text) { Ok(Some(text)) } else { Err(bad(name, text, &allowed.join(", "))) }
}
