//! Views of weights where they lie: row-major `[out, in]`, in the mapped file or in memory of this crate.
//!
//! Views only: who owns the bytes, and for how long, is the business of `weights`.

use super::convert::{bf16_to_f32, e4m3_to_f32, e8m0_to_f32};

/// How the values of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    F32,
    Bf16,
    /// e4m3fn with one UE8M0 byte for 32 values of a row.
    Mxfp8,
}

/// Values of a group that share a scale.
pub const GROUP: usize = 32;

/// A weight matrix `[rows, cols]` = `[out, in]`; columns are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Elements from one row to the next.
    pub(crate) row_stride: usize,
    pub(crate) data: *const u8,
    /// One byte per group; null unless MXFP8.
    pub(crate) scale: *const u8,
    pub(crate) scale_stride: usize,
    /// Values of the first group that lie before the first column (a cut inside a group).
    pub(crate) group_offset: usize,
}

// SAFETY: weights are never written after `ready`, and whoever makes a view promises that the bytes outlive it.
unsafe impl Send for Matrix {}
// SAFETY: as above; shared reads only.
unsafe impl Sync for Matrix {}

impl Matrix {
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// A dense f32 matrix over `data`; the caller keeps `data` alive and unchanged while the view is used.
    pub fn of_f32(data: &[f32], rows: usize, cols: usize) -> Matrix {
        assert_eq!(data.len(), rows * cols, "an f32 matrix of {rows} x {cols}");
        Matrix::plain(Format::F32, data.as_ptr().cast(), rows, cols)
    }

    /// A dense bf16 matrix over `data`; lifetime as for [`Matrix::of_f32`].
    pub fn of_bf16(data: &[u16], rows: usize, cols: usize) -> Matrix {
        assert_eq!(data.len(), rows * cols, "a bf16 matrix of {rows} x {cols}");
        Matrix::plain(Format::Bf16, data.as_ptr().cast(), rows, cols)
    }

    /// A dense MXFP8 matrix with whole groups; lifetime as for [`Matrix::of_f32`].
    pub fn of_mxfp8(data: &[u8], scale: &[u8], rows: usize, cols: usize) -> Matrix {
        let groups = cols.div_ceil(GROUP);
        assert_eq!(
            (data.len(), scale.len()),
            (rows * cols, rows * groups),
            "an MXFP8 matrix of {rows} x {cols}"
        );
        let plain = Matrix::plain(Format::Mxfp8, data.as_ptr(), rows, cols);
        Matrix { scale: scale.as_ptr(), scale_stride: groups, ..plain }
    }

    /// A dense matrix of plain values (not MXFP8) at `data`; lifetime as for [`Matrix::of_f32`].
    pub(crate) fn raw(format: Format, data: *const u8, rows: usize, cols: usize) -> Matrix {
        debug_assert!(format != Format::Mxfp8, "MXFP8 needs scales");
        Matrix::plain(format, data, rows, cols)
    }

    fn plain(format: Format, data: *const u8, rows: usize, cols: usize) -> Matrix {
        Matrix {
            format,
            rows,
            cols,
            row_stride: cols,
            data,
            scale: std::ptr::null(),
            scale_stride: 0,
            group_offset: 0,
        }
    }

    /// Bytes of the values and scales that a pass over all rows reads.
    pub fn bytes(&self) -> usize {
        match self.format {
            Format::F32 => self.rows * self.cols * 4,
            Format::Bf16 => self.rows * self.cols * 2,
            Format::Mxfp8 => self.rows * (self.cols + (self.cols + self.group_offset).div_ceil(GROUP)),
        }
    }

    /// Whether every vector of up to 32 values that starts at a multiple of its length lies inside one scale group.
    pub(crate) fn has_whole_groups(&self) -> bool {
        self.format != Format::Mxfp8 || (self.group_offset == 0 && self.cols.is_multiple_of(GROUP))
    }

    /// First byte of a row's values.
    pub(crate) fn row(&self, row: usize) -> *const u8 {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        let size = match self.format {
            Format::F32 => 4,
            Format::Bf16 => 2,
            Format::Mxfp8 => 1,
        };
        self.data.wrapping_add(row * self.row_stride * size)
    }

    /// First scale byte of a row.
    pub(crate) fn row_scale(&self, row: usize) -> *const u8 {
        self.scale.wrapping_add(row * self.scale_stride)
    }

    /// One value, exact.
    pub fn get(&self, row: usize, col: usize) -> f32 {
        assert!(row < self.rows && col < self.cols, "({row}, {col}) of {} x {}", self.rows, self.cols);
        // SAFETY: in bounds, and the maker of the view keeps the bytes alive; loads are unaligned where files may be.
        unsafe {
            match self.format {
                Format::F32 => self.row(row).cast::<f32>().add(col).read_unaligned(),
                Format::Bf16 => bf16_to_f32(self.row(row).cast::<u16>().add(col).read_unaligned()),
                Format::Mxfp8 => {
                    let scale = *self.row_scale(row).add((col + self.group_offset) / GROUP);
                    e4m3_to_f32(*self.row(row).add(col)) * e8m0_to_f32(scale)
                }
            }
        }
    }

    /// Writes a row as f32, exact.
    pub fn decode_row(&self, row: usize, to: &mut [f32]) {
        for (col, value) in to.iter_mut().enumerate().take(self.cols) {
            *value = self.get(row, col);
        }
    }
}
