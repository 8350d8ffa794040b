//! Attention inside segments, in both directions: two products per head over blocks of queries.
//!
//! Queries, keys and values of a segment are laid out head by head: queries as rows, keys in blocks for
//! [`crate::kernels::scores`], values turned so that weights times values is an ordinary product along the keys. A task
//! takes a block of a head's queries; its scores stay in the second cache.

use rayon::prelude::*;

use super::{Encoder, Group};
use crate::buffer::{Buffer, Precision};
use crate::kernels::convert::{f32_to_bf16, round_to_bf16};
use crate::kernels::gemm::Rows;
use crate::kernels::matrix::Matrix;
use crate::kernels::scores::{KEY_BLOCK, KeyBlocks};
use crate::kernels::{with_task_scratch, with_weight_bits};
use crate::weights::vision::VisionLayer;
use m3_model::rope::Rope;

/// Queries of a task.
pub(super) const QUERY_BLOCK: usize = 40;

/// One segment's heads.
struct Heads {
    num_patches: usize,
    dim: usize,
    /// `num_patches` in whole key blocks.
    padded: usize,
    /// [heads, patches, dim], rotated.
    queries: Buffer,
    /// [heads][key block][depth][KEY_BLOCK], rotated.
    keys: Vec<u32>,
    depth: usize,
    is_pairs: bool,
    /// [heads, dim, padded patches], 0 after the last patch.
    values: Buffer,
}

/// Where a segment's projections lie: rows of q | k | v.
struct Projected<'a> {
    rows: &'a [f32],
    hidden: usize,
    angles: &'a [(f32, f32)],
    num_pairs: usize,
}

impl Projected<'_> {
    /// Head values of patch `row` at `offset` of its q | k | v, with bias.
    fn load(&self, row: usize, offset: usize, bias: &[f32], to: &mut [f32]) {
        let from = &self.rows[row * 3 * self.hidden + offset..][..to.len()];
        to.iter_mut().zip(from).zip(bias).for_each(|((to, from), bias)| *to = from + bias);
    }

    fn rotate(&self, row: usize, head: &mut [f32]) {
        Rope::rotate(head, &self.angles[row * self.num_pairs..][..self.num_pairs]);
    }
}

impl Encoder {
    /// [patches, hidden], before the output projection.
    pub(super) fn attention(&self, layer: &VisionLayer, normed: &Buffer, group: &Group) -> Buffer {
        let config = &self.vision.config;
        let (hidden, dim) = (config.hidden_size, config.head_dim());
        let num_patches = normed.values.len() / hidden;
        let mut projected = vec![0.0; num_patches * 3 * hidden];
        let parts = [&layer.query.weight, &layer.key.weight, &layer.value.weight];
        self.kernels.gemm_side_by_side(normed.rows(hidden), &parts, &mut projected);
        let mut attended = self.buffer();
        attended.reset(num_patches * hidden);
        for segment in &group.segments {
            let rows = Projected {
                rows: &projected[segment.start * 3 * hidden..segment.end * 3 * hidden],
                hidden,
                angles: &group.angles[segment.start * group.num_pairs..segment.end * group.num_pairs],
                num_pairs: group.num_pairs,
            };
            let heads = self.lay_out(layer, &rows);
            let by_head = self.attend_heads(&heads);
            let out = &mut attended.values[segment.start * hidden..segment.end * hidden];
            out.par_chunks_mut(hidden).enumerate().for_each(|(row, out)| {
                for (head, out) in out.chunks_mut(dim).enumerate() {
                    out.copy_from_slice(&by_head[(head * heads.num_patches + row) * dim..][..dim]);
                }
            });
        }
        // Only rounds: the values are there.
        attended.fill(num_patches, hidden, |_, _| {});
        attended
    }

