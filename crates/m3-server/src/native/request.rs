//! The body of `POST /generate`: what is this API's own is read here, the rest goes on as a completion request.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::openai::fields::{Fields, kind};
use crate::rename::Renames;
use crate::vision::{MediaKind, MediaOptions, MediaPart, raw_part};

/// A request as the completion request it comes to.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The body of the completion request.
    pub completion: Map<String, Value>,
    pub renames: Renames,
    pub stream: bool,
    /// The answer is a list, because a list was asked for.
    pub batch: bool,
    /// Ids chosen by the caller, one a prompt; empty = ours.
    pub ids: Vec<String>,
    pub logprobs: Option<Logprobs>,
    /// Images and videos of each prompt; empty when no prompt has any.
    pub media: Vec<Vec<MediaPart>>,
}

/// Which log-probabilities are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logprobs {
    /// From this prompt token on; `None` = only of the output.
    pub start: Option<u32>,
    /// Alternatives per token.
    pub top: u32,
    /// Texts beside the ids.
    pub text: bool,
}

const RENAMES: &[(&str, &str)] = &[
    ("/v1/completions", "/generate"),
    ("prompt", "text"),
    ("max_tokens", "sampling_params.max_new_tokens"),
    ("min_tokens", "sampling_params.min_new_tokens"),
    ("seed", "sampling_params.sampling_seed"),
    ("logprobs", "top_logprobs_num"),
];

/// Fields that would change the answer and that are not built. Neutral: null, false, 0, empty.
pub(crate) const REFUSED: [&str; 7] = [
    "input_embeds",
    "audio_data",
    "token_ids_logprob",
    "session_params",
    "lora_path",
    "lora_id",
    "require_reasoning",
];

/// What the sampling settings are called in a completion request.
const SETTINGS: &[(&str, &str)] =
    &[("max_new_tokens", "max_tokens"), ("min_new_tokens", "min_tokens"), ("sampling_seed", "seed")];

/// Fields of a completion request that have another name or no meaning here.
pub(crate) const OTHERS_NAMES: [&str; 4] = ["prompt", "logprobs", "echo", "return_token_ids"];

/// Settings that change nothing here.
const IGNORED: [&str; 3] = ["spaces_between_special_tokens", "custom_params", "stream_interval"];

/// SGLang's own default, used as far as the context has room.
pub const DEFAULT_NEW_TOKENS: u32 = 128;

impl GenerateRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(body)?;
        for name in REFUSED {
            let value = fields.take_value(name).unwrap_or_default();
            if ![json!(null), json!(false), json!([]), json!({}), json!("")].contains(&value) {
                return Err(ApiError::unsupported(
                    name,
                    format!("{name} cannot be honoured: it is not built"),
                ));
            }
        }
        let mut renames = Renames::new(RENAMES);
        let (prompt, batch) = prompt(&mut fields, &mut renames)?;
        let prompts = if batch { prompt.as_array().map_or(0, Vec::len) } else { 1 };
        let media = media(&mut fields, prompts, batch)?;
        let mut completion = settings(fields.take_value("sampling_params"))?;
        for name in completion.keys().filter(|name| !SETTINGS.iter().any(|(_, chat)| chat == name)) {
            renames.add(name.clone(), format!("sampling_params.{name}"));
        }
        completion.insert("prompt".into(), prompt);
        completion.insert("return_token_ids".into(), true.into());
        let logprobs = logprobs(&mut fields)?;
        if let Some(logprobs) = logprobs {
            completion.insert("logprobs".into(), logprobs.top.into());
            completion.insert("echo".into(), logprobs.start.is_some().into());
        }
        let ids = ids(fields.take_value("rid"))?;
        let stream = fields.switch("stream", false)?;
        let rest = fields.into_rest();
        if let Some(name) = OTHERS_NAMES.into_iter().find(|name| rest.contains_key(*name)) {
            let sentence = format!("\"{name}\" is no field of /generate");
            return Err(ApiError::invalid(name, sentence).with_code("unknown_field"));
        }
        // SGLang's other bookkeeping (`priority`, `bootstrap_*`, …) has the same names there.
        rest.into_iter().for_each(|(name, value)| {
            completion.entry(name).or_insert(value);
        });
        Ok(GenerateRequest { completion, renames, stream, batch, ids, logprobs, media })
    }
}

