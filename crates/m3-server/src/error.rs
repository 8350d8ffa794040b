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
        let message = short_message(&message.into());
        ApiError { status, message, param: None, code: None, retry_after_secs: None }
    }

    /// 400 about one field.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::BAD_REQUEST, message);
        error.param = Some(cut(&param.into(), LONGEST_PARAM));
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

/// An error with its causes, each said once: some errors already name their cause in their own sentence.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        said if said.contains(&cause) => said.to_owned(),
        said => format!("{said}: {cause}"),
    })
}

/// Most characters of a client's own text in one pair of quotes.
const LONGEST_ECHO: usize = 100;
/// Most characters of a field's path; keys in it may be the client's.
const LONGEST_PARAM: usize = 200;
/// Most characters of a sentence.
const LONGEST_MESSAGE: usize = 1000;

/// The text, or as much of it as is allowed and `…`.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A sentence in which nothing quoted and no word is long: whoever sent five megabytes does not need them back, and
/// logs neither. Quotes are `"` with JSON's escapes, or backticks.
fn short_message(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(LONGEST_MESSAGE));
    let (mut quote, mut run, mut escaped) = (None, 0_usize, false);
    for letter in message.chars() {
        let closes = quote == Some(letter) && !escaped;
        let opens = quote.is_none() && (letter == '"' || letter == '`');
        escaped = letter == '\\' && !escaped && quote == Some('"');
        if closes || opens {
            (quote, run) = (opens.then_some(letter), 0);
        } else if quote.is_none() && letter.is_whitespace() {
            run = 0;
        } else {
            run += 1;
        }
        let most = if quote.is_some() { LONGEST_ECHO } else { LONGEST_PARAM };
        if run <= most {
            out.push(letter);
        } else if run == most + 1 {
            out.push('…');
        }
    }
    cut(&out, LONGEST_MESSAGE)
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
            Refusal::BatchTooLarge { .. } => Self::invalid("n", message),
            Refusal::TooManyLogprobs { .. } => Self::invalid("logprobs", message),
            Refusal::BadSampling { name, .. } => Self::invalid(name, message),
            Refusal::QueueFull { .. } => {
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full");
                ApiError { retry_after_secs: Some(1), ..error }
            }
            Refusal::Draining => Self::unavailable("draining", message),
            Refusal::Dead(_) => Self::unavailable("engine_dead", message),
            Refusal::TextModel | Refusal::TextBackend | Refusal::Medium { .. } => {
                Self::invalid("messages", message)
            }
            Refusal::DuplicateId(_) => Self::engine(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        // Some routes have another shape for errors; it is put on where the route is known.
        response.extensions_mut().insert(self.clone());
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_not_echoed_whole() {
        let long = "é".repeat(5_000_000);
        let error = ApiError::invalid(&long, format!("model is \"{long}\"; expected `{long}` or \"m3\""));
        let echo = "é".repeat(100);
        assert_eq!(error.message, format!("model is \"{echo}…\"; expected `{echo}…` or \"m3\""));
        assert_eq!(error.param.map(|param| param.chars().count()), Some(201));
        let open = ApiError::new(StatusCode::BAD_REQUEST, "x ".repeat(5000)).message;
        assert_eq!(open.chars().count(), 1001);
    }

    #[test]
    fn a_short_sentence_stays_as_it_is() {
        for text in ["", "a \"b\\\"c\" d", "the \"\" and `x`", "it's \"é…\" that", "5\" wide"] {
            assert_eq!(ApiError::new(StatusCode::BAD_REQUEST, text).message, text);
        }
    }
}
