//! `attend`: each token and KV head over all of its pages, or over the chosen ones only.
//!
//! A run is at most [`RUN_PAGES`] pages. Runs are reduced separately and merged in order, whether one thread does all runs
//! of a token or (few tokens, long contexts) many threads share them: the result is the same bits.

#![expect(unsafe_code, reason = "tasks write disjoint heads, and read pages that nobody writes now")]

use m3_model::batch::Batch;
use rayon::prelude::*;

use super::CpuOps;
use crate::kernels::attention::{KvShape, State};
use crate::kernels::convert::round_to_bf16;
use crate::kernels::{SendPtr, with_task_scratch};

/// Pages of a run: 2,048 tokens of M3, the most that a sparse layer visits.
const RUN_PAGES: usize = 16;

/// Cuts `memory` into a softmax state of `heads` heads.
fn state(memory: &mut [f32], heads: usize) -> State<'_> {
    let (max, rest) = memory.split_at_mut(heads);
    let (sum, acc) = rest.split_at_mut(heads);
    State { max, sum, acc }
}

/// One layer's attention over one step.
#[derive(Clone, Copy)]
struct Job<'a> {
    layer: usize,
    batch: &'a Batch,
    group: Group,
}

/// Some pages of a token for one KV head.
#[derive(Clone, Copy)]
struct Run {
    token: usize,
    kv_head: usize,
    /// Counts runs of this token and head.
    index: usize,
}

/// Sizes of one KV head's work.
#[derive(Clone, Copy)]
struct Group {
    /// Query heads that share the KV head.
    heads: usize,
    shape: KvShape,
    is_sparse: bool,
}

impl Group {
    /// Values of a softmax state.
    fn state_len(&self) -> usize {
        self.heads * (2 + self.shape.dim)
    }
}

impl CpuOps {
    /// Leaves `[T, heads, head_dim]` in `work.attended`.
    pub(super) fn attend_pages(&mut self, layer: usize, batch: &Batch, is_sparse: bool) {
        let (sizes, dim) = (self.work.sizes, self.config.head_dim);
        let shape = KvShape { format: self.pool.format(), page_tokens: self.pool.page_tokens(), dim };
        let group = Group { heads: sizes.heads / sizes.kv_heads, shape, is_sparse };
        let job = Job { layer, batch, group };
        let mut attended = std::mem::replace(&mut self.work.attended, crate::buffer::Buffer::empty());
        let mut partial = std::mem::take(&mut self.work.partial);
        attended.reset(batch.num_tokens() * sizes.heads * dim);
        let longest = batch.positions.iter().copied().max().unwrap_or(0) as usize / shape.page_tokens + 1;
        let units = batch.num_tokens() * sizes.kv_heads;
        if units < rayon::current_num_threads() * 2 && longest > RUN_PAGES && !is_sparse {
            self.share_runs(job, &mut attended.values, &mut partial);
        } else {
            self.whole_units(job, &mut attended.values);
        }
        if !attended.bits.is_empty() {
            let width = sizes.heads * dim;
            let rows = attended.values.par_chunks_mut(width).zip(attended.bits.par_chunks_mut(width));
            rows.for_each(|(values, bits)| round_to_bf16(values, bits));
        }
        self.work.attended = attended;
        self.work.partial = partial;
    }

    /// Runs of a token (one per KV head when sparse).
    fn num_runs(&self, Job { batch, group, .. }: Job<'_>, token: usize, kv_head: usize) -> usize {
        let pages = if group.is_sparse {
            self.work.num_chosen[token * self.work.sizes.index_heads + kv_head] as usize
        } else {
            batch.positions[token] as usize / group.shape.page_tokens + 1
        };
        pages.div_ceil(RUN_PAGES)
    }

