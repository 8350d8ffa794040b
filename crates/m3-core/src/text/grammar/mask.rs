//! One answer under a grammar: what may come next at every step. Thinking is free until its closing token; then the
//! content or the calls follow their grammar, and the answer can end exactly when they are complete.

use std::sync::Arc;

use llguidance::Matcher;

use super::compile::Compiled;
use super::names::OpenNames;
use super::spelling::Spelled;
use super::vocabulary::Vocabulary;
use crate::request::TokenMask;
use crate::stop::allow_all;
use crate::text::parse::ThinkingMode;

/// Most bytes of one string; then it has to end.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The mask of one answer.
pub struct GrammarMask {
    compiled: Arc<Compiled>,
    stop_ids: Arc<[u32]>,
    phase: Phase,
    content: Option<Matcher>,
    calls: Option<Matcher>,
    names: OpenNames,
    namespace: Spelled,
    think_open: Spelled,
    think_close: Spelled,
    /// An opener of reasoning can no longer count.
    reasoning_over: bool,
    text: TextRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reasoning may come first, or its closer alone.
    Before,
    Thinking,
    /// The grammar is next.
    Begin,
    /// Anything, and calls when they begin.
    Free,
    Content,
    Calls,
    /// Complete: only the end may come.
    Done,
}

/// Length of the string that is being written.
#[derive(Debug, Clone, Copy, Default)]
struct TextRun {
    bytes: usize,
    in_string: bool,
    escaped: bool,
}

impl GrammarMask {
    /// At the start of an answer. `stop_ids` end it, and only when it is complete.
    pub fn new(compiled: Arc<Compiled>, stop_ids: Arc<[u32]>) -> Self {
        let phase = match (compiled.thinking, compiled.lazy) {
            (ThinkingMode::Enabled, _) => Phase::Thinking,
            (_, true) => Phase::Free,
            (ThinkingMode::Adaptive, false) => Phase::Before,
            (ThinkingMode::Disabled, false) => Phase::Begin,
        };
        let [namespace, think_open, think_close] = &compiled.vocabulary.spellings;
        GrammarMask {
            phase,
            content: compiled.content.clone(),
            calls: compiled.calls.clone(),
            names: OpenNames::default(),
            namespace: Spelled::new(namespace),
            think_open: Spelled::new(think_open),
            think_close: Spelled::new(think_close),
            reasoning_over: compiled.thinking == ThinkingMode::Enabled,
            text: TextRun::default(),
            stop_ids,
            compiled,
        }
    }

    fn vocabulary(&self) -> &Vocabulary {
        &self.compiled.vocabulary
    }

    fn fill_free(&self, words: &mut [u32]) {
        allow_all(words, self.vocabulary().len().min(words.len() * 32));
        self.bar_spellings(words);
    }

    /// Markers count as tokens only.
    fn bar_spellings(&self, words: &mut [u32]) {
        match self.phase {
            Phase::Thinking => self.think_close.bar(words),
            _ => {
                if self.compiled.calls.is_some() || self.compiled.reads_calls {
                    self.namespace.bar(words);
                }
                if !self.reasoning_over && self.compiled.thinking != ThinkingMode::Disabled {
                    self.think_open.bar(words);
                }
            }
        }
    }

    fn fill_begin(&mut self, words: &mut [u32]) {
        for matcher in [&mut self.content, &mut self.calls].into_iter().flatten() {
            add(matcher, words, self.compiled.vocabulary.end);
        }
        if self.content.as_mut().is_some_and(|matcher| matcher.is_accepting().unwrap_or(false)) {
            self.stop_ids.iter().for_each(|id| set(words, *id));
        }
    }

    fn fill_content(&mut self, words: &mut [u32]) {
        let Some(matcher) = &mut self.content else { return };
        let complete = add(matcher, words, self.compiled.vocabulary.end);
        let unbarred = words.to_vec();
        self.bar_spellings(words);
        if words.iter().all(|word| *word == 0) {
            // The grammar itself demands the marker's text.
            words.copy_from_slice(&unbarred);
        }
        if self.text.in_string && self.text.bytes > MAX_TEXT_BYTES {
            self.keep_if_allowed(words, self.vocabulary().quote);
        }
        if complete {
            self.stop_ids.iter().for_each(|id| set(words, *id));
        }
    }

