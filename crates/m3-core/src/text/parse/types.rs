//! Sets of JSON types, and a leaf's text turned into JSON by the types its schema allows. Values never pass
//! through binary floating point. Which schema applies is decided elsewhere.

use serde_json::Value;

use crate::text::exact;

use super::{json, number};

/// A set of JSON types. `number` always includes `integer`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TypeSet(u8);

impl TypeSet {
    pub(super) const NULL: Self = Self(1);
    pub(super) const INTEGER: Self = Self(2);
    pub(super) const NUMBER: Self = Self(2 | 4);
    pub(super) const BOOLEAN: Self = Self(8);
    pub(super) const OBJECT: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const STRING: Self = Self(64);

    /// The type with this name in a schema; `None` for words that name none.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "object" => Self::OBJECT,
            "array" => Self::ARRAY,
            "string" => Self::STRING,
            _ => return None,
        })
    }

    /// The type of a value listed in a schema; `3` and `3.0` are integers.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
                Self::INTEGER
            }
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) if exact::integer(value).is_some() => Self::INTEGER,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when every type of `other` is in the set.
    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// JSON text of a leaf, and whether the text fitted a type. A text that fits none stays a string.
pub(super) fn leaf(text: &str, types: TypeSet, free_containers: usize) -> (String, bool) {
    let trimmed = text.trim();
    let typed = null(trimmed, types)
        .or_else(|| numeric(trimmed, types))
        .or_else(|| boolean(trimmed, types))
        .or_else(|| container(trimmed, types, free_containers));
    match typed {
        Some(value) => (value, true),
        None if types.has(TypeSet::STRING) => (json::quoted(text), true),
        None => (off_type_number(trimmed, types).unwrap_or_else(|| json::quoted(text)), false),
    }
}

fn null(text: &str, types: TypeSet) -> Option<String> {
    (types.has(TypeSet::NULL) && text.eq_ignore_ascii_case("null")).then(|| "null".to_owned())
}

fn numeric(text: &str, types: TypeSet) -> Option<String> {
    let decimal = types.has(TypeSet::INTEGER).then(|| number::read(text)).flatten()?;
    if decimal.is_integral() || types.has(TypeSet::NUMBER) { decimal.print() } else { None }
}

fn boolean(text: &str, types: TypeSet) -> Option<String> {
    let known = ["true", "false"].into_iter().find(|word| text.eq_ignore_ascii_case(word));
    known.filter(|_| types.has(TypeSet::BOOLEAN)).map(str::to_owned)
}

/// An object or array written as JSON text, kept as it stands; nothing at all is an empty one.
fn container(text: &str, types: TypeSet, free_containers: usize) -> Option<String> {
    for (kind, open, empty) in [(TypeSet::OBJECT, '{', "{}"), (TypeSet::ARRAY, '[', "[]")] {
        if !types.has(kind) {
            continue;
        }
        if text.is_empty() {
            return Some(empty.to_owned());
        }
        // Reading it whole refuses what a client could not read either, such as `1e999`.
        let readable = text.starts_with(open)
            && json::nesting(text) <= free_containers
            && serde_json::from_str::<Value>(text).is_ok();
        if readable {
            return Some(text.to_owned());
        }
    }
    None
}

/// A fraction where only integers are allowed is still better a number than a string.
fn off_type_number(text: &str, types: TypeSet) -> Option<String> {
    types.has(TypeSet::INTEGER).then(|| number::read(text)).flatten()?.print()
}

/// JSON text of a leaf that no schema describes, inside an object that none describes either: the three literals
/// are recognised, numbers stay text.
pub(super) fn untyped_leaf(text: &str) -> String {
    match text.trim() {
        literal @ ("true" | "false" | "null") => literal.to_owned(),
        _ => json::quoted(text),
    }
}

/// Longest text, in bytes, that is taken for a null with space around it: what is held back stays short.
const MAX_NULL: usize = 32;

/// True while `text` may still become a null literal with space around it.
pub(super) fn may_be_null(text: &str) -> bool {
    if text.len() > MAX_NULL {
        return false;
    }
    let begun = text.trim_start();
    let word = begun.trim_end();
    match "null".get(..word.len()) {
        Some(prefix) if word.len() == begun.len() => prefix.eq_ignore_ascii_case(word),
        // Space behind an incomplete word refutes it.
        _ => word.eq_ignore_ascii_case("null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> TypeSet {
        names.iter().map(|name| TypeSet::named(name).unwrap()).fold(TypeSet::default(), TypeSet::union)
    }

    fn typed(text: &str, names: &[&str]) -> String {
        leaf(text, set(names), 100).0
    }

    #[test]
    fn the_table_of_leaf_types() {
        for (text, names, expected) in [
            (" NULL ", &["null"][..], "null"),
            ("null", &["integer", "null"], "null"),
            (" 42 ", &["integer"], "42"),
            ("3.0", &["integer"], "3"),
            ("007", &["integer"], "\"007\""),
            ("007", &["integer", "string"], "\"007\""),
            ("7", &["integer", "string"], "7"),
            ("3.7", &["integer"], "3.7"),
            ("3.7", &["integer", "string"], "\"3.7\""),
            ("9.50", &["number"], "9.5"),
            ("3.0", &["number"], "3"),
            ("1e400", &["number"], "\"1e400\""),
            ("123456789012345678901234567890", &["integer"], "123456789012345678901234567890"),
            ("True", &["boolean"], "true"),
            ("yes", &["boolean"], "\"yes\""),
            ("", &["integer"], "\"\""),
            ("", &["array"], "[]"),
            (" ", &["object"], "{}"),
            ("[1, 2.50]", &["array"], "[1, 2.50]"),
            ("{\"a\": 1}", &["array"], "\"{\\\"a\\\": 1}\""),
            ("{\"a\": 1}", &["object"], "{\"a\": 1}"),
            ("[1,", &["array"], "\"[1,\""),
            (" x ", &["string"], "\" x \""),
            ("12345", &["string"], "\"12345\""),
            ("abc", &["integer"], "\"abc\""),
        ] {
            assert_eq!(typed(text, names), expected, "{text:?} {names:?}");
        }
    }

    #[test]
    fn json_text_nested_too_deep_stays_a_string() {
        let text = format!("{}{}", "[".repeat(5), "]".repeat(5));
        assert_eq!(leaf(&text, TypeSet::ARRAY, 5), (text.clone(), true));
        assert_eq!(leaf(&text, TypeSet::ARRAY, 4), (json::quoted(&text), false));
    }

    #[test]
    fn null_prefixes() {
        for text in ["", " ", "n", " nU", "null", "\nnull \t", "NULL "] {
            assert!(may_be_null(text), "{text:?}");
        }
        for text in ["x", "nulls", "nul l", "n ", "null x", "nü", "汉"] {
            assert!(!may_be_null(text), "{text:?}");
        }
    }

    #[test]
    fn listed_values_have_types() {
        assert_eq!(TypeSet::of(&serde_json::json!(3)), TypeSet::INTEGER);
        assert_eq!(TypeSet::of(&serde_json::json!(3.0)), TypeSet::INTEGER);
        assert_eq!(TypeSet::of(&serde_json::json!(3.5)), TypeSet::NUMBER);
        assert!(TypeSet::NUMBER.has(TypeSet::INTEGER));
        assert!(!TypeSet::INTEGER.has(TypeSet::NUMBER));
    }

    #[test]
    fn untyped_literals() {
        assert_eq!(untyped_leaf("true"), "true");
        assert_eq!(untyped_leaf("1"), "\"1\"");
        assert_eq!(untyped_leaf(" x"), "\" x\"");
    }
}
