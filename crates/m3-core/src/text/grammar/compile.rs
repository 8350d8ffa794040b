//! From what a request asks for to a compiled grammar, within limits on size, time and how many are made at once, and
//! kept for the next request. Call it off the threads that serve sockets or the engine.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use super::lark::{Lark, one_of};
use super::markup::{CallRules, write_calls};
use super::vocabulary::Vocabulary;
use super::{GrammarError, ebnf, json, schema, structural};
use crate::text::parse::ThinkingMode;

/// Most bytes of a schema, grammar or expression that a client sends.
const MAX_SOURCE_BYTES: usize = 512 << 10;
/// Most time for one grammar, waiting for a place included.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Grammars made at once.
const MAX_AT_ONCE: usize = 2;
/// Grammars kept.
const MAX_KEPT: usize = 32;
/// Grammars are read by recursion, so the threads that do it have room.
const STACK_BYTES: usize = 256 << 20;

/// What the content of an answer must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// JSON text that fits this JSON Schema.
    Schema(Value),
    /// Text that this regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in Lark's form, as llguidance reads it.
    Lark(String),
    /// A grammar in EBNF (`root ::= …`), as GBNF and XGrammar have it.
    Ebnf(String),
    /// Free text with tagged parts.
    StructuralTag(Value),
}

/// What an answer may be.
#[derive(Debug, Clone)]
pub struct GrammarSpec {
    /// Its content; `None` = none, or free text with `lazy`.
    pub content: Option<Content>,
    /// Its calls; beside content it is one or the other.
    pub calls: Option<CallRules>,
    /// Text is free, and calls follow their grammar once they begin.
    pub lazy: bool,
    /// Where the answer starts. Text whose reasoning nobody separates starts as `Disabled`.
    pub thinking: ThinkingMode,
    /// Whoever reads the answer looks for calls in it.
    pub reads_calls: bool,
}

/// A grammar ready for answers; each clones its state.
pub struct Compiled {
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) content: Option<Matcher>,
    pub(super) calls: Option<Matcher>,
    pub(super) lazy: bool,
    pub(super) parallel: bool,
    pub(super) thinking: ThinkingMode,
    pub(super) reads_calls: bool,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Compiled").field("lazy", &self.lazy).finish_non_exhaustive()
    }
}

/// Makes grammars for one vocabulary.
pub struct GrammarCompiler {
    vocabulary: Arc<Vocabulary>,
    kept: Arc<Mutex<Kept>>,
    gate: Arc<Gate>,
}

/// The latest grammars by their text, newest first.
type Kept = VecDeque<(String, Matcher)>;

/// Places for threads that compile.
#[derive(Default)]
struct Gate {
    running: Mutex<usize>,
    freed: Condvar,
}

impl GrammarCompiler {
    /// For one model's tokens.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        GrammarCompiler { vocabulary, kept: Arc::default(), gate: Arc::default() }
    }

    /// The grammar of a request.
    ///
    /// # Errors
    /// What cannot be honoured, with its place in the schema; or that the server is busy.
    pub fn compile(&self, spec: GrammarSpec) -> Result<Compiled, GrammarError> {
        let until = Instant::now() + MAX_TIME;
        let GrammarSpec { content, calls, lazy, thinking, reads_calls } = spec;
        let parallel = calls.as_ref().is_none_or(|rules| rules.parallel);
        let content =
            content.map(|content| self.matcher(until, move || write_content(&content))).transpose()?;
        let calls = calls.map(|rules| self.matcher(until, move || write_calls(&rules))).transpose()?;
        let vocabulary = Arc::clone(&self.vocabulary);
        Ok(Compiled { vocabulary, content, calls, lazy, parallel, thinking, reads_calls })
    }

    /// Writes and compiles a grammar in a thread of its own, so that neither its time nor its depth is the caller's.
    fn matcher(
        &self,
        until: Instant,
        write: impl FnOnce() -> Result<String, GrammarError> + Send + 'static,
    ) -> Result<Matcher, GrammarError> {
        let place = self.gate.enter(until)?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let vocabulary = Arc::clone(&self.vocabulary);
        let kept = Arc::clone(&self.kept);
        let work = move || {
            let made = write().and_then(|text| {
                if let Some(matcher) = find(&kept, &text) {
                    return Ok(matcher);
                }
                let matcher = compile(&vocabulary, &text)?;
                keep(&kept, text, &matcher);
                Ok(matcher)
            });
            drop(place);
            // The caller may have given up.
            let _ = sender.send(made);
        };
        let thread =
            std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES).spawn(work);
        thread.map_err(|error| GrammarError::busy(format!("no thread for the grammar: {error}")))?;
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(made) => made,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let seconds = MAX_TIME.as_secs();
                Err(GrammarError::whole(format!("the grammar takes longer than {seconds} seconds to make")))
            }
            Err(_) => Err(GrammarError::whole("the grammar could not be made: its maker failed")),
        }
    }
}

