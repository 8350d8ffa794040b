//! A tensor as it crosses the plugin line -> dequantised `f32` values.
#![expect(unsafe_code, reason = "tensors cross the plugin line as pointers")]

use half::bf16;
use m3_abi::types::{FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8};
use m3_abi::{Error, TensorView};

use super::fp8::{MX_GROUP, e4m3_to_f32, ue8m0_to_f32};

/// Dequantised values [rows, columns]; a vector has one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub values: Vec<f32>,
    pub columns: usize,
    /// Stored with scales: the linear it belongs to follows the quantised mode.
    pub quantized: bool,
}

impl Tensor {
    /// Copies a vector or matrix out of the caller's memory; a dense tensor of more dims is a matrix of its first dim's
    /// rows.
    ///
    /// # Errors
    /// `Unsupported` for a synthetic tensor, more than two dims with gaps, or a format other than F32, BF16 and MXFP8.
    pub fn read(view: &TensorView<'_>) -> Result<Self, Error> {
        let refuse = |what: &str| Err(Error::Unsupported(format!("tensor {}: {what}", view.name)));
        let (rows, columns, row_stride, column_stride) = match (view.shape, view.strides) {
            (&[columns], &[stride, ..]) => (1, columns, 0, stride),
            (&[rows, columns], &[row_stride, column_stride, ..]) => {
                (rows, columns, row_stride, column_stride)
            }
            (&[rows, ref inner @ ..], &[row_stride, ref strides @ ..]) if is_dense(inner, strides) => {
                (rows, inner.iter().product(), row_stride, 1)
            }
            _ => return refuse("the reference takes vectors, matrices, and more dims without gaps"),
        };
        if view.data.is_null() {
            return refuse("the reference does not make synthetic tensors");
        }
        let quantized = view.format == FORMAT_MXFP8;
        if quantized && view.scale.is_null() {
            return refuse("MXFP8 values come without scales");
        }
        if !matches!(view.format, FORMAT_F32 | FORMAT_BF16 | FORMAT_MXFP8) {
            return refuse(&format!("format {} is not one of F32, BF16 and MXFP8", view.format));
        }
        let mut values = Vec::with_capacity((rows * columns) as usize);
        for row in 0..rows {
            for column in 0..columns {
                let at = (row * row_stride + column * column_stride) as usize;
                let group = (column as usize + view.group_offset as usize) / MX_GROUP;
                let scale_at = row as usize * view.scale_stride as usize + group;
                values.push(element(view, at, scale_at));
            }
        }
        Ok(Tensor { values, columns: columns as usize, quantized })
    }
}

/// Whether the dims lie row-major without gaps.
fn is_dense(shape: &[u64], strides: &[u64]) -> bool {
    let mut next = 1;
    !shape.is_empty()
        && shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(size, stride)| {
            let dense = *stride == next;
            next *= size;
            dense
        })
}

/// Element `at` of a view with its scale, dequantised. The format was checked.
fn element(view: &TensorView<'_>, at: usize, scale_at: usize) -> f32 {
    // SAFETY: the contract of `TensorView` is that `data` holds the elements its shape and strides reach and `scale`
    // the rows its stride reaches, for the length of the call; both were checked not to be null. Mapped files need
    // not be aligned.
    unsafe {
        match view.format {
            FORMAT_F32 => view.data.cast::<f32>().add(at).read_unaligned(),
            FORMAT_BF16 => bf16::from_bits(view.data.cast::<u16>().add(at).read_unaligned()).to_f32(),
            _ => e4m3_to_f32(*view.data.add(at)) * ue8m0_to_f32(*view.scale.add(scale_at)),
        }
    }
}
