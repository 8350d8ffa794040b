//! `tojson` as chat templates expect it: Python's `json.dumps`, not the HTML-safe filter of web templates.
//! Separators, key order, float spelling and escapes follow Python; the origin of string characters is kept.

use super::fault::Fault;
use super::print::float;
use super::traced::{Traced, TracedBuilder};
use super::value::{Dict, Value};

/// The keyword arguments of `json.dumps` that templates pass.
#[derive(Clone)]
pub(crate) struct JsonStyle {
    pub(crate) ensure_ascii: bool,
    /// One level of indentation; `None` writes everything on one line.
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    pub(crate) sort_keys: bool,
}

/// `json.dumps(value, ...)`.
pub(crate) fn dumps(value: &Value, style: &JsonStyle) -> Result<Traced, Fault> {
    let mut writer = Writer { style, out: TracedBuilder::default(), level: 0 };
    writer.value(value)?;
    Ok(writer.out.finish())
}

struct Writer<'a> {
    style: &'a JsonStyle,
    out: TracedBuilder,
    level: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Text(text) => self.string(text),
            Value::List(items) | Value::Tuple(items) => self.list(items)?,
            Value::Map(map) => self.dict(map)?,
            other => {
                let literal = scalar(other).ok_or_else(|| {
                    Fault::new(format!("object of type {} is not JSON serializable", other.type_name()))
                })?;
                self.out.push_user(&literal);
            }
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value]) -> Result<(), Fault> {
        if items.is_empty() {
            self.out.push_user("[]");
            return Ok(());
        }
        self.open("[");
        for (index, item) in items.iter().enumerate() {
            self.between(index);
            self.value(item)?;
        }
        self.close("]");
        Ok(())
    }

    fn dict(&mut self, map: &Dict) -> Result<(), Fault> {
        if map.0.is_empty() {
            self.out.push_user("{}");
            return Ok(());
        }
        let mut entries =
            map.0.iter().map(|(k, v)| Ok((key_text(k)?, v))).collect::<Result<Vec<_>, Fault>>()?;
        if self.style.sort_keys {
            entries.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        }
        self.open("{");
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.between(index);
            self.string(&key);
            self.out.push_user(&self.style.key_separator);
            self.value(value)?;
        }
        self.close("}");
        Ok(())
    }

    fn open(&mut self, bracket: &str) {
        self.out.push_user(bracket);
        self.level += 1;
    }

    fn close(&mut self, bracket: &str) {
        self.level -= 1;
        self.new_line();
        self.out.push_user(bracket);
    }

    fn between(&mut self, index: usize) {
        if index > 0 {
            self.out.push_user(&self.style.item_separator);
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        if let Some(indent) = &self.style.indent {
            self.out.push_user("\n");
            self.out.push_user(&indent.repeat(self.level));
        }
    }

    fn string(&mut self, text: &Traced) {
        let whole = text.as_str();
        self.out.push_user("\"");
        for (run, is_template) in text.runs(0..whole.len()) {
            let mut plain = run.start;
            for (offset, character) in whole[run.clone()].char_indices() {
                if let Some(escape) = escape(character, self.style.ensure_ascii) {
                    let at = run.start + offset;
                    self.out.push_as(&whole[plain..at], is_template);
                    self.out.push_user(&escape);
                    plain = at + character.len_utf8();
                }
            }
            self.out.push_as(&whole[plain..run.end], is_template);
        }
        self.out.push_user("\"");
    }
}

/// The JSON spelling of a value without parts; `None` for what JSON cannot say.
fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::None => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Long(digits) => digits.to_string(),
        Value::Float(number) if number.is_nan() => "NaN".to_owned(),
        Value::Float(number) if *number == f64::INFINITY => "Infinity".to_owned(),
        Value::Float(number) if *number == f64::NEG_INFINITY => "-Infinity".to_owned(),
        Value::Float(number) => float(*number),
        _ => return None,
    })
}

fn key_text(key: &Value) -> Result<Traced, Fault> {
    match key {
        Value::Text(text) => Ok(text.clone()),
        other => scalar(other).map(|literal| Traced::user(&literal)).ok_or_else(|| {
            Fault::new(format!("keys must be str, int, float, bool or None, not {}", other.type_name()))
        }),
    }
}

fn escape(character: char, ensure_ascii: bool) -> Option<String> {
    Some(match character {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\0'..='\u{1f}' => format!("\\u{:04x}", u32::from(character)),
        _ if ensure_ascii && (character >= '\u{7f}') => {
            if character == '\u{7f}' {
                return None;
            }
            character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        _ => return None,
    })
}
