//! One step, resolved: which token of which row sits where, what it attends to and which positions are sampled.
//!
//! [`RowTable`] is the state every backend keeps between steps (settings, page tables, penalty counts, last token
//! of each row); it turns an [`m3_abi::Step`], which carries only changes, into a [`Batch`], which carries
//! everything. Decode rows and prefill chunks stand side by side: a decode row is a sequence of one token.
//! No arithmetic of the model and no memory of pages here.

mod error;
mod resolve;
mod row;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use error::BatchError;
pub use row::Row;
pub use table::{Limits, RowTable};

/// A resolved step. Buffers are reused from step to step: [`RowTable::apply`] clears and refills them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The host's number of this step, for messages.
    pub step: u64,
    /// Per token: its id. A chained token holds the row's last recorded sample, or [`m3_abi::types::NONE`] when the
    /// table was never told it (a backend that keeps samples on the device fills it there).
    pub token_ids: Vec<u32>,
    /// Per token: its position in its sequence, from 0.
    pub positions: Vec<u32>,
    /// Per token: where its K, V and index-K go: page id x page tokens + offset in the page.
    pub slots: Vec<u64>,
    /// Per token: index into `seqs`.
    pub seq_of: Vec<u32>,
    pub seqs: Vec<BatchSeq>,
    /// Page ids of all sequences, one after the other; [`BatchSeq::pages`] cuts it.
    pub page_table: Vec<u32>,
    /// Positions whose logits are needed, in the order of the sequences.
    pub logits: Vec<LogitsPosition>,
    /// Allowed-token masks, cut by [`LogitsPosition::mask`]; bit `t % 32` of word `t / 32` allows token `t`.
    pub masks: Vec<u32>,
    pub media: Vec<BatchMedia>,
}

/// A request's part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSeq {
    pub row: u32,
    /// The single token is the row's last sample.
    pub chained: bool,
    /// Position of its first token; the keys before it come from pages.
    pub first_position: u32,
    /// Its tokens in the batch's per-token arrays.
    pub tokens: Range<usize>,
    /// Its pages in [`Batch::page_table`], exactly those that cover positions `0 .. first_position + num_tokens`.
    pub pages: Range<usize>,
    /// Its entries in [`Batch::logits`].
    pub logits: Range<usize>,
}

/// A position whose logits are needed: sampled, or scored when it has a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogitsPosition {
    /// Index of the token in the batch.
    pub token: usize,
    /// Index of the sequence in the batch.
    pub seq: usize,
    /// Slot in the caller's output.
    pub output_slot: usize,
    /// The id to score; `None` samples.
    pub target: Option<u32>,
    /// Words in [`Batch::masks`]; `None` allows everything. Always `None` for a scored position.
    pub mask: Option<Range<usize>>,
    /// Philox counter.
    pub output_index: u32,
}

/// Rows of an encoded medium that replace embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMedia {
    pub handle: u64,
    pub first_row: u32,
    /// First token of the batch that is replaced.
    pub token: usize,
    pub len: usize,
}

impl Batch {
    pub fn num_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Page ids of a sequence; entry `b` holds positions `b * page_tokens ..`.
    pub fn pages_of(&self, seq: &BatchSeq) -> &[u32] {
        &self.page_table[seq.pages.clone()]
    }

    /// Allowed-token words of a sampled position.
    pub fn mask_of(&self, position: &LogitsPosition) -> Option<&[u32]> {
        position.mask.clone().map(|words| &self.masks[words])
    }

    /// Input tokens after the sequence's first sampled position, up to and with this one: drafted tokens that the
    /// sample at `position` takes as already generated (empty outside verification).
    pub fn drafts_before(&self, position: &LogitsPosition) -> &[u32] {
        let of_seq = &self.logits[self.seqs[position.seq].logits.clone()];
        match of_seq.iter().find(|other| other.target.is_none()) {
            Some(first) if first.token < position.token => {
                &self.token_ids[first.token + 1..position.token + 1]
            }
            _ => &[],
        }
    }

    fn clear(&mut self) {
        self.token_ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.seq_of.clear();
        self.seqs.clear();
        self.page_table.clear();
        self.logits.clear();
        self.masks.clear();
        self.media.clear();
    }
}
