//! Feeding sequences to a [`World`]: rows, pages and chunks turned into steps.

use crate::world::World;
use anyhow::Result;
use m3_abi::types::{MediaSpan, NONE, PageAppend, RowBind, SEQ_CHAINED, Seq};
use m3_abi::{Output, Step};

/// One sequence on the device: its row, its pages and how far it is computed.
#[derive(Clone, Debug)]
pub struct Row {
    pub row: u32,
    pub pages: Vec<u32>,
    pub computed: usize,
    /// Settings that the row is bound with at its first step.
    pub bind: RowBind,
    /// Rows of encoded media and where they go; a step takes what it covers.
    pub media: Vec<MediaSpan>,
    /// Output index of the next sampled token.
    pub output_index: u32,
    bound: bool,
}

impl Row {
    pub fn new(row: u32) -> Self {
        let (pages, media) = (Vec::new(), Vec::new());
        Row { row, pages, computed: 0, bind: greedy(row), media, output_index: 0, bound: false }
    }

    /// A row with its own sampling settings.
    pub fn with_settings(bind: RowBind) -> Self {
        Row { bind, ..Self::new(bind.row) }
    }

    /// A row that starts with another's first `num_pages` full pages, as a prefix-cache hit does.
    pub fn sharing(row: u32, other: &Row, num_pages: usize, page_tokens: usize) -> Self {
        let pages = other.pages[..num_pages].to_vec();
        Row { pages, computed: num_pages * page_tokens, ..Self::new(row) }
    }
}

/// Greedy, with log-probabilities.
pub fn greedy(row: u32) -> RowBind {
    RowBind { num_logprobs: 5, ..RowBind::greedy(row) }
}

/// One row's part of a step.
pub struct Part<'a> {
    pub row: &'a mut Row,
    pub tokens: &'a [u32],
    /// Logits of the last this many positions.
    pub num_logits: usize,
    /// The one token is what the row sampled last.
    pub chained: bool,
}

/// Computes all parts in one step and moves their rows on.
pub fn step(world: &mut World, parts: &mut [Part<'_>]) -> Result<Output> {
    let page_tokens = world.page_tokens();
    let (mut binds, mut appends, mut page_ids) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seqs, mut tokens, mut media, mut slots) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for part in parts.iter_mut() {
        let row = &mut *part.row;
        let fresh_tables = !row.bound;
        if fresh_tables {
            binds.push(row.bind);
            row.bound = true;
        }
        let had = row.pages.len();
        while row.pages.len() * page_tokens < row.computed + part.tokens.len() {
            row.pages.push(world.take_page()?);
        }
        let first = if fresh_tables { 0 } else { had };
        if row.pages.len() > first {
            let offset = page_ids.len() as u32;
            page_ids.extend_from_slice(&row.pages[first..]);
            let count = (row.pages.len() - first) as u32;
            appends.push(PageAppend { row: row.row, first: first as u32, offset, count });
        }
        seqs.push(Seq {
            row: row.row,
            flags: if part.chained { SEQ_CHAINED } else { 0 },
            first_position: row.computed as u32,
            num_tokens: part.tokens.len() as u32,
            token_offset: tokens.len() as u32,
            num_logits: part.num_logits as u32,
            output_offset: slots,
            target_offset: NONE,
            mask_offset: NONE,
            output_index: row.output_index,
        });
        row.output_index += u32::from(part.num_logits > 0);
        slots += part.num_logits as u32;
        tokens.extend_from_slice(part.tokens);
        let end = (row.computed + part.tokens.len()) as u32;
        media.extend(row.media.iter().filter_map(|span| cut(span, row.row, row.computed as u32, end)));
        row.computed += part.tokens.len();
    }
    world.step(&Step {
        binds: &binds,
        pages: &appends,
        page_ids: &page_ids,
        seqs: &seqs,
        tokens: &tokens,
        media: &media,
        ..Step::default()
    })
}

/// The part of a span between two positions.
fn cut(span: &MediaSpan, row: u32, first: u32, end: u32) -> Option<MediaSpan> {
    let from = span.first_position.max(first);
    let to = (span.first_position + span.len).min(end);
    let first_row = span.first_row + from.saturating_sub(span.first_position);
    (from < to).then(|| MediaSpan { row, first_position: from, len: to - from, first_row, ..*span })
}

/// One row, one step.
pub fn one(world: &mut World, row: &mut Row, tokens: &[u32], num_logits: usize) -> Result<Output> {
    step(world, &mut [Part { row, tokens, num_logits, chained: false }])
}

/// A whole sequence in chunks; logits only at each chunk's end. Returns those positions' logits.
pub fn in_chunks(
    world: &mut World,
    row: &mut Row,
    tokens: &[u32],
    chunk: usize,
) -> Result<Vec<(usize, Vec<f32>)>> {
    let mut ends = Vec::new();
    for part in tokens.chunks(chunk) {
        one(world, row, part, 1)?;
        ends.push((row.computed - 1, world.tap("logits")?.data));
    }
    Ok(ends)
}
