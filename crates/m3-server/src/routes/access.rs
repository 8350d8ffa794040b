//! Who may ask, each API's shape for refusals, and counting of what was refused.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::anthropic::error::ErrorBody;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::lower_first;

/// Header that names a request in logs on both sides.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// Anthropic's clients send the key here and look for the request's id there.
const X_API_KEY: &str = "x-api-key";
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Probes must work without a key: routers and kubelets have none. The document and the page tell nothing of this
/// server; the page asks for the key and sends it itself.
const OPEN: [&str; 7] = ["/", "/health", "/live", "/ready", "/ping", "/openapi.json", "/docs"];
const OPEN_BELOW: &str = "/ui/";
/// Routes that touch the requests of others.
const ADMIN: [&str; 3] = ["/flush_cache", "/reset_prefix_cache", "/abort_request"];

/// Whose request it is: the position of its key, 0 without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(pub usize);

/// Checks the key, then serves, then counts errors and gives them the shape of their API.
pub(super) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let mut response = match caller(&app, &path, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            shaped(next.run(request).await).await
        }
        Err(error) => error.into_response(),
    };
    if method == Method::OPTIONS && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response = options(&response);
    }
    app.metrics.error_status(response.status().as_u16());
    tracing::debug!("{method} {path}: {}", response.status());
    if path == "/v1/messages" || path.starts_with("/v1/messages/") { anthropic(response) } else { response }
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

fn caller(app: &App, path: &str, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let refused =
        |sentence: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, sentence).with_code("invalid_api_key"));
    if OPEN.contains(&path) || path.starts_with(OPEN_BELOW) {
        return Ok(Caller(0));
    }
    let given = given_key(headers);
    if let Some(admin) = app.http.admin_key.as_deref().filter(|_| ADMIN.contains(&path)) {
        return match given {
            Some(given) if same(admin.as_bytes(), given.as_bytes()) => Ok(Caller(0)),
            _ => refused("the admin key is needed: send it as \"Authorization: Bearer KEY\""),
        };
    }
    if app.http.api_keys.is_empty() {
        return Ok(Caller(0));
    }
    // Every key is compared in full, so that the time taken tells nothing about where a guess is wrong.
    let given = given.unwrap_or("");
    let keys = app.http.api_keys.iter().enumerate();
    let found = keys
        .fold(None, |found, (at, key)| if same(key.as_bytes(), given.as_bytes()) { Some(at) } else { found });
    match found {
        Some(at) => Ok(Caller(at)),
        None => refused(
            "a valid API key is needed: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
        ),
    }
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = |value: &&str| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    let bearer = bearer.filter(scheme).map(|value| value[7..].trim());
    bearer.or_else(|| headers.get(X_API_KEY).and_then(|value| value.to_str().ok()).map(str::trim))
}

fn same(key: &[u8], given: &[u8]) -> bool {
    let differences = key.iter().enumerate().map(|(at, byte)| byte ^ given.get(at).copied().unwrap_or(!byte));
    differences.fold(0, |sum, difference| sum | difference) == 0 && key.len() == given.len()
}
