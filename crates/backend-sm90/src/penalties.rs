//! Which samples of a row its penalty counts hold, so that the device's counts can be put right when a step takes some back.
//!
//! The device counts what it samples. The specification ([`m3_model::batch::RowTable`]) takes counts back when a sequence
//! starts before a counted position, and replaces one when another token than the sampled one stands there. Both are
//! rare, and then the host, which was told every sample by then, sends the true counts of the tokens concerned.

use m3_abi::types::NONE;
use m3_model::batch::{Batch, BatchSeq, RowTable};

use crate::step::sampling::IN_PROMPT;
use crate::upkeep::Entry;

/// Per row: (position, token) of counted samples; empty without penalties.
#[derive(Debug)]
pub(crate) struct Penalties {
    counted: Vec<Vec<(u32, u32)>>,
}

impl Penalties {
    pub(crate) fn new(rows: usize) -> Penalties {
        Penalties { counted: vec![Vec::new(); rows] }
    }

    /// The row begins anew.
    pub(crate) fn forget(&mut self, row: u32) {
        if let Some(counted) = self.counted.get_mut(row as usize) {
            counted.clear();
        }
    }

    /// A sample that will stand at `position` was counted.
    pub(crate) fn count(&mut self, row: u32, position: u32, token: u32) {
        if let Some(counted) = self.counted.get_mut(row as usize) {
            counted.push((position, token));
        }
    }

    /// Entries of the device's counts (`vocab` a row) that a resolved step changes, with their true values; `rows` has
    /// settled the step already.
    pub(crate) fn settle(&mut self, batch: &Batch, rows: &RowTable, vocab: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        for seq in batch.seqs.iter().filter(|seq| !seq.chained) {
            let mut tokens = self.taken_back(seq, batch.token_ids[seq.tokens.start]);
            tokens.sort_unstable();
            tokens.dedup();
            let Some(row) = rows.row(seq.row) else { continue };
            let counts = &row.sampling.counts;
            entries.extend(tokens.into_iter().map(|token| {
                let in_prompt = if counts.in_prompt(token) { IN_PROMPT } else { 0 };
                let index = seq.row as i64 * vocab as i64 + i64::from(token);
                (index, (counts.num_output(token) | in_prompt) as i32)
            }));
        }
        entries
    }

    /// Tokens whose counts change because the sequence starts where it does, with `first` there.
    fn taken_back(&mut self, seq: &BatchSeq, first: u32) -> Vec<u32> {
        let mut changed = Vec::new();
        let Some(counted) = self.counted.get_mut(seq.row as usize) else { return changed };
        counted.retain_mut(|(position, token)| {
            if *position > seq.first_position {
                changed.push(*token);
                return false;
            }
            if *position == seq.first_position && first != NONE && first != *token {
                changed.extend([*token, first]);
                *token = first;
            }
            true
        });
        changed
    }
}

#[cfg(test)]
mod tests;
