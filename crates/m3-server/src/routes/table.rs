//! Every route, once: the router is built from this table, and so is `/openapi.json`, which therefore cannot miss one.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post, put};

use super::{
    admin, chat, completions, docs, generate, info, messages, metrics, models, parsing, probes, responses,
    text, ui,
};
use crate::app::App;

/// One method of one path.
pub struct Row {
    pub method: &'static str,
    /// As the router has it.
    pub path: &'static str,
    /// What the body is called in the document; empty = none.
    pub body: &'static str,
    pub summary: &'static str,
    handler: fn() -> MethodRouter<Arc<App>>,
}

impl Row {
    /// What serves it.
    pub(super) fn handler(&self) -> MethodRouter<Arc<App>> {
        (self.handler)()
    }
}

const fn row(
    method: &'static str,
    path: &'static str,
    body: &'static str,
    handler: fn() -> MethodRouter<Arc<App>>,
    summary: &'static str,
) -> Row {
    Row { method, path, body, summary, handler }
}

/// The table.
#[rustfmt::skip]
pub const ROUTES: &[Row] = &[
    row("post", "/v1/chat/completions", "ChatRequest", || post(chat::create), "Answer a conversation, streamed or whole"),
    row("post", "/v1/chat/completions/render", "ChatRequest", || post(text::render_chat), "The prompt that a conversation comes to"),
    row("post", "/apply-template", "ChatRequest", || post(text::apply_template), "The same, text only"),
    row("post", "/v1/completions", "CompletionRequest", || post(completions::create), "Continue or score raw prompts"),
    row("post", "/v1/responses", "ResponsesRequest", || post(responses::create), "Answer in OpenAI's Responses API"),
    row("get", "/v1/responses/{id}", "", || get(responses::get), "A stored response, or with stream=true its events"),
    row("delete", "/v1/responses/{id}", "", || axum::routing::delete(responses::delete), "Forget a stored response"),
    row("post", "/v1/responses/{id}/cancel", "", || post(responses::cancel), "Stop a response in the background"),
    row("get", "/v1/responses/{id}/input_items", "", || get(responses::input_items), "The input of a stored response"),
    row("post", "/v1/messages", "MessagesRequest", || post(messages::create), "Answer in Anthropic's Messages API"),
    row("post", "/v1/messages/count_tokens", "MessagesRequest", || post(messages::count_tokens), "Tokens of the prompt of a message"),
    row("post", "/generate", "GenerateRequest", || post(generate::create), "Generate in SGLang's native form"),
    row("put", "/generate", "GenerateRequest", || put(generate::create), "The same"),
    row("post", "/invocations", "AnyRequest", || post(admin::invocations), "Chat, completion or response, as the body says (SageMaker)"),
    row("get", "/v1/models", "", || get(models::list), "The model under all its names, with limits and abilities"),
    row("get", "/v1/models/{*name}", "", || get(models::one), "One of them"),
    row("post", "/tokenize", "TokenizeRequest", || post(text::tokenize), "The tokens of a text or a conversation"),
    row("post", "/v1/tokenize", "TokenizeRequest", || post(text::tokenize), "The same"),
    row("post", "/detokenize", "DetokenizeRequest", || post(text::detokenize), "The text of tokens"),
    row("post", "/v1/detokenize", "DetokenizeRequest", || post(text::detokenize), "The same"),
    row("post", "/parse_function_call", "ParseCallRequest", || post(parsing::function_call), "Tool calls in a text of the model's"),
    row("post", "/separate_reasoning", "ParseReasoningRequest", || post(parsing::separate_reasoning), "Reasoning in a text of the model's"),
    row("get", "/tokenizer_info", "", || get(info::tokenizer), "Sizes and added tokens of the vocabulary"),
    row("get", "/server_info", "", || get(info::server), "Settings, limits and load"),
    row("get", "/get_server_info", "", || get(info::server), "The same"),
    row("get", "/model_info", "", || get(info::model), "What kind of model is served"),
    row("get", "/get_model_info", "", || get(info::model), "The same"),
    row("get", "/version", "", || get(info::version), "This program's version"),
    row("get", "/load", "", || get(info::load), "Requests in the server"),
    row("get", "/get_load", "", || get(info::get_load), "The same in SGLang's older form"),
    row("get", "/v1/loads", "", || get(info::loads), "Load as routers balance by it"),
    row("post", "/flush_cache", "", || post(admin::flush_cache), "Forget all cached prefixes"),
    row("get", "/flush_cache", "", || get(admin::flush_cache), "The same"),
    row("post", "/reset_prefix_cache", "", || post(admin::flush_cache), "The same"),
    row("post", "/abort_request", "AbortRequest", || post(admin::abort), "Abort requests by id, or all"),
    row("post", "/configure_logging", "LoggingRequest", || post(admin::configure_logging), "Change the log's level"),
    row("post", "/admin/log_level", "LoggingRequest", || post(admin::configure_logging), "The same"),
    row("post", "/admin/drain", "", || post(admin::drain), "Take no new requests; running ones go on"),
    row("post", "/admin/resume", "", || post(admin::resume), "Take requests again after a drain that was asked for here"),
    row("get", "/health_generate", "", || get(admin::health_generate), "200 when a token has come through the whole engine"),
    row("get", "/ping", "", || get(probes::health), "As /health"),
    row("post", "/ping", "", || post(probes::health), "As /health"),
    row("get", "/health", "", || get(probes::health), "200 while requests are served"),
    row("get", "/live", "", || get(probes::live), "200 unless the engine is gone for good"),
    row("get", "/startup", "", || get(probes::startup), "200 once the model is there; before, the phase and the percent"),
    row("get", "/ready", "", || get(probes::ready), "200 while new requests are taken"),
    row("get", "/metrics", "", || get(metrics), "Numbers for Prometheus"),
    row("get", "/openapi.json", "", || get(docs::document), "This document"),
    row("get", "/", "", || get(ui::page), "A page to chat on and to see the load (not with --no-ui)"),
    row("get", "/ui/{file}", "", || get(ui::asset), "What that page is made of"),
    row("get", "/docs", "", || get(docs::page), "This document as a page"),
];
