//! Which tokens may be sampled next, where a request limits that. A [`MaskSource`] is made once per request; each of its
//! answers starts a mask of its own from it, and the masks of one answer are combined: a token must be allowed by all.

mod allowed;
mod bad_words;
mod budget;
mod grammar;
mod limits;

use std::sync::Arc;

use m3_core::request::TokenMask;

pub use allowed::AllowedTokens;
pub use bad_words::{BadWords, TokenIndex};
pub use budget::ThinkingBudget;
pub use grammar::{of_chat, of_completion};
pub use limits::{of_budget, of_generation};

/// Starts masks.
pub trait MaskSource: Send + Sync {
    /// A mask at the start of an answer.
    fn start(&self) -> Box<dyn TokenMask>;
}

/// One mask out of all; `None` when nothing is limited. Where several masks leave no token between them, the answer can
/// only end: with one of `ends`, the end-of-turn ids.
pub fn start(sources: &[Arc<dyn MaskSource>], ends: &[u32]) -> Option<Box<dyn TokenMask>> {
    match sources {
        [] => None,
        [one] => Some(one.start()),
        many => {
            let masks = many.iter().map(|source| source.start()).collect();
            Some(Box::new(All { masks, ends: ends.to_vec(), scratch: Vec::new() }))
        }
    }
}

/// Allows what every one of its masks allows.
struct All {
    masks: Vec<Box<dyn TokenMask>>,
    ends: Vec<u32>,
    scratch: Vec<u32>,
}

impl TokenMask for All {
    fn fill(&mut self, words: &mut [u32]) {
        words.fill(u32::MAX);
        for mask in &mut self.masks {
            self.scratch.clear();
            self.scratch.resize(words.len(), 0);
            mask.fill(&mut self.scratch);
            words.iter_mut().zip(&self.scratch).for_each(|(word, allowed)| *word &= allowed);
        }
        if words.iter().all(|word| *word == 0) {
            for end in &self.ends {
                words[*end as usize / 32] |= 1 << (end % 32);
            }
        }
    }

    fn accept(&mut self, token: u32) {
        self.masks.iter_mut().for_each(|mask| mask.accept(token));
    }
}

/// Takes a token out of a mask.
fn bar(words: &mut [u32], token: u32) {
    if let Some(word) = words.get_mut(token as usize / 32) {
        *word &= !(1 << (token % 32));
    }
}

#[cfg(test)]
mod tests;
