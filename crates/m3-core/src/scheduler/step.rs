//! A step in the making: the plain data that goes to every rank, and how a sequence's part is written into it.
//! Deciding who takes part is the plan's business.

use m3_abi::types::{MediaSpan, NONE, PageAppend, RowBind, SEQ_CHAINED, Seq, TokenBias};

use super::config::EngineConfig;
use super::sequence::Sequence;
use crate::contain::contain;
use crate::stop::{allow_all, mask_words};

/// An owned step; it must live until its results are read, because ranks read the masks in place.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Counts from 1.
    pub id: u64,
    pub releases: Vec<u32>,
    pub binds: Vec<RowBind>,
    pub pages: Vec<PageAppend>,
    pub page_ids: Vec<u32>,
    pub seqs: Vec<Seq>,
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    pub masks: Vec<u32>,
    pub history: Vec<u32>,
    pub biases: Vec<TokenBias>,
    /// Handles are the engine's [`crate::cache::media::MediaId`]s; each rank puts its own in their place.
    pub media: Vec<MediaSpan>,
    /// Output slots: positions whose logits are needed.
    pub num_outputs: usize,
    /// Most alternatives wanted at any position.
    pub top_capacity: usize,
}

impl Step {
    pub fn lend(&self) -> m3_abi::Step<'_> {
        m3_abi::Step {
            id: self.id,
            releases: &self.releases,
            binds: &self.binds,
            pages: &self.pages,
            page_ids: &self.page_ids,
            seqs: &self.seqs,
            tokens: &self.tokens,
            targets: &self.targets,
            masks: &self.masks,
            history: &self.history,
            biases: &self.biases,
            media: &self.media,
        }
    }

    /// Space for the results.
    pub fn output(&self) -> m3_abi::Output {
        m3_abi::Output::with_capacity(self.num_outputs, self.top_capacity)
    }

    pub fn num_tokens(&self) -> usize {
        self.seqs.iter().map(|seq| seq.num_tokens as usize).sum()
    }

    /// Adds the next `num_tokens` tokens of `sequence`, whatever the device has to learn first included, and moves
    /// the sequence on. `mask` is the allowed-token mask of its sampled position.
    pub(super) fn push(
        &mut self,
        config: &EngineConfig,
        sequence: &mut Sequence,
        num_tokens: usize,
        mask: Option<&[u32]>,
    ) -> Part {
        self.introduce(config, sequence);
        let start = sequence.computed;
        let end = start + num_tokens;
        let part = Part {
            end,
            scored: sequence.scored_positions(start, end),
            samples: sequence.samples_at(end),
            first_output: self.num_outputs,
        };
        let chained = sequence.pending > 0;
        let seq = Seq {
            row: sequence.residence.as_ref().expect("sequences of a step are resident").row,
            flags: if chained { SEQ_CHAINED } else { 0 },
            first_position: start as u32,
            num_tokens: num_tokens as u32,
            token_offset: if chained { 0 } else { self.tokens.len() as u32 },
            num_logits: part.num_outputs() as u32,
            output_offset: self.num_outputs as u32,
            target_offset: if part.scored.is_empty() { NONE } else { self.targets.len() as u32 },
            mask_offset: if mask.is_some() { self.masks.len() as u32 } else { NONE },
            output_index: sequence.next_output(),
        };
        self.seqs.push(seq);
        self.media.extend(sequence.media.spans(start..end, seq.row));
        if !chained {
            self.tokens.extend_from_slice(&sequence.tokens[start..end]);
        }
        if !part.scored.is_empty() {
            self.targets.extend(part.scored.clone().map(|position| sequence.tokens[position + 1]));
            self.targets.extend(part.samples.then_some(NONE));
        }
        self.masks.extend_from_slice(mask.unwrap_or_default());
        self.num_outputs += part.num_outputs();
        if part.num_outputs() > 0 {
            self.top_capacity = self.top_capacity.max(sequence.num_logprobs().unwrap_or(0) as usize);
        }
        sequence.computed = end;
        sequence.pending += u32::from(part.samples);
        sequence.steps_in_flight += 1;
        part
    }

    /// Settings of a new row and pages the device does not know yet.
    fn introduce(&mut self, config: &EngineConfig, sequence: &mut Sequence) {
        let bound = sequence.residence.as_ref().is_some_and(|residence| residence.bound);
        if !bound {
            let bind = self.bind(config, sequence);
            self.binds.push(bind);
        }
        let residence = sequence.residence.as_mut().expect("sequences of a step are resident");
        residence.bound = true;
        let pages = residence.lease.pages();
        if residence.sent_pages < pages.len() {
            self.pages.push(PageAppend {
                row: residence.row,
                first: residence.sent_pages as u32,
                offset: self.page_ids.len() as u32,
                count: (pages.len() - residence.sent_pages) as u32,
            });
            self.page_ids.extend(pages[residence.sent_pages..].iter().map(|page| page.0));
            residence.sent_pages = pages.len();
        }
    }

    fn bind(&mut self, config: &EngineConfig, sequence: &Sequence) -> RowBind {
        let sampling = &sequence.request.sampling;
        let history_offset = self.history.len() as u32;
        let (prompt_len, output_len) = if sampling.has_penalties() {
            self.history.extend_from_slice(&sequence.tokens);
            (sequence.prompt_len as u32, sequence.num_outputs())
        } else {
            (0, 0)
        };
        let bias_offset = self.biases.len();
        let forbidden = &config.forbidden_tokens;
        self.biases.extend(forbidden.iter().map(|&token| TokenBias { token, bias: f32::NEG_INFINITY }));
        let wanted = sampling.biases.iter().filter(|(token, _)| !forbidden.contains(token));
        self.biases.extend(wanted.map(|&(token, bias)| TokenBias { token, bias }));
        let keeps_one = sampling.top_p == 0.0;
        RowBind {
            row: sequence.residence.as_ref().expect("only resident sequences are bound").row,
            num_logprobs: sequence.num_logprobs().unwrap_or(NONE),
            seed: sampling.seed.unwrap_or(0),
            temperature: sampling.temperature,
            // The plugin line knows no `top_p` of 0; keeping only the most likely token is what it means.
            top_p: if keeps_one { 1.0 } else { sampling.top_p },
            min_p: sampling.min_p,
            top_k: if keeps_one { 1 } else { sampling.top_k.min(config.vocab_size as u32) },
            repetition_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            history_offset,
            prompt_len,
            output_len,
            bias_offset: bias_offset as u32,
            num_biases: (self.biases.len() - bias_offset) as u32,
        }
    }
}

/// What the host must remember of a sequence's part to read its results.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Tokens computed once the step has completed.
    pub(super) end: usize,
    /// Prompt positions scored, a slot each from `first_output`.
    pub(super) scored: std::ops::Range<usize>,
    /// One more slot holds a sampled token.
    pub(super) samples: bool,
    pub(super) first_output: usize,
}

impl Part {
    pub(super) fn num_outputs(&self) -> usize {
        self.scored.len() + usize::from(self.samples)
    }
}

/// The mask of the next sampled token: the grammar's, without stop ids while they are barred. `None` = no limits.
/// `Err` when the grammar itself failed.
pub(super) fn next_mask(config: &EngineConfig, sequence: &mut Sequence) -> Result<Option<Vec<u32>>, String> {
    let barred = sequence.stop.is_barred(sequence.next_output());
    if !barred && sequence.request.mask.is_none() {
        return Ok(None);
    }
    let mut words = vec![0; mask_words(config.vocab_size)];
    match &mut sequence.request.mask {
        Some(mask) => contain("the grammar", || mask.fill(&mut words))?,
        None => allow_all(&mut words, config.vocab_size),
    }
    if barred {
        sequence.stop.clear_from(&mut words);
    }
    Ok(Some(words))
}
