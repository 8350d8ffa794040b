//! What the scripted backend is told: the optional key `m3_null` of the config, and the vocabulary of the model.

use serde::Deserialize;

/// The object under `m3_null`; every key is optional.
///
/// ```
/// let config = br#"{"vocab_size": 100, "m3_null": {"script": [5, 6, 7], "eos": 2, "step_us": 500}}"#;
/// assert_eq!(backend_null::options::Options::parse(config).unwrap().script, [5, 6, 7]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Token of output index 0, 1, … of every row; empty = tokens are a hash of what came before.
    pub script: Vec<u32>,
    /// Comes after the script (or after `length` hashed tokens); without it a script starts again.
    pub eos: Option<u32>,
    /// Hashed tokens before `eos`.
    pub length: Option<u32>,
    /// Output index i of a row is token i of its own prompt, read back from its pages; `eos` comes after the last one.
    pub echo: bool,
    /// Tokens of the prompt that an echo leaves out, such as a template's own.
    pub echo_without: Vec<u32>,
    /// Simulated device time of a step, and of a token in it.
    pub step_us: u64,
    pub token_us: u64,
    /// 0 = `vocab_size` of the config.
    pub vocab: u32,
    /// The step, counted from 1, whose submit answers Fatal.
    pub fault_at: Option<u64>,
    /// The step, counted from 1, whose submit panics.
    pub panic_at: Option<u64>,
    /// The step, counted from 1, that never ends, and the rank on which it does not; every rank without one.
    pub freeze_at: Option<u64>,
    pub freeze_rank: Option<u32>,
    /// The table row whose logits are NaN, always.
    pub nan_row: Option<u32>,
    /// 0 = as many as `page_memory_bytes` holds, else 4096.
    pub max_pages: u64,
    /// Simulated device memory and what a token of the largest step takes of it; 0 = without end.
    pub memory_bytes: u64,
    pub step_token_bytes: u64,
    /// 0 = 16 bytes a slot, which is also the least.
    pub page_bytes: u64,
}

#[derive(Deserialize)]
struct Text {
    vocab_size: Option<u32>,
}

#[derive(Deserialize)]
struct Config {
    vocab_size: Option<u32>,
    text_config: Option<Text>,
    m3_null: Option<Options>,
}

impl Options {
    /// Reads a config; the vocabulary is resolved and everything checked against it.
    pub fn parse(config: &[u8]) -> Result<Self, String> {
        let config: Config =
            serde_json::from_slice(config).map_err(|error| format!("config cannot be read: {error}"))?;
        let mut options = config.m3_null.unwrap_or_default();
        if options.vocab == 0 {
            let of_text = config.text_config.and_then(|text| text.vocab_size);
            options.vocab = of_text.or(config.vocab_size).unwrap_or(0);
        }
        if options.vocab == 0 {
            return Err("config has neither vocab_size nor m3_null.vocab".to_owned());
        }
        let vocab = options.vocab;
        if vocab < 2 {
            return Err(format!("the vocabulary has {vocab} tokens; at least 2 are needed"));
        }
        if let Some(token) = options.script.iter().chain(&options.eos).find(|token| **token >= vocab) {
            return Err(format!("m3_null names token {token}; the vocabulary has {vocab}"));
        }
        if options.echo && (options.eos.is_none() || !options.script.is_empty() || options.length.is_some()) {
            return Err("m3_null.echo needs m3_null.eos, and neither script nor length beside it".to_owned());
        }
        if options.length.is_some() && options.eos.is_none() {
            return Err("m3_null.length needs m3_null.eos".to_owned());
        }
        Ok(options)
    }
}
