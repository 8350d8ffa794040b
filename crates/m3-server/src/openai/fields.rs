//! A request body taken apart field by field, so that every refusal names its field and what is left over is known.
//! `null` counts as absent, as OpenAI has it.

use m3_core::text::exact;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Fields whose integers go into the prompt, digit by digit.
const EXACT: [&str; 4] = ["messages", "tools", "input", "chat_template_kwargs"];

/// The top-level fields of a request that nobody has taken yet.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// Path of the object, with a dot; empty for the body itself.
    prefix: String,
}

impl Fields {
    /// From a parsed body, which must be an object.
    pub fn new(body: Value) -> Result<Self, ApiError> {
        match body {
            Value::Object(map) => {
                let one = |(name, value): (String, Value)| match EXACT.contains(&name.as_str()) {
                    true => (name, value),
                    false => (name, exact::plain(value)),
                };
                Ok(Fields { map: map.into_iter().map(one).collect(), prefix: String::new() })
            }
            other => {
                let message = format!("the body is {}; expected an object", kind(&other));
                Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, message).with_code("bad_json"))
            }
        }
    }

    /// From an object inside a body; `name` is where it stands.
    pub fn within(name: &str, object: Value) -> Result<Self, ApiError> {
        match object {
            Value::Object(map) => Ok(Fields { map, prefix: format!("{name}.") }),
            other => {
                let sentence = format!("{name} is {}; expected an object", kind(&other));
                Err(ApiError::invalid(name, sentence))
            }
        }
    }

    /// Takes a field; a wrong type is 400 with the path of what is wrong.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let name = self.path(name);
        let parsed = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let dot = if path.starts_with('[') || path == "." { "" } else { "." };
            let path = format!("{name}{dot}{}", path.trim_start_matches('.'));
            ApiError::invalid(path.clone(), format!("{path}: {}", error.inner()))
        })?;
        Ok(Some(parsed))
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Takes a field as it stands.
    pub fn take_value(&mut self, name: &str) -> Option<Value> {
        #[cfg(test)]
        record(&self.prefix, name);
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Puts back what was taken and is not done with.
    pub fn put_back(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a number within limits.
    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let name = self.path(name);
        match value.as_f64() {
            Some(number) if number >= least && number <= most => Ok(Some(number)),
            Some(number) => {
                let sentence =
                    format!("{name} is {}; it must be from {least} to {most}", short_number(number));
                Err(ApiError::invalid(name, sentence))
            }
            None => {
                let sentence =
                    format!("{name} is {}; it must be a number from {least} to {most}", kind(&value));
                Err(ApiError::invalid(name, sentence))
            }
        }
    }

    /// Takes a whole number within limits.
    pub fn whole(&mut self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let name = self.path(name);
        match integral(&value) {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let sentence =
                    format!("{name} is {}; it must be a whole number from {least} to {most}", shown(&value));
                Err(ApiError::invalid(name, sentence))
            }
        }
    }

    /// Takes a switch; absent is `default`.
    pub fn switch(&mut self, name: &str, default: bool) -> Result<bool, ApiError> {
        Ok(self.take(name)?.unwrap_or(default))
    }

    /// Takes a string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                let name = self.path(name);
                Err(ApiError::invalid(&name, format!("{name} is {}; expected a string", kind(&other))))
            }
        }
    }

    /// Ends the reading: a field that nobody took and that has a value is a mistake or a wish this server does not
    /// know, and 400 either way.
    pub fn finish(self, route: &str) -> Result<(), ApiError> {
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => {
                let sentence = format!("\"{name}\" is no field of {route}");
                Err(ApiError::invalid(format!("{}{name}", self.prefix), sentence).with_code("unknown_field"))
            }
        }
    }

    /// What nobody took.
    pub fn into_rest(self) -> Map<String, Value> {
        self.map
    }

    /// Names nobody took: they are ignored, and said so at debug level.
    pub fn log_rest(&self, route: &str) {
        if !self.map.is_empty() {
            let names = self.map.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::debug!("{route}: ignored fields: {names}");
        }
    }
}

/// A whole number, also when it is written `16.0`.
fn integral(value: &Value) -> Option<i64> {
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

/// A value for a sentence: a number as it is, anything else by its kind.
pub fn shown(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::Number(number), Some(wide)) if number.is_f64() => short_number(wide),
        (Value::Number(number), _) => number.to_string(),
        _ => kind(value).to_owned(),
    }
}

/// A number without rows of zeros: `1e300`.
pub fn short_number(number: f64) -> String {
    let plain = number == 0.0 || (1e-6..1e16).contains(&number.abs());
    if plain { number.to_string() } else { format!("{number:e}") }
}

/// What a JSON value is, for sentences.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) if exact::integer(value).is_some() => "a number",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
thread_local! {
    /// Names of body fields that were looked for.
    static RECORDED: std::cell::RefCell<std::collections::BTreeSet<String>> = std::cell::RefCell::default();
}

#[cfg(test)]
fn record(prefix: &str, name: &str) {
    if prefix.is_empty() {
        RECORDED.with_borrow_mut(|names| names.insert(name.to_owned()));
    }
}

/// The names of body fields that `read` looked for.
#[cfg(test)]
pub(crate) fn recorded(read: impl FnOnce()) -> std::collections::BTreeSet<String> {
    RECORDED.take();
    read();
    RECORDED.take()
}
