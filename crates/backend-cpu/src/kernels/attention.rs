//! Attention of the query heads that share a KV head over a list of pages, with a running softmax.
//!
//! `o = sum_j softmax(q . k_j / sqrt(dim)) v_j`, page by page: scores by the dot kernel of `gemm` (the page's keys are its
//! weights), then the running maximum and sum, then the values. Everything between is f32. Pages are visited in the
//! order given; which pages, and how long lists are shared by threads, is the business of the caller. Bound: memory for
//! one token, FMA issue in prefill.

use super::Kernels;
use super::gemm::{Rows, Tile};
use super::lanes::{Lanes, isa_fn};
use super::matrix::{Format, Matrix};

/// A page's keys and values of one KV head, `[tokens, dim]` each; only the first `visible` tokens count.
#[derive(Clone, Copy)]
pub struct KvBlock {
    pub(crate) keys: *const u8,
    pub(crate) values: *const u8,
    pub(crate) visible: usize,
}

/// What the pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// F32 or Bf16.
    pub format: Format,
    pub page_tokens: usize,
    pub dim: usize,
}

/// Running softmax of several heads: the plain sum so far is `acc / sum`, relative to `exp(max)`.
pub struct State<'a> {
    /// Per head.
    pub(crate) max: &'a mut [f32],
    /// Per head.
    pub(crate) sum: &'a mut [f32],
    /// `[heads, dim]`
    pub(crate) acc: &'a mut [f32],
}

impl State<'_> {
    pub(crate) fn clear(&mut self) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.acc.fill(0.0);
    }

    /// Takes another run of pages into this one.
    pub(crate) fn merge(&mut self, other: &State<'_>, dim: usize) {
        for head in 0..self.max.len() {
            let max = self.max[head].max(other.max[head]);
            // Equal first: two empty runs would give NaN as inf - inf.
            let part = |old: f32| if old == max { 1.0 } else { (old - max).exp() };
            let (mine, theirs) = (part(self.max[head]), part(other.max[head]));
            self.max[head] = max;
            self.sum[head] = self.sum[head] * mine + other.sum[head] * theirs;
            let (acc, added) = (&mut self.acc[head * dim..][..dim], &other.acc[head * dim..][..dim]);
            acc.iter_mut().zip(added).for_each(|(acc, added)| *acc = *acc * mine + added * theirs);
        }
    }

    /// Divides: leaves the attended values in `acc`.
    pub(crate) fn finish(&mut self, dim: usize) {
        for (head, sum) in self.sum.iter().enumerate() {
            self.acc[head * dim..][..dim].iter_mut().for_each(|value| *value /= sum);
        }
    }
}

/// Turns a row of raw scores into weights relative to a new maximum; returns (maximum, sum of weights).
#[inline(always)]
unsafe fn weights_body<V: Lanes>(scores: &mut [f32], scale: f32, before: f32) -> (f32, f32) {
    let whole = scores.len() / V::LEN * V::LEN;
    // SAFETY: vectors lie inside the slice; instruction set promised by the caller.
    unsafe {
        let mut largest = V::splat(f32::NEG_INFINITY);
        for at in (0..whole).step_by(V::LEN) {
            largest = largest.max(V::load(scores.as_ptr().add(at)));
        }
        let rest = scores[whole..].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let max = before.max(largest.largest().max(rest) * scale);
        let mut sum = V::splat(0.0);
        for at in (0..whole).step_by(V::LEN) {
            let shifted = V::load(scores.as_ptr().add(at)).mul_add(V::splat(scale), V::splat(-max));
            let weight = shifted.exp();
            weight.store(scores.as_mut_ptr().add(at));
            sum = sum.add(weight);
        }
        let mut total = sum.sum();
        for score in &mut scores[whole..] {
            *score = (*score * scale - max).exp();
            total += *score;
        }
        (max, total)
    }
}

isa_fn!(fn softmax_weights(scores: &mut [f32], scale: f32, before: f32) -> (f32, f32) = weights_body);

/// `acc[h] += sum_t weights[h][t] * values[t]` for four heads (or one) and two vectors of dims at a time.
struct Weigh<'a> {
    weights: &'a [f32],
    /// From one head's weights to the next.
    stride: usize,
    values: *const u8,
    is_bf16: bool,
    tokens: usize,
    dim: usize,
    acc: &'a mut [f32],
}

#[inline(always)]
unsafe fn load_value<V: Lanes, const BF16: bool>(values: *const u8, at: usize) -> V {
    // SAFETY: the vector lies inside the page.
    unsafe {
        if BF16 { V::load_bf16(values.cast::<u16>().add(at)) } else { V::load(values.cast::<f32>().add(at)) }
    }
}

