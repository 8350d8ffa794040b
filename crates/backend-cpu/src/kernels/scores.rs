//! Products of queries with many short keys: `out[q, k] = query q . key k`, for heads of some eighty dims.
//!
//! A dot product along so short a row spends its time on summing lanes. Here lanes are keys: keys come in blocks of
//! [`KEY_BLOCK`], dim by dim (or bf16 pair by pair), a query's value is broadcast, and nothing is summed across lanes.
//! Bound: FMA issue.

use super::Kernels;
use super::gemm::Rows;
#[cfg(target_arch = "x86_64")]
use super::isa::Isa;
use super::lanes::{Lanes, isa_fn};

/// Keys of a block: a multiple of two vectors of every instruction set.
pub(crate) const KEY_BLOCK: usize = 32;
/// Queries of a register tile.
const TILE: usize = 6;

/// One head's keys, packed: `[block][depth][KEY_BLOCK]` words. A word is an f32, or a bf16 pair of neighbouring dims.
#[derive(Clone, Copy)]
pub(crate) struct KeyBlocks<'a> {
    pub(crate) words: &'a [u32],
    /// Words of a key.
    pub(crate) depth: usize,
    pub(crate) is_pairs: bool,
}

impl KeyBlocks<'_> {
    fn num_blocks(&self) -> usize {
        self.words.len() / (self.depth * KEY_BLOCK)
    }
}

struct Job<'a> {
    queries: Rows<'a>,
    keys: KeyBlocks<'a>,
    /// [queries, blocks x KEY_BLOCK]
    out: &'a mut [f32],
}

#[inline(always)]
unsafe fn tile<V: Lanes, const M: usize>(job: &mut Job<'_>, block: usize, first: usize) {
    let (depth, stride) = (job.keys.depth, job.keys.num_blocks() * KEY_BLOCK);
    // SAFETY: queries `first..first + M` and the block exist; `out` was checked to hold them; instruction set promised.
    unsafe {
        let keys = job.keys.words.as_ptr().add(block * depth * KEY_BLOCK).cast::<f32>();
        let mut queries = [std::ptr::null(); M];
        for m in 0..M {
            queries[m] = job.queries.row(first + m);
        }
        let mut at = 0;
        while at < KEY_BLOCK {
            let mut acc = [[V::splat(0.0); 2]; M];
            for dim in 0..depth {
                let from = keys.add(dim * KEY_BLOCK + at);
                let (left, right) = (V::load(from), V::load(from.add(V::LEN)));
                for m in 0..M {
                    let value = V::splat(*queries[m].add(dim));
                    acc[m][0] = value.mul_add(left, acc[m][0]);
                    acc[m][1] = value.mul_add(right, acc[m][1]);
                }
            }
            for m in 0..M {
                let to = job.out.as_mut_ptr().add((first + m) * stride + block * KEY_BLOCK + at);
                acc[m][0].store(to);
                acc[m][1].store(to.add(V::LEN));
            }
            at += 2 * V::LEN;
        }
    }
}

#[inline(always)]
unsafe fn body<V: Lanes>(job: &mut Job<'_>) {
    for block in 0..job.keys.num_blocks() {
        let mut query = 0;
        // SAFETY: queries and blocks exist.
        unsafe {
            while query + TILE <= job.queries.len {
                tile::<V, TILE>(job, block, query);
                query += TILE;
            }
            while query < job.queries.len {
                tile::<V, 1>(job, block, query);
                query += 1;
            }
        }
    }
}