    fn fill_calls(&mut self, words: &mut [u32]) {
        let Some(matcher) = &mut self.calls else { return };
        let complete = add(matcher, words, self.compiled.vocabulary.end);
        self.names.bar(words, &self.compiled.vocabulary);
        for token in self.names.repeats(words, &self.compiled.vocabulary) {
            if !leads_on(matcher, &self.names, token, &self.compiled.vocabulary) {
                clear(words, token);
            }
        }
        self.namespace.bar(words);
        if self.text.bytes > MAX_TEXT_BYTES {
            self.keep_if_allowed(words, self.vocabulary().markers.namespace.token);
        }
        if complete {
            self.stop_ids.iter().for_each(|id| set(words, *id));
        }
    }

    /// Nothing but `token`, where it is allowed.
    fn keep_if_allowed(&self, words: &mut [u32], token: Option<u32>) {
        if let Some(token) = token.filter(|token| allows(words, *token)) {
            words.fill(0);
            set(words, token);
        }
    }

    fn follow_spellings(&mut self, token: u32) {
        let bytes = self.compiled.vocabulary.bytes(token);
        self.namespace.push(bytes);
        self.think_open.push(bytes);
        self.think_close.push(bytes);
    }

    fn begin(&mut self, token: u32) {
        let calls = Some(token) == self.vocabulary().markers.namespace.token && self.calls.is_some();
        let only_calls = self.content.is_none();
        self.reasoning_over = self.reasoning_over || calls;
        self.phase = if calls || only_calls { Phase::Calls } else { Phase::Content };
        self.accept(token);
    }

    fn accept_free(&mut self, token: u32) {
        let markers = &self.compiled.vocabulary.markers;
        if Some(token) == markers.namespace.token && self.compiled.calls.is_some() {
            self.calls = self.compiled.calls.clone();
            self.names = OpenNames::default();
            self.phase = Phase::Calls;
            return self.accept_calls(token);
        }
        if Some(token) == markers.think_open.token
            && !self.reasoning_over
            && self.compiled.thinking != ThinkingMode::Disabled
        {
            self.phase = Phase::Thinking;
            self.reasoning_over = true;
        }
        self.follow_spellings(token);
    }

    fn accept_calls(&mut self, token: u32) {
        self.names.push(token, &self.compiled.vocabulary);
        let is_tag = Some(token) == self.vocabulary().markers.namespace.token;
        match is_tag {
            true => self.namespace.reset(),
            false => self.namespace.push(self.compiled.vocabulary.bytes(token)),
        }
        self.text.bytes = if is_tag { 0 } else { self.text.bytes + self.vocabulary().bytes(token).len() };
        if !consume(&mut self.calls, token) {
            let goes_on = self.compiled.lazy && self.compiled.parallel;
            self.phase = if goes_on { Phase::Free } else { Phase::Done };
        }
    }

    fn accept_content(&mut self, token: u32) {
        self.follow_spellings(token);
        self.text.push(self.compiled.vocabulary.bytes(token));
        if !consume(&mut self.content, token) {
            self.phase = Phase::Done;
        }
    }
}

impl TokenMask for GrammarMask {
    fn fill(&mut self, words: &mut [u32]) {
        let markers = &self.compiled.vocabulary.markers;
        let (open, close) = (markers.think_open.token, markers.think_close.token);
        match self.phase {
            Phase::Before => {
                self.fill_begin(words);
                [open, close].into_iter().flatten().for_each(|token| set(words, token));
            }
            Phase::Begin => self.fill_begin(words),
            Phase::Thinking => {
                self.fill_free(words);
                if !self.compiled.lazy {
                    self.stop_ids.iter().for_each(|id| clear(words, *id));
                }
            }
            Phase::Free => self.fill_free(words),
            Phase::Content => self.fill_content(words),
            Phase::Calls => self.fill_calls(words),
            Phase::Done => self.stop_ids.iter().for_each(|id| set(words, *id)),
        }
    }

