//! Routes that touch the engine, the server or other callers' requests: the cache, aborts, the log, draining, and
//! SageMaker's one path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Caller, chat, completions, responses};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{JsonBody, RawBody, parse};
use crate::generate::Job;
use crate::logging;
use crate::openai::fields::Fields;
use crate::strict::Strict;
use crate::watch;

/// Forgets all cached prefixes; 400 while running requests hold some.
pub(super) async fn flush_cache(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let engine = app.serving()?.engine.clone();
    let flushed = tokio::task::spawn_blocking(move || engine.flush_cache()).await.unwrap_or(false);
    let message = if flushed {
        "the prefix cache is empty"
    } else {
        "prefixes that running requests hold are still cached; try again when nothing runs"
    };
    let status = if flushed { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    Ok((status, Json(json!({"success": flushed, "message": message}))).into_response())
}

/// `{"rid"}` or `{"abort_all": true}`; the streams end with their reason.
pub(super) async fn abort(
    State(app): State<Arc<App>>,
    RawBody(body): RawBody,
) -> Result<Json<Value>, ApiError> {
    let Strict(body) = if body.is_empty() { Strict(json!({})) } else { parse(&body)? };
    let AbortRequest { rid, all } = AbortRequest::read(body)?;
    let ids = match (rid.as_deref(), all) {
        (_, true) => app.running.all(),
        (Some(rid), false) => app.running.named(rid),
        (None, false) => {
            return Err(ApiError::invalid(
                "rid",
                "rid is missing; send the id of a request, or abort_all: true",
            ));
        }
    };
    let engine = &app.serving()?.engine;
    ids.iter().for_each(|id| engine.abort(*id));
    Ok(Json(json!({ "aborted": ids.len() })))
}

/// The body of `POST /abort_request`.
pub(crate) struct AbortRequest {
    rid: Option<String>,
    all: bool,
}

impl AbortRequest {
    pub(crate) fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        let (rid, all) = (fields.take("rid")?, fields.switch("abort_all", false)?);
        // SGLang's own routers say why and more; that changes nothing here.
        fields.log_rest("/abort_request");
        Ok(AbortRequest { rid, all })
    }
}

/// `POST /invocations`: SageMaker has one path for everything; the body says what it is.
pub(super) async fn invocations(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let has = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    let (chat, completion, response) = (has("messages"), has("prompt"), has("input"));
    let body = JsonBody(Strict(body));
    match (chat, completion, response) {
        (true, ..) => chat::create(State(app), headers, body).await,
        (_, true, _) => completions::create(State(app), headers, body).await,
        (.., true) => responses::create(State(app), Extension(caller), body).await,
        _ => Err(ApiError::invalid("messages", "messages is missing; send messages, prompt or input")),
    }
}

/// `{"level"}`: a level, or filters as `M3_LOG` takes them.
pub(super) async fn configure_logging(
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let LoggingRequest { level } = LoggingRequest::read(body)?;
    logging::set_filter(&level).map_err(|sentence| ApiError::invalid("level", sentence))?;
    tracing::warn!("the log's level is now {level}");
    Ok(Json(json!({ "level": level })))
}

/// The body of `POST /configure_logging`.
pub(crate) struct LoggingRequest {
    level: String,
}

impl LoggingRequest {
    pub(crate) fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        let (level, long) = (fields.take::<String>("level")?, fields.take::<String>("log_level")?);
        fields.finish("/configure_logging")?;
        let sentence = "level is missing; send error, warn, info, debug, trace or filters";
        let level = level.or(long).ok_or_else(|| ApiError::invalid("level", sentence))?;
        Ok(LoggingRequest { level })
    }
}

/// New requests are refused and `/ready` is red; the process stays.
pub(super) async fn drain(State(app): State<Arc<App>>) -> Json<Value> {
    app.pause(true);
    Json(json!({"draining": true, "running": app.num_active()}))
}

/// Undoes a drain that was asked for here; not one that a signal began.
pub(super) async fn resume(State(app): State<Arc<App>>) -> Json<Value> {
    app.pause(false);
    Json(json!({"draining": app.is_draining(), "running": app.num_active()}))
}

/// `GET /health_generate`: 200 when a token has come through the whole engine.
pub(super) async fn health_generate(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    app.serving()?;
    let limit = app.http.health.watchdog;
    let patience = if limit.is_zero() { Duration::MAX } else { limit };
    let made = watch::make_a_token(&app, patience).await;
    made.map_err(|sentence| ApiError::unavailable("stalled", sentence))?;
    Ok(Json(json!({ "status": "ready" })))
}

/// The smallest request there is.
pub fn one_token(app: &App) -> Result<Job, ApiError> {
    let body = json!({"prompt": [0], "max_tokens": 1, "temperature": 0, "ignore_eos": true});
    completions::prepare(app, body, Instant::now(), &[]).map(|(_, job)| job)
}
