//! `bad_words`: texts that the answer must not have, however the model would cut them into tokens. Before each token the
//! ones that would complete a bad word are barred; the beginning of one is harmless as long as it is not completed.

use std::sync::Arc;

use m3_core::request::TokenMask;
use m3_core::stop::{allow_all, mask_words};
use m3_core::text::tokenizer::Tokenizer;

use super::{MaskSource, bar};

/// Every token that is text, ordered by its bytes, so that those beginning with some bytes are neighbours.
pub struct TokenIndex {
    tokenizer: Arc<Tokenizer>,
    sorted: Vec<u32>,
}

impl TokenIndex {
    /// Sorts the vocabulary; takes a moment for a large one. Control tokens are no text and stay out.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let text = |id: &u32| !tokenizer.is_special(*id) && tokenizer.token_bytes(*id).is_some();
        let mut sorted: Vec<u32> = (0..tokenizer.vocab_len() as u32).filter(text).collect();
        sorted.sort_unstable_by_key(|id| tokenizer.token_bytes(*id));
        TokenIndex { tokenizer, sorted }
    }

    fn bytes(&self, id: u32) -> &[u8] {
        self.tokenizer.token_bytes(id).unwrap_or_default()
    }

    /// Bytes of a token that is text.
    fn text(&self, id: u32) -> &[u8] {
        if self.tokenizer.is_special(id) { &[] } else { self.bytes(id) }
    }

    fn beginning_with(&self, start: &[u8]) -> &[u32] {
        let from = self.sorted.partition_point(|id| self.bytes(*id) < start);
        let count = self.sorted[from..].partition_point(|id| self.bytes(*id).starts_with(start));
        &self.sorted[from..from + count]
    }
}

/// The bad words of a request.
pub struct BadWords(Arc<Words>);

struct Words {
    index: Arc<TokenIndex>,
    words: Vec<Vec<u8>>,
    /// Everything but the tokens that hold a whole bad word.
    always: Vec<u32>,
    longest: usize,
}

impl BadWords {
    /// None of the words is empty.
    pub fn new(words: &[String], index: Arc<TokenIndex>, vocab_size: usize) -> Self {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut always = vec![0; mask_words(vocab_size)];
        allow_all(&mut always, vocab_size);
        let finders: Vec<_> = words.iter().map(memchr::memmem::Finder::new).collect();
        for id in &index.sorted {
            if finders.iter().any(|finder| finder.find(index.bytes(*id)).is_some()) {
                bar(&mut always, *id);
            }
        }
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        BadWords(Arc::new(Words { index, words, always, longest }))
    }
}

impl MaskSource for BadWords {
    fn start(&self) -> Box<dyn TokenMask> {
        Box::new(Watch { words: Arc::clone(&self.0), tail: Vec::new() })
    }
}

struct Watch {
    words: Arc<Words>,
    /// The last bytes of the answer, one fewer than the longest word has.
    tail: Vec<u8>,
}

impl TokenMask for Watch {
    fn fill(&mut self, mask: &mut [u32]) {
        mask.iter_mut().zip(&self.words.always).for_each(|(word, allowed)| *word = *allowed);
        for word in &self.words.words {
            for have in 1..word.len().min(self.tail.len() + 1) {
                if self.tail.ends_with(&word[..have]) {
                    self.words.index.beginning_with(&word[have..]).iter().for_each(|id| bar(mask, *id));
                }
            }
        }
    }

    fn accept(&mut self, token: u32) {
        self.tail.extend_from_slice(self.words.index.text(token));
        let keep = self.words.longest.saturating_sub(1);
        let drop = self.tail.len().saturating_sub(keep);
        self.tail.drain(..drop);
    }
}
