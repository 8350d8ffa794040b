//! The rows of an instance and how a step changes them.

use m3_abi::types::{NONE, PageAppend, RowBind};
use m3_abi::{OpenRequest, Step};

use super::row::{Row, check_settings};
use super::{Batch, BatchError};

/// Sizes fixed at `open` and `reserve` that every step is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_rows: u32,
    pub max_step_tokens: u32,
    /// Longest context in tokens.
    pub max_context: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    pub max_logprobs: u32,
    pub vocab_size: usize,
    /// Pages reserved.
    pub num_pages: u64,
}

impl Limits {
    /// What `open` said, with the vocabulary of the config and the pages of `reserve`.
    pub fn from_open(request: &OpenRequest, vocab_size: usize, num_pages: u64) -> Self {
        Limits {
            max_rows: request.max_rows,
            max_step_tokens: request.max_step_tokens,
            max_context: request.max_context,
            page_tokens: request.page_tokens,
            max_logprobs: request.max_logprobs,
            vocab_size,
            num_pages,
        }
    }

    /// Words of one allowed-token mask.
    pub fn mask_words(&self) -> usize {
        self.vocab_size.div_ceil(32)
    }
}

/// Every row of an instance. Steps are applied in the order of their tickets.
#[derive(Clone, Debug)]
pub struct RowTable {
    pub(super) limits: Limits,
    pub(super) rows: Vec<Option<Row>>,
    pub(super) scratch: super::resolve::Scratch,
}

impl RowTable {
    pub fn new(limits: Limits) -> Self {
        let rows = (0..limits.max_rows).map(|_| None).collect();
        RowTable { limits, rows, scratch: Default::default() }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A bound row; `None` when the row is free or out of range.
    pub fn row(&self, row: u32) -> Option<&Row> {
        self.rows.get(row as usize).and_then(Option::as_ref)
    }

    /// Applies releases, binds, pages and sequences, in this order, and resolves the step into `batch`.
    ///
    /// # Errors
    /// The first broken rule; the table and `batch` are then unspecified.
    pub fn apply(&mut self, step: &Step<'_>, batch: &mut Batch) -> Result<(), BatchError> {
        batch.clear();
        batch.step = step.id;
        for &row in step.releases {
            self.bound(row)?;
            self.rows[row as usize] = None;
        }
        for bind in step.binds {
            self.bind(bind, step)?;
        }
        for append in step.pages {
            self.append_pages(append, step.page_ids)?;
        }
        self.resolve(step, batch)
    }

    /// Tells the table what was sampled at `batch.logits[index]`, so that chained tokens and penalties know it.
    /// `None` is a faulted position: nothing is counted, and a chained successor, whose output is meaningless, runs
    /// on token 0. Scored positions are ignored. Positions are recorded in order.
    pub fn record(&mut self, batch: &Batch, index: usize, token: Option<u32>) {
        let position = &batch.logits[index];
        if position.target.is_some() {
            return;
        }
        let seq = &batch.seqs[position.seq];
        let Some(row) = &mut self.rows[seq.row as usize] else { return };
        if let Some(token) = token {
            row.count(batch.positions[position.token] + 1, token);
        }
        if index + 1 == seq.logits.end {
            row.last_sampled = Some(token.unwrap_or(0));
        }
    }

    pub(super) fn bound(&mut self, row: u32) -> Result<&mut Row, BatchError> {
        match self.rows.get_mut(row as usize) {
            None => Err(BatchError::RowRange { row, max_rows: self.limits.max_rows }),
            Some(None) => Err(BatchError::RowUnbound { row }),
            Some(Some(bound)) => Ok(bound),
        }
    }

    fn bind(&mut self, bind: &RowBind, step: &Step<'_>) -> Result<(), BatchError> {
        let row = bind.row;
        match self.bound(row) {
            Ok(_) => return Err(BatchError::RowBound { row }),
            Err(BatchError::RowUnbound { .. }) => {}
            Err(error) => return Err(error),
        }
        check_settings(bind, self.limits.max_logprobs)?;
        let history_len = u64::from(bind.prompt_len) + u64::from(bind.output_len);
        let history = cut(row, "history", step.history, bind.history_offset.into(), history_len)?;
        let biases = cut(row, "biases", step.biases, bind.bias_offset.into(), bind.num_biases.into())?;
        for &token in history.iter().chain(biases.iter().map(|bias| &bias.token)) {
            self.check_token(row, token)?;
        }
        for bias in biases {
            if bias.bias.is_nan() || bias.bias == f32::INFINITY {
                let allowed = "a finite number or minus infinity";
                return Err(BatchError::Setting { row, field: "bias", value: bias.bias, allowed });
            }
        }
        self.rows[row as usize] = Some(Row::bind(bind, history, biases));
        Ok(())
    }

    fn append_pages(&mut self, append: &PageAppend, page_ids: &[u32]) -> Result<(), BatchError> {
        let row = append.row;
        let pages = cut(row, "page ids", page_ids, append.offset.into(), append.count.into())?;
        let num_pages = self.limits.num_pages;
        if let Some(&page) = pages.iter().find(|&&page| u64::from(page) >= num_pages) {
            return Err(BatchError::PageRange { row, page, num_pages });
        }
        let max_entries = self.limits.max_context.div_ceil(self.limits.page_tokens) as usize;
        let max_context = self.limits.max_context;
        let table = &mut self.bound(row)?.pages;
        let first = append.first as usize;
        if first > table.len() {
            return Err(BatchError::PageGap { row, first: append.first, len: table.len() });
        }
        let end = first + pages.len();
        if end > max_entries {
            let end = end as u64 * u64::from(self.limits.page_tokens);
            return Err(BatchError::Context { row, end, max_context });
        }
        table.resize(table.len().max(end), NONE);
        table[first..end].copy_from_slice(pages);
        Ok(())
    }

    pub(super) fn check_token(&self, row: u32, token: u32) -> Result<(), BatchError> {
        let vocab_size = self.limits.vocab_size;
        if (token as usize) < vocab_size { Ok(()) } else { Err(BatchError::Token { row, token, vocab_size }) }
    }
}

/// `array[offset ..][.. len]`, or a sentence that names the array.
pub(super) fn cut<'a, T>(
    row: u32,
    name: &'static str,
    array: &'a [T],
    offset: u64,
    len: u64,
) -> Result<&'a [T], BatchError> {
    let (start, end) = (offset, offset + len);
    if len == 0 {
        return Ok(&[]);
    }
    if end > array.len() as u64 {
        return Err(BatchError::Span { row, array: name, start, end, len: array.len() });
    }
    Ok(&array[start as usize..end as usize])
}