    /// Every (token, KV head) is a task that does all of its runs.
    fn whole_units(&self, job: Job<'_>, attended: &mut [f32]) {
        let group = job.group;
        let (kv_heads, width) = (self.work.sizes.kv_heads, group.heads * group.shape.dim);
        attended.par_chunks_mut(width).enumerate().for_each(|(unit, out)| {
            let (token, kv_head) = (unit / kv_heads, unit % kv_heads);
            with_task_scratch(2 * group.state_len() + group.heads * group.shape.page_tokens, |scratch| {
                let (total, rest) = scratch.split_at_mut(group.state_len());
                let (run, scores) = rest.split_at_mut(group.state_len());
                let mut total = state(total, group.heads);
                self.attend_run(job, Run { token, kv_head, index: 0 }, scores, &mut total);
                for index in 1..self.num_runs(job, token, kv_head) {
                    let mut run = state(run, group.heads);
                    self.attend_run(job, Run { token, kv_head, index }, scores, &mut run);
                    total.merge(&run, group.shape.dim);
                }
                total.finish(group.shape.dim);
                out.copy_from_slice(total.acc);
            });
        });
    }

    /// Every run is a task; states are merged afterwards.
    fn share_runs(&self, job: Job<'_>, attended: &mut [f32], partial: &mut Vec<f32>) {
        let group = job.group;
        let (kv_heads, len) = (self.work.sizes.kv_heads, group.state_len());
        let units = job.batch.num_tokens() * kv_heads;
        let mut runs = Vec::new();
        let mut first_run = Vec::with_capacity(units + 1);
        for unit in 0..units {
            first_run.push(runs.len());
            let (token, kv_head) = (unit / kv_heads, unit % kv_heads);
            let indices = 0..self.num_runs(job, token, kv_head);
            runs.extend(indices.map(|index| Run { token, kv_head, index }));
        }
        first_run.push(runs.len());
        partial.resize(runs.len() * len, 0.0);
        partial.par_chunks_mut(len).zip(&runs).with_max_len(1).for_each(|(memory, &run)| {
            with_task_scratch(group.heads * group.shape.page_tokens, |scores| {
                self.attend_run(job, run, scores, &mut state(memory, group.heads));
            });
        });
        let states = SendPtr(partial.as_mut_ptr());
        attended.par_chunks_mut(group.heads * group.shape.dim).enumerate().for_each(|(unit, out)| {
            // SAFETY: each unit has states of its own.
            let states = unsafe {
                let first = states.get().add(first_run[unit] * len);
                std::slice::from_raw_parts_mut(first, (first_run[unit + 1] - first_run[unit]) * len)
            };
            let (total, rest) = states.split_at_mut(len);
            let mut total = state(total, group.heads);
            for run in rest.chunks_mut(len) {
                total.merge(&state(run, group.heads), group.shape.dim);
            }
            total.finish(group.shape.dim);
            out.copy_from_slice(total.acc);
        });
    }

    fn attend_run(&self, job: Job<'_>, run: Run, scores: &mut [f32], state: &mut State<'_>) {
        let Job { layer, batch, group } = job;
        let Run { token, kv_head, index } = run;
        let (sizes, shape) = (self.work.sizes, group.shape);
        let position = batch.positions[token] as usize;
        let pages = batch.pages_of(&batch.seqs[batch.seq_of[token] as usize]);
        let first_head = token * sizes.heads + kv_head * group.heads;
        let queries = self.work.queries.rows(shape.dim).range(first_head, first_head + group.heads);
        state.clear();
        let mut visit = |block: usize| {
            let visible = shape.page_tokens.min(position + 1 - block * shape.page_tokens);
            let block = self.pool.block(layer, kv_head, pages[block], visible);
            // SAFETY: a whole page of this head; this step's slots were written by the operation before.
            unsafe { self.kernels.attend_block(queries, shape, block, scores, state) };
        };
        if group.is_sparse {
            let row = token * sizes.index_heads + kv_head;
            let topk = self.config.sparse.topk_blocks;
            let chosen = &self.work.chosen[row * topk..][..self.work.num_chosen[row] as usize];
            chosen.iter().skip(index * RUN_PAGES).take(RUN_PAGES).for_each(|&block| visit(block as usize));
        } else {
            let end = position / shape.page_tokens + 1;
            (index * RUN_PAGES..end.min((index + 1) * RUN_PAGES)).for_each(visit);
        }
    }
}
