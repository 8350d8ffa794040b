//! `tool_choice`: whether calls may or must be made, and of which tools. Forcing is done by a grammar over the output.

use serde_json::Value;

use super::fields::{Fields, kind};
use crate::error::{ApiError, cut};

/// What may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolChoice {
    pub mode: ToolMode,
    /// Only these; `None` = all declared ones.
    pub only: Option<Vec<String>>,
    /// One tool was named: exactly one call is made.
    pub named: bool,
}

/// Whether calls are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolMode {
    /// The model decides.
    #[default]
    Auto,
    /// None is made, and the prompt shows no tools.
    Off,
    /// At least one is made.
    Required,
}

const FIELD: &str = "tool_choice";

impl ToolChoice {
    /// Takes the field; names must be among `tools`.
    pub fn take(fields: &mut Fields, tools: &[Value]) -> Result<Self, ApiError> {
        let choice = match fields.take_value(FIELD) {
            None => return Ok(Self::default()),
            Some(Value::String(mode)) => ToolChoice { mode: mode_of(FIELD, &mode)?, ..Self::default() },
            Some(Value::Object(map)) => Self::of(Value::Object(map))?,
            Some(other) => {
                let sentence = format!("tool_choice is {}; expected a string or an object", kind(&other));
                return Err(ApiError::invalid(FIELD, sentence));
            }
        };
        choice.check(tools)?;
        Ok(choice)
    }

    /// The forms that are objects.
    fn of(choice: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::within(FIELD, choice)?;
        let read = match fields.text("type")?.as_deref() {
            Some("function") => {
                let name = named(&mut fields, FIELD)?
                    .ok_or_else(|| ApiError::invalid(FIELD, "tool_choice.function.name is missing"))?;
                ToolChoice { mode: ToolMode::Required, only: Some(vec![name]), named: true }
            }
            Some("allowed_tools") => allowed_tools(&mut fields)?,
            Some(mode) => ToolChoice { mode: mode_of("tool_choice.type", mode)?, ..Self::default() },
            None => return Err(ApiError::invalid("tool_choice.type", "tool_choice.type is missing")),
        };
        fields.finish(FIELD)?;
        Ok(read)
    }

    /// Whether this tool may be called.
    pub fn allows(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|allowed| allowed == name))
    }

    fn check(&self, tools: &[Value]) -> Result<(), ApiError> {
        let declared: Vec<String> = tools.iter().filter_map(name_of).collect();
        if let Some(missing) = self.only.iter().flatten().find(|name| !declared.contains(name)) {
            let sentence =
                format!("tool_choice names \"{}\", which tools does not declare", cut(missing, 80));
            return Err(ApiError::invalid(FIELD, sentence));
        }
        if self.mode == ToolMode::Required && tools.is_empty() {
            return Err(ApiError::invalid(
                FIELD,
                "tool_choice requires a call, and tools declares nothing to call",
            ));
        }
        Ok(())
    }
}

fn mode_of(param: &str, mode: &str) -> Result<ToolMode, ApiError> {
    match mode {
        "auto" => Ok(ToolMode::Auto),
        "none" => Ok(ToolMode::Off),
        "required" | "any" => Ok(ToolMode::Required),
        other => {
            let shown = cut(other, 80);
            let sentence = format!(
                "{param} is \"{shown}\"; expected \"auto\", \"none\", \"required\", a function or allowed_tools"
            );
            Err(ApiError::invalid(param, sentence))
        }
    }
}

/// `{"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}`, or with the inner members beside the type.
fn allowed_tools(choice: &mut Fields) -> Result<ToolChoice, ApiError> {
    let param = "tool_choice.allowed_tools";
    let Some(inner) = choice.take_value("allowed_tools") else { return allowed(choice, FIELD) };
    let mut inner = Fields::within(param, inner)?;
    let read = allowed(&mut inner, param)?;
    inner.finish(param)?;
    Ok(read)
}

