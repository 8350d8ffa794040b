//! A JSON body extractor whose refusals have OpenAI's shape and name the field that is wrong.

use std::error::Error;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::slow::TooSlow;
use m3_core::text::exact;

/// A request body of type `T`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

/// Bytes above which a body is not parsed between the packets of other clients' streams.
const LARGE: usize = 64 << 10;

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        check_content_type(&request)?;
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        if bytes.len() <= LARGE {
            return parse(&bytes).map(JsonBody);
        }
        let parsed = tokio::task::spawn_blocking(move || parse(&bytes)).await;
        let failed = || ApiError::engine("the server failed on this request; its log says more");
        parsed.unwrap_or_else(|_| Err(failed())).map(JsonBody)
    }
}

/// A request body of any kind, whole.
#[derive(Debug)]
pub struct RawBody(pub Bytes);

/// The bytes that a body may have, among a request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct MostBytes(pub usize);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let most = request.extensions().get::<MostBytes>().copied();
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            if let Some(slow) = cause::<TooSlow>(&rejection) {
                return ApiError::new(StatusCode::REQUEST_TIMEOUT, slow.to_string()).with_code("slow_client");
            }
            let sentence = match (rejection.status(), most) {
                (StatusCode::PAYLOAD_TOO_LARGE, Some(MostBytes(most))) => {
                    format!("the body has more than {most} bytes; --max-body-mb sets the limit")
                }
                _ => lower_first(&rejection.body_text()),
            };
            ApiError::new(rejection.status(), sentence).with_code("bad_body")
        })?;
        Ok(RawBody(bytes))
    }
}

/// The error of that type among an error's causes.
fn cause<'a, E: Error + 'static>(mut error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        error = error.source()?;
    }
}

/// No content type is taken as JSON; a wrong one is 415.
fn check_content_type(request: &Request) -> Result<(), ApiError> {
    let Some(value) = request.headers().get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let essence = text.split(';').next().unwrap_or("").trim();
    if essence == "application/json" || essence.ends_with("+json") {
        return Ok(());
    }
    let message = format!("content-type is \"{essence}\"; expected application/json");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).with_code("unsupported_media_type"))
}

/// Parses JSON; a wrong type names its path as `param`. Integers beyond 64 bits are kept as [`exact`] has it.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bytes = exact::keep_integers(bytes);
    let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
        match error.inner().classify() {
            serde_json::error::Category::Data if path != "." => {
                ApiError::invalid(path.clone(), format!("{path}: {message}"))
            }
            _ => malformed(&message),
        }
    })?;
    deserializer.end().map_err(|error| malformed(&error.to_string()))?;
    Ok(value)
}

fn malformed(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not the expected JSON: {message}"))
        .with_code("bad_json")
}

/// A sentence of a library's as one of ours.
pub(crate) fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Shape {
        #[serde(default)]
        list: Vec<u32>,
        #[serde(flatten)]
        extra: serde_json::Map<String, serde_json::Value>,
    }

    #[test]
    fn a_wrong_type_names_its_path() {
        let error = parse::<Shape>(br#"{"list":[1,"x"]}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("list[1]"));
        assert!(error.message.starts_with("list[1]: invalid type"), "{}", error.message);
    }

    #[test]
    fn syntax_errors_and_trailing_bytes_are_400() {
        for text in ["", "{", "[1,", "{} x", "null x"] {
            let error = parse::<Shape>(text.as_bytes()).unwrap_err();
            assert_eq!(error.code, Some("bad_json"), "{text}");
        }
        let good = parse::<Shape>(br#"{"list":[1],"other":2}"#).unwrap();
        assert_eq!((good.list.len(), good.extra.len()), (1, 1));
    }
}
