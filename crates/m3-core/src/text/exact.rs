//! Integers of any length inside `serde_json` values.
//!
//! A number that no 64-bit integer holds would become a float and lose digits on its way into a prompt. (The switch
//! of serde_json that keeps them changes every crate of the program and breaks some.) So the text is rewritten before
//! it is parsed: such an integer becomes an object with one key that nobody uses and its digits. The template and the
//! typing of arguments know that object; [`plain`] turns it back for everybody else.
//! Only whole numbers are kept so: fractions are doubles in the reference implementation as well.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// The key. A client that sends it gets what it spells: an integer.
const KEY: &str = "\u{0}integer";
/// [`KEY`] as it stands in JSON text.
const KEY_TEXT: &str = r#"{"\u0000integer":""#;
/// Integers of fewer digits always fit into 64 bits.
const SURE_DIGITS: usize = 18;

/// The JSON text with every integer beyond 64 bits kept. Text that is no JSON stays no JSON.
pub fn keep_integers(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at),
            b'-' | b'0'..=b'9' => {
                let end = number_end(json, at);
                if let Some(kept) = kept(&json[at..end]) {
                    out.extend_from_slice(&json[copied..at]);
                    out.extend_from_slice(&kept);
                    copied = end;
                }
                at = end;
            }
            // A number behind a letter or a point is no number of its own.
            b'.' | b'+' | b'a'..=b'z' | b'A'..=b'Z' => at = number_end(json, at + 1),
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.extend_from_slice(&json[copied..]);
    Cow::Owned(out)
}

/// One past the closing quote of the string that opens at `at`.
fn string_end(json: &[u8], mut at: usize) -> usize {
    at += 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn number_end(json: &[u8], at: usize) -> usize {
    let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'a'..=b'z' | b'A'..=b'Z');
    at + json[at..].iter().take_while(|byte| part(byte)).count()
}

/// What to write for a number instead of itself: an object for a long integer, and 0 for the integer -0, which would
/// be read as a float.
fn kept(number: &[u8]) -> Option<Vec<u8>> {
    if number == b"-0" {
        return Some(b"0".to_vec());
    }
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    let text = std::str::from_utf8(number).ok().filter(|_| digits.len() > SURE_DIGITS)?;
    let fits = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    (is_integer(text) && !fits).then(|| [KEY_TEXT.as_bytes(), number, b"\"}"].concat())
}

/// As JSON spells integers: no sign but minus, no leading zero.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'))
}

/// The digits, with their sign, of an integer that was kept.
pub fn integer(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get(KEY)?.as_str().filter(|text| is_integer(text))
}

/// The value with every kept integer as the nearest number that serde_json has; one beyond all doubles becomes null.
pub fn plain(value: Value) -> Value {
    if let Some(digits) = integer(&value) {
        return digits.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number);
    }
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, plain(value))).collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> String {
        String::from_utf8(keep_integers(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn long_integers_are_kept_and_everything_else_is_left_alone() {
        for text in [
            "",
            "0",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            "1.5",
            "123456789012345678901234567890.5",
            "123456789012345678901234567890e3",
            "0.123456789012345678901234567890",
            "\"123456789012345678901234567890\"",
            r#""a\"123456789012345678901234567890""#,
            "{\"123456789012345678901234567890\":1}",
            // No JSON, and it must stay none.
            "0123456789012345678901234567890",
            "123456789012345678901234567890x",
            "x123456789012345678901234567890",
            "+123456789012345678901234567890",
            ".123456789012345678901234567890",
            "--123456789012345678901234567890",
            "1-123456789012345678901234567890",
        ] {
            assert_eq!(kept(text), text);
        }
        assert_eq!(kept("[-0,-0.0]"), "[0,-0.0]");
        let text = r#"{"a":[18446744073709551616,-9223372036854775809],"b":"x"}"#;
        let value: Value = serde_json::from_str(&kept(text)).unwrap();
        let digits: Vec<_> = value["a"].as_array().unwrap().iter().map(integer).collect();
        assert_eq!(digits, [Some("18446744073709551616"), Some("-9223372036854775809")]);
        let nearest = serde_json::json!({"a": [2f64.powi(64), -(2f64.powi(63))], "b": "x"});
        assert_eq!(plain(value), nearest);
    }

    #[test]
    fn an_object_that_only_looks_like_one_is_an_object() {
        for text in [r#"{"\u0000integer":"1x"}"#, r#"{"\u0000integer":"01"}"#, r#"{"\u0000integer":1}"#, "{}"]
        {
            assert_eq!(integer(&serde_json::from_str(text).unwrap()), None);
        }
    }
}
