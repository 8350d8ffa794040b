//! One image or video of a message as its part says it, in the spellings of OpenAI's chat and Responses, of vLLM and
//! SGLang. No bytes are fetched here.

use m3_media::Source;
use serde_json::{Map, Value};

use super::{MediaKind, MediaOptions};
use crate::error::ApiError;
use crate::openai::fields::kind;

/// An image or video that a prompt shows.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaPart {
    pub kind: MediaKind,
    pub source: Source,
    pub options: MediaOptions,
    /// Where the part stands in the request.
    pub path: String,
}

/// The types of parts and the fields that may hold their address.
const TYPES: [(&str, MediaKind, &[&str]); 6] = [
    ("image_url", MediaKind::Image, &["image_url"]),
    ("input_image", MediaKind::Image, &["image_url"]),
    ("image", MediaKind::Image, &["image", "image_url", "url"]),
    ("video_url", MediaKind::Video, &["video_url"]),
    ("input_video", MediaKind::Video, &["video_url"]),
    ("video", MediaKind::Video, &["video", "video_url", "url"]),
];

/// Whether parts of this type are images or videos.
pub fn is_media(part_type: &str) -> bool {
    TYPES.iter().any(|(name, ..)| *name == part_type)
}

/// Reads a part of a type that [`is_media`]. An address is a string, or an object with `url` and settings.
pub fn read_medium(object: &Map<String, Value>, part_type: &str, path: &str) -> Result<MediaPart, ApiError> {
    let known = TYPES.iter().find(|(name, ..)| *name == part_type);
    let (_, media, names) = known.ok_or_else(|| {
        ApiError::invalid(path, format!("{path}.type is \"{part_type}\", which is no image and no video"))
    })?;
    let given =
        names.iter().find_map(|name| Some((*name, object.get(*name).filter(|value| !value.is_null())?)));
    let Some((name, address)) = given else {
        let param = format!("{path}.{}", names[0]);
        let by_id = object.get("file_id").is_some_and(|id| !id.is_null());
        return Err(match by_id {
            true => ApiError::unsupported(
                format!("{path}.file_id"),
                format!("{path}.file_id cannot be honoured: this server keeps no files; send {}", names[0]),
            ),
            false => ApiError::invalid(&param, format!("{param} is missing")),
        });
    };
    let param = format!("{path}.{name}");
    let outer = MediaOptions::beside(object, *media, path, false)?;
    let (address, inner) = match address {
        Value::Object(inner) => {
            let url = inner.get("url").filter(|url| !url.is_null());
            let url_param = format!("{param}.url");
            let url = url.ok_or_else(|| ApiError::invalid(&url_param, format!("{url_param} is missing")))?;
            (url, MediaOptions::beside(inner, *media, &param, true)?)
        }
        address => (address, MediaOptions::default()),
    };
    let text = address.as_str().ok_or_else(|| {
        ApiError::invalid(
            &param,
            format!("{param} is {}; expected an address or an object with url", kind(address)),
        )
    })?;
    part(*media, Source::parse(text), inner.or(outer), path)
}

/// An item of SGLang's `image_data` and `video_data`: an address, bare base64, or an object with `url`.
pub fn raw_part(media: MediaKind, value: &Value, path: &str) -> Result<MediaPart, ApiError> {
    let (address, options) = match value {
        Value::Object(object) => {
            (object.get("url").unwrap_or(&Value::Null), MediaOptions::beside(object, media, path, true)?)
        }
        address => (address, MediaOptions::default()),
    };
    let text = address.as_str().ok_or_else(|| {
        let given = kind(address);
        ApiError::invalid(
            path,
            format!("{path} is {given}; expected an address, base64 or an object with url"),
        )
    })?;
    let start = text.trim_start().as_bytes();
    let has_scheme = [&b"data:"[..], b"http:", b"https:", b"file:"]
        .iter()
        .any(|scheme| start.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let source = if has_scheme { Source::parse(text) } else { Source::base64(text) };
    part(media, source, options, path)
}

fn part(
    kind: MediaKind,
    source: m3_media::Result<Source>,
    options: MediaOptions,
    path: &str,
) -> Result<MediaPart, ApiError> {
    let source = source.map_err(|error| super::load::refused(path, &error))?;
    Ok(MediaPart { kind, source, options, path: path.to_owned() })
}