    fn lay_out(&self, layer: &VisionLayer, rows: &Projected<'_>) -> Heads {
        let (config, hidden) = (&self.vision.config, rows.hidden);
        let (num_heads, dim) = (config.num_heads, config.head_dim());
        let num_patches = rows.rows.len() / (3 * hidden);
        let padded = num_patches.next_multiple_of(KEY_BLOCK);
        let is_pairs = self.precision == Precision::Bf16 && self.kernels.takes_pairs();
        let depth = if is_pairs { dim / 2 } else { dim };
        let mut queries = self.buffer();
        queries.fill(num_heads, num_patches * dim, |head, out| {
            for (row, out) in out.chunks_mut(dim).enumerate() {
                rows.load(row, head * dim, &layer.query.bias[head * dim..], out);
                rows.rotate(row, out);
            }
        });
        let mut values = self.buffer();
        values.fill(num_heads, dim * padded, |head, out| {
            out.fill(0.0);
            let mut value = vec![0.0; dim];
            for row in 0..num_patches {
                rows.load(row, 2 * hidden + head * dim, &layer.value.bias[head * dim..], &mut value);
                value.iter().enumerate().for_each(|(at, value)| out[at * padded + row] = *value);
            }
        });
        let mut keys = vec![0; num_heads * padded * depth];
        let rounds = self.precision == Precision::Bf16;
        keys.par_chunks_mut(padded * depth).enumerate().for_each(|(head, words)| {
            let mut key = vec![0.0; dim];
            for row in 0..num_patches {
                rows.load(row, hidden + head * dim, &layer.key.bias[head * dim..], &mut key);
                rows.rotate(row, &mut key);
                let block = &mut words[row / KEY_BLOCK * depth * KEY_BLOCK..][..depth * KEY_BLOCK];
                for (at, word) in block.iter_mut().skip(row % KEY_BLOCK).step_by(KEY_BLOCK).enumerate() {
                    *word = word_of(&key, at, is_pairs, rounds);
                }
            }
        });
        Heads { num_patches, dim, padded, queries, keys, depth, is_pairs, values }
    }

    /// [heads, patches, dim]
    fn attend_heads(&self, heads: &Heads) -> Vec<f32> {
        let Heads { num_patches, dim, .. } = *heads;
        let mut attended = vec![0.0; heads.queries.values.len()];
        attended.par_chunks_mut(num_patches * dim).enumerate().for_each(|(head, attended)| {
            let blocks = attended.par_chunks_mut(QUERY_BLOCK * dim).enumerate().with_max_len(1);
            blocks.for_each(|(block, out)| self.attend_block(heads, head, block * QUERY_BLOCK, out));
        });
        attended
    }

    /// The queries of `head` from `first` on, as many as `out` has rows. On the calling thread.
    fn attend_block(&self, heads: &Heads, head: usize, first: usize, out: &mut [f32]) {
        let Heads { num_patches, dim, padded, .. } = *heads;
        let count = out.len() / dim;
        let first = head * num_patches + first;
        let queries = heads.queries.rows(dim).range(first, first + count);
        let words = &heads.keys[head * padded * heads.depth..][..padded * heads.depth];
        let keys = KeyBlocks { words, depth: heads.depth, is_pairs: heads.is_pairs };
        let turned = head * dim * padded..(head + 1) * dim * padded;
        let values = match heads.values.bits() {
            Some(bits) => Matrix::of_bf16(&bits[turned], dim, padded),
            None => Matrix::of_f32(&heads.values.values[turned], dim, padded),
        };
        with_task_scratch(count * padded, |scores| {
            self.kernels.scores(queries, keys, scores);
            let scale = 1.0 / (dim as f32).sqrt();
            let mut sums = [0.0; QUERY_BLOCK];
            for (row, sum) in scores.chunks_mut(padded).zip(&mut sums) {
                *sum = self.kernels.softmax_weights(&mut row[..num_patches], scale);
                row[num_patches..].fill(0.0);
            }
            match self.precision {
                Precision::F32 => self.kernels.gemm_here(Rows::new(scores, None, padded), &values, out),
                Precision::Bf16 => with_weight_bits(count * padded, |bits| {
                    round_to_bf16(scores, bits);
                    self.kernels.gemm_here(Rows::new(scores, Some(bits), padded), &values, out);
                }),
            }
            for (row, sum) in out.chunks_mut(dim).zip(sums) {
                row.iter_mut().for_each(|value| *value /= sum);
            }
        });
    }
}

/// Word `at` of a key: a value, or a bf16 pair.
fn word_of(key: &[f32], at: usize, is_pairs: bool, rounds: bool) -> u32 {
    let bits = |at: usize| u32::from(f32_to_bf16(key[at]));
    match (is_pairs, rounds) {
        (true, _) => bits(2 * at) | (bits(2 * at + 1) << 16),
        (false, true) => bits(at) << 16,
        (false, false) => key[at].to_bits(),
    }
}
