//! A request body taken apart field by field, so that every refusal names its field and what is left over is known.
//! `null` counts as absent, as OpenAI has it.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The top-level fields of a request that nobody has taken yet.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    /// From a parsed body, which must be an object.
    pub fn new(body: Value) -> Result<Self, ApiError> {
        match body {
            Value::Object(map) => Ok(Fields { map }),
            other => {
                let message = format!("the body is {}; expected an object", kind(&other));
                Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, message).with_code("bad_json"))
            }
        }
    }

    /// Takes a field; a wrong type is 400 with the path of what is wrong.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
        let parsed = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let dot = if path.starts_with('[') || path == "." { "" } else { "." };
            let path = format!("{name}{dot}{}", path.trim_start_matches('.'));
            ApiError::invalid(path.clone(), format!("{path}: {}", error.inner()))
        })?;
        Ok(Some(parsed))
    }

    /// Takes a field as it stands.
    pub fn take_value(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a number within limits.
    pub fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take_value(name) else { return Ok(None) };
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
        match value.as_i64() {
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

    /// Names nobody took: they are ignored, and said so at debug level.
    pub fn log_rest(&self, route: &str) {
        if !self.map.is_empty() {
            let names = self.map.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::debug!("{route}: ignored fields: {names}");
        }
    }
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
        Value::Object(_) => "an object",
    }
}
