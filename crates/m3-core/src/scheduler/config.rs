//! Limits of an engine, and what they refuse: settings that make no sense, and requests that could never be served.

use super::media_limits::MediaSupport;
use crate::request::{Refusal, Request};

/// Limits and switches, fixed for the engine's life.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Table rows: most requests computed at once.
    pub max_running: usize,
    /// Requests accepted beyond the rows.
    pub max_queued: usize,
    /// Most tokens in one step.
    pub max_step_tokens: usize,
    /// Longest prompt plus output, in tokens.
    pub max_context: usize,
    pub page_tokens: usize,
    pub num_pages: usize,
    pub prefix_cache: bool,
    /// Chunks of prompts share steps with decoding rows; off, steps are one or the other.
    pub mixed_chunk: bool,
    /// Submit a step before the tokens of the one before are read.
    pub run_ahead: bool,
    pub vocab_size: usize,
    /// Never sampled: padding rows of the vocabulary, media slots.
    pub forbidden_tokens: Vec<u32>,
    /// Most alternatives per position.
    pub max_logprobs: u32,
    /// Images and videos.
    pub media: MediaSupport,
}

/// Why an engine cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the engine needs at least one rank; none was given")]
    NoRanks,
    #[error("{name} is {value}; it must be {limit}")]
    BadConfig { name: &'static str, value: usize, limit: &'static str },
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl EngineConfig {
    /// Every number must leave room for at least one request, and fit the 32 bits that cross the plugin line.
    pub fn validate(&self) -> Result<(), EngineError> {
        let positive = [
            ("max_running", self.max_running),
            ("max_step_tokens", self.max_step_tokens),
            ("max_context", self.max_context),
            ("page_tokens", self.page_tokens),
            ("num_pages", self.num_pages),
            ("vocab_size", self.vocab_size),
        ];
        for (name, value) in positive {
            if value == 0 || value >= u32::MAX as usize {
                return Err(EngineError::BadConfig { name, value, limit: "between 1 and 2^32 - 2" });
            }
        }
        if let MediaSupport::Encodes(limits) = &self.media {
            let positive = [
                ("media.row_len", limits.row_len),
                ("media.merge_size", limits.merge_size),
                ("media.segment_frames", limits.segment_frames),
                ("media.row_bytes", limits.row_bytes),
                ("media.patches_per_step", limits.patches_per_step),
            ];
            if let Some((name, value)) = positive.into_iter().find(|(_, value)| *value == 0) {
                return Err(EngineError::BadConfig { name, value, limit: "at least 1" });
            }
        }
        for &token in &self.forbidden_tokens {
            if token as usize >= self.vocab_size {
                let value = token as usize;
                return Err(EngineError::BadConfig {
                    name: "a forbidden token",
                    value,
                    limit: "below vocab_size",
                });
            }
        }
        Ok(())
    }

    /// Refuses what can never be served, whatever else is running.
    pub fn check(&self, request: &Request) -> Result<(), Refusal> {
        self.check_size(request)?;
        self.check_ids(request)?;
        check_sampling(request)?;
        self.media.check(request)?;
        let asked = request.logprobs.max(request.prompt_logprobs).unwrap_or(0);
        if asked > self.max_logprobs {
            return Err(Refusal::TooManyLogprobs { asked, max_logprobs: self.max_logprobs });
        }
        Ok(())
    }

    /// Most tokens `request` may sample: its own limit or what the context leaves.
    pub fn max_outputs(&self, request: &Request) -> u32 {
        let room = self.max_context.saturating_sub(request.prompt.len());
        request.max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    pub(super) fn pages_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.page_tokens)
    }

    fn check_size(&self, request: &Request) -> Result<(), Refusal> {
        let prompt_tokens = request.prompt.len();
        let max_context = self.max_context;
        if prompt_tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if prompt_tokens > max_context || (prompt_tokens == max_context && request.max_tokens > 0) {
            return Err(Refusal::PromptTooLong { prompt_tokens, max_context });
        }
        let needed_pages = self.pages_for(most_computed(prompt_tokens, self.max_outputs(request)));
        if needed_pages > self.num_pages {
            return Err(Refusal::NeverFits { needed_pages, total_pages: self.num_pages });
        }
        Ok(())
    }

    fn check_ids(&self, request: &Request) -> Result<(), Refusal> {
        let vocab_size = self.vocab_size;
        let biased = request.sampling.biases.iter().map(|(token, _)| token);
        let ids = request.prompt.iter().chain(&request.stop_token_ids).chain(biased);
        match ids.copied().find(|&token| token as usize >= vocab_size) {
            Some(token) => Err(Refusal::TokenOutOfRange { token, vocab_size }),
            None => Ok(()),
        }
    }
}

/// Tokens whose keys and values a request may need at once. The last sampled token is never computed, nor is the
/// last prompt token when nothing follows it.
pub(super) fn most_computed(prompt_tokens: usize, max_outputs: u32) -> usize {
    (prompt_tokens + max_outputs as usize).saturating_sub(1)
}

fn check_sampling(request: &Request) -> Result<(), Refusal> {
    let sampling = &request.sampling;
    let finite = "a finite number";
    let rules = [
        ("temperature", sampling.temperature, sampling.temperature >= 0.0, "a finite number of at least 0"),
        ("top_p", sampling.top_p, (0.0..=1.0).contains(&sampling.top_p), "between 0 and 1"),
        ("min_p", sampling.min_p, (0.0..=1.0).contains(&sampling.min_p), "between 0 and 1"),
        ("repetition_penalty", sampling.repetition_penalty, sampling.repetition_penalty > 0.0, "above 0"),
        ("presence_penalty", sampling.presence_penalty, true, finite),
        ("frequency_penalty", sampling.frequency_penalty, true, finite),
    ];
    for (name, value, holds, limit) in rules {
        if !holds || !value.is_finite() {
            return Err(Refusal::BadSampling { name, value, limit });
        }
    }
    // Minus infinity is the usual way to forbid a token.
    match sampling.biases.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY) {
        Some(&(_, value)) => Err(Refusal::BadSampling { name: "a logit bias", value, limit: finite }),
        None => Ok(()),
    }
}
