//! What a request says about preparing its media: beside a part's address, or once for all parts under the names that
//! vLLM's and SGLang's clients use.

use m3_core::text::exact;
use m3_media::sample::Sampling;
use serde_json::{Map, Value, json};

use super::MediaKind;
use crate::error::ApiError;
use crate::openai::fields::{Fields, kind, shown};

/// Settings of one part, or of all parts that say nothing themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MediaOptions {
    /// Longest side after resizing; also chooses the long-side rule.
    pub max_long_side: Option<u64>,
    /// Frames looked at per second of a video.
    pub fps: Option<f64>,
    /// Most frames of a video.
    pub max_frames: Option<u64>,
}

/// Levels of `detail`. They are checked and change nothing: M3's sizes follow from the rule alone.
const DETAILS: [&str; 5] = ["auto", "default", "low", "high", "original"];

/// Beside an address, and without effect: names of the same bytes, marks for caches.
const IGNORED: [&str; 7] =
    ["url", "content_hash", "uuid", "cache_control", "media_type", "format", "mime_type"];

impl MediaOptions {
    /// These, and where they are silent the `others`.
    pub fn or(self, others: MediaOptions) -> MediaOptions {
        MediaOptions {
            max_long_side: self.max_long_side.or(others.max_long_side),
            fps: self.fps.or(others.fps),
            max_frames: self.max_frames.or(others.max_frames),
        }
    }

    /// How frames are chosen.
    pub fn sampling(&self) -> Sampling {
        let default = Sampling::default();
        Sampling { fps: self.fps.unwrap_or(default.fps), max_frames: self.max_frames }
    }

    /// Reads what stands beside an address. `strict`: a name that is not known is 400, since it would change sizes or
    /// frames elsewhere.
    pub(super) fn beside(
        object: &Map<String, Value>,
        media: MediaKind,
        path: &str,
        strict: bool,
    ) -> Result<MediaOptions, ApiError> {
        let mut options = MediaOptions::default();
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let param = format!("{path}.{name}");
            let is_video = media == MediaKind::Video;
            match name.as_str() {
                "max_long_side_pixel" => options.max_long_side = Some(whole(value, &param)?),
                "fps" if is_video => options.fps = Some(number(value, &param)?),
                "max_frames" | "num_frames" if is_video => options.max_frames = Some(whole(value, &param)?),
                "detail" => check_detail(value, &param)?,
                name if strict && !IGNORED.contains(&name) => {
                    let sentence = format!("{param} cannot be honoured: {} here", known(media));
                    return Err(ApiError::unsupported(&param, sentence));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Takes the settings for all parts: `mm_processor_kwargs`, vLLM's `media_io_kwargs`, SGLang's `images_config`.
    /// The second result is for videos only.
    pub fn take(fields: &mut Fields) -> Result<[MediaOptions; 2], ApiError> {
        let mut options = [MediaOptions::default(); 2];
        for (name, inner, kinds) in [
            ("mm_processor_kwargs", None, &MediaKind::ALL[..]),
            ("images_config", None, &[MediaKind::Image]),
            ("videos_config", None, &[MediaKind::Video]),
            ("media_io_kwargs", Some("image"), &[MediaKind::Image]),
            ("media_io_kwargs", Some("video"), &[MediaKind::Video]),
        ] {
            let given = match inner {
                None => fields.take_value(name),
                Some(inner) => inner_of(fields, name, inner)?,
            };
            let path = inner.map_or(name.to_owned(), |inner| format!("{name}.{inner}"));
            let Some(object) = given.map(|value| object_of(value, &path)).transpose()? else { continue };
            // What both kinds may have must be read with a video's eyes.
            let widest = kinds[kinds.len() - 1];
            let read = Self::beside(&object, widest, &path, true)?;
            for kind in kinds {
                options[*kind as usize] = options[*kind as usize].or(read);
            }
        }
        Ok(options)
    }
}

fn known(media: MediaKind) -> &'static str {
    match media {
        MediaKind::Image => "an image has max_long_side_pixel and detail",
        MediaKind::Video => "a video has fps, max_frames, max_long_side_pixel and detail",
    }
}

fn object_of(value: Value, path: &str) -> Result<Map<String, Value>, ApiError> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(ApiError::invalid(path, format!("{path} is {}; expected an object", kind(&other)))),
    }
}

/// The part of an object for one kind; other kinds must be empty.
fn inner_of(fields: &mut Fields, name: &str, inner: &str) -> Result<Option<Value>, ApiError> {
    let Some(given) = fields.take_value(name) else { return Ok(None) };
    let mut object = object_of(given, name)?;
    let found = object.shift_remove(inner).filter(|value| !value.is_null());
    let stranger = object.iter().find(|(key, value)| {
        !MediaKind::ALL.iter().any(|kind| kind.word() == key.as_str())
            && **value != json!({})
            && !value.is_null()
    });
    if let Some((key, _)) = stranger {
        let param = format!("{name}.{key}");
        return Err(ApiError::unsupported(
            &param,
            format!("{param} cannot be honoured: there are image and video"),
        ));
    }
    // Until all kinds have been taken.
    if MediaKind::ALL.iter().any(|kind| object.contains_key(kind.word())) {
        fields.put_back(name, Value::Object(object));
    }
    Ok(found)
}

fn check_detail(value: &Value, param: &str) -> Result<(), ApiError> {
    match value.as_str() {
        Some(level) if DETAILS.contains(&level) => Ok(()),
        level => {
            let given = level.map_or_else(
                || shown(value),
                |level| format!("{:?}", level.chars().take(32).collect::<String>()),
            );
            let sentence = format!("{param} is {given}; expected one of {}", DETAILS.join(", "));
            Err(ApiError::invalid(param, sentence))
        }
    }
}

/// Integers of messages may be kept digit by digit.
fn number(value: &Value, param: &str) -> Result<f64, ApiError> {
    exact::plain(value.clone())
        .as_f64()
        .ok_or_else(|| ApiError::invalid(param, format!("{param} is {}; expected a number", kind(value))))
}

fn whole(value: &Value, param: &str) -> Result<u64, ApiError> {
    let number = number(value, param)?;
    if number >= 0.0 && number.fract() == 0.0 && number < 9e15 {
        return Ok(number as u64);
    }
    Err(ApiError::invalid(param, format!("{param} is {number}; expected a whole number")))
}
