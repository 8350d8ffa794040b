//! A stored matrix read row by row as f32: whole, or cut by rows or columns.

use super::float::{bf16_to_f32, e4m3fn_to_f32, ue8m0_to_f32};
use super::{Format, MX_GROUP};

/// A 2-D weight over borrowed bytes. Rows may be further apart than they are long (a column cut).
#[derive(Clone, Copy, Debug)]
pub struct WeightRows<'a> {
    pub format: Format,
    /// From the first value on.
    pub data: &'a [u8],
    pub rows: usize,
    pub columns: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// From the first group on; empty without scales.
    pub scale: &'a [u8],
    /// Scale entries from one row to the next.
    pub scale_stride: usize,
    /// Values of the first group that lie before the first column.
    pub group_offset: usize,
}

impl WeightRows<'_> {
    /// One row as f32, exact but for MXFP8 values that underflow f32. `values` holds `columns`.
    pub fn read_row(&self, row: usize, values: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(values.len(), self.columns, "one value per column");
        let width = self.format.value_bytes();
        let start = row * self.row_stride * width;
        let bytes = &self.data[start..start + self.columns * width];
        match self.format {
            Format::F32 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Format::Bf16 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = bf16_to_f32(u16::from_le_bytes(*bytes));
                }
            }
            Format::Mxfp8 => self.read_mx_row(row, bytes, values),
        }
    }

    fn read_mx_row(&self, row: usize, codes: &[u8], values: &mut [f32]) {
        let scales = &self.scale[row * self.scale_stride..];
        // The first run ends where the group that a cut has split ends.
        let first = (MX_GROUP - self.group_offset).min(self.columns);
        let (head, tail) = (values.split_at_mut(first), codes.split_at(first));
        dequantise(head.0, tail.0, scales[0]);
        let runs = head.1.chunks_mut(MX_GROUP).zip(tail.1.chunks(MX_GROUP));
        for ((values, codes), scale) in runs.zip(scales.iter().skip(1)) {
            dequantise(values, codes, *scale);
        }
    }

    /// The UE8M0 code of a value, `None` without scales.
    pub fn scale_code(&self, row: usize, column: usize) -> Option<u8> {
        let group = (column + self.group_offset) / MX_GROUP;
        (self.format == Format::Mxfp8).then(|| self.scale[row * self.scale_stride + group])
    }

    /// All rows, dense, as f32.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.columns];
        for (row, values) in values.chunks_mut(self.columns).enumerate() {
            self.read_row(row, values);
        }
        values
    }
}

fn dequantise(values: &mut [f32], codes: &[u8], scale: u8) {
    let factor = ue8m0_to_f32(scale);
    for (value, code) in values.iter_mut().zip(codes) {
        *value = e4m3fn_to_f32(*code) * factor;
    }
}
