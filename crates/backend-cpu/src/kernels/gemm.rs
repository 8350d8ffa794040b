//! `y = x W^T`: f32 or bf16 activations times row-major weights read where they lie.
//!
//! The kernels are dot products along rows of `W`: a register tile takes a few rows of `W` and a few of `x`, both
//! contiguous, so nothing has to be repacked, a single token streams the weights at memory speed and a batch reuses each
//! row from cache. Work is split by columns of `y` (rows of `W`); a task never shares an output element, so results
//! do not depend on the number of threads. With many rows the task goes through them in blocks that stay in the second
//! cache ([`Tile::for_blocks`]). Packing weights into broadcast order was
//! measured: a tenth faster on long prompts through long rows, slower or equal elsewhere, for a second copy of every weight; so
//! there is none.

mod dot;
#[cfg(target_arch = "x86_64")]
mod dot_bf16;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::matrix::Format;
use super::matrix::Matrix;
use super::{Kernels, SendPtr};

/// Rows of activations, `[num_rows, width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Values; rounded to bf16 beforehand when `bf16` is given.
    pub(crate) data: &'a [f32],
    /// The same values as bf16 bits, same layout: lets the bf16 dot product take them.
    pub(crate) bf16: Option<&'a [u16]>,
    pub(crate) width: usize,
    /// Which row of `data` stands for row `i`; `None` = itself.
    pub(crate) index: Option<&'a [u32]>,
    pub(crate) len: usize,
}

impl<'a> Rows<'a> {
    /// All rows of a dense array.
    pub fn new(data: &'a [f32], bf16: Option<&'a [u16]>, width: usize) -> Rows<'a> {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} values in rows of {width}", data.len());
        assert!(bf16.is_none_or(|bits| bits.len() >= data.len()), "bf16 copy is shorter than {}", data.len());
        Rows { data, bf16, width, index: None, len: data.len() / width }
    }

    /// The rows named by `index`, in its order.
    pub fn pick(self, index: &'a [u32]) -> Rows<'a> {
        let rows = self.data.len() / self.width;
        assert!(index.iter().all(|&row| (row as usize) < rows), "a row index beyond {rows}");
        Rows { index: Some(index), len: index.len(), ..self }
    }

    /// Rows `from..to`.
    pub(crate) fn range(self, from: usize, to: usize) -> Rows<'a> {
        match self.index {
            Some(index) => Rows { index: Some(&index[from..to]), len: to - from, ..self },
            None => Rows {
                data: &self.data[from * self.width..to * self.width],
                bf16: self.bf16.map(|bits| &bits[from * self.width..to * self.width]),
                len: to - from,
                ..self
            },
        }
    }

    fn start(&self, row: usize) -> usize {
        debug_assert!(row < self.len);
        self.index.map_or(row, |index| index[row] as usize) * self.width
    }

    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> *const f32 {
        self.data[self.start(row)..].as_ptr()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn row_bf16(&self, bits: &[u16], row: usize) -> *const u16 {
        bits[self.start(row)..].as_ptr()
    }
}

/// One task: all rows of `x` times rows `first..last` of `w`.
pub(crate) struct Tile<'a> {
    pub(crate) x: Rows<'a>,
    pub(crate) w: &'a Matrix,
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Output of row `m` and weight row `n` goes to `out[m * out_stride + n - first]`.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
}

/// Columns of `y` that are finished before the next ones: their weights stay in the second cache for all rows.
const COLUMN_GROUP: usize = 16;
/// Bytes of activations that stay in the second cache beside them.
const ROW_BLOCK_BYTES: usize = 384 * 1024;

impl Tile<'_> {
    /// Hands out the tile whole when its activations fit the cache, else cut into column groups and row blocks.
    #[inline(always)]
    fn for_blocks(&self, value_bytes: usize, mut work: impl FnMut(&Tile<'_>)) {
        // A multiple of every register tile's rows.
        let block = (ROW_BLOCK_BYTES / (self.w.cols * value_bytes)).next_multiple_of(12).max(12);
        if self.x.len <= block {
            return work(self);
        }
        for first in (self.first..self.last).step_by(COLUMN_GROUP) {
            for m in (0..self.x.len).step_by(block) {
                let x = self.x.range(m, (m + block).min(self.x.len));
                let out = self.out.wrapping_add(m * self.out_stride + first - self.first);
                work(&Tile { x, first, last: (first + COLUMN_GROUP).min(self.last), out, ..*self });
            }
        }
    }
}

