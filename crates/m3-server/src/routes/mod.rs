//! The HTTP surface: paths, access, and one shape for every refusal, axum's own included.

mod access;
mod admin;
mod admission;
mod chat;
mod completions;
mod cors;
mod docs;
mod generate;
mod info;
mod messages;
mod models;
mod parsing;
mod probes;
mod responses;
mod table;
mod text;
mod ui;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::{App, Serving};
use crate::error::ApiError;
use crate::openai::chat_request::ChatRequest;
use crate::openai::generation::is_request_id;
use crate::shape::Head;
pub use admin::one_token;
pub use admission::{Caller, Door};
pub use chat::{prepare as prepare_chat, render as render_chat, show as show_media};
pub use table::{ROUTES, Row};

/// All routes of a server, as one of its ports serves them.
pub fn router(app: Arc<App>, door: Door) -> Router {
    let router = ROUTES.iter().fold(Router::new(), |router, row| router.route(row.path, row.handler()));
    let router = router
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(DefaultBodyLimit::max(app.http.max_body_bytes))
        .layer(middleware::from_fn_with_state((Arc::clone(&app), door), access::check));
    // Outermost, so that a browser's question before the request needs no key.
    let cors = app.http.access.cors.as_ref().filter(|_| door != Door::Admin).map(cors::layer);
    let router = match cors {
        Some(layer) => router.layer(layer),
        None => router,
    };
    router.with_state(app)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let headers = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    (headers, crate::metrics::render(&app)).into_response()
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no {}", uri.path())).with_code("not_found")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let sentence = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, sentence).with_code("method_not_allowed")
}

/// A bug in a handler ends one request, not the server.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::engine("the server failed on this request; its log says more").into_response()
}

/// 404 unless the model goes by this name here.
fn check_model(serving: &Serving, asked: Option<&str>) -> Result<(), ApiError> {
    if serving.model.answers_to(asked) {
        return Ok(());
    }
    let known = serving.model.names.join(", ");
    let sentence = format!("there is no model \"{}\"; this server has {known}", asked.unwrap_or(""));
    let mut error = ApiError::new(StatusCode::NOT_FOUND, sentence).with_code("model_not_found");
    error.param = Some("model".to_owned());
    Err(error)
}

/// One id for header and body. The client's own name for the request, else its X-Request-Id, becomes part of it.
fn head(prefix: &str, headers: &HeaderMap, named: Option<&str>, serving: &Serving) -> Head {
    head_of(&format!("{prefix}-"), headers, named, serving)
}

/// The same with the whole prefix given.
fn head_of(prefix: &str, headers: &HeaderMap, named: Option<&str>, serving: &Serving) -> Head {
    let sent = headers.get(access::REQUEST_ID).and_then(|value| value.to_str().ok());
    let given = named.or(sent.filter(|text| is_request_id(text)));
    let unique = given.map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), str::to_owned);
    Head {
        id: format!("{prefix}{unique}"),
        created: crate::clock::since_1970().as_secs(),
        model: serving.model.names.first().cloned().unwrap_or_default(),
    }
}

/// 400 when a request of an API whose answer is one asks for several.
fn one_answer(request: &ChatRequest) -> Result<(), ApiError> {
    match request.generation.n {
        1 => Ok(()),
        n => Err(ApiError::unsupported("n", format!("n is {n}; this route gives one answer"))),
    }
}

/// Adds the id to a response.
fn with_id(mut response: Response, id: &str) -> Response {
    if let Ok(value) = id.parse() {
        response.headers_mut().insert(access::REQUEST_ID, value);
    }
    response
}

/// Runs work that may take long (rendering and encoding a long prompt) off the threads that serve sockets.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|_| Err(ApiError::engine("the server failed on this request; its log says more")))
}

/// What reads the bodies that have no module of their own, for the description's test.
#[cfg(test)]
pub(crate) mod bodies {
    pub(crate) use super::admin::{AbortRequest, LoggingRequest};
    pub(crate) use super::parsing::{ParseCallRequest, ParseReasoningRequest};
    pub(crate) use super::text::{DetokenizeRequest, raw as tokenize_raw};
}
