//! What a request asks of the form of its answer, under the many names clients have for it: `response_format`,
//! `structured_outputs`, `guided_*`, and SGLang's `json_schema`, `regex`, `ebnf`, `structural_tag`. At most one may be given.
//! Whether it can be honoured is found out when the grammar is made.

use m3_core::text::grammar::Content;
use serde_json::{Map, Value, json};

use super::fields::{Fields, kind};
use crate::error::{ApiError, cut};

/// What the content must be, and the field that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    pub content: Content,
    pub field: String,
}

/// One kind of demand.
#[derive(Clone, Copy, Debug)]
enum Form {
    Schema,
    Object,
    Regex,
    Choice,
    Grammar,
    Ebnf,
    Tag,
}

/// Fields of the body.
const FIELDS: [(&str, Form); 9] = [
    ("guided_json", Form::Schema),
    ("guided_regex", Form::Regex),
    ("guided_choice", Form::Choice),
    ("guided_grammar", Form::Grammar),
    ("guided_json_object", Form::Object),
    ("json_schema", Form::Schema),
    ("regex", Form::Regex),
    ("ebnf", Form::Ebnf),
    ("structural_tag", Form::Tag),
];

/// Members of `structured_outputs`.
const MEMBERS: [(&str, Form); 6] = [
    ("json", Form::Schema),
    ("json_object", Form::Object),
    ("regex", Form::Regex),
    ("choice", Form::Choice),
    ("grammar", Form::Grammar),
    ("structural_tag", Form::Tag),
];

impl Constraint {
    /// Takes all fields that ask for a form.
    pub fn take(fields: &mut Fields) -> Result<Option<Self>, ApiError> {
        let mut all: Vec<Constraint> = Vec::new();
        all.extend(response_format(fields.take_value("response_format"))?);
        for (name, form) in FIELDS {
            if let Some(value) = fields.take_value(name).filter(|value| !is_nothing(value)) {
                all.extend(demand(name, form, value)?);
            }
        }
        if let Some(object) = fields.take_value("structured_outputs").filter(|value| !is_nothing(value)) {
            all.extend(structured_outputs(object)?);
        }
        match all.as_slice() {
            [first, second, ..] => {
                let sentence = format!("{} and {} cannot both be asked for", first.field, second.field);
                Err(ApiError::invalid(&second.field, sentence))
            }
            _ => Ok(all.pop()),
        }
    }
}

/// What clients send for "nothing".
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn any_object() -> Content {
    Content::Schema(json!({"type": "object"}))
}

fn response_format(format: Option<Value>) -> Result<Option<Constraint>, ApiError> {
    const FIELD: &str = "response_format";
    let Some(format) = format else { return Ok(None) };
    let Value::Object(map) = &format else {
        return Err(ApiError::invalid(
            FIELD,
            format!("response_format is {}; expected an object", kind(&format)),
        ));
    };
    let found = |content, field: &str| Ok(Some(Constraint { content, field: field.to_owned() }));
    only_known(FIELD, map)?;
    match map.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        // Some servers take a schema here as well.
        Some("json_object") => match map.get("schema").filter(|schema| !schema.is_null()) {
            Some(schema) => found(Content::Schema(schema.clone()), "response_format.schema"),
            None => found(any_object(), FIELD),
        },
        Some("json_schema") => {
            let field = "response_format.json_schema";
            let inner = map.get("json_schema").filter(|inner| !inner.is_null());
            let Some(Value::Object(inner)) = inner else {
                return Err(ApiError::invalid(field, format!("{field} must be an object with a schema")));
            };
            let known = ["name", "description", "schema", "json_schema", "strict"];
            no_others(field, inner, &known)?;
            let schema =
                inner.get("schema").or_else(|| inner.get("json_schema")).filter(|schema| !schema.is_null());
            let Some(schema) = schema else {
                return Err(ApiError::invalid(
                    format!("{field}.schema"),
                    format!("{field}.schema is missing"),
                ));
            };
            let name = format!("{field}.schema");
            demand(&name, Form::Schema, schema.clone())
        }
        Some("structural_tag") => found(Content::StructuralTag(format.clone()), FIELD),
        other => {
            let shown = other.map_or("missing".to_owned(), |other| format!("\"{}\"", cut(other, 60)));
            let sentence = format!(
                "response_format.type is {shown}; expected text, json_object, json_schema or structural_tag"
            );
            Err(ApiError::invalid("response_format.type", sentence))
        }
    }
}

/// Members that a `response_format` of this type has; what a structural tag may hold is the grammar's business.
fn only_known(field: &str, map: &Map<String, Value>) -> Result<(), ApiError> {
    match map.get("type").and_then(Value::as_str) {
        Some("text") => no_others(field, map, &["type"]),
        Some("json_object") => no_others(field, map, &["type", "schema"]),
        Some("json_schema") => no_others(field, map, &["type", "json_schema"]),
        _ => Ok(()),
    }
}

fn no_others(field: &str, map: &Map<String, Value>, known: &[&str]) -> Result<(), ApiError> {
    match map.iter().find(|(name, value)| !value.is_null() && !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let sentence = format!("\"{}\" is no field of {field}", cut(name, 60));
            Err(ApiError::invalid(format!("{field}.{name}"), sentence).with_code("unknown_field"))
        }
    }
}

