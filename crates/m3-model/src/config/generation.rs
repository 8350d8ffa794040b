//! Reads `generation_config.json`: the checkpoint's own defaults for sampling and stopping.
//!
//! Requests override them; nothing here is a limit. Unknown keys are of no interest: the file is written for
//! another library and most of it does not concern a server.

use serde_json::Value;

use super::section::{Notes, Section, short};
use crate::error::ModelError;

/// A checkpoint's defaults. `None` = the file does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Ids that end a turn; a single number in the file is a list of one. Empty = the file does not say.
    pub eos_token_ids: Vec<u32>,
    pub bos_token_id: Option<u32>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    /// 0 or -1 in the file means off and reads as `Some(0)`.
    pub top_k: Option<u32>,
    /// `Some(false)` asks for greedy decoding by default.
    pub do_sample: Option<bool>,
}

impl GenerationConfig {
    /// Reads the file's bytes. All wrong values are reported at once.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ModelError> {
        let what = "generation_config.json";
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|source| ModelError::Json { what: what.to_owned(), source })?;
        let notes = Notes::default();
        let config = read(&Section::root(&value, "the file", &notes));
        let problems = notes.problems.into_inner();
        if problems.is_empty() { Ok(config) } else { Err(ModelError::Settings { what, problems }) }
    }
}

fn read(section: &Section<'_>) -> GenerationConfig {
    let id = |key: &str| section.whole(key, 0, u32::MAX as usize).map(|number| number as u32);
    let temperature = match section.get("temperature").and_then(Value::as_f64) {
        Some(0.0) => Some(0.0),
        _ => section.positive("temperature").map(|number| number as f32),
    };
    let top_p = section.positive("top_p");
    if let Some(top_p) = top_p.filter(|top_p| *top_p > 1.0) {
        section.notes.problem("top_p", top_p, "above 0, up to 1");
    }
    GenerationConfig {
        eos_token_ids: eos(section),
        bos_token_id: id("bos_token_id"),
        temperature,
        top_p: top_p.map(|number| number as f32),
        top_k: match section.get("top_k").and_then(Value::as_i64) {
            Some(-1) => Some(0),
            _ => id("top_k"),
        },
        do_sample: section.flag("do_sample"),
    }
}

fn eos(section: &Section<'_>) -> Vec<u32> {
    let Some(value) = section.get("eos_token_id") else { return Vec::new() };
    let one = std::slice::from_ref(value);
    let list = value.as_array().map_or(one, Vec::as_slice);
    let ids: Option<Vec<u32>> =
        list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
    ids.unwrap_or_else(|| {
        section.notes.problem("eos_token_id", short(value), "a token id or a list of token ids");
        Vec::new()
    })
}
