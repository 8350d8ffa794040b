//! Tools and the choice among them: flat here, wrapped in `function` for chat. Hosted tools are refused by name.

use serde_json::{Map, Value, json};

use crate::error::{ApiError, cut};
use crate::openai::fields::kind;

/// Chat's form of `tools`, and the form that a response repeats.
pub fn read(tools: Option<Value>) -> Result<(Vec<Value>, Value), ApiError> {
    let list = match tools {
        None => return Ok((Vec::new(), json!([]))),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(ApiError::invalid("tools", format!("tools is {}; expected a list", kind(&other))));
        }
    };
    let chat = list.iter().enumerate().map(|(at, tool)| one(tool, at)).collect::<Result<_, _>>()?;
    Ok((chat, Value::Array(list)))
}

fn one(tool: &Value, at: usize) -> Result<Value, ApiError> {
    let path = format!("tools[{at}]");
    let Value::Object(object) = tool else {
        return Err(ApiError::invalid(&path, format!("{path} is {}; expected an object", kind(tool))));
    };
    match object.get("type").and_then(Value::as_str) {
        // Some clients send chat's form here as well.
        Some("function") if object.contains_key("function") => Ok(tool.clone()),
        Some("function") => {
            let mut function: Map<String, Value> = object.clone();
            function.shift_remove("type");
            Ok(json!({"type": "function", "function": function}))
        }
        Some(other) => Err(hosted(&format!("{path}.type"), other)),
        None => Err(ApiError::invalid(format!("{path}.type"), format!("{path}.type is missing"))),
    }
}

fn hosted(param: &str, name: &str) -> ApiError {
    let name = cut(name, 60);
    let sentence = format!(
        "{param} is \"{name}\"; this server hosts no tools and only takes tools of type \"function\", which the caller \
         runs"
    );
    ApiError::unsupported(param, sentence)
}

/// Chat's form of `tool_choice`.
pub fn choice(choice: &Value) -> Result<Value, ApiError> {
    let Value::Object(object) = choice else { return Ok(choice.clone()) };
    match object.get("type").and_then(Value::as_str) {
        // What stands beside the name goes along, and is checked under its own path.
        Some("function") => Ok(choice.clone()),
        Some("allowed_tools") => {
            let tools = object.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
            for (at, tool) in tools {
                let hosts = tool.get("type").and_then(Value::as_str).unwrap_or("");
                if hosts != "function" {
                    return Err(hosted(&format!("tool_choice.tools[{at}].type"), hosts));
                }
            }
            Ok(choice.clone())
        }
        Some(other) => Err(hosted("tool_choice.type", other)),
        None => Err(ApiError::invalid("tool_choice.type", "tool_choice.type is missing")),
    }
}
