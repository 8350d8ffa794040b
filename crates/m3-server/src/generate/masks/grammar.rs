//! The grammar of a request: what its fields demand, made into one mask for each answer.

use std::sync::Arc;

use m3_core::request::TokenMask;
use m3_core::text::exact;
use m3_core::text::grammar::{CallRules, CallableTool, Compiled, GrammarError, GrammarMask, GrammarSpec};
use m3_core::text::parse::{ParserOptions, ThinkingMode, ToolSet};
use serde_json::Value;

use super::MaskSource;
use crate::error::ApiError;
use crate::model::ServedModel;
use crate::openai::chat_request::ChatRequest;
use crate::openai::constraint::Constraint;
use crate::openai::generation::Generation;
use crate::openai::tool_choice::{ToolMode, name_of};

/// A compiled grammar and what ends an answer under it.
struct GrammarSource {
    compiled: Arc<Compiled>,
    stop_ids: Arc<[u32]>,
}

impl MaskSource for GrammarSource {
    fn start(&self) -> Box<dyn TokenMask> {
        Box::new(GrammarMask::new(Arc::clone(&self.compiled), Arc::clone(&self.stop_ids)))
    }
}

/// The mask of a chat request, if its fields ask for one; `parser` is told what the grammar rules out.
pub fn of_chat(
    request: &ChatRequest,
    model: &ServedModel,
    parser: &mut ParserOptions,
) -> Result<Option<Arc<dyn MaskSource>>, ApiError> {
    let constraint = request.constraint.as_ref().filter(|_| request.tool_choice.mode != ToolMode::Required);
    let calls = call_rules(request, Arc::clone(&parser.tools), model, constraint.is_some());
    if constraint.is_none() && calls.is_none() {
        return Ok(None);
    }
    let lazy = constraint.is_none() && request.tool_choice.mode == ToolMode::Auto;
    if request.continue_final && !lazy {
        let sentence = "continue_final_message cannot be combined with constrained output: the grammar would begin in \
                        the middle of the message";
        return Err(ApiError::invalid("continue_final_message", sentence));
    }
    if !lazy {
        parser.parse_reasoning &= request.start_mode() != ThinkingMode::Disabled;
        parser.parse_tools &= calls.is_some();
    }
    let field = constraint.map_or("tools", |constraint| constraint.field.as_str());
    let spec = GrammarSpec {
        content: constraint.map(|constraint| constraint.content.clone()),
        calls,
        lazy,
        thinking: request.start_mode(),
        reads_calls: parser.parse_tools,
    };
    source(spec, &request.generation, model, field).map(Some)
}

/// The mask of a raw completion.
pub fn of_completion(
    constraint: Option<&Constraint>,
    generation: &Generation,
    model: &ServedModel,
) -> Result<Option<Arc<dyn MaskSource>>, ApiError> {
    let Some(constraint) = constraint else { return Ok(None) };
    let spec = GrammarSpec {
        content: Some(constraint.content.clone()),
        calls: None,
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: false,
    };
    source(spec, generation, model, &constraint.field).map(Some)
}

fn source(
    spec: GrammarSpec,
    generation: &Generation,
    model: &ServedModel,
    field: &str,
) -> Result<Arc<dyn MaskSource>, ApiError> {
    let stop_ids: Arc<[u32]> = model.stop_ids_for(generation).into();
    let ends = stop_ids.iter().any(|id| model.ends_turn(*id));
    if !spec.lazy && !ends {
        let sentence = match generation.ignore_eos {
            true => "ignore_eos cannot be combined with constrained output, which ends when it is complete",
            false => "constrained output needs an end-of-sequence id, and this model has none",
        };
        return Err(ApiError::invalid("ignore_eos", sentence));
    }
    let refused = |error: &GrammarError| match error.busy {
        true => ApiError::unavailable("grammar_busy", error.to_string()),
        false => {
            let field = if error.tool.is_some() { "tools" } else { field };
            ApiError::unsupported(field, format!("{field}: {error}"))
        }
    };
    let Some(text) = &model.text else {
        let sentence = "constrained output needs a tokenizer, which this server runs without";
        return Err(ApiError::unsupported(field, sentence));
    };
    let compiler = text.grammars().map_err(refused)?;
    let compiled = Arc::new(compiler.compile(spec).map_err(|error| refused(&error))?);
    Ok(Arc::new(GrammarSource { compiled, stop_ids }))
}

/// What may be called, where that is limited at all.
fn call_rules(
    request: &ChatRequest,
    typing: Arc<ToolSet>,
    model: &ServedModel,
    constrained: bool,
) -> Option<CallRules> {
    let choice = &request.tool_choice;
    // Some clients write it beside the function.
    let strict = |object: &Value| object.get("strict") == Some(&Value::Bool(true));
    let is_strict = |tool: &Value| strict(function(tool)) || strict(tool);
    let required = choice.mode == ToolMode::Required;
    let limited = required || choice.only.is_some() || constrained || request.tools.iter().any(is_strict);
    if !limited || request.tools.is_empty() || choice.mode == ToolMode::Off {
        return None;
    }
    let callable = |tool: &Value| {
        let name = name_of(tool).filter(|name| choice.allows(name))?;
        let parameters = function(tool).get("parameters").cloned().map(exact::plain);
        Some(CallableTool { name, parameters, strict: required || is_strict(tool) })
    };
    Some(CallRules {
        tools: request.tools.iter().filter_map(callable).collect(),
        typing,
        markers: model.text.as_ref()?.markers.clone(),
        parallel: request.parallel_tool_calls && !choice.named,
    })
}

fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}
