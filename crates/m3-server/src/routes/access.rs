//! Who may ask, and counting of what was refused.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::ApiError;

/// Header that names a request in logs on both sides.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// Probes must work without a key: routers and kubelets have none.
const OPEN: [&str; 3] = ["/health", "/live", "/ready"];

/// Checks the key, then serves, then counts errors. Shapes axum's own empty refusals.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let allowed = app.http.api_keys.is_empty() || OPEN.contains(&path.as_str()) || has_key(&app, &request);
    let response = if allowed {
        next.run(request).await
    } else {
        let sentence = "a valid API key is needed: send it as \"Authorization: Bearer KEY\"";
        ApiError::new(StatusCode::UNAUTHORIZED, sentence).with_code("invalid_api_key").into_response()
    };
    app.metrics.error_status(response.status().as_u16());
    tracing::debug!("{method} {path}: {}", response.status());
    response
}

fn has_key(app: &App, request: &Request) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = |value: &str| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    let Some(given) = given.filter(|value| scheme(value)).map(|value| value[7..].trim()) else {
        return false;
    };
    // Every key is compared in full, so that the time taken tells nothing about where a guess is wrong.
    app.http.api_keys.iter().fold(false, |found, key| found | same(key.as_bytes(), given.as_bytes()))
}

fn same(key: &[u8], given: &[u8]) -> bool {
    let differences = key.iter().enumerate().map(|(at, byte)| byte ^ given.get(at).copied().unwrap_or(!byte));
    differences.fold(0, |sum, difference| sum | difference) == 0 && key.len() == given.len()
}
