//! A resolved step as the arrays that kernels read: short sequences first, chunks behind them.
//!
//! Decode kernels take the tokens `0 .. num_short`, each with its own row and position; prefill kernels take the
//! sequences of the chunk arrays. Kept on the host as plain vectors whose memory is reused; [`super::arrays`] sends them. No
//! kernel and no device here.

use m3_model::batch::{Batch, BatchSeq};

/// Sequences of at most so many tokens go to the decode kernels.
pub(crate) const SHORT: usize = 1;

/// One step's arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Packed {
    /// -1 = what the row sampled last, which only the device knows.
    pub(crate) token_ids: Vec<i32>,
    pub(crate) token_row: Vec<i32>,
    pub(crate) positions: Vec<i32>,
    pub(crate) slots: Vec<i64>,
    /// Tokens of short sequences; they come first.
    pub(crate) num_short: usize,
    /// Greatest position of a short sequence's token, 0 without any.
    pub(crate) last_short_position: usize,
    pub(crate) chunks: Chunks,
    /// Per logits position of the batch, in its order: index of its token here.
    pub(crate) logits_token: Vec<i32>,
    /// Token of the batch -> token here.
    pub(crate) place: Vec<u32>,
}

/// The sequences that are longer than [`SHORT`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chunks {
    pub(crate) row: Vec<i32>,
    pub(crate) first_token: Vec<i32>,
    pub(crate) len: Vec<i32>,
    pub(crate) first_position: Vec<i32>,
    /// Pages of the contexts before, one more than there are sequences.
    pub(crate) first_item: Vec<i32>,
    /// Most tokens of one.
    pub(crate) longest: usize,
    /// Most positions of one, with what lies in pages.
    pub(crate) deepest: usize,
}

impl Packed {
    /// Refills the arrays from `batch`.
    pub(crate) fn fill(&mut self, batch: &Batch, page_tokens: usize) {
        self.clear();
        self.place.resize(batch.num_tokens(), 0);
        let is_short = |seq: &&BatchSeq| seq.tokens.len() <= SHORT;
        for seq in batch.seqs.iter().filter(is_short) {
            self.push(batch, seq);
            let end = seq.first_position as usize + seq.tokens.len();
            self.last_short_position = self.last_short_position.max(end - 1);
        }
        self.num_short = self.token_ids.len();
        for seq in batch.seqs.iter().filter(|seq| !is_short(seq)) {
            self.chunks.push(seq, self.token_ids.len(), page_tokens);
            self.push(batch, seq);
        }
        let place = &self.place;
        self.logits_token.extend(batch.logits.iter().map(|position| place[position.token] as i32));
    }

    /// Appends tokens that store nothing and that nobody reads, up to `count`; `dummy_row` is a row of the page table that
    /// no sequence has.
    pub(crate) fn pad_tokens(&mut self, count: usize, dummy_row: usize) {
        self.token_ids.resize(count, 0);
        self.token_row.resize(count, dummy_row as i32);
        self.positions.resize(count, 0);
        self.slots.resize(count, -1);
        if self.chunks.row.is_empty() {
            self.num_short = count;
        }
    }

    /// Appends a chunk of `count` such tokens.
    pub(crate) fn add_idle_chunk(&mut self, count: usize, dummy_row: usize, page_tokens: usize) {
        let first = self.num_tokens();
        let tokens = first..first + count;
        let seq = BatchSeq {
            row: dummy_row as u32,
            chained: false,
            first_position: 0,
            tokens,
            pages: 0..0,
            logits: 0..0,
        };
        self.chunks.push(&seq, first, page_tokens);
        self.token_ids.resize(first + count, 0);
        self.token_row.resize(first + count, dummy_row as i32);
        self.positions.extend(0..count as i32);
        self.slots.resize(first + count, -1);
    }

    /// Appends logits positions without a token, up to `count`.
    pub(crate) fn pad_logits(&mut self, count: usize) {
        self.logits_token.resize(count, -1);
    }

    pub(crate) fn num_tokens(&self) -> usize {
        self.token_ids.len()
    }

    fn clear(&mut self) {
        self.token_ids.clear();
        self.token_row.clear();
        self.positions.clear();
        self.slots.clear();
        self.logits_token.clear();
        self.place.clear();
        self.last_short_position = 0;
        self.chunks.clear();
    }

    fn push(&mut self, batch: &Batch, seq: &BatchSeq) {
        for token in seq.tokens.clone() {
            self.place[token] = self.token_ids.len() as u32;
            self.token_ids.push(if seq.chained { -1 } else { batch.token_ids[token] as i32 });
            self.token_row.push(seq.row as i32);
            self.positions.push(batch.positions[token] as i32);
            self.slots.push(batch.slots[token] as i64);
        }
    }
}

impl Chunks {
    pub(crate) fn count(&self) -> usize {
        self.row.len()
    }

    fn push(&mut self, seq: &BatchSeq, first_token: usize, page_tokens: usize) {
        self.row.push(seq.row as i32);
        self.first_token.push(first_token as i32);
        self.len.push(seq.tokens.len() as i32);
        self.first_position.push(seq.first_position as i32);
        let context = seq.first_position as usize + seq.tokens.len();
        let items = self.first_item.last().copied().unwrap_or(0);
        self.first_item.push(items + context.div_ceil(page_tokens) as i32);
        self.longest = self.longest.max(seq.tokens.len());
        self.deepest = self.deepest.max(context);
    }

    fn clear(&mut self) {
        self.row.clear();
        self.first_token.clear();
        self.len.clear();
        self.first_position.clear();
        self.first_item.clear();
        self.first_item.push(0);
        self.longest = 0;
        self.deepest = 0;
    }
}

#[cfg(test)]
mod tests;
