//! One request on its way: which tokens are known, which are computed, and what it holds on the device.
//!
//! ```text
//! tokens     p p p p p p o o o          known to the host: prompt, then outputs
//! pending                      ?        sampled by a step in flight, value not read yet
//! done       =========                  keys and values written by steps that have completed
//! computed   ===================        the same, steps in flight included
//! remaining                     -       what the next steps must compute
//! ```

use super::config::{EngineConfig, most_computed};
use super::media::SequenceMedia;
use crate::cache::{Lease, PrefixKey};
use crate::event::{Timings, Usage};
use crate::request::Request;
use crate::stop::StopIds;

/// What a running sequence holds.
pub(super) struct Residence {
    pub(super) row: u32,
    pub(super) lease: Lease,
    /// The device knows the row's settings.
    pub(super) bound: bool,
    /// Leading pages of the lease that the device's page table has.
    pub(super) sent_pages: usize,
}

pub(super) struct Sequence {
    /// Its prompt has moved to `tokens`.
    pub(super) request: Request,
    pub(super) stop: StopIds,
    pub(super) media: SequenceMedia,
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    /// Most outputs, the context's end considered.
    pub(super) max_outputs: u32,
    /// 0 or 1: tokens sampled by a step in flight.
    pub(super) pending: u32,
    pub(super) computed: usize,
    pub(super) done: usize,
    /// Leading prompt positions whose successors' scores have been sent.
    pub(super) scored: usize,
    pub(super) steps_in_flight: u32,
    pub(super) residence: Option<Residence>,
    pub(super) cached_tokens: u32,
    pub(super) preemptions: u32,
    pub(super) arrived_us: u64,
    pub(super) started_us: Option<u64>,
    pub(super) first_token_us: Option<u64>,
}

impl Sequence {
    pub(super) fn new(mut request: Request, config: &EngineConfig, now_us: u64) -> Self {
        let max_outputs = config.max_outputs(&request);
        let tokens = std::mem::take(&mut request.prompt);
        Sequence {
            stop: StopIds::new(std::mem::take(&mut request.stop_token_ids), request.min_tokens),
            media: SequenceMedia::new(&request.media, config.media.limits()),
            prompt_len: tokens.len(),
            tokens,
            max_outputs,
            request,
            pending: 0,
            computed: 0,
            done: 0,
            scored: 0,
            steps_in_flight: 0,
            residence: None,
            cached_tokens: 0,
            preemptions: 0,
            arrived_us: now_us,
            started_us: None,
            first_token_us: None,
        }
    }

    pub(super) fn num_outputs(&self) -> u32 {
        (self.tokens.len() - self.prompt_len) as u32
    }

    /// Index the next sampled token will have among the outputs.
    pub(super) fn next_output(&self) -> u32 {
        self.num_outputs() + self.pending
    }

    /// Tokens that can be computed now. None for one whose last token is on its way, nor for one whose grammar must
    /// see its pending token first.
    pub(super) fn remaining(&self) -> usize {
        self.goal().saturating_sub(self.computed)
    }

    fn goal(&self) -> usize {
        if self.max_outputs == 0 {
            // The last prompt token predicts nothing anybody asked for.
            return if self.request.prompt_logprobs.is_some() { self.prompt_len - 1 } else { 0 };
        }
        let waits = self.pending > 0 && self.request.mask.is_some();
        if waits || self.next_output() >= self.max_outputs {
            return 0;
        }
        self.tokens.len() + self.pending as usize
    }

    /// As many of the remaining tokens as the media rows that are on the device allow.
    pub(super) fn ready(&self) -> usize {
        self.remaining().min(self.media.reach(self.computed) - self.computed)
    }

    /// Whether the next computation is a chunk of known tokens rather than one new token.
    pub(super) fn is_prefilling(&self) -> bool {
        self.computed < self.prompt_len || self.remaining() > 1
    }

    /// Whether computing up to `end` tells the next token.
    pub(super) fn samples_at(&self, end: usize) -> bool {
        self.max_outputs > 0 && end == self.tokens.len() + self.pending as usize
    }

    /// Prompt positions of `start..end` whose logits are to be scored against the prompt itself. When there are any,
    /// they reach to `end`, but for the last prompt position, which samples.
    pub(super) fn scored_positions(&self, start: usize, end: usize) -> std::ops::Range<usize> {
        let until = end.min(self.prompt_len - 1);
        let from = if self.request.prompt_logprobs.is_some() { start.max(self.scored) } else { until };
        from.min(until)..until
    }

    /// Tokens a cached prefix may stand for: at least one must be computed, and so must every position whose score
    /// is still owed.
    pub(super) fn max_cached_tokens(&self) -> usize {
        let known = self.tokens.len() - 1;
        if self.request.prompt_logprobs.is_some() { known.min(self.scored) } else { known }
    }

    /// Pages to start with: all known tokens and one more, so that a fresh sequence is not preempted at once.
    pub(super) fn starting_pages(&self, config: &EngineConfig) -> usize {
        config.pages_for(most_computed(self.prompt_len, self.max_outputs).min(self.tokens.len() + 1))
    }

    pub(super) fn key(&self, num_tokens: usize) -> PrefixKey<'_> {
        PrefixKey {
            salt: self.request.cache_salt.as_deref(),
            tokens: &self.tokens[..num_tokens],
            media: &self.media.runs,
        }
    }

    /// What it will have computed when it has caught up with its known tokens; `None` when it has.
    pub(super) fn coming(&self) -> Option<PrefixKey<'_>> {
        let end = if self.max_outputs == 0 { self.prompt_len - 1 } else { self.tokens.len() };
        // A decoding sequence is always one token behind.
        (self.done < self.prompt_len || self.done + 1 < end).then(|| self.key(end))
    }

    /// Alternatives to ask of the device per position; `None` = no log-probabilities.
    pub(super) fn num_logprobs(&self) -> Option<u32> {
        self.request.logprobs.max(self.request.prompt_logprobs)
    }

    /// Back to having computed nothing; outputs stay.
    pub(super) fn forget_computed(&mut self) {
        self.computed = 0;
        self.done = 0;
        self.preemptions += 1;
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_len as u32,
            cached_tokens: self.cached_tokens,
            output_tokens: self.num_outputs(),
        }
    }

    pub(super) fn timings(&self, now_us: u64) -> Timings {
        let started_us = self.started_us.unwrap_or(now_us);
        let first_us = self.first_token_us.unwrap_or(now_us);
        Timings {
            queued_us: started_us.saturating_sub(self.arrived_us),
            prefill_us: first_us.saturating_sub(started_us),
            decode_us: now_us.saturating_sub(first_us),
            preemptions: self.preemptions,
        }
    }
}
