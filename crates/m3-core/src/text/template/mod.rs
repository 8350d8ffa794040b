//! Chat template rendering with a known origin for every character of the prompt.
//!
//! The bytes are those of Python's Jinja as the model's publisher renders them. minijinja parses the template;
//! evaluation is ours ([`interpreter`]), because a string must carry through macros, `set`, `~`, `split` and
//! `strip` which of its characters the template wrote: only those may become control markers, so text of a
//! message, a tool or an argument never does. Templates are the operator's, never a request's.

mod access;
mod arguments;
mod binding;
mod calls;
mod clock;
mod expression;
mod fault;
mod filters;
mod format;
mod functions;
mod interpreter;
mod json;
mod methods;
mod operators;
mod print;
mod scope;
mod segments;
mod strings;
mod tests_of_values;
mod traced;
mod value;

use std::collections::HashMap;
use std::path::Path;

use minijinja::machinery::{self, ast::Stmt};
use minijinja::syntax::SyntaxConfig;
use regex::Regex;

use super::TextError;
use super::tokenizer::{Segment, Tokenizer};
use interpreter::Interpreter;
use traced::Traced;
use value::Value;

/// A parsed chat template; shared by all requests.
pub struct ChatTemplate {
    root: Stmt<'static>,
    /// `bos_token` and its like from the tokenizer's configuration: the template's own text.
    special_tokens: Vec<(String, String)>,
}

/// What one request gives the template.
pub struct RenderInput<'a> {
    /// The conversation, a JSON array; tool-call arguments must already be mappings.
    pub messages: &'a serde_json::Value,
    /// The tools, a JSON array; absent and null are the same.
    pub tools: Option<&'a serde_json::Value>,
    /// Whether the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Further variables; their strings are user text as well.
    pub kwargs: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

/// A rendered prompt.
pub struct Rendered {
    /// The bytes the reference renderer writes.
    pub prompt: String,
    /// The prompt cut at its markers; joined it is `prompt`. One ordinary segment when no tokenizer was given.
    pub segments: Vec<Segment>,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TextError::Template`] with the parser's message.
    pub fn from_source(source: &str) -> Result<Self, TextError> {
        // The parsed tree borrows its source. A server loads one template and keeps it for its whole life, so
        // the source is given away instead of tying the two together in one structure.
        let source: &'static str = Box::leak(without_generation_tags(source).into_boxed_str());
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| TextError::Template(error.to_string()))?;
        let root = machinery::parse(source, "chat template", syntax)
            .map_err(|error| TextError::Template(error.to_string()))?;
        Ok(Self { root, special_tokens: Vec::new() })
    }

    /// The template of a model directory: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json`. Named special tokens of that file become variables.
    ///
    /// # Errors
    /// [`TextError::Read`] when neither file can be read, [`TextError::Template`] when it is no template.
    pub fn from_dir(dir: &Path) -> Result<Self, TextError> {
        let config_path = dir.join("tokenizer_config.json");
        let config = if config_path.exists() { read_json(&config_path)? } else { serde_json::Value::Null };
        let template_path = dir.join("chat_template.jinja");
        let source = match config["chat_template"].as_str() {
            Some(inside) if !template_path.exists() => inside.to_owned(),
            _ => read(&template_path)?,
        };
        let mut template = Self::from_source(&source)?;
        template.special_tokens = special_tokens(&config);
        Ok(template)
    }

    /// Renders one conversation. `tokenizer` says which texts are markers.
    ///
    /// # Errors
    /// [`TextError::Raised`] with the template's own message, [`TextError::Render`] when it meets a value it
    /// cannot work with or passes a limit.
    pub fn render(
        &self,
        input: &RenderInput<'_>,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Rendered, TextError> {
        let prompt = Interpreter::new(self.names(input)?).run(&self.root)?;
        let segments = match tokenizer {
            Some(tokenizer) => segments::cut(&prompt, tokenizer),
            None => vec![Segment::Ordinary(prompt.as_str().to_owned())],
        };
        Ok(Rendered { prompt: prompt.as_str().to_owned(), segments })
    }

    fn names(&self, input: &RenderInput<'_>) -> Result<HashMap<String, Value>, TextError> {
        let mut names = HashMap::new();
        for (name, text) in &self.special_tokens {
            names.insert(name.clone(), Value::Text(Traced::template(text)));
        }
        for (name, value) in input.kwargs.into_iter().flatten() {
            names.insert(name.clone(), Value::from_json(value)?);
        }
        names.insert("messages".to_owned(), Value::from_json(input.messages)?);
        let tools = input.tools.map_or(Ok(Value::None), Value::from_json)?;
        names.insert("tools".to_owned(), tools);
        names.insert("add_generation_prompt".to_owned(), Value::Bool(input.add_generation_prompt));
        Ok(names)
    }
}

/// The publisher's library marks answers for training with `{% generation %}`; they write nothing.
fn without_generation_tags(source: &str) -> String {
    let tags =
        Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a constant pattern that compiles");
    let neutral = |found: &regex::Captures<'_>| {
        let tag = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {tag} {}%}}", &found[1], &found[3])
    };
    tags.replace_all(source, neutral).into_owned()
}

fn special_tokens(config: &serde_json::Value) -> Vec<(String, String)> {
    let Some(entries) = config.as_object() else {
        return Vec::new();
    };
    let named = entries.iter().filter(|(name, _)| name.ends_with("_token"));
    named
        .filter_map(|(name, token)| {
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}

fn read(path: &Path) -> Result<String, TextError> {
    std::fs::read_to_string(path)
        .map_err(|source| TextError::Read { path: path.display().to_string(), source })
}

fn read_json(path: &Path) -> Result<serde_json::Value, TextError> {
    serde_json::from_str(&read(path)?)
        .map_err(|error| TextError::Template(format!("{}: {error}", path.display())))
}
