//! The output parser for text that a caller already has: `/parse_function_call` and `/separate_reasoning`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use m3_core::text::parse::{
    Markers, OutputParser, Parsed, ParserOptions, Piece, ThinkingMode, ToolSet, fold,
};
use serde_json::{Value, json};

use super::blocking;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::openai::fields::Fields;
use crate::strict::Strict;

const PARSERS: [&str; 3] = ["auto", "minimax-m3", "minimax_m3"];

/// `{"text", "tools"}` to `{"normal_text", "calls"}`.
pub(super) async fn function_call(
    State(app): State<Arc<App>>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let ParseCallRequest { text, tools } = ParseCallRequest::read(body)?;
        crate::conversation::check_tools(tools.as_array().map(Vec::as_slice).unwrap_or_default())?;
        let tools =
            ToolSet::from_json(&tools).map_err(|error| ApiError::invalid("tools", error.to_string()))?;
        let options = ParserOptions { tools: Arc::new(tools), parse_reasoning: false, ..options(&app) };
        let parsed = parse(options, &text);
        let calls = parsed
            .tool_calls
            .into_iter()
            .enumerate()
            .map(|(at, call)| json!({"tool_index": at, "name": call.name, "parameters": call.arguments}));
        let calls: Vec<Value> = calls.collect();
        Ok(Json(json!({"normal_text": parsed.content.unwrap_or_default(), "calls": calls})))
    })
    .await
}

/// `{"text"}` to `{"reasoning_text", "text"}`. Tool markup stays in the text.
pub(super) async fn separate_reasoning(
    State(app): State<Arc<App>>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let ParseReasoningRequest { text, mode } = ParseReasoningRequest::read(body)?;
        let options = ParserOptions { thinking_mode: mode, parse_tools: false, ..options(&app) };
        let parsed = parse(options, &text);
        let reasoning = parsed.reasoning.unwrap_or_default();
        Ok(Json(json!({"reasoning_text": reasoning, "text": parsed.content.unwrap_or_default()})))
    })
    .await
}

/// The body of `POST /parse_function_call`.
pub(crate) struct ParseCallRequest {
    text: String,
    tools: Value,
}

impl ParseCallRequest {
    pub(crate) fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        check_parser(&mut fields, "tool_call_parser")?;
        let text = text(&mut fields)?;
        let tools = fields.take_value("tools").unwrap_or_default();
        fields.finish("/parse_function_call")?;
        Ok(ParseCallRequest { text, tools })
    }
}

/// The body of `POST /separate_reasoning`.
pub(crate) struct ParseReasoningRequest {
    text: String,
    mode: ThinkingMode,
}

impl ParseReasoningRequest {
    pub(crate) fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        check_parser(&mut fields, "reasoning_parser")?;
        let text = text(&mut fields)?;
        let mode = match fields.take_value("thinking_mode") {
            None => ThinkingMode::Adaptive,
            Some(mode) => crate::openai::thinking::mode_of("thinking_mode", &mode)?,
        };
        fields.finish("/separate_reasoning")?;
        Ok(ParseReasoningRequest { text, mode })
    }
}

fn options(app: &App) -> ParserOptions {
    let text = app.loaded().and_then(|serving| serving.model.text.as_ref());
    let markers = text.map_or_else(Markers::default, |text| text.markers.clone());
    ParserOptions { markers, ..ParserOptions::default() }
}

fn parse(options: ParserOptions, text: &str) -> Parsed {
    let mut parser = OutputParser::new(options);
    let mut deltas = parser.push(Piece::text(text));
    deltas.extend(parser.finish());
    fold(deltas)
}

fn text(fields: &mut Fields) -> Result<String, ApiError> {
    fields.take("text")?.ok_or_else(|| ApiError::invalid("text", "text is missing"))
}

fn check_parser(fields: &mut Fields, name: &str) -> Result<(), ApiError> {
    match fields.take::<String>(name)? {
        Some(other) if !PARSERS.contains(&other.as_str()) => {
            Err(ApiError::invalid(name, format!("{name} is \"{other}\"; this server has minimax-m3")))
        }
        _ => Ok(()),
    }
}
