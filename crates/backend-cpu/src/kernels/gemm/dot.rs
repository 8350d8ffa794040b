//! Dot products in f32, for every instruction set: bf16 and MXFP8 weights are widened exactly in registers.
//!
//! Each output element is the sum over vector lanes of a running FMA along the row, the same whatever the tile, so a row of a
//! batch gets the same bits as that row alone. Bound: memory for few rows, FMA issue from about eight.

use super::super::convert::{bf16_to_f32, e4m3_to_f32, e8m0_to_f32};
use super::super::isa::Isa;
use super::super::lanes::{Lanes, Portable};
use super::super::matrix::{Format, GROUP, Matrix};
use super::Tile;

/// A row of weights that can be read a vector at a time.
trait WeightRow: Copy {
    /// # Safety
    /// As for [`Lanes`]; `col` is a multiple of `V::LEN` and the vector lies inside the row.
    unsafe fn lanes<V: Lanes>(self, col: usize) -> V;
    /// # Safety
    /// `col` lies inside the row.
    unsafe fn one(self, col: usize) -> f32;
    /// # Safety
    /// `row` lies inside the matrix, which has this format.
    unsafe fn of(matrix: &Matrix, row: usize) -> Self;
}

#[derive(Clone, Copy)]
struct RowF32(*const f32);
#[derive(Clone, Copy)]
struct RowBf16(*const u16);
#[derive(Clone, Copy)]
struct RowMxfp8 {
    values: *const u8,
    scales: *const u8,
}

impl WeightRow for RowF32 {
    #[inline(always)]
    unsafe fn lanes<V: Lanes>(self, col: usize) -> V {
        // SAFETY: inside the row.
        unsafe { V::load(self.0.add(col)) }
    }

