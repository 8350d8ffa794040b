//! `POST /tokenize`, `/detokenize` and `/v1/chat/completions/render`: the very text and ids a completion or chat request
//! would be served with, without serving it.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::chat::{prepare, render, show, text_side};
use super::{blocking, check_model};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::openai::accepted::take_accepted;
use crate::openai::chat_request::ChatRequest;
use crate::openai::completion_request::ids;
use crate::openai::fields::Fields;
use crate::openai::thinking::mode_name;
use crate::strict::Strict;
use crate::vision;

/// A raw `prompt`, or `messages` with `tools` as chat takes them.
pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    JsonBody(Strict(mut body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let (prompt, mut tokens, media) = blocking(move || {
        let serving = work.serving()?;
        let text = text_side(serving)?;
        // The texts of the tokens are always given.
        body.as_object_mut().and_then(|body| body.shift_remove("return_token_strs"));
        let is_chat = body.get("messages").is_some_and(|messages| !messages.is_null());
        if !is_chat {
            let (prompt, tokens) = raw(&text.tokenizer, body, |model| check_model(serving, model))?;
            return Ok((prompt, tokens, Vec::new()));
        }
        let request = ChatRequest::read(body, serving.model.limits, &serving.model.template_kwargs)?;
        check_model(serving, request.generation.model.as_deref())?;
        let (prompt, tokens) = render(text, &request)?;
        Ok((prompt, tokens, request.media))
    })
    .await?;
    if !media.is_empty() {
        tokens = vision::place(&app, &tokens, &media, "messages").await?.ids;
    }
    blocking(move || {
        let serving = app.serving()?;
        let text = text_side(serving)?;
        let strings: Vec<String> = tokens.iter().map(|id| text.tokenizer.decode(&[*id], false)).collect();
        Ok(Json(json!({
            "count": tokens.len(),
            "max_model_len": serving.model.max_context,
            "tokens": tokens,
            "token_strs": strings,
            "prompt": prompt,
        })))
    })
    .await
}

pub(crate) fn raw(
    tokenizer: &m3_core::text::tokenizer::Tokenizer,
    body: Value,
    check: impl Fn(Option<&str>) -> Result<(), ApiError>,
) -> Result<(String, Vec<u32>), ApiError> {
    let mut fields = Fields::new(body)?;
    check(fields.take::<String>("model")?.as_deref())?;
    let prompt = fields.take::<String>("prompt")?.or(fields.take("text")?);
    let prompt =
        prompt.ok_or_else(|| ApiError::invalid("prompt", "prompt is missing; send prompt or messages"))?;
    let special = fields.switch("parse_special", true)?;
    let ids = if special { tokenizer.encode_special(&prompt) } else { tokenizer.encode_ordinary(&prompt) };
    let ids = ids.map_err(|error| ApiError::invalid("prompt", error.to_string()))?;
    take_accepted(&mut fields);
    fields.finish("/tokenize")?;
    Ok((prompt, ids))
}

/// The prompt of a chat request as the model would see it, and what was decided on the way.
pub(super) async fn render_chat(
    State(app): State<Arc<App>>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let (request, mut job) = blocking(move || prepare(&work, body, Instant::now())).await?;
    show(&app, &request, &mut job).await?;
    blocking(move || {
        let serving = app.serving()?;
        let tokens = job.prompts.into_iter().next().unwrap_or_default();
        Ok(Json(json!({
            "object": "chat.completion.render",
            "model": serving.model.names.first(),
            "prompt": text_side(serving)?.tokenizer.decode(&tokens, false),
            "token_ids": tokens,
            "prompt_tokens": tokens.len(),
            "max_model_len": serving.model.max_context,
            "thinking_mode": mode_name(request.start_mode()),
        })))
    })
    .await
}

/// The same under llama.cpp's name: the text alone.
pub(super) async fn apply_template(
    state: State<Arc<App>>,
    body: JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let Json(rendered) = render_chat(state, body).await?;
    Ok(Json(json!({ "prompt": rendered["prompt"] })))
}

/// `tokens` to text; markers stay in unless `skip_special_tokens` is true.
pub(super) async fn detokenize(
    State(app): State<Arc<App>>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let tokenizer = &text_side(serving)?.tokenizer;
    let DetokenizeRequest { model, tokens, skip_special } = DetokenizeRequest::read(body)?;
    check_model(serving, model.as_deref())?;
    let vocab_size = serving.model.limits.vocab_size;
    if let Some(id) = tokens.iter().find(|id| **id >= vocab_size) {
        let sentence = format!("tokens has {id}; ids go from 0 to {}", vocab_size - 1);
        return Err(ApiError::invalid("tokens", sentence));
    }
    let text = tokenizer.decode(&tokens, skip_special);
    Ok(Json(json!({ "prompt": text, "text": text })))
}

/// The body of `POST /detokenize`.
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
    skip_special: bool,
}

impl DetokenizeRequest {
    pub(crate) fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        let model = fields.take("model")?;
        let tokens: Vec<Value> = fields
            .take("tokens")?
            .ok_or_else(|| ApiError::invalid("tokens", "tokens is missing; expected a list of token ids"))?;
        let tokens = ids(&tokens, "tokens")?;
        let skip_special = fields.switch("skip_special_tokens", false)?;
        fields.finish("/detokenize")?;
        Ok(DetokenizeRequest { model, tokens, skip_special })
    }
}