fn structured_outputs(object: Value) -> Result<Option<Constraint>, ApiError> {
    const FIELD: &str = "structured_outputs";
    let Value::Object(mut map) = object else {
        let sentence = format!("{FIELD} is {}; expected an object", kind(&object));
        return Err(ApiError::invalid(FIELD, sentence));
    };
    let mut all = Vec::new();
    for (name, form) in MEMBERS {
        if let Some(value) = map.shift_remove(name).filter(|value| !is_nothing(value)) {
            all.extend(demand(&format!("{FIELD}.{name}"), form, value)?);
        }
    }
    rest_is_neutral(FIELD, map)?;
    if all.len() > 1 {
        return Err(ApiError::invalid(FIELD, format!("{FIELD} asks for more than one form")));
    }
    Ok(all.pop())
}

/// Members that would loosen or change a grammar are refused unless they ask for nothing.
fn rest_is_neutral(field: &str, map: Map<String, Value>) -> Result<(), ApiError> {
    for (name, value) in map {
        // White space is bounded here, and nothing is ever tried without the grammar.
        if !is_nothing(&value) && name != "disable_fallback" {
            let param = format!("{field}.{}", cut(&name, 60));
            return Err(ApiError::unsupported(&param, format!("{param} cannot be honoured")));
        }
    }
    Ok(())
}

fn demand(field: &str, form: Form, value: Value) -> Result<Option<Constraint>, ApiError> {
    let wrong = |expected: &str| {
        ApiError::invalid(field, format!("{field} is {}; expected {expected}", kind(&value)))
    };
    let content = match (form, &value) {
        (Form::Object, Value::Bool(_)) => any_object(),
        (Form::Object, _) => return Err(wrong("true or false")),
        (Form::Schema, Value::String(text)) => Content::Schema(parsed(field, text)?),
        (Form::Schema, Value::Object(_) | Value::Bool(_)) => Content::Schema(value),
        (Form::Schema, _) => return Err(wrong("a JSON schema")),
        (Form::Tag, Value::String(text)) => Content::StructuralTag(parsed(field, text)?),
        (Form::Tag, Value::Object(_)) => Content::StructuralTag(value),
        (Form::Tag, _) => return Err(wrong("a structural tag")),
        (Form::Choice, Value::Array(list)) => {
            let texts: Option<Vec<String>> =
                list.iter().map(|text| text.as_str().map(str::to_owned)).collect();
            match texts.filter(|texts| texts.iter().all(|text| !text.is_empty())) {
                Some(texts) => Content::Choice(texts),
                None => return Err(wrong("a list of strings that are not empty")),
            }
        }
        (Form::Choice, _) => return Err(wrong("a list of strings")),
        (Form::Regex, Value::String(text)) => Content::Regex(text.clone()),
        (Form::Ebnf, Value::String(text)) => Content::Ebnf(text.clone()),
        // Both dialects go by this name; only one defines rules with `::=`.
        (Form::Grammar, Value::String(text)) if text.contains("::=") => Content::Ebnf(text.clone()),
        (Form::Grammar, Value::String(text)) => Content::Lark(text.clone()),
        (Form::Regex | Form::Ebnf | Form::Grammar, _) => return Err(wrong("a string")),
    };
    Ok(Some(Constraint { content, field: field.to_owned() }))
}

fn parsed(field: &str, text: &str) -> Result<Value, ApiError> {
    serde_json::from_str(text)
        .map_err(|error| ApiError::invalid(field, format!("{field} is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: Value) -> Result<Option<Constraint>, ApiError> {
        Constraint::take(&mut Fields::new(body).unwrap())
    }

    #[test]
    fn every_name_is_one_demand() {
        let schema = json!({"type": "integer"});
        for (body, content) in [
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}),
                Content::Schema(schema.clone()),
            ),
            (json!({"response_format": {"type": "json_object"}}), any_object()),
            (json!({"guided_json": schema.to_string()}), Content::Schema(schema.clone())),
            (json!({"json_schema": schema.to_string()}), Content::Schema(schema.clone())),
            (json!({"structured_outputs": {"json": schema, "regex": null}}), Content::Schema(schema.clone())),
            (json!({"regex": "a+"}), Content::Regex("a+".into())),
            (json!({"guided_choice": ["a", "b"]}), Content::Choice(vec!["a".into(), "b".into()])),
            (json!({"guided_grammar": "root ::= \"a\""}), Content::Ebnf("root ::= \"a\"".into())),
            (
                json!({"structured_outputs": {"grammar": "start: \"a\""}}),
                Content::Lark("start: \"a\"".into()),
            ),
            (json!({"ebnf": "root ::= \"a\""}), Content::Ebnf("root ::= \"a\"".into())),
        ] {
            assert_eq!(take(body.clone()).unwrap().unwrap().content, content, "{body}");
        }
        for body in [
            json!({"response_format": {"type": "text"}, "regex": "", "guided_choice": [], "guided_json": null}),
            json!({"structured_outputs": {"json_object": false, "whitespace_pattern": null}}),
        ] {
            assert_eq!(take(body).unwrap(), None);
        }
    }

    #[test]
    fn what_makes_no_sense_names_its_field() {
        for (body, field) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {"type": "yaml"}}), "response_format.type"),
            (json!({"response_format": {}}), "response_format.type"),
            (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
                "response_format.json_schema.schema",
            ),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"guided_json": 3}), "guided_json"),
            (json!({"guided_choice": ["a", 3]}), "guided_choice"),
            (json!({"guided_choice": [""]}), "guided_choice"),
            (json!({"regex": 3}), "regex"),
            (json!({"regex": "a", "ebnf": "root ::= \"a\""}), "ebnf"),
            (
                json!({"structured_outputs": {"whitespace_pattern": " *"}}),
                "structured_outputs.whitespace_pattern",
            ),
            (json!({"structured_outputs": {"regex": "a", "choice": ["a"]}}), "structured_outputs"),
        ] {
            let error = take(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field), "{body}");
        }
    }
}
