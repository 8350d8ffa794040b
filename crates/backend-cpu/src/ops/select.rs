//! `select_blocks`: index scores of every visible block, then the best blocks per token and index head.
//!
//! Tokens of a sequence are scored a few at a time against a page of index keys, so that a page is read once for all of
//! them. A token that sees no more blocks than it may choose takes them all and is not scored (unless taps ask).

#![expect(unsafe_code, reason = "tasks write disjoint scores")]

use m3_model::batch::{Batch, BatchSeq};
use m3_model::taps::TapPoint;
use rayon::prelude::*;

use super::CpuOps;
use crate::kernels::index::{block_score, select};
use crate::kernels::{SendPtr, with_task_scratch};

/// Tokens scored together: with four index heads as many rows as the dot kernel likes.
const TILE_TOKENS: usize = 6;
/// Pages of a task, so that one long sequence keeps all threads busy.
const TASK_PAGES: usize = 16;

/// Some tokens of a sequence against some of its pages.
struct Task<'a> {
    seq: &'a BatchSeq,
    /// In the batch.
    first_token: usize,
    num_tokens: usize,
    first_page: usize,
}

impl CpuOps {
    /// Blocks visible at a position.
    fn num_blocks(&self, position: u32) -> usize {
        position as usize / self.config.sparse.block_size + 1
    }

    /// Fills `work.chosen` and `work.num_chosen`.
    pub(super) fn choose_blocks(&mut self, layer: usize, batch: &Batch) {
        let heads = self.work.sizes.index_heads;
        let most = batch.positions.iter().map(|&position| self.num_blocks(position)).max().unwrap_or(0);
        let mut scores = std::mem::take(&mut self.work.block_scores);
        scores.clear();
        scores.resize(batch.num_tokens() * heads * most, f32::NEG_INFINITY);
        let tasks = self.score_tasks(batch);
        let to = SendPtr(scores.as_mut_ptr());
        tasks.par_iter().with_max_len(1).for_each(|task| self.score(layer, batch, task, most, to));
        self.pick(batch, &scores, most);
        self.tap_choice(layer, batch, &scores, most);
        self.work.block_scores = scores;
    }

    fn score_tasks<'a>(&self, batch: &'a Batch) -> Vec<Task<'a>> {
        let all = self.taps.is_on();
        let mut tasks = Vec::new();
        for seq in &batch.seqs {
            for first_token in seq.tokens.clone().step_by(TILE_TOKENS) {
                let num_tokens = TILE_TOKENS.min(seq.tokens.end - first_token);
                let num_pages = self.num_blocks(batch.positions[first_token + num_tokens - 1]);
                if !all && num_pages <= self.config.sparse.topk_blocks {
                    continue;
                }
                let pages = (0..num_pages).step_by(TASK_PAGES);
                tasks.extend(pages.map(|first_page| Task { seq, first_token, num_tokens, first_page }));
            }
        }
        tasks
    }

    fn score(&self, layer: usize, batch: &Batch, task: &Task<'_>, most: usize, to: SendPtr<f32>) {
        let (heads, block) = (self.work.sizes.index_heads, self.config.sparse.block_size);
        let (first, count) = (task.first_token, task.num_tokens);
        let queries = self.work.index_queries.rows(self.config.sparse.index_dim);
        let queries = queries.range(first * heads, (first + count) * heads);
        let last_position = batch.positions[first + count - 1] as usize;
        let last_page = self.num_blocks(last_position as u32).min(task.first_page + TASK_PAGES);
        let pages = batch.pages_of(task.seq);
        with_task_scratch(count * heads * block, |dots| {
            for (page, &page_id) in pages.iter().enumerate().take(last_page).skip(task.first_page) {
                let visible = block.min(last_position + 1 - page * block);
                let keys = self.pool.index_keys(layer, page_id);
                // SAFETY: the page holds `block` keys; this step's keys were written by the operation before.
                unsafe { self.kernels.index_dots(queries, self.pool.format(), keys, visible, dots) };
                for row in 0..count * heads {
                    let position = batch.positions[first + row / heads] as usize;
                    if position < page * block {
                        continue;
                    }
                    let seen = block.min(position + 1 - page * block);
                    let score = block_score(&dots[row * block..][..seen]);
                    // SAFETY: row and page belong to this task alone, and pages are fewer than `most`.
                    unsafe { *to.get().add((first * heads + row) * most + page) = score };
                }
            }
        });
    }

    fn pick(&mut self, batch: &Batch, scores: &[f32], most: usize) {
        let (heads, topk) = (self.work.sizes.index_heads, self.config.sparse.topk_blocks);
        let rows = batch.num_tokens() * heads;
        let mut chosen = std::mem::take(&mut self.work.chosen);
        let mut counts = std::mem::take(&mut self.work.num_chosen);
        chosen.resize(rows * topk, 0);
        counts.resize(rows, 0);
        let this = &*self;
        chosen.par_chunks_mut(topk).zip(&mut counts).enumerate().for_each_init(
            Vec::new,
            |order, (row, entry)| {
                let (ids, count) = entry;
                let visible = this.num_blocks(batch.positions[row / heads]);
                *count = select(&scores[row * most..][..visible], &this.config.sparse, order, ids) as u32;
            },
        );
        self.work.chosen = chosen;
        self.work.num_chosen = counts;
    }

    fn tap_choice(&mut self, layer: usize, batch: &Batch, scores: &[f32], most: usize) {
        let (heads, topk) = (self.work.sizes.index_heads, self.config.sparse.topk_blocks);
        let num_tokens = batch.num_tokens();
        // The taps are [head, token, ..]; the workspace is [token, head, ..].
        let rows = || (0..heads).flat_map(|head| (0..num_tokens).map(move |token| token * heads + head));
        self.taps.keep(TapPoint::BlockScore(layer), &[heads, num_tokens, most], || {
            rows().flat_map(|row| &scores[row * most..][..most]).copied().collect()
        });
        let work = &self.work;
        self.taps.keep(TapPoint::Selected(layer), &[heads, num_tokens, topk], || {
            let id = |row: usize, slot: usize| {
                if slot < work.num_chosen[row] as usize {
                    work.chosen[row * topk + slot] as f32
                } else {
                    -1.0
                }
            };
            rows().flat_map(|row| (0..topk).map(move |slot| id(row, slot))).collect()
        });
    }
}
