//! What the samplers are told: a record per logits position, settings per row, biases; and which penalty counts on the
//! device must be put right.
//!
//! The records are those of `kernels/sampling/records.cuh`, field by field. The device counts what it samples by itself; the
//! host knows the same counts, later, and corrects the device only where the specification takes samples back.

use bytemuck::{Pod, Zeroable};
use m3_abi::types::NONE;
use m3_model::batch::{Batch, RowTable};
use m3_model::sampling::RowSampling;

/// The row's last token becomes this position's.
const LAST_OF_ROW: u32 = 1;
/// In a count on the device: the token is in the prompt; the other bits count it in the output.
pub(crate) const IN_PROMPT: u32 = 1 << 31;

/// One logits position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Position {
    pub(crate) row: u32,
    /// Id to score; `NONE` samples.
    pub(crate) target: u32,
    /// First word of its allowed-token bits; `NONE` = all.
    pub(crate) mask: u32,
    pub(crate) output_index: u32,
    /// First token of the step that counts as already generated, and how many.
    pub(crate) draft: u32,
    pub(crate) num_drafts: u32,
    /// Place in the results.
    pub(crate) slot: u32,
    pub(crate) flags: u32,
}

impl Position {
    /// Nothing is sampled there.
    pub(crate) const PADDING: Position = Position {
        row: NONE,
        target: NONE,
        mask: NONE,
        output_index: 0,
        draft: 0,
        num_drafts: 0,
        slot: 0,
        flags: 0,
    };
}

/// Settings of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowSettings {
    pub(crate) seed_low: u32,
    pub(crate) seed_high: u32,
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    pub(crate) top_k: u32,
    pub(crate) repetition: f32,
    pub(crate) presence: f32,
    pub(crate) frequency: f32,
    pub(crate) num_logprobs: u32,
    pub(crate) bias: u32,
    pub(crate) num_biases: u32,
    /// The row's counts; `NONE` without penalties.
    pub(crate) counts: u32,
    pub(crate) reserved: [u32; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Bias {
    pub(crate) token: u32,
    pub(crate) value: f32,
}

/// One step's records.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    pub(crate) positions: Vec<Position>,
    /// One per row of the table; rows without logits in this step hold nothing of use.
    pub(crate) rows: Vec<RowSettings>,
    pub(crate) biases: Vec<Bias>,
    /// Some position wants log-probabilities, so that the results are worth copying.
    pub(crate) wants_logprobs: bool,
    /// Some position wants alternatives.
    pub(crate) wants_top: bool,
}

impl Sampling {
    /// Refills the records; `place` maps tokens of the batch to tokens of the packed step.
    pub(crate) fn fill(&mut self, batch: &Batch, rows: &RowTable, place: &[u32]) {
        self.positions.clear();
        self.biases.clear();
        self.rows.clear();
        self.rows.resize(rows.limits().max_rows as usize, RowSettings::default());
        (self.wants_logprobs, self.wants_top) = (false, false);
        for seq in batch.seqs.iter().filter(|seq| !seq.logits.is_empty()) {
            let Some(row) = rows.row(seq.row) else { continue };
            self.rows[seq.row as usize] = settings(seq.row, &row.sampling, self.biases.len());
            let biases = row.sampling.biases.iter();
            self.biases.extend(biases.map(|bias| Bias { token: bias.token, value: bias.bias }));
            let num_logprobs = row.sampling.settings.num_logprobs;
            self.wants_logprobs |= num_logprobs.is_some();
            self.wants_top |= num_logprobs.is_some_and(|count| count > 0);
            for index in seq.logits.clone() {
                let position = position(batch, index, place);
                self.wants_logprobs |= position.target != NONE;
                self.positions.push(position);
            }
        }
    }

    pub(crate) fn pad(&mut self, count: usize) {
        self.positions.resize(count, Position::PADDING);
    }
}

fn settings(row: u32, sampling: &RowSampling, first_bias: usize) -> RowSettings {
    let settings = &sampling.settings;
    RowSettings {
        seed_low: settings.seed as u32,
        seed_high: (settings.seed >> 32) as u32,
        temperature: settings.temperature,
        top_p: settings.top_p,
        min_p: settings.min_p,
        top_k: settings.top_k,
        repetition: settings.repetition_penalty,
        presence: settings.presence_penalty,
        frequency: settings.frequency_penalty,
        num_logprobs: settings.num_logprobs.unwrap_or(NONE),
        bias: first_bias as u32,
        num_biases: sampling.biases.len() as u32,
        counts: if settings.has_penalties() { row } else { NONE },
        reserved: [0; 3],
    }
}

fn position(batch: &Batch, index: usize, place: &[u32]) -> Position {
    let position = &batch.logits[index];
    let seq = &batch.seqs[position.seq];
    let num_drafts = batch.drafts_before(position).len();
    let is_last = index + 1 == seq.logits.end && position.target.is_none();
    Position {
        row: seq.row,
        target: position.target.unwrap_or(NONE),
        mask: position.mask.as_ref().map_or(NONE, |words| words.start as u32),
        output_index: position.output_index,
        // Tokens of a sequence stay neighbours.
        draft: place[position.token] + 1 - num_drafts as u32,
        num_drafts: num_drafts as u32,
        slot: index as u32,
        flags: if is_last { LAST_OF_ROW } else { 0 },
    }
}

#[cfg(test)]
mod tests;
