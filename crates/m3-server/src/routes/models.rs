//! `GET /v1/models`: what is served and what it accepts, so that clients need not guess.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::check_model;
use crate::app::{App, Serving};
use crate::error::ApiError;
use crate::model::ServedModel;

/// All names of the one model.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let cards: Vec<Value> = serving.model.names.iter().map(|name| card(serving, name)).collect();
    Ok(Json(json!({ "object": "list", "data": cards })))
}

/// One of them.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    check_model(serving, Some(&name))?;
    Ok(Json(card(serving, &name)))
}

/// `owned_by` is what routers take for a worker of this kind.
fn card(serving: &Serving, name: &str) -> Value {
    let model = &serving.model;
    let chat = model.text.as_ref().is_some_and(|text| text.template.is_some());
    json!({
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "sglang",
        "root": model.path.display().to_string(),
        "parent": null,
        "max_model_len": model.max_context,
        "max_output_tokens": model.max_context.saturating_sub(1),
        "capabilities": {
            "input_modalities": modalities(model),
            "chat": chat,
            "completions": true,
            "tools": chat,
            "reasoning": chat,
            "thinking_modes": if chat { json!(["adaptive", "enabled", "disabled"]) } else { json!([]) },
            "structured_output": true,
        },
    })
}

/// A checkpoint with a vision tower, on a backend that runs it, takes images and videos on every route that takes messages.
fn modalities(model: &ServedModel) -> &'static [&'static str] {
    if model.vision.is_ok() { &["text", "image", "video"] } else { &["text"] }
}
