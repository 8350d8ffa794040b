//! Which model is served, under which names, with which text side.

use std::path::PathBuf;

use super::values::{bad, conflict, count, one_of, optional};
use crate::args::{ArgError, Parsed};
use crate::hub::{HubOptions, Site, Token, default_cache};
use crate::openai::thinking::check_kwargs;
use crate::vision::{MediaLimits, SizeRule};

/// Which model, under which names, with which text side.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// `None` is the bundled model.
    pub dir: Option<PathBuf>,
    pub served_names: Vec<String>,
    pub tokenizer: Option<PathBuf>,
    pub chat_template: Option<PathBuf>,
    pub skip_tokenizer: bool,
    pub template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// The checkpoint cannot answer without thinking.
    pub always_thinks: bool,
    /// Use `generation_config.json`; off = neutral defaults.
    pub model_defaults: bool,
    pub random_seed: Option<u64>,
    pub max_logprobs: u32,
    /// What the checkpoint must hold, when it was said.
    pub quantization: Option<String>,
    /// Where a model comes from that is named as its hub names it.
    pub hub: HubOptions,
    /// Shapes alone; the backend makes the values up.
    pub dummy_weights: bool,
    /// How images and videos are sized when a request does not say.
    pub size_rule: SizeRule,
    pub media_limits: MediaLimits,
    /// Refuse images and videos although the checkpoint takes them.
    pub text_only: bool,
}

impl ModelOptions {
    /// The first word or `--model` names the folder.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let dir = model(parsed)?;
        let defaults = one_of(parsed, "sampling-defaults", &["model", "auto", "openai", "vllm"])?;
        let quantization = one_of(parsed, "quantization", &["auto", "none", "mxfp8", "modelopt", "fp8"])?;
        let load_format = one_of(parsed, "load-format", &["auto", "safetensors", "dummy"])?;
        Ok(ModelOptions {
            dir: dir.map(PathBuf::from),
            served_names: served_names(parsed)?,
            tokenizer: parsed.value("tokenizer").map(PathBuf::from),
            chat_template: parsed.value("chat-template").map(PathBuf::from),
            skip_tokenizer: parsed.has("skip-tokenizer-init"),
            template_kwargs: template_kwargs(parsed)?,
            always_thinks: parsed.has("force-thinking"),
            model_defaults: !matches!(defaults, Some("openai" | "vllm")),
            random_seed: optional(parsed, "random-seed", "a whole number of at least 0")?,
            max_logprobs: count(parsed, "max-logprobs", 0, 1000)?.unwrap_or(20) as u32,
            quantization: quantization.filter(|name| *name != "auto").map(str::to_owned),
            hub: hub(parsed)?,
            dummy_weights: load_format == Some("dummy"),
            size_rule: size_rule(parsed)?,
            media_limits: media_limits(parsed)?,
            text_only: parsed.has("language-model-only"),
        })
    }
}

/// The variables are those that the hubs' own programs read.
fn hub(parsed: &Parsed) -> Result<HubOptions, ArgError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let on = |name: &str| {
        variable(name)
            .is_some_and(|text| !["0", "false", "no", "off"].contains(&text.to_ascii_lowercase().as_str()))
    };
    let name = parsed.value("hub").unwrap_or("huggingface");
    let usual = variable("HF_ENDPOINT").filter(|_| name != "modelscope");
    let endpoint = parsed.value("hub-endpoint").map(str::to_owned).or(usual);
    if let Some(wrong) =
        endpoint.as_deref().filter(|text| !text.starts_with("http://") && !text.starts_with("https://"))
    {
        return Err(bad("hub-endpoint", wrong, "an address such as https://mirror.example"));
    }
    let site = Site::new(name, endpoint.as_deref());
    let site = site.ok_or_else(|| bad("hub", name, "huggingface or modelscope"))?;
    let revision = parsed.value("revision").unwrap_or(site.usual_revision()).to_owned();
    let steps = revision.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !steps
        || revision.starts_with('-')
        || revision.chars().any(|letter| letter.is_control() || letter == ' ')
    {
        return Err(bad("revision", &revision, "a branch, a tag or a commit"));
    }
    Ok(HubOptions {
        site,
        revision,
        cache: parsed.value("download-dir").map_or_else(|| default_cache(variable), PathBuf::from),
        local_dir: parsed.value("local-dir").map(PathBuf::from),
        offline: on("HF_HUB_OFFLINE"),
        verify: parsed.has("verify"),
        token: variable("HF_TOKEN").and_then(|text| Token::new(&text)),
    })
}

