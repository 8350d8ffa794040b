//! The served model as the HTTP side sees it: names, text side, limits and defaults. No weights here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use m3_core::model::config::GenerationConfig;
use m3_core::text::TextError;
use m3_core::text::grammar::{GrammarCompiler, GrammarError, Vocabulary};
use m3_core::text::parse::{Marker, Markers};
use m3_core::text::template::ChatTemplate;
use m3_core::text::tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::args::ModelOptions;
use crate::generate::masks::TokenIndex;
use crate::openai::generation::{Generation, Limits};
use crate::vision::{TextOnly, VisionSide};

/// What requests are checked against and rendered with.
pub struct ServedModel {
    /// Names clients may ask for; the first one is shown.
    pub names: Vec<String>,
    pub path: PathBuf,
    /// Seconds since 1970.
    pub created: u64,
    /// `None` with `--skip-tokenizer-init`.
    pub text: Option<TextSide>,
    /// What is taken besides text, or why nothing is.
    pub vision: Result<VisionSide, TextOnly>,
    pub limits: Limits,
    pub max_context: usize,
    pub sampling_defaults: SamplingDefaults,
    /// End-of-turn ids.
    pub eos_ids: Vec<u32>,
    /// Ids that can only be the start of a runaway turn; they stop an answer as well.
    pub runaway_ids: Vec<u32>,
    /// Ids that are never sampled, sorted.
    pub forbidden_ids: Vec<u32>,
    pub random_seed: Option<u64>,
    pub template_kwargs: Map<String, Value>,
}

/// Defaults of requests that say nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDefaults {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
}

/// Tokenizer, template and markers.
pub struct TextSide {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub markers: Markers,
    index: OnceLock<Arc<TokenIndex>>,
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
}

impl ServedModel {
    /// Whether a client may ask for `name`; no name means this one.
    pub fn answers_to(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| {
            self.names.iter().any(|known| known == name)
                || self.path.to_str().is_some_and(|path| path == name)
        })
    }

    /// Whether this id ends a turn by itself.
    pub fn ends_turn(&self, token: u32) -> bool {
        self.eos_ids.contains(&token) || self.runaway_ids.contains(&token)
    }

    /// Stop ids of one request.
    pub fn stop_ids_for(&self, generation: &Generation) -> Vec<u32> {
        let mut ids = generation.stop_token_ids.clone();
        if !generation.ignore_eos {
            ids.extend(self.eos_ids.iter().chain(&self.runaway_ids));
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl SamplingDefaults {
    /// What the checkpoint asks for.
    pub fn of(config: &GenerationConfig) -> Self {
        let greedy = config.do_sample == Some(false);
        SamplingDefaults {
            temperature: if greedy { 0.0 } else { config.temperature.unwrap_or(1.0) },
            top_p: config.top_p.unwrap_or(1.0),
            top_k: config.top_k.unwrap_or(0),
        }
    }

    /// Temperature 1 and no filter.
    pub fn neutral() -> Self {
        SamplingDefaults { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl TextSide {
    /// Loads tokenizer and template of a model folder, or the files named instead.
    pub fn load(dir: &Path, options: &ModelOptions) -> anyhow::Result<Self> {
        let place = options.tokenizer.as_deref().unwrap_or(dir);
        let tokenizer = load_tokenizer(place).map_err(|error| match error {
            TextError::Read { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                anyhow::anyhow!(
                    "{error}; give --tokenizer PATH, or --skip-tokenizer-init to serve token ids in and out"
                )
            }
            error => error.into(),
        })?;
        let template = match &options.chat_template {
            Some(file) => Some(load_template(file)?),
            None => folder_template(dir)?,
        };
        if template.is_none() {
            tracing::warn!(
                "the model has no chat template: /v1/chat/completions will refuse; give --chat-template FILE"
            );
        }
        let markers = markers(&tokenizer);
        Ok(TextSide {
            tokenizer: Arc::new(tokenizer),
            template,
            markers,
            index: OnceLock::new(),
            grammars: OnceLock::new(),
        })
    }

    /// What makes grammars. It sorts the vocabulary when it is first called for, which a server does while it loads.
    pub fn grammars(&self) -> Result<&GrammarCompiler, &GrammarError> {
        let make = || {
            let vocabulary = Vocabulary::new(&self.tokenizer, &self.markers)?;
            Ok(GrammarCompiler::new(Arc::new(vocabulary)))
        };
        self.grammars.get_or_init(make).as_ref()
    }

    /// The vocabulary ordered by bytes; made when it is first needed, off the threads that serve sockets.
    pub fn token_index(&self) -> Arc<TokenIndex> {
        Arc::clone(self.index.get_or_init(|| Arc::new(TokenIndex::new(Arc::clone(&self.tokenizer)))))
    }
}

/// A file, or the folder that has it.
pub fn load_tokenizer(place: &Path) -> Result<Tokenizer, TextError> {
    if place.is_dir() { Tokenizer::from_dir(place) } else { Tokenizer::from_file(place) }
}

/// A template from a file.
pub fn load_template(file: &Path) -> anyhow::Result<ChatTemplate> {
    let source = std::fs::read_to_string(file)
        .map_err(|error| anyhow::anyhow!("cannot read {}: {error}", file.display()))?;
    not_empty(file, &source)?;
    Ok(ChatTemplate::from_source(&source)?)
}

/// An empty template renders every conversation to nothing.
fn not_empty(file: &Path, source: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!source.trim().is_empty(), "the chat template {} is empty", file.display());
    Ok(())
}

/// The template of a model folder; `None` when it has none.
pub fn folder_template(dir: &Path) -> anyhow::Result<Option<ChatTemplate>> {
    let file = dir.join("chat_template.jinja");
    if let Ok(source) = std::fs::read_to_string(&file) {
        not_empty(&file, &source)?;
    }
    match ChatTemplate::from_dir(dir) {
        Ok(template) => Ok(Some(template)),
        Err(TextError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The parser's markers with the ids this tokenizer has for them.
pub fn markers(tokenizer: &Tokenizer) -> Markers {
    let mut markers = Markers::default();
    let all: [&mut Marker; 5] = [
        &mut markers.namespace,
        &mut markers.think_open,
        &mut markers.think_close,
        &mut markers.tool_open,
        &mut markers.tool_close,
    ];
    for marker in all {
        marker.token = tokenizer.token_id(&marker.text);
    }
    let is_tag = |text: &str| text.len() > 2 && text.starts_with('<') && text.ends_with('>');
    let tags = tokenizer.added_tokens().iter().filter(|token| is_tag(&token.content));
    let tags: HashMap<u32, String> = tags.map(|token| (token.id, token.content.clone())).collect();
    markers.tag_tokens = Arc::new(tags);
    markers
}

/// Ids that must never be sampled: rows of the vocabulary without a token, and media slots.
pub fn forbidden_ids(tokenizer: Option<&Tokenizer>, vocab_size: usize, media: [Option<u32>; 2]) -> Vec<u32> {
    let without_token = |id: &u32| tokenizer.is_some_and(|tokenizer| tokenizer.token_bytes(*id).is_none());
    let mut ids: Vec<u32> = (0..vocab_size as u32).filter(without_token).collect();
    ids.extend(media.into_iter().flatten().filter(|id| (*id as usize) < vocab_size));
    ids.sort_unstable();
    ids.dedup();
    ids
}
