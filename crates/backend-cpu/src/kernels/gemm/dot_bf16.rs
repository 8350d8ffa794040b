//! Dot products of bf16 pairs (`vdpbf16ps`): decode and small batches.
//!
//! bf16 weights go straight from memory into the instruction. MXFP8 weights are decoded to bf16 in registers by two
//! 128-entry byte tables (exact, e4m3 subnormals included, which the instruction would flush if they were bf16 subnormals),
//! and each group's partial product is scaled in f32; with more than a few rows of activations a group of columns is
//! decoded once into a thread's scratch instead. Bound: memory; x and a strip of W stay in L1/L2.

use std::arch::x86_64::*;

use super::super::convert::{bf16_to_f32, e8m0_to_f32, f32_to_bf16};
use super::super::matrix::{Format, GROUP, Matrix};
use super::super::with_scratch_u16;
use super::{COLUMN_GROUP, Tile};

/// Rows of activations up to which decoding MXFP8 in registers is cheaper than through scratch.
const DIRECT_ROWS: usize = 4;
/// Rows of activations from which bf16 weights too are gathered in scratch.
const COPY_ROWS: usize = 24;
const STRIP: usize = 4;

#[inline(always)]
unsafe fn load(from: *const u16) -> __m512bh {
    // SAFETY: 32 elements, promised by the caller.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(from.cast())) }
}

#[inline(always)]
unsafe fn load_tail(from: *const u16, mask: __mmask32) -> __m512bh {
    // SAFETY: the elements that the mask names, promised by the caller.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_maskz_loadu_epi16(mask, from.cast())) }
}

#[inline(always)]
unsafe fn bf16_tile<const M: usize, const N: usize>(
    x: [*const u16; M],
    w: [*const u16; N],
    width: usize,
    ahead: usize,
) -> [[f32; N]; M] {
    // SAFETY: rows of `width` elements and the instruction set, promised by the caller.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); N]; M];
        let whole = width / 32 * 32;
        let mut col = 0;
        while col < whole {
            if ahead > 0 {
                for row in w {
                    _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(col + ahead).cast());
                }
            }
            let mut wide = [load(w[0].add(col)); N];
            for n in 1..N {
                wide[n] = load(w[n].add(col));
            }
            for m in 0..M {
                let value = load(x[m].add(col));
                for n in 0..N {
                    acc[m][n] = _mm512_dpbf16_ps(acc[m][n], value, wide[n]);
                }
            }
            col += 32;
        }
        if whole < width {
            let mask = (1u32 << (width - whole)) - 1;
            for m in 0..M {
                let value = load_tail(x[m].add(whole), mask);
                for n in 0..N {
                    acc[m][n] = _mm512_dpbf16_ps(acc[m][n], value, load_tail(w[n].add(whole), mask));
                }
            }
        }
        reduce(acc)
    }
}

#[inline(always)]
unsafe fn reduce<const M: usize, const N: usize>(acc: [[__m512; N]; M]) -> [[f32; N]; M] {
    let mut sums = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            // SAFETY: the CPU has AVX-512, promised by the caller.
            sums[m][n] = unsafe { _mm512_reduce_add_ps(acc[m][n]) };
        }
    }
    sums
}

/// Byte tables: magnitude of an e4m3 -> low and high byte of the same value in bf16.
struct Decoder {
    low: [__m512i; 2],
    high: [__m512i; 2],
    order: __m512i,
}

const TABLES: ([u8; 128], [u8; 128]) = {
    let (mut low, mut high) = ([0; 128], [0; 128]);
    let mut code = 0;
    while code < 128 {
        let bits = bf16_of_e4m3(code as u32);
        low[code] = bits as u8;
        high[code] = (bits >> 8) as u8;
        code += 1;
    }
    (low, high)
};

/// bf16 bits of the e4m3 magnitude `code`.
const fn bf16_of_e4m3(code: u32) -> u32 {
    let (exponent, mantissa) = (code >> 3, code & 7);
    if code == 0x7f {
        0x7fc0
    } else if exponent > 0 {
        ((exponent + 120) << 7) | (mantissa << 4)
    } else if mantissa == 0 {
        0
    } else {
        // mantissa * 2^-9, normalised: its highest bit becomes the implicit one.
        let top = 31 - mantissa.leading_zeros();
        ((127 - 9 + top) << 7) | ((mantissa << (7 - top)) & 0x7f)
    }
}

