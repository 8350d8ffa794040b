//! Sequences of a step -> per-token arrays.

use std::collections::HashMap;

use m3_abi::Step;
use m3_abi::types::{MediaSpan, NONE, SEQ_CHAINED, Seq};

use super::table::cut;
use super::{Batch, BatchError, BatchMedia, BatchSeq, LogitsPosition, RowTable};

/// What is looked at across the sequences of one step; kept to reuse its memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Row -> index of its sequence.
    seq_of_row: HashMap<u32, usize>,
    /// Page -> row that writes it.
    writer: HashMap<u32, u32>,
    slots: Vec<u64>,
}

impl RowTable {
    pub(super) fn resolve(&mut self, step: &Step<'_>, batch: &mut Batch) -> Result<(), BatchError> {
        self.scratch.seq_of_row.clear();
        self.scratch.writer.clear();
        let num_tokens: u64 = step.seqs.iter().map(|seq| u64::from(seq.num_tokens)).sum();
        if num_tokens > u64::from(self.limits.max_step_tokens) {
            let max_step_tokens = self.limits.max_step_tokens;
            return Err(BatchError::StepTokens { num_tokens, max_step_tokens });
        }
        for seq in step.seqs {
            self.check_seq(seq)?;
            self.place(seq, step, batch)?;
            self.add_logits(seq, step, batch)?;
        }
        self.check_output_slots(batch)?;
        for span in step.media {
            self.add_media(span, batch)?;
        }
        Ok(())
    }

    /// Everything about a sequence that needs no array of the step.
    fn check_seq(&mut self, seq: &Seq) -> Result<(), BatchError> {
        let (row, first, num_tokens) = (seq.row, seq.first_position, seq.num_tokens);
        let (page_tokens, max_context) = (self.limits.page_tokens, self.limits.max_context);
        let state = self.bound(row)?;
        if num_tokens == 0 {
            return Err(BatchError::Empty { row });
        }
        if seq.flags & !SEQ_CHAINED != 0 {
            return Err(BatchError::Flags { row, flags: seq.flags });
        }
        if seq.num_logits > num_tokens {
            return Err(BatchError::Logits { row, num_logits: seq.num_logits, num_tokens });
        }
        if let Some(next) = state.next_position.filter(|&next| first > next) {
            return Err(BatchError::PositionGap { row, first, next });
        }
        let follows = state.samples && state.next_position == Some(first);
        if seq.flags & SEQ_CHAINED != 0 && !(follows && num_tokens == 1) {
            return Err(BatchError::Chained { row, num_tokens, first });
        }
        let end = u64::from(first) + u64::from(num_tokens);
        if end > u64::from(max_context) {
            return Err(BatchError::Context { row, end, max_context });
        }
        let (needed, len) = (end.div_ceil(page_tokens.into()) as usize, state.pages.len());
        if needed > len {
            return Err(BatchError::PagesMissing { row, end, needed, len });
        }
        Ok(())
    }

    /// Token ids, positions, slots and the page table of a checked sequence.
    fn place(&mut self, seq: &Seq, step: &Step<'_>, batch: &mut Batch) -> Result<(), BatchError> {
        let row = seq.row;
        let index = batch.seqs.len();
        if self.scratch.seq_of_row.insert(row, index).is_some() {
            return Err(BatchError::RowTwice { row });
        }
        let chained = seq.flags & SEQ_CHAINED != 0;
        let start = batch.token_ids.len();
        if chained {
            batch.token_ids.push(self.bound(row)?.last_sampled.unwrap_or(NONE));
        } else {
            let tokens = cut(row, "tokens", step.tokens, seq.token_offset.into(), seq.num_tokens.into())?;
            for &token in tokens {
                self.check_token(row, token)?;
            }
            batch.token_ids.extend_from_slice(tokens);
        }
        let page_tokens = self.limits.page_tokens;
        let end_position = seq.first_position + seq.num_tokens;
        let state = self.rows[row as usize].as_mut().ok_or(BatchError::RowUnbound { row })?;
        state.settle(seq.first_position, &batch.token_ids[start..]);
        state.next_position = Some(end_position);
        for position in seq.first_position..end_position {
            let page = state.pages[(position / page_tokens) as usize];
            batch.positions.push(position);
            batch.seq_of.push(index as u32);
            batch.slots.push(u64::from(page) * u64::from(page_tokens) + u64::from(position % page_tokens));
        }
        let first_page = batch.page_table.len();
        let num_pages = end_position.div_ceil(page_tokens) as usize;
        batch.page_table.extend_from_slice(&state.pages[..num_pages]);
        for &page in &state.pages[(seq.first_position / page_tokens) as usize..num_pages] {
            if let Some(first) = self.scratch.writer.insert(page, row) {
                return Err(BatchError::PageShared { page, first, second: row });
            }
        }
        batch.seqs.push(BatchSeq {
            row,
            chained,
            first_position: seq.first_position,
            tokens: start..batch.token_ids.len(),
            pages: first_page..batch.page_table.len(),
            logits: batch.logits.len()..batch.logits.len(),
        });
        Ok(())
    }

