//! `/openapi.json` and `/docs`. The page is one file and loads nothing but the document.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::openapi;

/// Nothing from elsewhere, and only this server to ask.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Made once.
pub(super) async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| openapi::document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// A page for people.
pub(super) async fn page() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, openapi::PAGE).into_response()
}