isa_fn!(fn scores(job: &mut Job<'_>) = body);

#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;

    use super::{Job, KEY_BLOCK};

    /// Queries of a register tile: 20 of 32 registers accumulate.
    const TILE: usize = 10;

    #[inline(always)]
    unsafe fn tile<const M: usize>(job: &mut Job<'_>, bits: &[u16], block: usize, first: usize) {
        let (depth, stride) = (job.keys.depth, job.keys.num_blocks() * KEY_BLOCK);
        // SAFETY: as for the f32 tile; a query has `2 * depth` bf16 values.
        unsafe {
            let keys = job.keys.words.as_ptr().add(block * depth * KEY_BLOCK);
            let mut queries = [std::ptr::null::<i32>(); M];
            for m in 0..M {
                queries[m] = job.queries.row_bf16(bits, first + m).cast();
            }
            let load =
                |from: *const u32| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(from.cast()));
            let mut acc = [[_mm512_setzero_ps(); 2]; M];
            for pair in 0..depth {
                let from = keys.add(pair * KEY_BLOCK);
                let (left, right) = (load(from), load(from.add(16)));
                for m in 0..M {
                    let value = _mm512_set1_epi32(queries[m].add(pair).read_unaligned());
                    let value = std::mem::transmute::<__m512i, __m512bh>(value);
                    acc[m][0] = _mm512_dpbf16_ps(acc[m][0], value, left);
                    acc[m][1] = _mm512_dpbf16_ps(acc[m][1], value, right);
                }
            }
            for m in 0..M {
                let to = job.out.as_mut_ptr().add((first + m) * stride + block * KEY_BLOCK);
                _mm512_storeu_ps(to, acc[m][0]);
                _mm512_storeu_ps(to.add(16), acc[m][1]);
            }
        }
    }

    /// # Safety
    /// The CPU has the instruction set, and `job` is as [`super::Kernels::scores`] has checked.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn scores(job: &mut Job<'_>, bits: &[u16]) {
        for block in 0..job.keys.num_blocks() {
            let mut query = 0;
            // SAFETY: queries and blocks exist.
            unsafe {
                while query + TILE <= job.queries.len {
                    tile::<TILE>(job, bits, block, query);
                    query += TILE;
                }
                while query < job.queries.len {
                    tile::<1>(job, bits, block, query);
                    query += 1;
                }
            }
        }
    }
}

impl Kernels {
    /// Whether keys are best packed as bf16 pairs when activations are bf16.
    pub(crate) fn takes_pairs(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.isa == Isa::Avx512Bf16;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// On the calling thread: `out` is `[queries.len, blocks x KEY_BLOCK]`.
    pub(crate) fn scores(&self, queries: Rows<'_>, keys: KeyBlocks<'_>, out: &mut [f32]) {
        let dims = if keys.is_pairs { 2 * keys.depth } else { keys.depth };
        assert_eq!(queries.width, dims, "queries of width {} against keys of {dims}", queries.width);
        assert_eq!(out.len(), queries.len * keys.num_blocks() * KEY_BLOCK, "room for all scores");
        let mut job = Job { queries, keys, out };
        #[cfg(target_arch = "x86_64")]
        if keys.is_pairs {
            assert!(self.takes_pairs(), "keys were packed for another instruction set");
            let bits = queries.bf16.expect("pairs come with bf16 queries");
            // SAFETY: the ISA was checked when `Kernels` was made; sizes just now.
            return unsafe { pairs::scores(&mut job, bits) };
        }
        // SAFETY: as above.
        unsafe { scores(self.isa, &mut job) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::convert::f32_to_bf16;
    use super::super::random::Random;
    use super::*;
    use crate::kernels::Isa;

    #[test]
    fn every_isa_multiplies_ragged_counts() {
        for isa in Isa::available() {
            let kernels = Kernels::of(isa).unwrap();
            for (num_queries, dim) in [(1, 20), (7, 80), (25, 6)] {
                let mut random = Random::new(dim as u64);
                // Small integers: exact in bf16 and in any order of summation.
                let mut values =
                    |count: usize| (0..count).map(|_| (random.normal() * 4.0).round()).collect::<Vec<f32>>();
                let (queries, keys) = (values(num_queries * dim), values(64 * dim));
                let bits: Vec<u16> = queries.iter().map(|&value| f32_to_bf16(value)).collect();
                for is_pairs in [false, true] {
                    if is_pairs && !kernels.takes_pairs() {
                        continue;
                    }
                    let depth = if is_pairs { dim / 2 } else { dim };
                    let mut words = vec![0; 64 * depth];
                    for key in 0..64 {
                        for at in 0..depth {
                            let word = match is_pairs {
                                false => keys[key * dim + at].to_bits(),
                                true => {
                                    let pair = &keys[key * dim + 2 * at..][..2];
                                    u32::from(f32_to_bf16(pair[0])) | (u32::from(f32_to_bf16(pair[1])) << 16)
                                }
                            };
                            words[(key / 32 * depth + at) * 32 + key % 32] = word;
                        }
                    }
                    let mut out = vec![f32::NAN; num_queries * 64];
                    let rows = Rows::new(&queries, Some(&bits), dim);
                    kernels.scores(rows, KeyBlocks { words: &words, depth, is_pairs }, &mut out);
                    for (index, found) in out.iter().enumerate() {
                        let (query, key) = (index / 64, index % 64);
                        let wanted: f32 =
                            (0..dim).map(|d| queries[query * dim + d] * keys[key * dim + d]).sum();
                        assert_eq!(*found, wanted, "{isa:?} {num_queries} x {dim}, pairs {is_pairs}");
                    }
                }
            }
        }
    }
}
