//! Answers that are written as the model should write them: reasoning, content and calls come back as they were, typed
//! by their schema, and nothing of the markup shows.
//!
//! JSON: `{"reasoning", "content", "calls": [{"name", "arguments"}]}`. Whatever is not of this form is no answer.

use m3_core::text::parse::{OutputParser, ParserOptions, Piece, ThinkingMode, ToolSet, fold};
use serde_json::{Map, Value, json};

use super::{NS, markup, world};
use crate::Target;
use crate::mutate::{Dialect, cut};

pub(super) struct Answer;

impl Target for Answer {
    fn name(&self) -> &'static str {
        "answer"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    fn words(&self) -> Vec<String> {
        markup()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        let Some(answer) = Written::read(cut(input).1) else { return Ok("no answer".to_owned()) };
        let text = answer.text();
        let tools =
            ToolSet::from_json(&answer.tools()).map_err(|error| format!("the tools are refused: {error}"))?;
        let options = ParserOptions {
            thinking_mode: ThinkingMode::Enabled,
            tools: std::sync::Arc::new(tools),
            markers: world().markers.clone(),
            ..ParserOptions::default()
        };
        let mut parser = OutputParser::new(options);
        let mut deltas = parser.push(Piece::text(&text));
        deltas.extend(parser.finish());
        let parsed = fold(deltas);
        let content = parsed.content.clone().unwrap_or_default();
        if parsed.reasoning.clone().unwrap_or_default() != answer.reasoning || content != answer.content {
            return Err(format!("{text:?} is read as {parsed:?}"));
        }
        let read: Vec<(String, Value)> = parsed
            .tool_calls
            .iter()
            .map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap_or_default()))
            .collect();
        if read != answer.calls {
            return Err(format!("{text:?} is read as {read:?}"));
        }
        Ok(format!(
            "{} calls of shapes {}",
            read.len(),
            read.iter().map(|call| shape(&call.1, 3)).collect::<String>()
        ))
    }
}

fn shape(value: &Value, depth: usize) -> String {
    match value {
        Value::Array(items) if depth > 0 => {
            format!("[{}]", items.first().map(|item| shape(item, depth - 1)).unwrap_or_default())
        }
        Value::Object(members) if depth > 0 => {
            format!(
                "{{{}}}",
                members.values().take(3).map(|member| shape(member, depth - 1)).collect::<String>()
            )
        }
        Value::String(_) => "s".to_owned(),
        Value::Number(_) => "n".to_owned(),
        _ => "v".to_owned(),
    }
}

struct Written {
    reasoning: String,
    content: String,
    calls: Vec<(String, Value)>,
}

impl Written {
    /// Only what a model can write without ambiguity: texts without markers, names and keys of ordinary characters.
    fn read(body: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let text = |name: &str| value[name].as_str().filter(|text| is_plain(text)).map(str::to_owned);
        let calls = value["calls"].as_array()?.iter().map(|call| {
            let name = call["name"].as_str().filter(|name| is_key(name))?;
            let arguments = call["arguments"].as_object()?;
            arguments.iter().all(|(key, value)| is_key(key) && is_writable(value)).then_some(())?;
            Some((name.to_owned(), call["arguments"].clone()))
        });
        let calls: Vec<(String, Value)> = calls.collect::<Option<_>>()?;
        let mut names: Vec<&str> = calls.iter().map(|call| call.0.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        // One schema for each name.
        (names.len() == calls.len()).then_some(())?;
        let (reasoning, content) = (text("reasoning")?, text("content")?);
        // Blank text around markup is the markup's.
        let trimmed = |text: &str| text.is_empty() || text.trim() == text;
        (trimmed(&reasoning) && trimmed(&content)).then_some(Written { reasoning, content, calls })
    }

    fn text(&self) -> String {
        let mut text = format!("{}</mm:think>{}", self.reasoning, self.content);
        if self.calls.is_empty() {
            return text;
        }
        text.push_str(&format!("{NS}<tool_call>\n"));
        for (name, arguments) in &self.calls {
            text.push_str(&format!("{NS}<invoke name=\"{name}\">{}{NS}</invoke>\n", elements(arguments)));
        }
        text.push_str(&format!("{NS}</tool_call>"));
        text
    }

    fn tools(&self) -> Value {
        let tool = |(name, arguments): &(String, Value)| json!({"type": "function", "function": {"name": name, "parameters": schema(arguments)}});
        self.calls.iter().map(tool).collect()
    }
}

fn is_plain(text: &str) -> bool {
    !["]<]", "[>[", "mm:think", "minimax"].iter().any(|part| text.contains(part))
}

fn is_key(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(letter)
        && !["item", "invoke", "tool_call"].contains(&text)
}

/// Empty arrays and objects and nulls have no spelling of their own.
fn is_writable(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) => true,
        Value::Number(number) => {
            !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() != 0.0)
        }
        Value::String(text) => is_plain(text),
        Value::Array(items) => !items.is_empty() && items.iter().all(is_writable),
        Value::Object(members) => {
            !members.is_empty() && members.iter().all(|(key, value)| is_key(key) && is_writable(value))
        }
    }
}

fn elements(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, value)| format!("{NS}<{key}>{}{NS}</{key}>", elements(value))).collect()
        }
        Value::Array(items) => {
            items.iter().map(|item| format!("{NS}<item>{}{NS}</item>", elements(item))).collect()
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The narrowest schema of a value.
fn schema(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let properties: Map<String, Value> =
                members.iter().map(|(key, value)| (key.clone(), schema(value))).collect();
            json!({"type": "object", "properties": properties})
        }
        Value::Array(items) => {
            json!({"type": "array", "prefixItems": items.iter().map(schema).collect::<Vec<_>>()})
        }
        Value::String(_) => json!({"type": "string"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        _ => json!({"type": "integer"}),
    }
}
