//! The page at `/` and its files. With `--no-ui` they are not there.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use super::not_found;
use crate::app::App;
use crate::ui;

/// The page.
pub(super) async fn page(State(app): State<Arc<App>>, uri: Uri) -> Response {
    if !app.http.ui {
        return not_found(uri).await.into_response();
    }
    file("text/html; charset=utf-8", ui::PAGE)
}

/// One of its files.
pub(super) async fn asset(State(app): State<Arc<App>>, Path(name): Path<String>, uri: Uri) -> Response {
    match ui::asset(&name).filter(|_| app.http.ui) {
        Some(asset) => file(asset.content_type, asset.text),
        None => not_found(uri).await.into_response(),
    }
}

/// A newer program has newer files under the same names, so that browsers ask again.
fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, HeaderValue); 6] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(ui::POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    (headers, text).into_response()
}