/// A side alone chooses the rule that has one.
fn size_rule(parsed: &Parsed) -> Result<SizeRule, ArgError> {
    const NAME: &str = "max-long-side-pixel";
    let rule = one_of(parsed, "media-size-rule", &["area", "long-side"])?;
    let expected = "a multiple of 28 from 112 to 3584";
    let side: Option<u32> = optional(parsed, NAME, expected)?;
    match (rule, side) {
        (_, Some(side)) if !(112..=3584).contains(&side) || !side.is_multiple_of(28) => {
            Err(bad(NAME, &side.to_string(), expected))
        }
        (Some("area"), Some(_)) => Err(conflict(
            "--media-size-rule area",
            "--max-long-side-pixel",
            "the area rule has no longest side",
        )),
        (_, Some(side)) => Ok(SizeRule::LongSideOf(side)),
        (Some("long-side"), None) => Ok(SizeRule::LongSide),
        _ => Ok(SizeRule::Area),
    }
}

/// A word and `--model` are the same thing; two different folders are a mistake.
fn model(parsed: &Parsed) -> Result<Option<&str>, ArgError> {
    if let Some(extra) = parsed.words.get(1) {
        return Err(match parsed.behind_switch.range(..2).next() {
            Some((at, flag)) => {
                ArgError::SwitchValue { flag: flag.clone(), value: parsed.words[*at].clone() }
            }
            None => ArgError::ExtraWord(extra.clone()),
        });
    }
    let named: Vec<&str> = parsed.words.iter().chain(parsed.many("model")).map(String::as_str).collect();
    match named.iter().find(|name| **name != named[0]) {
        Some(other) => Err(conflict(
            &format!("the model {}", named[0]),
            &format!("the model {other}"),
            "a server has one model",
        )),
        None if named.first() == Some(&"") => Err(bad("model", "", "a folder")),
        None => Ok(named.first().copied()),
    }
}

/// JSON, `{"image": 4}`, or `image=4,video=1`.
fn media_limits(parsed: &Parsed) -> Result<MediaLimits, ArgError> {
    let (name, mut limits) = ("limit-mm-per-prompt", MediaLimits::default());
    let Some(text) = parsed.value(name) else { return Ok(limits) };
    let wrong = || bad(name, text, "counts such as image=4,video=1 or {\"image\": 4, \"video\": 1}");
    let pairs: Vec<(String, String)> =
        match serde_json::from_str::<serde_json::Map<_, serde_json::Value>>(text) {
            Ok(object) => object.into_iter().map(|(kind, count)| (kind, count.to_string())).collect(),
            Err(_) => {
                let pairs = text.split(',').map(|pair| pair.split_once('=').ok_or_else(wrong));
                let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
                pairs
                    .into_iter()
                    .map(|(kind, count)| (kind.trim().to_owned(), count.trim().to_owned()))
                    .collect()
            }
        };
    for (kind, count) in pairs {
        let count = count.parse::<u32>().map_err(|_| wrong())? as usize;
        match kind.as_str() {
            "image" => limits.images = count,
            "video" => limits.videos = count,
            _ => return Err(wrong()),
        }
    }
    Ok(limits)
}

fn served_names(parsed: &Parsed) -> Result<Vec<String>, ArgError> {
    let names = parsed.many("served-model-name");
    match names.iter().find(|name| name.trim().is_empty()) {
        Some(name) => Err(bad("served-model-name", name, "a name of at least one character")),
        None => Ok(names.to_vec()),
    }
}

fn template_kwargs(parsed: &Parsed) -> Result<serde_json::Map<String, serde_json::Value>, ArgError> {
    let name = "default-chat-template-kwargs";
    let kwargs = json_object(parsed, name)?;
    if let Err(error) = check_kwargs("it", &kwargs) {
        let text = parsed.value(name).unwrap_or_default();
        return Err(bad(name, text, &format!("variables of the chat template ({})", error.message)));
    }
    Ok(kwargs)
}

fn json_object(parsed: &Parsed, name: &str) -> Result<serde_json::Map<String, serde_json::Value>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(serde_json::Map::new()) };
    serde_json::from_str(text).map_err(|error| bad(name, text, &format!("a JSON object ({error})")))
}
