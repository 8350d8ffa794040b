//! Prefill: `vdpbf16ps` over packed tiles, for many rows of activations.
//!
//! A task owns some columns of `y`. For each block of `DEPTH` values along K it packs its activations once
//! (`[rows / 12][pairs][12]` pairs of bf16) and then, 32 weight rows at a time, a block of weights (`[pairs][32]`), and
//! multiplies 12 x 32 register tiles: 24 accumulators, two loads and twelve broadcasts for 24 instructions. Packing is
//! thread-local and one block large; no copy of the weights outlives the task, unless [`whole`] made one beforehand
//! (`[rows / 32][pairs][32]`), which is then used in place. Bound: issue of the dot product.
//! Each output is summed along K in order, block by block, so the split into tasks does not change it.

use std::arch::x86_64::*;

use rayon::prelude::*;

use super::super::matrix::{Format, Matrix};
use super::super::with_scratch_u32;
use super::Tile;
use super::dot_bf16::decode_row;

/// Rows of activations from which packing pays.
pub(super) const LEAST_ROWS: usize = 32;
/// Rows and columns of a register tile.
const MR: usize = 12;
const NR: usize = 32;
/// Values along K in a packed block: weights 16 KiB, a tile of activations 6 KiB; both in L1.
const DEPTH: usize = 256;
const PAIRS: usize = DEPTH / 2;
/// Rows of activations in a packed block: 384 KiB, in L2.
const MOST_ROWS: usize = 768;

/// Packs columns `from..from + depth` of the rows `first..first + count` as `[count / MR][PAIRS][MR]`, zero padded.
unsafe fn pack_rows(
    tile: &Tile<'_>,
    bits: &[u16],
    rows: (usize, usize),
    cols: (usize, usize),
    to: &mut [u32],
) {
    let ((first, count), (from, depth)) = (rows, cols);
    for m in 0..count.next_multiple_of(MR) {
        let base = m / MR * PAIRS * MR + m % MR;
        if m >= count {
            (0..PAIRS).for_each(|pair| to[base + pair * MR] = 0);
            continue;
        }
        // SAFETY: the row has `from + depth` values.
        let row = unsafe { std::slice::from_raw_parts(tile.x.row_bf16(bits, first + m).add(from), depth) };
        let (whole, rest) = row.as_chunks::<2>();
        for (pair, values) in whole.iter().enumerate() {
            to[base + pair * MR] = u32::from(values[0]) | (u32::from(values[1]) << 16);
        }
        if let [last] = rest {
            to[base + whole.len() * MR] = u32::from(*last);
        }
    }
}

/// Packs columns `cols` of weight rows `first..first + count` as `[pairs][NR]`, zero padded to NR rows.
#[inline(always)]
unsafe fn pack_weights(
    w: &Matrix,
    rows: (usize, usize),
    cols: (usize, usize),
    decoded: &mut [u16],
    to: &mut [u32],
) {
    let ((first, count), (from, depth)) = (rows, cols);
    for n in 0..NR {
        if n >= count {
            (0..depth.div_ceil(2)).for_each(|pair| to[pair * NR + n] = 0);
            continue;
        }
        // SAFETY: columns inside the row; `decoded` holds DEPTH values.
        let row = unsafe {
            if w.format == Format::Bf16 {
                w.row(first + n).cast::<u16>().add(from)
            } else {
                decode_row(w, first + n, from..from + depth, decoded.as_mut_ptr());
                decoded.as_ptr()
            }
        };
        for pair in 0..depth / 2 {
            // SAFETY: two values inside the row; files may be unaligned.
            to[pair * NR + n] = unsafe { row.add(2 * pair).cast::<u32>().read_unaligned() };
        }
        if depth % 2 == 1 {
            // SAFETY: the last value of the row.
            to[depth / 2 * NR + n] = u32::from(unsafe { row.add(depth - 1).read_unaligned() });
        }
    }
}

