//! The way in and out of every request: its id, who may ask, how much, each API's shape for refusals, and counting of
//! what was refused. What a key or an address may do is in `admission.rs`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use super::admission::{Class, Door, admit, client};
use crate::anthropic::error::ErrorBody;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{MostBytes, lower_first};
use crate::limits::Permit;
use crate::listen::Peer;
use crate::logging;
use crate::metrics::{Asked, HttpCounts};
use crate::openai::generation::is_request_id;
use crate::slow;

/// Header that names a request in logs on both sides.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// Anthropic's clients look for the request's id there.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Names the request, checks who asks, then serves, then counts errors and gives them the shape of their API.
pub(super) async fn check(
    State((app, door)): State<(Arc<App>, Door)>,
    mut request: Request,
    next: Next,
) -> Response {
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let id = name(&mut request);
    let span = logging::request_span(&id, method.as_str(), &path, request.headers());
    let class = Class::of(&method, &path);
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let asked = Asked::of(&method, matched.as_ref().map(MatchedPath::as_str));
    let active = HttpCounts::begin(&app, asked);
    let work = serve(&app, (door, class), request, next).instrument(span.clone());
    let (mut response, permit) = work.await;
    if method == Method::OPTIONS && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response = options(&response);
    }
    let refused = response.extensions().get::<ApiError>().and_then(|error| error.code);
    app.metrics.http.answered(asked, response.status().as_u16(), refused);
    app.metrics.error_status(response.status().as_u16());
    logging::answered(&span, response.status().as_u16());
    if !response.headers().contains_key(REQUEST_ID) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if path == "/v1/messages" || path.starts_with("/v1/messages/") {
        response = anthropic(response);
    }
    response.map(|body| slow::holding(body, (permit, active), span))
}

/// The answer, and what counts as long as it is being sent.
async fn serve(
    app: &Arc<App>,
    (door, class): (Door, Class),
    mut request: Request,
    next: Next,
) -> (Response, Option<Permit>) {
    if !class.is_behind(door) {
        let sentence = format!("{} is served on this server's other port", request.uri().path());
        let error = ApiError::new(StatusCode::NOT_FOUND, sentence).with_code("not_found");
        return (error.into_response(), None);
    }
    let peer = request.extensions().get::<Peer>().copied();
    let entered = admit(app, door, class, request.headers(), peer).and_then(|caller| {
        let limited = class == Class::Work;
        let permit = limited.then(|| app.limits.enter(client(app, caller, peer), Instant::now()));
        Ok((caller, permit.transpose()?))
    });
    let (caller, permit) = match entered {
        Ok(entered) => entered,
        Err(error) => return (error.into_response(), None),
    };
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(MostBytes(app.http.max_body_bytes));
    let patience = app.http.guard.patience;
    let response = next.run(request.map(|body| slow::paced(body, patience))).await;
    (shaped(response).await, permit)
}

/// The name a request goes by in logs: its sender's, where that is a name, else a new one, which it then carries.
fn name(request: &mut Request) -> HeaderValue {
    let given = request.headers().get(REQUEST_ID);
    if let Some(given) = given.filter(|value| value.to_str().is_ok_and(is_request_id)) {
        return given.clone();
    }
    let new = uuid::Uuid::new_v4().simple().to_string();
    let new = HeaderValue::from_str(&new).unwrap_or(HeaderValue::from_static("unnamed"));
    request.headers_mut().insert(REQUEST_ID, new.clone());
    new
}

/// Refusals that a library wrote as plain text (a path that is no UTF-8, say) in our shape.
async fn shaped(response: Response) -> Response {
    let is_text = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !is_text || !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    let status = response.status();
    let text = axum::body::to_bytes(response.into_body(), 4096).await.unwrap_or_default();
    ApiError::new(status, lower_first(&String::from_utf8_lossy(&text))).into_response()
}

/// What a path takes, which is all there is to say.
fn options(refused: &Response) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(allowed) = refused.headers().get(header::ALLOW) {
        response.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    response
}

/// Anthropic's error body and id header.
fn anthropic(mut response: Response) -> Response {
    let id = response.headers().get(REQUEST_ID).cloned();
    let id = id.or_else(|| format!("req_{}", uuid::Uuid::new_v4().simple()).parse().ok());
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let text = id.as_ref().and_then(|id| id.to_str().ok()).map(str::to_owned);
        let (parts, _) = response.into_parts();
        response = (parts.status, Json(ErrorBody::new(&error, text))).into_response();
        for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE, header::ALLOW] {
            if let Some(value) = parts.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
    }
    if let Some(id) = id {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id);
    }
    response
}
