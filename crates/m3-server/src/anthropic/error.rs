//! Errors as Anthropic's clients read them: `{"type":"error","error":{"type","message"},"request_id"}`.

use axum::http::StatusCode;
use serde::Serialize;

use crate::error::ApiError;

/// The wire shape, also of the last event of a broken stream.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorBody {
    #[serde(rename = "type")]
    kind: &'static str,
    error: ErrorDetail,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct ErrorDetail {
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
}

impl ErrorBody {
    /// `request_id` is the one in the response's header, if there is one.
    pub fn new(error: &ApiError, request_id: Option<String>) -> Self {
        let error = ErrorDetail { kind: kind_of(error.status), message: error.message.clone() };
        ErrorBody { kind: "error", error, request_id }
    }
}

fn kind_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}
