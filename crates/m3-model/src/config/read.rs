//! Reads a whole `config.json`: nested or flat, released or native names, into [`ModelConfig`].

use serde_json::{Value, json};

use super::section::{Notes, Section, required};
use super::{ModelConfig, Quantization, TextConfig, quantization, text, vision};
use crate::error::ModelError;

/// A config and what is worth a line in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub config: ModelConfig,
    /// Full paths of keys nobody here knows, e.g. `text_config.new_thing`.
    pub unknown_keys: Vec<String>,
    /// What the config claims. Released files claim modules and hold none: only the tensors tell.
    pub num_mtp_modules: usize,
}

impl ModelConfig {
    /// Reads the bytes of a `config.json`. All unsupported, missing and contradictory fields are in one error.
    pub fn from_json(bytes: &[u8]) -> Result<Loaded, ModelError> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|source| ModelError::Json { what: "config.json".to_owned(), source })?;
        let notes = Notes::default();
        let read = read(&value, &notes);
        let problems = notes.problems.into_inner();
        match read {
            Some((config, num_mtp_modules)) if problems.is_empty() => {
                Ok(Loaded { config, unknown_keys: notes.unknown_keys.into_inner(), num_mtp_modules })
            }
            _ => Err(ModelError::Config { problems }),
        }
    }
}

const IGNORED: [&str; 8] = [
    "auto_map",
    "transformers_version",
    "_name_or_path",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "id2label",
];

fn read(value: &Value, notes: &Notes) -> Option<(ModelConfig, usize)> {
    let root = Section::root(value, "config.json", notes);
    if !root.is_present() {
        return None;
    }
    let read = if root.get("text_config").is_some() { read_nested(&root) } else { read_flat(&root) };
    root.finish();
    let (config, num_mtp_modules) = read?;
    if config.quantization == Quantization::Mxfp8 {
        quantization::check_groups(notes, &config.text);
    }
    Some((config, num_mtp_modules))
}

/// The class with vision: a `text_config` and, mostly, a `vision_config`.
fn read_nested(root: &Section<'_>) -> Option<(ModelConfig, usize)> {
    root.only("architectures", &[json!(["MiniMaxM3SparseForConditionalGeneration"])]);
    root.only("model_type", &[json!("minimax_m3_vl")]);
    root.only("tie_word_embeddings", &[json!(false)]);
    root.only("num_reward_heads", &[json!(0)]);
    for key in ["dtype", "torch_dtype"] {
        root.only(key, &[json!("bfloat16")]);
    }
    root.ignore(&IGNORED);
    let section = root.section("text_config");
    section.only("architectures", &[json!(["MiniMaxM3SparseForCausalLM"])]);
    section.only("model_type", &[json!("minimax_m3_vl_text")]);
    let text = text::read(&section);
    let num_mtp_modules = section.whole("num_mtp_modules", 0, 1 << 16).unwrap_or(0);
    let quantization = quantization::read(root, Some(&section));
    section.finish();
    let vision = vision::read(root, text.as_ref().map(|text| text.hidden_size));
    let image_token_id = media_token(root, ["image_token_index", "image_token_id"], text.as_ref());
    let video_token_id = media_token(root, ["video_token_index", "video_token_id"], text.as_ref());
    if vision.is_some() {
        required(root.notes, "image_token_index or image_token_id", &[image_token_id]);
        required(root.notes, "video_token_index or video_token_id", &[video_token_id]);
    }
    let config = ModelConfig { text: text?, vision, quantization, image_token_id, video_token_id };
    Some((config, num_mtp_modules))
}

/// The text-only class: everything at the top level, no prefix in the tensor names.
fn read_flat(root: &Section<'_>) -> Option<(ModelConfig, usize)> {
    text::check_class(root);
    if !root.notes.problems.borrow().is_empty() {
        // Another model: a list of everything that M3 has and it has not would hide the one reason.
        return None;
    }
    root.only("vision_config", &[]);
    root.ignore(&IGNORED);
    let text = text::read(root);
    let num_mtp_modules = root.whole("num_mtp_modules", 0, 1 << 16).unwrap_or(0);
    let quantization = quantization::read(root, None);
    let text = text?;
    let image_token_id = media_token(root, ["image_token_index", "image_token_id"], Some(&text));
    let video_token_id = media_token(root, ["video_token_index", "video_token_id"], Some(&text));
    let config = ModelConfig { text, vision: None, quantization, image_token_id, video_token_id };
    Some((config, num_mtp_modules))
}

/// A placeholder id under either name, inside the vocabulary.
fn media_token(root: &Section<'_>, keys: [&str; 2], text: Option<&TextConfig>) -> Option<u32> {
    let most = text.map_or(u32::MAX as usize, |text| text.vocab_size - 1);
    let values = keys.map(|key| root.whole(key, 0, most));
    let id = super::section::agreed(root.notes, &keys.join(" and "), &values)?;
    u32::try_from(id).ok()
}