impl Decoder {
    #[inline(always)]
    unsafe fn new() -> Decoder {
        // SAFETY: the tables are 128 bytes each; the CPU has AVX-512, promised by the caller.
        unsafe {
            let at =
                |table: &[u8; 128], half: usize| _mm512_loadu_si512(table.as_ptr().add(64 * half).cast());
            Decoder {
                low: [at(&TABLES.0, 0), at(&TABLES.0, 1)],
                high: [at(&TABLES.1, 0), at(&TABLES.1, 1)],
                // The unpacks below work inside 128-bit lanes; this order of quadwords makes their results contiguous.
                order: _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7),
            }
        }
    }

    /// 64 codes to two vectors of 32 bf16, in order.
    #[inline(always)]
    unsafe fn decode(&self, codes: __m512i) -> [__m512bh; 2] {
        // SAFETY: the CPU has VBMI, promised by the caller.
        unsafe {
            let codes = _mm512_permutexvar_epi64(self.order, codes);
            let low = _mm512_permutex2var_epi8(self.low[0], codes, self.low[1]);
            let high = _mm512_permutex2var_epi8(self.high[0], codes, self.high[1]);
            // high | (codes & 0x80)
            let high = _mm512_ternarylogic_epi64::<0xf8>(high, codes, _mm512_set1_epi8(-128));
            [
                std::mem::transmute::<__m512i, __m512bh>(_mm512_unpacklo_epi8(low, high)),
                std::mem::transmute::<__m512i, __m512bh>(_mm512_unpackhi_epi8(low, high)),
            ]
        }
    }
}

#[inline(always)]
unsafe fn mxfp8_tile<const M: usize, const N: usize>(
    x: [*const u16; M],
    w: [(*const u8, *const u8); N],
    width: usize,
    ahead: usize,
) -> [[f32; N]; M] {
    // SAFETY: rows of `width` elements with whole groups, promised by the caller.
    unsafe {
        let decoder = Decoder::new();
        let zero = _mm512_setzero_ps();
        let mut acc = [[zero; N]; M];
        let whole = width / 64 * 64;
        let mut col = 0;
        while col < whole {
            let mut value = [[load(x[0].add(col)); 2]; M];
            for m in 0..M {
                value[m] = [load(x[m].add(col)), load(x[m].add(col + 32))];
            }
            for n in 0..N {
                _mm_prefetch::<_MM_HINT_T0>(w[n].0.wrapping_add(col + ahead).cast());
                let pair = decoder.decode(_mm512_loadu_si512(w[n].0.add(col).cast()));
                for half in 0..2 {
                    let scale = _mm512_set1_ps(e8m0_to_f32(*w[n].1.add(col / GROUP + half)));
                    for m in 0..M {
                        let part = _mm512_dpbf16_ps(zero, value[m][half], pair[half]);
                        acc[m][n] = _mm512_fmadd_ps(part, scale, acc[m][n]);
                    }
                }
            }
            col += 64;
        }
        if whole < width {
            for n in 0..N {
                let codes = _mm512_maskz_loadu_epi8(u64::from(u32::MAX), w[n].0.add(whole).cast());
                let pair = decoder.decode(codes);
                let scale = _mm512_set1_ps(e8m0_to_f32(*w[n].1.add(whole / GROUP)));
                for m in 0..M {
                    let part = _mm512_dpbf16_ps(zero, load(x[m].add(whole)), pair[0]);
                    acc[m][n] = _mm512_fmadd_ps(part, scale, acc[m][n]);
                }
            }
        }
        reduce(acc)
    }
}

#[inline(always)]
unsafe fn store<const M: usize, const N: usize>(tile: &Tile<'_>, m: usize, n: usize, sums: [[f32; N]; M]) {
    for i in 0..M {
        for j in 0..N {
            // SAFETY: inside the tile, promised by the caller.
            unsafe { *tile.out.add((m + i) * tile.out_stride + (n - tile.first) + j) = sums[i][j] };
        }
    }
}