fn allowed(fields: &mut Fields, param: &str) -> Result<ToolChoice, ApiError> {
    let mode = match fields.take_value("mode") {
        None => ToolMode::Auto,
        Some(Value::String(mode)) => mode_of(&format!("{param}.mode"), &mode)?,
        Some(_) => return Err(ApiError::invalid(param, format!("{param}.mode must be auto or required"))),
    };
    let sentence = || format!("{param}.tools must be a list of functions with a name");
    let Some(Value::Array(tools)) = fields.take_value("tools").filter(|tools| *tools != Value::Array(vec![]))
    else {
        return Err(ApiError::invalid(param, sentence()));
    };
    let name = |(at, tool): (usize, Value)| {
        let path = format!("{param}.tools[{at}]");
        let mut fields = Fields::within(&path, tool)?;
        let kind = fields.text("type")?;
        if kind.as_ref().is_some_and(|kind| kind != "function") {
            return Err(ApiError::invalid(
                format!("{path}.type"),
                format!("{path}.type must be \"function\""),
            ));
        }
        let name = named(&mut fields, &path)?.ok_or_else(|| ApiError::invalid(param, sentence()))?;
        fields.finish(&path)?;
        Ok(name)
    };
    let only = tools.into_iter().enumerate().map(name).collect::<Result<_, _>>()?;
    Ok(ToolChoice { mode, only: Some(only), named: false })
}

/// The name in `{"function": {"name"}}` or `{"name"}`.
fn named(fields: &mut Fields, path: &str) -> Result<Option<String>, ApiError> {
    let Some(function) = fields.take_value("function") else { return fields.text("name") };
    let path = format!("{path}.function");
    let mut function = Fields::within(&path, function)?;
    let name = function.text("name")?;
    function.finish(&path)?;
    Ok(name)
}

/// The name of a tool, or of a reference to one.
pub fn name_of(tool: &Value) -> Option<String> {
    let function = tool.get("function").unwrap_or(tool);
    function.get("name").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn take(choice: Value) -> Result<ToolChoice, ApiError> {
        let tools =
            [json!({"type": "function", "function": {"name": "f"}}), json!({"function": {"name": "g"}})];
        ToolChoice::take(&mut Fields::new(json!({"tool_choice": choice})).unwrap(), &tools)
    }

    #[test]
    fn every_form_is_understood() {
        let only = |mode, names: &[&str], named| ToolChoice {
            mode,
            only: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            named,
        };
        for (choice, expected) in [
            (json!(null), ToolChoice::default()),
            (json!("auto"), ToolChoice::default()),
            (json!("none"), ToolChoice { mode: ToolMode::Off, ..ToolChoice::default() }),
            (json!("required"), ToolChoice { mode: ToolMode::Required, ..ToolChoice::default() }),
            (json!({"type": "function", "function": {"name": "g"}}), only(ToolMode::Required, &["g"], true)),
            (json!({"type": "function", "name": "g"}), only(ToolMode::Required, &["g"], true)),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
                "tools": [{"type": "function", "function": {"name": "f"}}]}}),
                only(ToolMode::Required, &["f"], false),
            ),
            (
                json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}),
                only(ToolMode::Auto, &["g"], false),
            ),
        ] {
            assert_eq!(take(choice.clone()).unwrap(), expected, "{choice}");
        }
    }

    #[test]
    fn members_that_nobody_knows_are_refused_by_name() {
        for (choice, param) in [
            (json!({"type": "function", "function": {"name": "f"}, "force": 1}), "tool_choice.force"),
            (json!({"type": "function", "function": {"name": "f", "n": 1}}), "tool_choice.function.n"),
            (
                json!({"type": "auto", "disable_parallel_tool_use": true}),
                "tool_choice.disable_parallel_tool_use",
            ),
            (json!({"type": "allowed_tools", "tools": [{"name": "f"}], "only": 1}), "tool_choice.only"),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "f"}], "max": 1}}),
                "tool_choice.allowed_tools.max",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "f", "x": 1}]}}),
                "tool_choice.allowed_tools.tools[0].x",
            ),
        ] {
            let error = take(choice.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{choice}");
        }
    }

    #[test]
    fn absent_tools_and_other_words_are_refused() {
        for choice in [
            json!("maybe"),
            json!(3),
            json!({}),
            json!({"type": "function"}),
            json!({"type": "function", "function": {"name": "absent"}}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "absent"}]}}),
            json!({"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "mcp", "name": "f"}]}}),
            json!({"type": "allowed_tools", "allowed_tools": {"tools": ["f"]}}),
        ] {
            let error = take(choice.clone()).unwrap_err();
            assert!(error.param.as_deref().is_some_and(|param| param.starts_with("tool_choice")), "{choice}");
        }
        let mut fields = Fields::new(json!({"tool_choice": "required"})).unwrap();
        assert!(ToolChoice::take(&mut fields, &[]).is_err());
    }
}