impl Kernels {
    /// `out[m, n] = x[m] . w[n]`, `out` is `[x.len, w.rows]`; all threads of the current pool take part.
    pub fn gemm(&self, x: Rows<'_>, w: &Matrix, out: &mut [f32]) {
        assert_eq!(x.width, w.cols, "activations of width {} times weights of width {}", x.width, w.cols);
        assert!(out.len() >= x.len * w.rows, "room for {} of {} x {}", out.len(), x.len, w.rows);
        let chunk = self.columns_per_task(x.len, w);
        let out_ptr = SendPtr(out.as_mut_ptr());
        let task = |first: usize| {
            let last = (first + chunk).min(w.rows);
            // SAFETY: columns `first..last` belong to this task alone, and `out` holds `x.len` rows of `w.rows`.
            unsafe {
                let out = out_ptr.get().add(first);
                self.gemm_tile(&Tile { x, w, first, last, out, out_stride: w.rows });
            }
        };
        if chunk >= w.rows {
            task(0);
        } else {
            (0..w.rows.div_ceil(chunk)).into_par_iter().with_max_len(1).for_each(|i| task(i * chunk));
        }
    }

    /// The same on the calling thread alone, for tasks of a loop that is parallel already.
    pub(crate) fn gemm_here(&self, x: Rows<'_>, w: &Matrix, out: &mut [f32]) {
        assert_eq!(x.width, w.cols, "activations of width {} times weights of width {}", x.width, w.cols);
        assert!(out.len() >= x.len * w.rows, "room for {} of {} x {}", out.len(), x.len, w.rows);
        let tile = Tile { x, w, first: 0, last: w.rows, out: out.as_mut_ptr(), out_stride: w.rows };
        // SAFETY: `out` is borrowed for this call and holds `x.len` rows of `w.rows`.
        unsafe { self.gemm_tile(&tile) }
    }

    /// Several products of the same rows, side by side: `out[m] = [x[m] W0^T | x[m] W1^T | ...]`, in one parallel loop.
    pub fn gemm_side_by_side(&self, x: Rows<'_>, parts: &[&Matrix], out: &mut [f32]) {
        let width: usize = parts.iter().map(|w| w.rows).sum();
        assert!(parts.iter().all(|w| w.cols == x.width), "weights of another width than {}", x.width);
        assert!(out.len() >= x.len * width, "room for {} of {} x {width}", out.len(), x.len);
        let chunk = parts.iter().map(|w| self.columns_per_task(x.len, w)).max().unwrap_or(1);
        let mut tasks = Vec::new();
        let mut column = 0;
        for w in parts {
            for first in (0..w.rows).step_by(chunk) {
                tasks.push((*w, first, (first + chunk).min(w.rows), column + first));
            }
            column += w.rows;
        }
        let out = SendPtr(out.as_mut_ptr());
        let run = |&(w, first, last, column): &(&Matrix, usize, usize, usize)| {
            // SAFETY: columns `column..column + last - first` of every row belong to this task alone.
            unsafe {
                let out = out.get().add(column);
                self.gemm_tile(&Tile { x, w, first, last, out, out_stride: width });
            }
        };
        if tasks.len() == 1 {
            run(&tasks[0]);
        } else {
            tasks.par_iter().with_max_len(1).for_each(run);
        }
    }

    /// Columns of `y` that a task takes: about eight tasks a thread, but never so little work that waking a thread
    /// costs more than it saves.
    pub(crate) fn columns_per_task(&self, num_rows: usize, w: &Matrix) -> usize {
        const SMALLEST_TASK_MACS: usize = 128 * 1024;
        let tasks = rayon::current_num_threads() * 8;
        let least = SMALLEST_TASK_MACS.div_ceil((num_rows * w.cols).max(1));
        // Whole column groups, so that a block of rows is used often enough once it is in cache.
        let step = if num_rows < 32 { 32 } else { 2 * COLUMN_GROUP };
        w.rows.div_ceil(tasks).max(least).next_multiple_of(step)
    }

    /// One task, on the calling thread.
    ///
    /// # Safety
    /// `tile.out` is good for `x.len` rows of `last - first` columns at `out_stride`, and nobody else touches them.
    pub(crate) unsafe fn gemm_tile(&self, tile: &Tile<'_>) {
        debug_assert!(tile.first <= tile.last && tile.last <= tile.w.rows && tile.x.width == tile.w.cols);
        #[cfg(target_arch = "x86_64")]
        if let (Isa::Avx512Bf16, Some(bits)) = (self.isa, tile.x.bf16)
            && tile.w.format != Format::F32
        {
            // SAFETY: the ISA was checked when `Kernels` was made; the rest is the caller's promise.
            return unsafe { dot_bf16::tile(tile, bits) };
        }
        // SAFETY: as above.
        unsafe { dot::tile(self.isa, tile) }
    }
}
