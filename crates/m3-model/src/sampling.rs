//! From a row of logits to a token: the specification that every backend's sampler is compared with.
//!
//! In this order, on `f32` logits of the whole vocabulary:
//! 1. NaN or +inf anywhere, before or after step 3, or nothing but -inf: [`FAULT_NAN`], no token.
//! 2. Log-probabilities, rank and alternatives come from the logits as they are.
//! 3. Bias is added; then penalties: repetition (prompt and output), frequency and presence (output only).
//! 4. The allowed-token mask; nothing left: [`FAULT_EMPTY_MASK`].
//! 5. Candidates are ordered by logit, highest first, ties to the lower id. Temperature below
//!    [`GREEDY_TEMPERATURE`] takes the first one.
//! 6. `top_k` keeps the first k; weights are `exp((logit - highest) / temperature)`; `min_p` keeps weights of at
//!    least `min_p` (relative to the highest); `top_p` keeps the shortest run of candidates whose weight reaches
//!    `top_p` of what is left. At least one candidate stays.
//! 7. `u` = [`uniform`]`(seed, output index)`: the first of the kept candidates, **in ascending id order**, at which
//!    the running sum of weights exceeds `u x total`.
//!
//! Rows of the head beyond the tokenizer's vocabulary are not treated here: the engine masks them.

mod filter;
mod logprobs;
mod penalties;
mod philox;
mod settings;
#[cfg(test)]
mod tests;

use m3_abi::Output;
use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, NONE};

use crate::batch::{Batch, RowTable};

pub use filter::{Filter, draw};
pub use logprobs::{log_sum_exp, rank, top};
pub use penalties::{TokenCounts, adjust};
pub use philox::{philox4x32_10, uniform};
pub use settings::{GREEDY_TEMPERATURE, RowSampling, SamplingSettings};

/// Memory that [`choose`] and [`fill_slot`] reuse from position to position.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    adjusted: Vec<f32>,
    filter: Filter,
}

/// The token for one row of logits, or `FAULT_*` bits.
///
/// `drafts` are ids taken as already generated in addition to the row's own; `mask` as in
/// [`Batch::masks`](crate::batch::Batch::masks).
pub fn choose(
    logits: &[f32],
    row: &RowSampling,
    drafts: &[u32],
    mask: Option<&[u32]>,
    output_index: u32,
    scratch: &mut Scratch,
) -> Result<u32, u32> {
    if has_fault(logits) {
        return Err(FAULT_NAN);
    }
    let mut adjusted = std::mem::take(&mut scratch.adjusted);
    adjusted.clear();
    adjusted.extend_from_slice(logits);
    adjust(&mut adjusted, row, drafts);
    // A bias or penalty can carry a huge logit beyond what `f32` holds.
    let overflow = adjusted.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY);
    if let Some(mask) = mask {
        apply_mask(&mut adjusted, mask);
    }
    let token = (!overflow).then(|| draw(&adjusted, &row.settings, output_index, &mut scratch.filter));
    scratch.adjusted = adjusted;
    token.ok_or(FAULT_NAN)?.ok_or(FAULT_EMPTY_MASK)
}

/// Bad numbers: no distribution can be made from these logits.
pub fn has_fault(logits: &[f32]) -> bool {
    logits.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY)
        || logits.iter().all(|logit| *logit == f32::NEG_INFINITY)
}

/// Samples or scores `batch.logits[index]` from its row of logits, fills its output slot, and records the token in
/// the table. Call in the order of `batch.logits`.
///
/// A faulted slot keeps [`NONE`] as its token. Log-probabilities are filled where the row asked for them or the
/// position is scored.
pub fn fill_slot(
    batch: &Batch,
    index: usize,
    logits: &[f32],
    rows: &mut RowTable,
    output: &mut Output,
    scratch: &mut Scratch,
) {
    let position = &batch.logits[index];
    let slot = position.output_slot;
    let Some(row) = rows.row(batch.seqs[position.seq].row) else { return };
    let num_logprobs = row.sampling.settings.num_logprobs;
    let choice = match position.target {
        Some(_) if has_fault(logits) => Err(FAULT_NAN),
        Some(target) => Ok(target),
        None => {
            let (drafts, mask) = (batch.drafts_before(position), batch.mask_of(position));
            choose(logits, &row.sampling, drafts, mask, position.output_index, scratch)
        }
    };
    rows.record(batch, index, choice.ok());
    output.faults[slot] = choice.err().unwrap_or(0);
    output.tokens[slot] = choice.unwrap_or(NONE);
    if let Ok(token) = choice
        && (num_logprobs.is_some() || position.target.is_some())
    {
        fill_logprobs(logits, token, slot, num_logprobs.unwrap_or(0) as usize, output);
    }
}

fn fill_logprobs(logits: &[f32], token: u32, slot: usize, num_logprobs: usize, output: &mut Output) {
    let log_sum = log_sum_exp(logits);
    output.logprobs[slot] = logits[token as usize] - log_sum;
    output.ranks[slot] = rank(logits, token);
    let capacity = output.top_capacity;
    let ids = &mut output.top_ids[slot * capacity..][..capacity];
    let logprobs = &mut output.top_logprobs[slot * capacity..][..capacity];
    for (entry, id) in top(logits, num_logprobs.min(capacity)).into_iter().enumerate() {
        ids[entry] = id;
        logprobs[entry] = logits[id as usize] - log_sum;
    }
}

/// Tokens whose bit is clear become impossible.
fn apply_mask(logits: &mut [f32], mask: &[u32]) {
    for (token, logit) in logits.iter_mut().enumerate() {
        if mask[token / 32] >> (token % 32) & 1 == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}
