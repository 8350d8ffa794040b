//! Token counts of a request's answers, summed for `usage`.

use crate::generate::{Done, Output};
use crate::openai::usage::Usage;
use crate::vision::MediaTokens;

/// Counts per answer. A prompt with several answers counts once.
#[derive(Clone, Debug)]
pub struct Tally {
    prompt_tokens: Vec<u32>,
    answers: Vec<Counts>,
    /// Of answers that were made and are not given.
    unseen: Counts,
    /// Of all prompts.
    media: MediaTokens,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    completion: u32,
    reasoning: u32,
    cached: u32,
}

impl Tally {
    /// `prompt_lens` in tokens, with `n` answers each.
    pub fn new(prompt_lens: Vec<u32>, n: usize) -> Self {
        let answers = vec![Counts::default(); prompt_lens.len() * n];
        Tally {
            prompt_tokens: prompt_lens,
            answers,
            unseen: Counts::default(),
            media: MediaTokens::default(),
        }
    }

    /// Notes how many of the prompts' tokens are media's.
    pub fn media(&mut self, tokens: MediaTokens) {
        self.media = tokens;
    }

    /// Notes progress of an answer.
    pub fn output(&mut self, index: usize, output: &Output) {
        self.answers[index].completion = output.completion_tokens;
        self.answers[index].reasoning = output.reasoning_tokens;
    }

    /// Notes the end of an answer.
    pub fn done(&mut self, index: usize, done: &Done) {
        let cached = done.cached_tokens;
        self.answers[index] =
            Counts { completion: done.completion_tokens, reasoning: done.reasoning_tokens, cached };
    }

    /// Notes an answer that is not given.
    pub fn add_unseen(&mut self, completion: u32, reasoning: u32) {
        self.unseen.completion += completion;
        self.unseen.reasoning += reasoning;
    }

    /// So far. Of a prompt's answers the first one says what was cached.
    pub fn usage(&self) -> Usage {
        let n = self.answers.len() / self.prompt_tokens.len().max(1);
        let sum = |count: fn(&Counts) -> u32| self.answers.iter().chain([&self.unseen]).map(count).sum();
        let cached = self.answers.iter().step_by(n.max(1)).map(|counts| counts.cached).sum();
        let prompt = self.prompt_tokens.iter().sum();
        Usage::new(prompt, cached, sum(|c| c.completion), sum(|c| c.reasoning)).with_media(self.media)
    }
}