#[inline(always)]
unsafe fn weigh_tile<V: Lanes, const BF16: bool, const H: usize, const D: usize>(
    job: &mut Weigh<'_>,
    head: usize,
    at: usize,
) {
    // SAFETY: heads `head..head + H` and dims `at..at + D * LEN` exist.
    unsafe {
        let mut acc = [[V::splat(0.0); D]; H];
        for h in 0..H {
            for d in 0..D {
                acc[h][d] = V::load(job.acc.as_ptr().add((head + h) * job.dim + at + d * V::LEN));
            }
        }
        for token in 0..job.tokens {
            let mut value = [V::splat(0.0); D];
            for d in 0..D {
                value[d] = load_value::<V, BF16>(job.values, token * job.dim + at + d * V::LEN);
            }
            for h in 0..H {
                let weight = V::splat(*job.weights.get_unchecked((head + h) * job.stride + token));
                for d in 0..D {
                    acc[h][d] = value[d].mul_add(weight, acc[h][d]);
                }
            }
        }
        for h in 0..H {
            for d in 0..D {
                acc[h][d].store(job.acc.as_mut_ptr().add((head + h) * job.dim + at + d * V::LEN));
            }
        }
    }
}

#[inline(always)]
unsafe fn weigh_heads<V: Lanes, const BF16: bool, const H: usize>(job: &mut Weigh<'_>, head: usize) {
    let mut at = 0;
    // SAFETY: dims stay inside a head.
    unsafe {
        while at + 2 * V::LEN <= job.dim {
            weigh_tile::<V, BF16, H, 2>(job, head, at);
            at += 2 * V::LEN;
        }
        while at + V::LEN <= job.dim {
            weigh_tile::<V, BF16, H, 1>(job, head, at);
            at += V::LEN;
        }
    }
    for h in head..head + H {
        for d in at..job.dim {
            for token in 0..job.tokens {
                let index = token * job.dim + d;
                // SAFETY: inside the page.
                let value = unsafe {
                    if BF16 {
                        super::convert::bf16_to_f32(job.values.cast::<u16>().add(index).read_unaligned())
                    } else {
                        job.values.cast::<f32>().add(index).read_unaligned()
                    }
                };
                job.acc[h * job.dim + d] += job.weights[h * job.stride + token] * value;
            }
        }
    }
}

#[inline(always)]
unsafe fn weigh_format<V: Lanes, const BF16: bool>(job: &mut Weigh<'_>) {
    let heads = job.acc.len() / job.dim;
    let mut head = 0;
    // SAFETY: heads exist.
    unsafe {
        while head + 4 <= heads {
            weigh_heads::<V, BF16, 4>(job, head);
            head += 4;
        }
        while head < heads {
            weigh_heads::<V, BF16, 1>(job, head);
            head += 1;
        }
    }
}

#[inline(always)]
unsafe fn weigh_body<V: Lanes>(job: &mut Weigh<'_>) {
    // SAFETY: the caller's promise.
    unsafe { if job.is_bf16 { weigh_format::<V, true>(job) } else { weigh_format::<V, false>(job) } }
}

isa_fn!(fn weigh_values(job: &mut Weigh<'_>) = weigh_body);

impl Kernels {
    /// Turns a row of raw scores into weights relative to its own maximum; returns their sum.
    pub(crate) fn softmax_weights(&self, scores: &mut [f32], scale: f32) -> f32 {
        // SAFETY: the ISA was checked when `Kernels` was made.
        unsafe { softmax_weights(self.isa, scores, scale, f32::NEG_INFINITY).1 }
    }

    /// Takes one page into `state`. `queries` are the heads' rows, `scores` holds `heads * page_tokens` values.
    ///
    /// # Safety
    /// The block's pointers are good for `visible` tokens of `shape` and nobody writes them meanwhile.
    pub(crate) unsafe fn attend_block(
        &self,
        queries: Rows<'_>,
        shape: KvShape,
        block: KvBlock,
        scores: &mut [f32],
        state: &mut State<'_>,
    ) {
        let (heads, stride) = (queries.len, shape.page_tokens);
        assert!(scores.len() >= heads * stride && state.acc.len() == heads * shape.dim);
        let keys = Matrix::raw(shape.format, block.keys, block.visible, shape.dim);
        // SAFETY: scores hold a row of `page_tokens` per head; keys by the caller's promise.
        unsafe {
            let out = scores.as_mut_ptr();
            self.gemm_tile(&Tile {
                x: queries,
                w: &keys,
                first: 0,
                last: block.visible,
                out,
                out_stride: stride,
            });
        }
        let scale = 1.0 / (shape.dim as f32).sqrt();
        for head in 0..heads {
            let row = &mut scores[head * stride..][..block.visible];
            let before = state.max[head];
            // SAFETY: the ISA was checked when `Kernels` was made.
            let (max, sum) = unsafe { softmax_weights(self.isa, row, scale, before) };
            let keep = if before == max { 1.0 } else { (before - max).exp() };
            state.max[head] = max;
            state.sum[head] = state.sum[head] * keep + sum;
            if keep != 1.0 {
                state.acc[head * shape.dim..][..shape.dim].iter_mut().for_each(|value| *value *= keep);
            }
        }
        let mut job = Weigh {
            weights: scores,
            stride,
            values: block.values,
            is_bf16: shape.format == Format::Bf16,
            tokens: block.visible,
            dim: shape.dim,
            acc: state.acc,
        };
        // SAFETY: ISA as above; values by the caller's promise.
        unsafe { weigh_values(self.isa, &mut job) }
    }
}

#[cfg(test)]
mod tests;