/// Whole tiles of `M` rows from row `m` on; returns the first row that is left.
#[inline(always)]
unsafe fn bf16_rows<const M: usize, const N: usize>(
    tile: &Tile<'_>,
    bits: &[u16],
    n: usize,
    w: [*const u16; N],
    mut m: usize,
) -> usize {
    // SAFETY: rows inside the tile, promised by the caller.
    unsafe {
        while m + M <= tile.x.len {
            let mut x = [std::ptr::null(); M];
            for i in 0..M {
                x[i] = tile.x.row_bf16(bits, m + i);
            }
            // The first tile of a strip fetches the strip after it: hardware prefetchers stop at the end of a row.
            let ahead = if m == 0 { N * tile.w.row_stride } else { 0 };
            store(tile, m, n, bf16_tile(x, w, tile.w.cols, ahead));
            m += M;
        }
    }
    m
}

#[inline(always)]
unsafe fn bf16_strip<const N: usize>(tile: &Tile<'_>, bits: &[u16], n: usize, w: [*const u16; N]) {
    // SAFETY: the caller's promise.
    unsafe {
        let m = bf16_rows::<6, N>(tile, bits, n, w, 0);
        let m = bf16_rows::<4, N>(tile, bits, n, w, m);
        let m = bf16_rows::<2, N>(tile, bits, n, w, m);
        bf16_rows::<1, N>(tile, bits, n, w, m);
    }
}

#[inline(always)]
unsafe fn mxfp8_strip<const N: usize>(tile: &Tile<'_>, bits: &[u16], n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut w = [(std::ptr::null(), std::ptr::null()); N];
        for j in 0..N {
            w[j] = (tile.w.row(n + j), tile.w.row_scale(n + j));
        }
        let mut m = 0;
        while m + 2 <= tile.x.len {
            let x = [tile.x.row_bf16(bits, m), tile.x.row_bf16(bits, m + 1)];
            store(tile, m, n, mxfp8_tile(x, w, tile.w.cols, N * tile.w.row_stride));
            m += 2;
        }
        if m < tile.x.len {
            store(tile, m, n, mxfp8_tile([tile.x.row_bf16(bits, m)], w, tile.w.cols, N * tile.w.row_stride));
        }
    }
}

/// Row `n` of an MXFP8 matrix as bf16 (exact: the scale is a power of two).
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn decode_row(w: &Matrix, n: usize, to: &mut [u16]) {
    // SAFETY: the caller's promise.
    unsafe {
        if !w.has_whole_groups() {
            for (col, value) in to.iter_mut().enumerate() {
                *value = (w.get(n, col).to_bits() >> 16) as u16;
            }
            return;
        }
        let (values, scales, decoder) = (w.row(n), w.row_scale(n), Decoder::new());
        let mut col = 0;
        while col < w.cols {
            let count = 64.min(w.cols - col);
            let codes = _mm512_maskz_loadu_epi8(u64::MAX >> (64 - count), values.add(col).cast());
            let pair = decoder.decode(codes);
            for (half, values) in pair.into_iter().enumerate().take(count.div_ceil(GROUP)) {
                let scale = *scales.add(col / GROUP + half);
                let scaled = scale_bf16(std::mem::transmute::<__m512bh, __m512i>(values), scale);
                _mm512_storeu_si512(to.as_mut_ptr().add(col + half * GROUP).cast(), scaled);
            }
            col += 64;
        }
    }
}

