//! `/live`: restart me when this fails. `/ready`: send traffic only while this is 200. `/health`: ready or draining.
//! None of them waits for the engine's thread, so they answer during a long prefill.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::{App, State as ServerState};

/// 200 while requests are being served, also while the last ones drain or the disk is full.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let state = app.state();
    let good = matches!(state, ServerState::Ready | ServerState::Draining | ServerState::Unwell(_));
    answer(&app, &state, good)
}

/// 200 unless the engine is gone for good, or has stood still for so long that it must be.
pub(super) async fn live(State(app): State<Arc<App>>) -> Response {
    let state = app.state();
    let limit = app.http.health.hard_limit;
    let good = match &state {
        ServerState::Dead(_) => false,
        ServerState::Stalled(age) => limit.is_zero() || *age <= limit,
        _ => true,
    };
    answer(&app, &state, good)
}

/// 200 while new requests are taken; otherwise the phase of start-up or the reason.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let state = app.state();
    answer(&app, &state, state == ServerState::Ready)
}

/// 200 once the model is there, whatever comes later; before, the phase and the percent.
pub(super) async fn startup(State(app): State<Arc<App>>) -> Response {
    answer(&app, &app.state(), app.loaded().is_some())
}

fn answer(app: &App, state: &ServerState, good: bool) -> Response {
    let phase = app.phase.get();
    let body = match state {
        ServerState::Loading => {
            json!({"status": "loading", "phase": phase.name, "percent": phase.percent, "detail": phase.detail})
        }
        ServerState::Ready => json!({"status": "ready", "phase": "ready", "percent": 100}),
        ServerState::Draining => json!({"status": "draining"}),
        ServerState::Stalled(age) => {
            json!({"status": "stalled", "reason": format!("no step has finished for {} s", age.as_secs())})
        }
        ServerState::Unwell(reason) => json!({"status": "unwell", "reason": reason}),
        ServerState::Dead(reason) => json!({"status": "dead", "reason": reason}),
    };
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}