    fn accept(&mut self, token: u32) {
        let markers = &self.compiled.vocabulary.markers;
        let (open, close) = (markers.think_open.token, markers.think_close.token);
        match self.phase {
            Phase::Before if Some(token) == open => {
                self.phase = Phase::Thinking;
                self.reasoning_over = true;
            }
            Phase::Before if Some(token) == close => self.phase = Phase::Begin,
            Phase::Before | Phase::Begin => self.begin(token),
            Phase::Thinking if Some(token) == close => {
                self.phase = if self.compiled.lazy { Phase::Free } else { Phase::Begin };
            }
            Phase::Thinking => self.follow_spellings(token),
            Phase::Free => self.accept_free(token),
            Phase::Content => self.accept_content(token),
            Phase::Calls => self.accept_calls(token),
            Phase::Done => {}
        }
    }
}

impl TextRun {
    /// Follows JSON text: inside a string, bytes count.
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (byte, self.in_string, self.escaped) {
                (_, true, true) => self.escaped = false,
                (b'\\', true, false) => self.escaped = true,
                (b'"', in_string, false) => {
                    self.in_string = !in_string;
                    self.bytes = 0;
                }
                _ => {}
            }
            self.bytes += usize::from(self.in_string);
        }
    }
}

/// Adds what the matcher allows; true when it is complete. Nothing is added when it failed: then nothing is allowed.
fn add(matcher: &mut Matcher, words: &mut [u32], end: u32) -> bool {
    if matcher.is_stopped() {
        return !matcher.is_error();
    }
    let Ok(mask) = matcher.compute_mask() else { return false };
    let complete = mask.is_allowed(end);
    words.iter_mut().zip(mask.as_slice()).for_each(|(word, allowed)| *word |= allowed);
    clear(words, end);
    complete
}

/// Whether an answer can go on behind `token`, which begins a key that its element has already: some keys cannot be made
/// longer, and none may stand twice. Leaves the matcher as it was.
fn leads_on(matcher: &mut Matcher, names: &OpenNames, token: u32, vocabulary: &Vocabulary) -> bool {
    let mut names = names.clone();
    names.push(token, vocabulary);
    if !names.in_tag() {
        return true;
    }
    if matcher.consume_token(token).is_err() {
        return false;
    }
    let mut words = vec![0; vocabulary.len().div_ceil(32)];
    add(matcher, &mut words, vocabulary.end);
    names.bar(&mut words, vocabulary);
    let repeats = names.repeats(&words, vocabulary);
    repeats.iter().for_each(|token| clear(&mut words, *token));
    let on = words.iter().any(|word| *word != 0)
        || repeats.into_iter().any(|token| leads_on(matcher, &names, token, vocabulary));
    // A failure would stay in the matcher, which then allows nothing more.
    matcher.rollback(1).is_ok() && on
}

/// Follows a token; false when the grammar is through.
fn consume(matcher: &mut Option<Matcher>, token: u32) -> bool {
    let Some(matcher) = matcher else { return false };
    // A token that the mask did not allow leaves the matcher failed, and a failed matcher allows nothing.
    let followed = matcher.consume_token(token).is_ok();
    !followed || !matcher.is_stopped()
}

pub(super) fn set(words: &mut [u32], token: u32) {
    if let Some(word) = words.get_mut(token as usize / 32) {
        *word |= 1 << (token % 32);
    }
}

pub(super) fn clear(words: &mut [u32], token: u32) {
    if let Some(word) = words.get_mut(token as usize / 32) {
        *word &= !(1 << (token % 32));
    }
}

pub(super) fn allows(words: &[u32], token: u32) -> bool {
    words.get(token as usize / 32).is_some_and(|word| word & (1 << (token % 32)) != 0)
}