/// All of a matrix, `[rows / NR][pairs][NR]`.
///
/// # Safety
/// The CPU has the instruction set.
pub(super) unsafe fn whole(w: &Matrix) -> Vec<u32> {
    let pairs = w.cols.div_ceil(2);
    let mut packed = vec![0; w.rows.div_ceil(NR) * NR * pairs];
    packed.par_chunks_mut(NR * pairs).enumerate().for_each(|(strip, to)| {
        let rows = (strip * NR, NR.min(w.rows - strip * NR));
        // SAFETY: the caller's promise; rows lie inside the matrix.
        unsafe { pack_strip(w, rows, to) }
    });
    packed
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn pack_strip(w: &Matrix, rows: (usize, usize), to: &mut [u32]) {
    let mut decoded = [0u16; DEPTH];
    for from in (0..w.cols).step_by(DEPTH) {
        let depth = DEPTH.min(w.cols - from);
        // SAFETY: rows and columns lie inside the matrix.
        unsafe { pack_weights(w, rows, (from, depth), &mut decoded, &mut to[from / 2 * NR..]) };
    }
}

/// One 12 x 32 tile over `pairs` pairs; adds to `out` unless it is the first block along K.
#[inline(always)]
unsafe fn register_tile(x: *const u32, w: *const u32, pairs: usize) -> [[__m512; 2]; MR] {
    // SAFETY: `x` holds `pairs * MR` and `w` `pairs * NR` pairs; instruction set promised by the caller.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); 2]; MR];
        for pair in 0..pairs {
            let load = |at: usize| {
                std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(w.add(pair * NR + at).cast()))
            };
            let (left, right) = (load(0), load(16));
            for m in 0..MR {
                let value = _mm512_set1_epi32((*x.add(pair * MR + m)).cast_signed());
                let value = std::mem::transmute::<__m512i, __m512bh>(value);
                acc[m][0] = _mm512_dpbf16_ps(acc[m][0], value, left);
                acc[m][1] = _mm512_dpbf16_ps(acc[m][1], value, right);
            }
        }
        acc
    }
}

#[inline(always)]
unsafe fn store(
    acc: &[[__m512; 2]; MR],
    out: *mut f32,
    stride: usize,
    rows: usize,
    masks: [__mmask16; 2],
    add: bool,
) {
    for (m, row) in acc.iter().enumerate().take(rows) {
        for half in 0..2 {
            // SAFETY: the caller's output covers the masked columns of these rows.
            unsafe {
                let at = out.add(m * stride + 16 * half);
                let before = if add { _mm512_maskz_loadu_ps(masks[half], at) } else { _mm512_setzero_ps() };
                _mm512_mask_storeu_ps(at, masks[half], _mm512_add_ps(before, row[half]));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn block(tile: &Tile<'_>, bits: &[u16], rows: (usize, usize), x: &mut [u32], w: &mut [u32]) {
    let (first_row, num_rows) = rows;
    let mut decoded = [0u16; DEPTH];
    let mut from = 0;
    while from < tile.w.cols {
        let depth = DEPTH.min(tile.w.cols - from);
        // SAFETY: rows and columns lie inside the operands, outputs inside the caller's.
        unsafe {
            pack_rows(tile, bits, rows, (from, depth), x);
            let mut n = tile.first;
            while n < tile.last {
                let columns = NR.min(tile.last - n);
                let w = if tile.w.packed.is_null() || !n.is_multiple_of(NR) {
                    pack_weights(tile.w, (n, columns), (from, depth), &mut decoded, w);
                    w.as_ptr()
                } else {
                    tile.w.packed.add(n * tile.w.cols.div_ceil(2) + from / 2 * NR)
                };
                let mask = u32::MAX >> (NR - columns);
                let masks = [mask as u16, (mask >> 16) as u16];
                for m in (0..num_rows).step_by(MR) {
                    let acc = register_tile(x.as_ptr().add(m * PAIRS), w, depth.div_ceil(2));
                    let out = tile.out.add((first_row + m) * tile.out_stride + n - tile.first);
                    store(&acc, out, tile.out_stride, MR.min(num_rows - m), masks, from > 0);
                }
                n += NR;
            }
        }
        from += DEPTH;
    }
}

/// # Safety
/// As for `Kernels::gemm_tile`; the weights are bf16 or MXFP8 and the CPU has the instruction set.
pub(super) unsafe fn tile(tile: &Tile<'_>, bits: &[u16]) {
    let most = MOST_ROWS.min(tile.x.len).next_multiple_of(MR);
    with_scratch_u32(most * PAIRS + NR * PAIRS, |scratch| {
        let (x, w) = scratch.split_at_mut(most * PAIRS);
        for first in (0..tile.x.len).step_by(MOST_ROWS) {
            // SAFETY: the caller's promise.
            unsafe { block(tile, bits, (first, MOST_ROWS.min(tile.x.len - first)), x, w) };
        }
    });
}
