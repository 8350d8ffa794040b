//! The tokenizer's tokens as the matching engine needs them: a trie over their bytes, made once. Added tokens are no
//! text there: a grammar allows them by id or not at all, so none can turn up inside a string.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use super::GrammarError;
use super::spelling::MarkerSpelling;
use crate::text::parse::Markers;
use crate::text::tokenizer::Tokenizer;

/// Text that most strings consist of; masks over it are prepared. None has `]`, with which the namespace marker begins.
const SLICES: [&str; 3] = [r#"[^"\\\x00-\x1F\x7F\]]{1,16}"#, r#"[^"\\\x00-\x1F\x7F\]]+"#, r"(?s:[^\]])+"];

/// Work limits of the matching engine; its own units, about 50,000 a millisecond when a grammar is made.
const COMPILE_FUEL: u64 = 4_000_000;
const GRAMMAR_SYMBOLS: usize = 400_000;
/// Most states of one answer's tables, of 1 to 2 KiB each.
const LEXER_STATES: usize = 50_000;

/// Tokens of one model.
pub struct Vocabulary {
    pub(super) factory: ParserFactory,
    pub(super) markers: Markers,
    /// How the markers can be spelled with ordinary tokens: namespace, opener and closer of reasoning.
    pub(super) spellings: [Arc<MarkerSpelling>; 3],
    /// Tokens with `>` in them.
    pub(super) tag_ends: Vec<u32>,
    /// Tokens that start with `/` or `</`.
    pub(super) slashes: Vec<u32>,
    /// The token of a lone `"`.
    pub(super) quote: Option<u32>,
    /// An added token that stands for the end in the matching engine; it is never part of a grammar.
    pub(super) end: u32,
    bytes: Vec<Vec<u8>>,
}

impl Vocabulary {
    /// Reads a tokenizer.
    ///
    /// # Errors
    /// When it has no added token, or the matching engine cannot take it.
    pub fn new(tokenizer: &Tokenizer, markers: &Markers) -> Result<Self, GrammarError> {
        let length = tokenizer.vocab_len();
        let bytes: Vec<Vec<u8>> =
            (0..length as u32).map(|id| tokenizer.token_bytes(id).unwrap_or_default().to_vec()).collect();
        let mut words = bytes.clone();
        // A byte that no text has marks special tokens there.
        words
            .iter_mut()
            .filter(|word| word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER))
            .for_each(Vec::clear);
        for token in tokenizer.added_tokens() {
            let marked = [&[TokTrie::SPECIAL_TOKEN_MARKER], token.content.as_bytes()].concat();
            words[token.id as usize] = marked;
        }
        let is_marker = |id: u32| markers.all().iter().any(|marker| marker.token == Some(id));
        let end = tokenizer.added_tokens().iter().rev().map(|token| token.id).find(|id| !is_marker(*id));
        let end =
            end.ok_or_else(|| GrammarError::whole("the tokenizer has no token for the end of an answer"))?;
        let trie = TokTrie::from(&TokRxInfo::new(length as u32, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SLICES.map(str::to_owned);
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| GrammarError::whole(error.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL;
        limits.max_grammar_size = GRAMMAR_SYMBOLS;
        limits.max_lexer_states = LEXER_STATES;
        limits.verbose_errors = false;
        let ordinary = |id: &usize| words[*id].first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER);
        let with = |fits: &dyn Fn(&[u8]) -> bool| -> Vec<u32> {
            (0..length).filter(ordinary).filter(|id| fits(&words[*id])).map(|id| id as u32).collect()
        };
        let tag_ends = with(&|word| word.contains(&b'>'));
        let slashes = with(&|word| word.starts_with(b"/") || word.starts_with(b"</"));
        let quote = with(&|word| word == b"\"").first().copied();
        let spell = |text: &str| Arc::new(MarkerSpelling::new(text, &words));
        let spellings =
            [&markers.namespace, &markers.think_open, &markers.think_close].map(|marker| spell(&marker.text));
        Ok(Vocabulary { factory, markers: markers.clone(), spellings, tag_ends, slashes, quote, end, bytes })
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there is no token.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What a token spells, markers included.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// Ordinary tokens that spell a beginning of `text`.
    pub(super) fn beginnings(&self, text: &[u8]) -> Vec<u32> {
        self.factory.tok_env().tok_trie().all_prefixes(text)
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Vocabulary").field("len", &self.len()).finish_non_exhaustive()
    }
}
