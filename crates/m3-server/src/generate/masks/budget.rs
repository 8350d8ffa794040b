//! `thinking_token_budget`: when so many tokens of reasoning have been sampled, the closing marker is the only token
//! that may come next. It counts token ids; how the text reads is the parser's business.

use m3_core::request::TokenMask;
use m3_core::stop::allow_all;
use m3_core::text::parse::{Markers, ThinkingMode};

use super::MaskSource;

/// The limit and the markers it needs.
#[derive(Clone, Copy, Debug)]
pub struct ThinkingBudget {
    /// Where the answer stands at its start.
    stage: Stage,
    budget: u32,
    open: Option<u32>,
    close: u32,
    vocab_size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has been decided: the first marker does.
    Before,
    /// So many tokens of reasoning so far.
    Inside(u32),
    After,
}

impl ThinkingBudget {
    /// `None` when the tokenizer has no closing marker, so that nothing could be enforced.
    pub fn new(budget: u32, mode: ThinkingMode, markers: &Markers, vocab_size: usize) -> Option<Self> {
        let stage = match mode {
            ThinkingMode::Enabled => Stage::Inside(0),
            ThinkingMode::Adaptive | ThinkingMode::Disabled => Stage::Before,
        };
        let (open, close) = (markers.think_open.token, markers.think_close.token?);
        Some(ThinkingBudget { stage, budget, open, close, vocab_size })
    }
}

impl MaskSource for ThinkingBudget {
    fn start(&self) -> Box<dyn TokenMask> {
        Box::new(*self)
    }
}

impl TokenMask for ThinkingBudget {
    fn fill(&mut self, words: &mut [u32]) {
        match self.stage {
            Stage::Inside(thought) if thought >= self.budget => {
                words[self.close as usize / 32] |= 1 << (self.close % 32);
            }
            _ => allow_all(words, self.vocab_size),
        }
    }

    fn accept(&mut self, token: u32) {
        self.stage = match self.stage {
            Stage::Before if Some(token) == self.open => Stage::Inside(0),
            Stage::Inside(_) if token == self.close => Stage::After,
            // A repeated opener is no reasoning.
            Stage::Inside(0) if Some(token) == self.open => Stage::Inside(0),
            Stage::Inside(thought) => Stage::Inside(thought + 1),
            stage => stage,
        };
    }
}