/// `text` or `input_ids`, one or a list.
fn prompt(fields: &mut Fields, renames: &mut Renames) -> Result<(Value, bool), ApiError> {
    match (fields.take_value("text"), fields.take_value("input_ids")) {
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("text", "text and input_ids are both there; send one of them"))
        }
        (Some(Value::String(text)), None) => Ok((Value::String(text), false)),
        (Some(Value::Array(texts)), None) => match texts.iter().position(|text| !text.is_string()) {
            None => Ok((Value::Array(texts), true)),
            Some(at) => {
                let sentence = format!("text[{at}] is {}; expected a string", kind(&texts[at]));
                Err(ApiError::invalid(format!("text[{at}]"), sentence))
            }
        },
        (Some(other), None) => {
            Err(ApiError::invalid("text", format!("text is {}; expected text or a list of it", kind(&other))))
        }
        (None, Some(ids @ Value::Array(_))) => {
            renames.add("prompt", "input_ids");
            let batch = ids.as_array().is_some_and(|list| list.first().is_some_and(Value::is_array));
            Ok((ids, batch))
        }
        (None, Some(other)) => {
            let sentence = format!("input_ids is {}; expected token ids or a list of them", kind(&other));
            Err(ApiError::invalid("input_ids", sentence))
        }
        (None, None) => Err(ApiError::invalid("text", "text is missing; send text or input_ids")),
    }
}

/// `image_data` and `video_data`: all of the one prompt, or one entry for each prompt of a batch.
fn media(fields: &mut Fields, prompts: usize, batch: bool) -> Result<Vec<Vec<MediaPart>>, ApiError> {
    let options = MediaOptions::take(fields)?;
    let mut media = vec![Vec::new(); prompts];
    for (medium, name) in [(MediaKind::Image, "image_data"), (MediaKind::Video, "video_data")] {
        let Some(given) = fields.take_value(name) else { continue };
        let entries = match given {
            entries if !batch => vec![(name.to_owned(), entries)],
            Value::Array(entries) if entries.len() == prompts || entries.is_empty() => {
                let named = entries.into_iter().enumerate();
                named.map(|(at, entry)| (format!("{name}[{at}]"), entry)).collect()
            }
            Value::Array(entries) => {
                let sentence = format!("{name} has {} entries for {prompts} prompts", entries.len());
                return Err(ApiError::invalid(name, sentence));
            }
            other => {
                let sentence = format!("{name} is {}; expected an entry for each prompt", kind(&other));
                return Err(ApiError::invalid(name, sentence));
            }
        };
        for (at, (path, entry)) in entries.into_iter().enumerate() {
            add_entry(&mut media[at], medium, &entry, &path)?;
        }
    }
    for part in media.iter_mut().flatten() {
        part.options = part.options.or(options[part.kind as usize]);
    }
    if media.iter().all(Vec::is_empty) {
        media.clear();
    }
    Ok(media)
}

/// Nothing, one medium or a list of them.
fn add_entry(media: &mut Vec<MediaPart>, kind: MediaKind, entry: &Value, path: &str) -> Result<(), ApiError> {
    match entry {
        Value::Null | Value::Bool(false) => {}
        Value::String(text) if text.is_empty() => {}
        Value::Array(list) => {
            for (at, one) in list.iter().enumerate() {
                media.push(raw_part(kind, one, &format!("{path}[{at}]"))?);
            }
        }
        one => media.push(raw_part(kind, one, path)?),
    }
    Ok(())
}

/// `sampling_params` under the names of a completion request. A list must say the same for every prompt.
fn settings(given: Option<Value>) -> Result<Map<String, Value>, ApiError> {
    let settings = match given {
        None => Map::new(),
        Some(Value::Object(settings)) => settings,
        Some(Value::Array(list)) if list.iter().all(|one| one.is_object() && *one == list[0]) => {
            list.first().and_then(Value::as_object).cloned().unwrap_or_default()
        }
        Some(Value::Array(_)) => {
            let sentence = "sampling_params has different settings; send a request for each of them";
            return Err(ApiError::unsupported("sampling_params", sentence));
        }
        Some(other) => {
            let sentence = format!("sampling_params is {}; expected an object", kind(&other));
            return Err(ApiError::invalid("sampling_params", sentence));
        }
    };
    let rename = |(name, value): (String, Value)| match SETTINGS.iter().find(|(native, _)| *native == name) {
        Some((_, name)) => ((*name).to_owned(), value),
        None => (name, value),
    };
    let known = settings.into_iter().filter(|(name, _)| !IGNORED.contains(&name.as_str()));
    Ok(known.map(rename).collect())
}

