//! What browsers are told about pages of other origins: nothing, unless the operator named such pages.

use axum::http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::args::CorsOptions;

/// Answers a browser's question and marks answers for the pages that may read them.
pub(super) fn layer(options: &CorsOptions) -> CorsLayer {
    let origins: Vec<HeaderValue> = options.origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let origins = match options.origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins),
    };
    let methods: Vec<Method> = options.methods.iter().filter_map(|method| method.parse().ok()).collect();
    let methods = match methods.is_empty() {
        true => AllowMethods::mirror_request(),
        false => AllowMethods::list(methods),
    };
    let headers: Vec<HeaderName> = options.headers.iter().filter_map(|name| name.parse().ok()).collect();
    let headers = match headers.is_empty() {
        true => AllowHeaders::mirror_request(),
        false => AllowHeaders::list(headers),
    };
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods(methods)
        .allow_headers(headers)
        .allow_credentials(options.credentials)
        .expose_headers([HeaderName::from_static(super::access::REQUEST_ID)])
}
