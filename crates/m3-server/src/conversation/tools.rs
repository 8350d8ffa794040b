//! The tools a request declares.

use std::collections::HashSet;

use serde_json::Value;

use crate::error::{ApiError, cut};
use crate::openai::fields::kind;

/// Members of an entry of `tools`. Marks of prompt caching and `defer_loading: false` change nothing and are not shown.
const ENTRY: [&str; 5] = ["type", "function", "strict", "defer_loading", "cache_control"];
/// Members of its function. The template shows all of it to the model, what a function gives back included.
const FUNCTION: [&str; 9] = [
    "name",
    "description",
    "parameters",
    "strict",
    "return",
    "returns",
    "input_examples",
    "defer_loading",
    "cache_control",
];
/// Members of a function that the model does not see.
const HIDDEN: [&str; 2] = ["defer_loading", "cache_control"];

/// Checks the list; the template reads it as it came (key order is part of the prompt), without what only concerns the
/// transport.
pub fn read_tools(mut tools: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    check_tools(&tools)?;
    for function in tools.iter_mut().filter_map(|tool| tool.get_mut("function")?.as_object_mut()) {
        HIDDEN.iter().for_each(|name| drop(function.shift_remove(*name)));
    }
    Ok(tools)
}

/// Checks the list.
pub fn check_tools(tools: &[Value]) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for (at, tool) in tools.iter().enumerate() {
        let name = check_tool(tool, &format!("tools[{at}]"))?;
        if !names.insert(name) {
            let param = format!("tools[{at}].function.name");
            return Err(ApiError::invalid(
                &param,
                format!("{param} is \"{name}\", which an earlier tool has"),
            ));
        }
    }
    Ok(())
}

fn check_tool<'a>(tool: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    let expected_type = tool.get("type").is_none_or(|name| name == "function");
    if !expected_type {
        let param = format!("{path}.type");
        return Err(ApiError::invalid(&param, format!("{param} must be \"function\"")));
    }
    for object in [Some(tool), tool.get("function")].into_iter().flatten() {
        if object.get("defer_loading") == Some(&Value::Bool(true)) {
            let param = format!("{path}.defer_loading");
            let sentence = format!("{param} cannot be honoured: every tool is shown to the model");
            return Err(ApiError::unsupported(&param, sentence));
        }
    }
    let param = format!("{path}.function");
    let Some(function) = tool.get("function").and_then(Value::as_object) else {
        return Err(ApiError::invalid(&param, format!("{param} must be an object")));
    };
    check_members(tool, path, &ENTRY)?;
    check_members(&tool["function"], &param, &FUNCTION)?;
    check_switch(tool.get("strict"), &format!("{path}.strict"))?;
    check_switch(function.get("strict"), &format!("{param}.strict"))?;
    let name_path = format!("{param}.name");
    let name = match function.get("name") {
        Some(Value::String(name)) => name,
        Some(other) => {
            return Err(ApiError::invalid(
                &name_path,
                format!("{name_path} is {}; expected a string", kind(other)),
            ));
        }
        None => return Err(ApiError::invalid(&name_path, format!("{name_path} is missing"))),
    };
    if !valid_name(name) {
        let sentence =
            format!("{name_path} is \"{name}\"; expected 1 to 256 letters, digits or one of _ - . : /");
        return Err(ApiError::invalid(&name_path, sentence));
    }
    match function.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => Ok(name),
        Some(other) => {
            let param = format!("{param}.parameters");
            Err(ApiError::invalid(&param, format!("{param} is {}; expected a JSON schema", kind(other))))
        }
    }
}

/// Nothing that a caller writes is ignored without a word.
fn check_members(object: &Value, path: &str, known: &[&str]) -> Result<(), ApiError> {
    let members = object.as_object().into_iter().flatten();
    let unknown = |(name, value): &(&String, &Value)| !value.is_null() && !known.contains(&name.as_str());
    match members.into_iter().find(unknown) {
        None => Ok(()),
        Some((name, _)) => {
            let sentence =
                format!("\"{}\" is no member of {path}; expected {}", cut(name, 80), known.join(", "));
            Err(ApiError::invalid(format!("{path}.{}", cut(name, 80)), sentence).with_code("unknown_field"))
        }
    }
}

fn check_switch(value: Option<&Value>, param: &str) -> Result<(), ApiError> {
    match value {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(other) => {
            Err(ApiError::invalid(param, format!("{param} is {}; expected true or false", kind(other))))
        }
    }
}

/// A name that stays whole inside the model's markup. Wider than OpenAI's own rule, because dots are in use.
pub fn valid_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_alphanumeric() || "_-.:/".contains(letter);
    (1..=256).contains(&name.len()) && name.chars().all(allowed)
}