/// `values * 2^(scale - 127)` for bf16 that came from e4m3.
///
/// The exponent field takes the power directly where the result stays normal, which is everywhere but at the very ends of the
/// scale; zeros and NaN are left alone.
#[inline(always)]
unsafe fn scale_bf16(values: __m512i, scale: u8) -> __m512i {
    // SAFETY: the CPU has AVX-512, promised by the caller.
    unsafe {
        if (16..=240).contains(&scale) {
            let magnitude = _mm512_and_si512(values, _mm512_set1_epi16(0x7fff));
            let less_one = _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1));
            let is_finite = _mm512_cmplt_epu16_mask(less_one, _mm512_set1_epi16(0x7f7f));
            let power = _mm512_set1_epi16((i16::from(scale) - 127) << 7);
            return _mm512_mask_add_epi16(values, is_finite, values, power);
        }
        let mut lanes = [0u16; 32];
        _mm512_storeu_si512(lanes.as_mut_ptr().cast(), values);
        for lane in &mut lanes {
            *lane = f32_to_bf16(bf16_to_f32(*lane) * e8m0_to_f32(scale));
        }
        _mm512_loadu_si512(lanes.as_ptr().cast())
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn bf16_columns(tile: &Tile<'_>) {
    let bits = tile.x.bf16.expect("the caller has looked");
    let mut n = tile.first;
    // SAFETY: rows inside the matrix, the rest is the caller's promise.
    unsafe {
        while n + STRIP <= tile.last {
            let mut w = [std::ptr::null(); STRIP];
            for (j, row) in w.iter_mut().enumerate() {
                *row = tile.w.row(n + j).cast();
            }
            bf16_strip(tile, bits, n, w);
            n += STRIP;
        }
        while n < tile.last {
            bf16_strip(tile, bits, n, [tile.w.row(n).cast()]);
            n += 1;
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn mxfp8_columns(tile: &Tile<'_>, bits: &[u16]) {
    let mut n = tile.first;
    // SAFETY: the caller's promise.
    unsafe {
        while n + STRIP <= tile.last {
            mxfp8_strip::<STRIP>(tile, bits, n);
            n += STRIP;
        }
        while n < tile.last {
            mxfp8_strip::<1>(tile, bits, n);
            n += 1;
        }
    }
}

/// Decodes columns `first..first + COLUMN_GROUP` (or what is left) into `scratch`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")]
unsafe fn decode_group(w: &Matrix, first: usize, count: usize, scratch: &mut [u16]) {
    for (index, row) in scratch.chunks_exact_mut(w.cols).take(count).enumerate() {
        // SAFETY: the row holds `cols` values; rows lie inside the matrix.
        unsafe {
            if w.format == Format::Bf16 {
                row.as_mut_ptr().copy_from_nonoverlapping(w.row(first + index).cast(), w.cols);
            } else {
                decode_row(w, first + index, row);
            }
        }
    }
}

/// # Safety
/// As for `Kernels::gemm_tile`; the weights are bf16 or MXFP8 and the CPU has the instruction set.
pub(super) unsafe fn tile(tile: &Tile<'_>, bits: &[u16]) {
    if tile.w.format == Format::Bf16 && tile.x.len < COPY_ROWS {
        // SAFETY: the caller's promise; blocks lie inside the tile.
        return tile.for_blocks(2, |block| unsafe { bf16_columns(block) });
    }
    if tile.w.format == Format::Mxfp8 && tile.w.has_whole_groups() && tile.x.len <= DIRECT_ROWS {
        // SAFETY: the caller's promise.
        return unsafe { mxfp8_columns(tile, bits) };
    }
    with_scratch_u16(COLUMN_GROUP * tile.w.cols, |scratch| {
        for first in (tile.first..tile.last).step_by(COLUMN_GROUP) {
            let count = COLUMN_GROUP.min(tile.last - first);
            // SAFETY: the caller's promise; the scratch holds a column group.
            unsafe { decode_group(tile.w, first, count, scratch) };
            let w = Matrix::of_bf16(&scratch[..count * tile.w.cols], count, tile.w.cols);
            let out = tile.out.wrapping_add(first - tile.first);
            let group = Tile { x: tile.x, w: &w, first: 0, last: count, out, out_stride: tile.out_stride };
            // SAFETY: the group's columns of the caller's output.
            group.for_blocks(2, |block| unsafe { bf16_columns(block) });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::convert::{bf16_to_f32, e4m3_to_f32};

    #[test]
    fn tables_decode_every_e4m3_code() {
        for code in 0..127u8 {
            assert_eq!(
                bf16_to_f32(super::bf16_of_e4m3(u32::from(code)) as u16),
                e4m3_to_f32(code),
                "code {code}"
            );
        }
        assert!(bf16_to_f32(super::bf16_of_e4m3(127) as u16).is_nan());
    }
}
