//! Image blocks: `{"type": "image", "source": {"type": "base64" | "url", …}}`, as the chat part they come to.

use serde_json::{Value, json};

use super::blocks::string;
use crate::error::{ApiError, cut};
use crate::openai::fields::kind;

/// The chat part of an image block. The declared type is not passed on: what the bytes are is read from the bytes.
pub(super) fn image_part(block: &Value, path: &str) -> Result<Value, ApiError> {
    let path = format!("{path}.source");
    let source = match block.get("source") {
        Some(source @ Value::Object(_)) => source,
        other => {
            let given = other.map_or("missing", kind);
            return Err(ApiError::invalid(&path, format!("{path} is {given}; expected an object")));
        }
    };
    let url = match string(source, "type", &path)? {
        "base64" => format!("data:;base64,{}", string(source, "data", &path)?),
        "url" => string(source, "url", &path)?.to_owned(),
        other => {
            let (param, other) = (format!("{path}.type"), cut(other, 60));
            let sentence =
                format!("{param} is \"{other}\"; this server takes base64 and url, and keeps no files");
            return Err(ApiError::unsupported(param, sentence));
        }
    };
    Ok(json!({ "type": "image_url", "image_url": url }))
}
