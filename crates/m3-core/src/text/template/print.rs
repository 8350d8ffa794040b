//! Python's `str()` and `repr()`, byte for byte: floats, quoting of strings inside containers, `True`, `None`.
//! Strings keep the origin of their characters; everything this file adds itself (quotes, digits, commas)
//! counts as the user's, so printed data can never complete a marker.

use std::sync::OnceLock;

use regex::Regex;

use super::fault::Fault;
use super::traced::{Traced, TracedBuilder};
use super::value::{Dict, Value};

/// What `{{ value }}` writes.
pub(crate) fn to_text(value: &Value) -> Result<Traced, Fault> {
    if let Value::Text(text) = value {
        return Ok(text.clone());
    }
    let mut out = TracedBuilder::default();
    write(value, &mut out)?;
    Ok(out.finish())
}

/// Appends `str(value)`.
pub(crate) fn write(value: &Value, out: &mut TracedBuilder) -> Result<(), Fault> {
    match value {
        Value::Text(text) => out.push(text),
        Value::Undefined(_) => {}
        other => write_repr(other, out)?,
    }
    Ok(())
}

/// Appends `repr(value)`.
pub(crate) fn write_repr(value: &Value, out: &mut TracedBuilder) -> Result<(), Fault> {
    match value {
        Value::Undefined(_) => out.push_user("Undefined"),
        Value::None => out.push_user("None"),
        Value::Bool(true) => out.push_user("True"),
        Value::Bool(false) => out.push_user("False"),
        Value::Int(number) => out.push_user(&number.to_string()),
        Value::Long(digits) => out.push_user(digits),
        Value::Float(number) => out.push_user(&float(*number)),
        Value::Text(text) => quote(text, out),
        Value::List(items) => write_items(items, ("[", "]"), out)?,
        Value::Tuple(items) if items.len() == 1 => write_items(items, ("(", ",)"), out)?,
        Value::Tuple(items) => write_items(items, ("(", ")"), out)?,
        Value::Map(map) => write_dict(map, out)?,
        other => return Err(Fault::new(format!("a {} cannot be printed", other.type_name()))),
    }
    Ok(())
}

fn write_items(items: &[Value], (open, close): (&str, &str), out: &mut TracedBuilder) -> Result<(), Fault> {
    out.push_user(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_user(", ");
        }
        write_repr(item, out)?;
    }
    out.push_user(close);
    Ok(())
}

fn write_dict(map: &Dict, out: &mut TracedBuilder) -> Result<(), Fault> {
    out.push_user("{");
    for (index, (key, value)) in map.0.iter().enumerate() {
        if index > 0 {
            out.push_user(", ");
        }
        write_repr(key, out)?;
        out.push_user(": ");
        write_repr(value, out)?;
    }
    out.push_user("}");
    Ok(())
}

/// `repr` of a string: single quotes unless only those occur inside, escapes for what is not printable.
fn quote(text: &Traced, out: &mut TracedBuilder) {
    let whole = text.as_str();
    let mark = if whole.contains('\'') && !whole.contains('"') { '"' } else { '\'' };
    let mut buffer = [0; 4];
    out.push_user(mark.encode_utf8(&mut buffer));
    for (run, is_template) in text.runs(0..whole.len()) {
        let mut plain = run.start;
        for (offset, character) in whole[run.clone()].char_indices() {
            if let Some(escape) = escape(character, mark) {
                let at = run.start + offset;
                out.push_as(&whole[plain..at], is_template);
                out.push_user(&escape);
                plain = at + character.len_utf8();
            }
        }
        out.push_as(&whole[plain..run.end], is_template);
    }
    out.push_user(mark.encode_utf8(&mut buffer));
}

fn escape(character: char, mark: char) -> Option<String> {
    let code = u32::from(character);
    match character {
        '\\' => Some("\\\\".to_owned()),
        '\n' => Some("\\n".to_owned()),
        '\r' => Some("\\r".to_owned()),
        '\t' => Some("\\t".to_owned()),
        _ if character == mark => Some(format!("\\{mark}")),
        ' '..='~' => None,
        _ if is_printable(character) => None,
        _ if code < 0x100 => Some(format!("\\x{code:02x}")),
        _ if code < 0x1_0000 => Some(format!("\\u{code:04x}")),
        _ => Some(format!("\\U{code:08x}")),
    }
}

/// Python's `str.isprintable` for one character: no control, format, private, unassigned or separator.
pub(crate) fn is_printable(character: char) -> bool {
    static HIDDEN: OnceLock<Regex> = OnceLock::new();
    let hidden =
        HIDDEN.get_or_init(|| Regex::new(r"^[\p{C}\p{Z}]$").expect("a constant pattern that compiles"));
    character == ' ' || !hidden.is_match(character.encode_utf8(&mut [0; 4]))
}

/// `repr(float)`: the shortest digits that read back, an exponent outside 1e-4 .. 1e16.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("LowerExp always writes an exponent");
    let exponent: i32 = exponent.parse().expect("LowerExp writes a decimal exponent");
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (35.0, "35.0"),
            (9.5, "9.5"),
            (1e16, "1e+16"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e15, "1000000000000000.0"),
            (1e-7, "1e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, expected) in cases {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn strings_inside_containers_are_quoted_like_python() {
        let json = serde_json::json!({"a": ["it's", "say \"x\"", "both ' \"", "é\n\t\u{7f}\u{200b}\u{e000}中🙂"], "n": null, "t": [true, 1.0]});
        let value = Value::from_json(&json).unwrap();
        assert_eq!(
            to_text(&value).unwrap().as_str(),
            r#"{'a': ["it's", 'say "x"', 'both \' "', 'é\n\t\x7f\u200b\ue000中🙂'], 'n': None, 't': [True, 1.0]}"#
        );
    }
}
