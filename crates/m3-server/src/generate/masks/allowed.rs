//! `allowed_token_ids`: the same few tokens at every place.

use std::sync::Arc;

use m3_core::request::TokenMask;

use super::MaskSource;

/// The allowed tokens as bits.
pub struct AllowedTokens(Arc<[u32]>);

impl AllowedTokens {
    /// Ids beyond the vocabulary must have been refused.
    pub fn new(ids: &[u32], vocab_size: usize) -> Self {
        let mut words = vec![0; m3_core::stop::mask_words(vocab_size)];
        for id in ids {
            words[*id as usize / 32] |= 1 << (id % 32);
        }
        AllowedTokens(words.into())
    }
}

impl MaskSource for AllowedTokens {
    fn start(&self) -> Box<dyn TokenMask> {
        Box::new(Fixed(Arc::clone(&self.0)))
    }
}

struct Fixed(Arc<[u32]>);

impl TokenMask for Fixed {
    fn fill(&mut self, words: &mut [u32]) {
        words.iter_mut().zip(self.0.iter()).for_each(|(word, allowed)| *word = *allowed);
    }

    fn accept(&mut self, _: u32) {}
}