/// A kept grammar, which becomes the newest.
fn find(kept: &Mutex<Kept>, text: &str) -> Option<Matcher> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let at = kept.iter().position(|(known, _)| known == text)?;
    let found = kept.remove(at)?;
    let matcher = found.1.deep_clone();
    kept.push_front(found);
    Some(matcher)
}

fn keep(kept: &Mutex<Kept>, text: String, matcher: &Matcher) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    // The tables grow with use; a copy of its own keeps what is kept as small as it is now.
    kept.push_front((text, matcher.deep_clone()));
    kept.truncate(MAX_KEPT);
}

impl Gate {
    fn enter(self: &Arc<Self>, until: Instant) -> Result<Place, GrammarError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= MAX_AT_ONCE {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GrammarError::busy("the server is busy with other grammars; try again"));
            }
            running = self.freed.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *running += 1;
        Ok(Place(Arc::clone(self)))
    }
}

/// Held while a grammar is made.
struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

fn compile(vocabulary: &Vocabulary, text: &str) -> Result<Matcher, GrammarError> {
    let fail = |error: &dyn std::fmt::Display| {
        let whole = error.to_string();
        let first: String = whole.lines().next().unwrap_or_default().chars().take(300).collect();
        GrammarError::whole(format!("the grammar cannot be used: {first}"))
    };
    let grammar = TopLevelGrammar::from_lark(text.to_owned());
    let parser = vocabulary.factory.create_parser(grammar).map_err(|error| fail(&error))?;
    let mut matcher = Matcher::new(Ok(parser));
    // The first mask builds most of the tables that later ones use.
    matcher.compute_mask().map_err(|error| fail(&error))?;
    Ok(matcher)
}

fn write_content(content: &Content) -> Result<String, GrammarError> {
    check_size(content)?;
    match content {
        Content::Schema(document) => write_schema(document),
        Content::Regex(pattern) => Ok(format!("start: {}", regex_terminal(pattern)?)),
        Content::Choice(texts) if texts.is_empty() => {
            Err(GrammarError::whole("there is nothing to choose from"))
        }
        Content::Choice(texts) => Ok(format!("start: TEXT\nTEXT: {}\n", one_of(texts.iter().cloned()))),
        Content::Lark(text) => Ok(text.clone()),
        Content::Ebnf(text) => ebnf::to_lark(text),
        Content::StructuralTag(tag) => structural::to_lark(tag),
    }
}

fn write_schema(document: &Value) -> Result<String, GrammarError> {
    let schemas = schema::read(document)?;
    let (mut lark, start) = json::write_json(&schemas, Lark::default())?;
    lark.rule("start", &[start])?;
    Ok(lark.finish())
}

/// A client's regular expression, which is for the whole text.
pub(super) fn regex_terminal(pattern: &str) -> Result<String, GrammarError> {
    if pattern.is_empty() {
        return Err(GrammarError::whole("the regular expression is empty"));
    }
    Ok(super::lark::expression(pattern))
}

fn check_size(content: &Content) -> Result<(), GrammarError> {
    let bytes = match content {
        Content::Schema(value) | Content::StructuralTag(value) => value.to_string().len(),
        Content::Regex(text) | Content::Lark(text) | Content::Ebnf(text) => text.len(),
        Content::Choice(texts) => texts.iter().map(String::len).sum(),
    };
    if bytes > MAX_SOURCE_BYTES {
        let reason = format!("it has {bytes} bytes; this server takes up to {MAX_SOURCE_BYTES}");
        return Err(GrammarError::whole(reason));
    }
    Ok(())
}
