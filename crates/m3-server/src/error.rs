//! Answers to requests that cannot be served, always in OpenAI's shape:
//! `{"error":{"message","type","param","code"}}`. Also the shape of an error inside a started stream.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use m3_core::request::Refusal;
use serde::Serialize;

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    /// A sentence that names the value and the limit.
    pub message: String,
    /// The request field, as a path (`messages[2].content`).
    pub param: Option<String>,
    /// Machine-readable, stable.
    pub code: Option<&'static str>,
    pub retry_after_secs: Option<u32>,
}

/// The wire shape.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// Inside of [`ErrorBody`].
#[derive(Clone, Debug, Serialize)]
pub struct ErrorDetail {
    pub message: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

impl ApiError {
    /// Any status, without `param`, `code` or a retry hint.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), param: None, code: None, retry_after_secs: None }
    }

    /// 400 about one field.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::BAD_REQUEST, message);
        error.param = Some(param.into());
        error.code = Some("invalid_value");
        error
    }

    /// 400 about a field this server knows and cannot honour.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        ApiError { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    /// 500 with the engine's sentence.
    pub fn engine(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("engine_error")
    }

    /// 503: not now.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code(code);
        ApiError { retry_after_secs: Some(1), ..error }
    }

    /// Sets the machine-readable code.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The wire shape; also sent as the last event of a broken stream.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                kind: kind_of(self.status),
                param: self.param.clone(),
                code: self.code,
            },
        }
    }
}

fn kind_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::EmptyPrompt | Refusal::TokenOutOfRange { .. } => Self::invalid("prompt", message),
            Refusal::PromptTooLong { .. } | Refusal::NeverFits { .. } => {
                Self::invalid("prompt", message).with_code("context_length_exceeded")
            }
            Refusal::TooManyLogprobs { .. } => Self::invalid("logprobs", message),
            Refusal::BadSampling { name, .. } => Self::invalid(name, message),
            Refusal::QueueFull { .. } => {
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full");
                ApiError { retry_after_secs: Some(1), ..error }
            }
            Refusal::Draining => Self::unavailable("draining", message),
            Refusal::Dead(_) => Self::unavailable("engine_dead", message),
            Refusal::DuplicateId(_) => Self::engine(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