    /// The logits positions of the sequence placed last.
    fn add_logits(&mut self, seq: &Seq, step: &Step<'_>, batch: &mut Batch) -> Result<(), BatchError> {
        let (row, seq_index, count) = (seq.row, batch.seqs.len() - 1, seq.num_logits as usize);
        let targets = match seq.target_offset {
            NONE => None,
            offset => Some(cut(row, "targets", step.targets, offset.into(), count as u64)?),
        };
        let words = self.limits.mask_words();
        let (mut num_sampled, mut last_sampled) = (0u32, false);
        for index in 0..count {
            let target = targets.map(|targets| targets[index]).filter(|&target| target != NONE);
            let mut mask = None;
            match target {
                Some(target) => self.check_token(row, target)?,
                None if seq.mask_offset != NONE => {
                    let offset = u64::from(seq.mask_offset) + u64::from(num_sampled) * words as u64;
                    let allowed = cut(row, "masks", step.masks, offset, words as u64)?;
                    mask = Some(batch.masks.len()..batch.masks.len() + words);
                    batch.masks.extend_from_slice(allowed);
                }
                None => {}
            }
            batch.logits.push(LogitsPosition {
                token: batch.token_ids.len() - count + index,
                seq: seq_index,
                output_slot: seq.output_offset as usize + index,
                target,
                mask,
                output_index: seq.output_index.wrapping_add(num_sampled),
            });
            last_sampled = target.is_none();
            num_sampled += u32::from(last_sampled);
        }
        batch.seqs[seq_index].logits.end = batch.logits.len();
        let state = self.bound(row)?;
        (state.samples, state.last_sampled) = (last_sampled, None);
        Ok(())
    }

    fn check_output_slots(&mut self, batch: &Batch) -> Result<(), BatchError> {
        let slots = &mut self.scratch.slots;
        slots.clear();
        slots.extend(batch.logits.iter().map(|position| position.output_slot as u64));
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BatchError::OutputSlot { slot: pair[0] }),
            None => Ok(()),
        }
    }

    fn add_media(&mut self, span: &MediaSpan, batch: &mut Batch) -> Result<(), BatchError> {
        let row = span.row;
        let Some(&index) = self.scratch.seq_of_row.get(&row) else {
            self.bound(row)?;
            let (first, end) =
                (span.first_position.into(), u64::from(span.first_position) + u64::from(span.len));
            return Err(BatchError::Media { row, first, end, seq_first: 0, seq_end: 0 });
        };
        let seq = &batch.seqs[index];
        let (first, end) =
            (u64::from(span.first_position), u64::from(span.first_position) + u64::from(span.len));
        let (seq_first, seq_end) =
            (u64::from(seq.first_position), u64::from(seq.first_position) + seq.tokens.len() as u64);
        if first < seq_first || end > seq_end {
            return Err(BatchError::Media { row, first, end, seq_first, seq_end });
        }
        let token = seq.tokens.start + (first - seq_first) as usize;
        let len = span.len as usize;
        if batch.media.iter().any(|other| token < other.token + other.len && other.token < token + len) {
            return Err(BatchError::MediaOverlap { row, first });
        }
        batch.media.push(BatchMedia { handle: span.handle, first_row: span.first_row, token, len });
        Ok(())
    }
}