    #[inline(always)]
    unsafe fn one(self, col: usize) -> f32 {
        // SAFETY: inside the row.
        unsafe { self.0.add(col).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn of(matrix: &Matrix, row: usize) -> Self {
        RowF32(matrix.row(row).cast())
    }
}

impl WeightRow for RowBf16 {
    #[inline(always)]
    unsafe fn lanes<V: Lanes>(self, col: usize) -> V {
        // SAFETY: inside the row.
        unsafe { V::load_bf16(self.0.add(col)) }
    }

    #[inline(always)]
    unsafe fn one(self, col: usize) -> f32 {
        // SAFETY: inside the row.
        bf16_to_f32(unsafe { self.0.add(col).read_unaligned() })
    }

    #[inline(always)]
    unsafe fn of(matrix: &Matrix, row: usize) -> Self {
        RowBf16(matrix.row(row).cast())
    }
}

impl WeightRow for RowMxfp8 {
    #[inline(always)]
    unsafe fn lanes<V: Lanes>(self, col: usize) -> V {
        // SAFETY: inside the row; a vector never spans two groups because both lengths are powers of two.
        unsafe {
            let scale = e8m0_to_f32(*self.scales.add(col / GROUP));
            V::load_e4m3(self.values.add(col)).mul(V::splat(scale))
        }
    }

    #[inline(always)]
    unsafe fn one(self, col: usize) -> f32 {
        // SAFETY: inside the row.
        unsafe { e4m3_to_f32(*self.values.add(col)) * e8m0_to_f32(*self.scales.add(col / GROUP)) }
    }

    #[inline(always)]
    unsafe fn of(matrix: &Matrix, row: usize) -> Self {
        RowMxfp8 { values: matrix.row(row), scales: matrix.row_scale(row) }
    }
}

/// `M` rows of activations times `N` rows of weights.
#[inline(always)]
unsafe fn register_tile<V: Lanes, R: WeightRow, const M: usize, const N: usize>(
    x: [*const f32; M],
    w: [R; N],
    width: usize,
) -> [[f32; N]; M] {
    // SAFETY: the caller's rows are `width` long and the CPU has V's instruction set.
    unsafe {
        let mut acc = [[V::splat(0.0); N]; M];
        let whole = width / V::LEN * V::LEN;
        let mut col = 0;
        while col < whole {
            let mut wide = [V::splat(0.0); N];
            for n in 0..N {
                wide[n] = w[n].lanes::<V>(col);
            }
            for m in 0..M {
                let value = V::load(x[m].add(col));
                for n in 0..N {
                    acc[m][n] = value.mul_add(wide[n], acc[m][n]);
                }
            }
            col += V::LEN;
        }
        let mut sums = [[0.0; N]; M];
        for m in 0..M {
            for n in 0..N {
                sums[m][n] = acc[m][n].sum();
                for tail in whole..width {
                    sums[m][n] += *x[m].add(tail) * w[n].one(tail);
                }
            }
        }
        sums
    }
}

#[inline(always)]
unsafe fn put<V: Lanes, R: WeightRow, const M: usize, const N: usize>(
    tile: &Tile<'_>,
    m: usize,
    n: usize,
    w: [R; N],
) {
    // SAFETY: the caller's `m` and `n` lie inside the tile, whose output is good for them.
    unsafe {
        let mut x = [std::ptr::null(); M];
        for i in 0..M {
            x[i] = tile.x.row(m + i);
        }
        let sums = register_tile::<V, R, M, N>(x, w, tile.w.cols);
        for i in 0..M {
            for j in 0..N {
                *tile.out.add((m + i) * tile.out_stride + (n - tile.first) + j) = sums[i][j];
            }
        }
    }
}

#[inline(always)]
unsafe fn strip<V: Lanes, R: WeightRow, const M: usize, const N: usize>(tile: &Tile<'_>, n: usize) {
    // SAFETY: `n .. n + N` lies inside the tile.
    unsafe {
        let mut w = [R::of(tile.w, n); N];
        for j in 1..N {
            w[j] = R::of(tile.w, n + j);
        }
        let mut m = 0;
        while m + M <= tile.x.len {
            put::<V, R, M, N>(tile, m, n, w);
            m += M;
        }
        while m < tile.x.len {
            put::<V, R, 1, N>(tile, m, n, w);
            m += 1;
        }
    }
}

#[inline(always)]
unsafe fn columns<V: Lanes, R: WeightRow, const M: usize, const N: usize>(tile: &Tile<'_>) {
    // SAFETY: strips lie inside the tile.
    unsafe {
        let mut n = tile.first;
        while n + N <= tile.last {
            strip::<V, R, M, N>(tile, n);
            n += N;
        }
        while n < tile.last {
            strip::<V, R, M, 1>(tile, n);
            n += 1;
        }
    }
}

#[inline(always)]
unsafe fn by_format<V: Lanes, const M: usize, const N: usize>(tile: &Tile<'_>) {
    // SAFETY: the format matches the row type; the rest is the caller's promise.
    unsafe {
        match tile.w.format {
            Format::F32 => columns::<V, RowF32, M, N>(tile),
            Format::Bf16 => columns::<V, RowBf16, M, N>(tile),
            Format::Mxfp8 if tile.w.has_whole_groups() => columns::<V, RowMxfp8, M, N>(tile),
            Format::Mxfp8 => ragged_groups::<V, M>(tile),
        }
    }
}

/// A cut inside a scale group: vectors would span two scales, so a row is decoded first.
#[inline(always)]
unsafe fn ragged_groups<V: Lanes, const M: usize>(tile: &Tile<'_>) {
    super::super::with_scratch_f32(tile.w.cols, |row| {
        for n in tile.first..tile.last {
            tile.w.decode_row(n, row);
            let decoded = Matrix::of_f32(row, 1, tile.w.cols);
            // SAFETY: column `n` of the caller's output.
            unsafe {
                let out = tile.out.add(n - tile.first);
                let one =
                    Tile { x: tile.x, w: &decoded, first: 0, last: 1, out, out_stride: tile.out_stride };
                strip::<V, RowF32, M, 1>(&one, 0);
            }
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512(tile: &Tile<'_>) {
    // SAFETY: the caller's promise.
    unsafe { by_format::<super::super::lanes::Avx512, 4, 4>(tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(tile: &Tile<'_>) {
    // SAFETY: the caller's promise.
    unsafe { by_format::<super::super::lanes::Avx2, 2, 4>(tile) }
}

/// # Safety
/// As for `Kernels::gemm_tile`; the CPU has `isa`.
pub(super) unsafe fn tile(isa: Isa, tile: &Tile<'_>) {
    // SAFETY: the caller's promise; blocks lie inside the tile.
    tile.for_blocks(4, |block| unsafe { run(isa, block) });
}

/// # Safety
/// As for [`tile`].
unsafe fn run(isa: Isa, tile: &Tile<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 => avx512(tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(tile),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => by_format::<super::super::lanes::Neon, 4, 4>(tile),
            _ => by_format::<Portable, 1, 4>(tile),
        }
    }
}