fn logprobs(fields: &mut Fields) -> Result<Option<Logprobs>, ApiError> {
    let wanted = one_for_all(fields, "return_logprob")?.unwrap_or(Value::Bool(false));
    let start = one_for_all(fields, "logprob_start_len")?.and_then(|start| start.as_i64()).unwrap_or(-1);
    let top = one_for_all(fields, "top_logprobs_num")?.unwrap_or(json!(0));
    let text = fields.switch("return_text_in_logprobs", false)?;
    match wanted {
        Value::Bool(false) => Ok(None),
        Value::Bool(true) => {
            let top = top.as_u64().and_then(|top| u32::try_from(top).ok());
            let top = top.ok_or_else(|| {
                ApiError::invalid("top_logprobs_num", "top_logprobs_num must be a whole number of at least 0")
            })?;
            Ok(Some(Logprobs { start: u32::try_from(start).ok(), top, text }))
        }
        other => {
            let sentence = format!("return_logprob is {}; expected true or false", kind(&other));
            Err(ApiError::invalid("return_logprob", sentence))
        }
    }
}

/// A setting, or a list that says it for every prompt.
fn one_for_all(fields: &mut Fields, name: &str) -> Result<Option<Value>, ApiError> {
    match fields.take_value(name) {
        Some(Value::Array(list)) if list.iter().all(|one| *one == list[0]) => Ok(list.into_iter().next()),
        Some(Value::Array(_)) => {
            let sentence = format!("{name} differs between prompts; send a request for each of them");
            Err(ApiError::unsupported(name, sentence))
        }
        other => Ok(other),
    }
}

fn ids(rid: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wrong = |value: &Value| {
        ApiError::invalid("rid", format!("rid is {}; expected a string or a list of strings", kind(value)))
    };
    match rid {
        None => Ok(Vec::new()),
        Some(Value::String(id)) => Ok(vec![id]),
        Some(Value::Array(list)) => {
            let one = |id: &Value| id.as_str().map(str::to_owned).ok_or_else(|| wrong(id));
            list.iter().map(one).collect()
        }
        Some(other) => Err(wrong(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> GenerateRequest {
        GenerateRequest::read(body).unwrap()
    }

    #[test]
    fn settings_get_their_completion_names_and_refusals_their_own() {
        let request = read(json!({"input_ids": [[1, 2], [3]], "sampling_params": {"max_new_tokens": 7,
            "min_new_tokens": 2, "sampling_seed": 3, "temperature": 9, "spaces_between_special_tokens": true},
            "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 2, "rid": ["a", "b"]}));
        assert_eq!(
            Value::Object(request.completion),
            json!({"max_tokens": 7, "min_tokens": 2, "seed": 3, "temperature": 9, "prompt": [[1, 2], [3]],
                "return_token_ids": true, "logprobs": 2, "echo": true})
        );
        assert!(request.batch && request.ids == ["a", "b"]);
        let error =
            request.renames.apply(ApiError::invalid("temperature", "temperature is 9; prompt[0] is bad"));
        assert_eq!(error.param.as_deref(), Some("sampling_params.temperature"));
        assert_eq!(error.message, "sampling_params.temperature is 9; input_ids[0] is bad");
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        for (name, value) in [
            ("image_data", json!("no base64!")),
            ("token_ids_logprob", json!([1])),
            ("lora_path", json!("a")),
            ("text", json!(3)),
            ("rid", json!(3)),
            ("sampling_params", json!([{"n": 1}, {"n": 2}])),
            ("return_logprob", json!([true, false])),
            ("return_logprob", json!("yes")),
        ] {
            let mut body = json!({"text": "x"});
            body[name] = value;
            let error = GenerateRequest::read(body).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(name), "{}", error.message);
        }
        assert!(GenerateRequest::read(json!({"text": "x", "input_ids": [1]})).is_err());
        assert!(GenerateRequest::read(json!({})).is_err());
    }
}
