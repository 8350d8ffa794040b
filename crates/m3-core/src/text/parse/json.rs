//! Writing JSON text piece by piece: string escapes, arrays and objects of already written values.
//! It never reads JSON and never holds a number in binary form, so values keep the digits they came with.

use std::fmt::Write as _;

/// Appends the JSON escape of `text` to `out`, without quotes. Escaping is per character, so the escapes of
/// the pieces of a text join to the escape of the text.
pub(super) fn escape_into(text: &str, out: &mut String) {
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        if short.is_empty() {
            write!(out, "\\u{byte:04x}").expect("writing to a String cannot fail");
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[plain_from..]);
}

/// `text` as a JSON string with its quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    escape_into(text, &mut out);
    out.push('"');
    out
}

/// A JSON array of values that are JSON text already.
pub(super) fn array<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::from("[");
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(value);
    }
    out.push(']');
    out
}

/// A JSON object of plain keys and values that are JSON text already, in the given order.
pub(super) fn object<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('"');
        escape_into(key, &mut out);
        out.push_str("\":");
        out.push_str(value);
    }
    out.push('}');
    out
}

/// How many containers are open at once at the deepest point of a valid JSON text; 0 for a scalar.
pub(super) fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_read_back_as_the_same_text() {
        let text = "q\" b\\ n\n r\r t\t bell\u{7} nul\0 汉🌶️ \u{2028} </s>";
        let back: String = serde_json::from_str(&quoted(text)).unwrap();
        assert_eq!(back, text);
    }

    #[test]
    fn escapes_of_pieces_join() {
        let text = "a\"\\\u{1}汉";
        let mut joined = String::new();
        for character in text.chars() {
            escape_into(character.encode_utf8(&mut [0; 4]), &mut joined);
        }
        assert_eq!(format!("\"{joined}\""), quoted(text));
    }

    #[test]
    fn containers_keep_order_and_digits() {
        assert_eq!(array(["1", "\"a\""]), "[1,\"a\"]");
        assert_eq!(
            object([("b\"", "12345678901234567890123"), ("a", "[]")]),
            r#"{"b\"":12345678901234567890123,"a":[]}"#
        );
        assert_eq!(array([]), "[]");
        assert_eq!(object([]), "{}");
    }

    #[test]
    fn nesting_ignores_brackets_in_strings() {
        assert_eq!(nesting("3"), 0);
        assert_eq!(nesting(r#"{"a":["[[[\"[",{}]}"#), 3);
    }
}
