//! Tensors by name as `load` brings them.

use std::collections::HashMap;

use m3_abi::types::{FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8};
use m3_abi::{Error, Result, TensorView};
use m3_model::checkpoint::row_major_strides;
use m3_model::names::synthetic_deviation;
use rayon::prelude::*;

use crate::kernels::convert::f32_to_bf16;
use crate::kernels::matrix::{Format, GROUP, Matrix};

/// Tensors of one rank; vectors are matrices of one row, and dense tensors of more dims matrices of the first dim's rows.
#[derive(Default)]
pub(crate) struct Store {
    /// Vision tensors are kept; otherwise nobody asks for them.
    with_vision: bool,
    tensors: HashMap<String, Matrix>,
    /// Memory of synthetic tensors, in words so that every format is aligned.
    owned: Vec<Vec<u32>>,
    bytes: u64,
}

fn refuse<T>(tensor: &TensorView<'_>, why: impl std::fmt::Display) -> Result<T> {
    Err(Error::Unsupported(format!("tensor {}: {why}", tensor.name)))
}

impl Store {
    /// Bytes of all tensors held or viewed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of those that are memory of this process alone.
    pub(crate) fn owned_bytes(&self) -> u64 {
        self.owned.iter().map(|words| words.len() as u64 * 4).sum()
    }

    /// For a model with a vision tower, or one without.
    pub(crate) fn new(with_vision: bool) -> Store {
        Store { with_vision, ..Store::default() }
    }

    /// Takes a tensor; vision tensors are left alone when the config has no tower.
    pub(crate) fn insert(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        if !self.with_vision && !tensor.name.starts_with("language_model.") {
            return Ok(());
        }
        let view = self.view(tensor)?;
        self.bytes += view.bytes() as u64;
        if self.tensors.insert(tensor.name.to_owned(), view).is_some() {
            return refuse(tensor, "loaded twice");
        }
        Ok(())
    }

    fn view(&mut self, tensor: &TensorView<'_>) -> Result<Matrix> {
        let format = match tensor.format {
            FORMAT_F32 => Format::F32,
            FORMAT_BF16 => Format::Bf16,
            FORMAT_MXFP8 => Format::Mxfp8,
            other => {
                return refuse(
                    tensor,
                    format!("weight format {other}; the cpu backend reads F32, BF16 and MXFP8"),
                );
            }
        };
        let (rows, cols, row_stride) = match (tensor.shape, tensor.strides) {
            (&[cols], &[1]) => (1, cols, cols),
            (&[rows, cols], &[row_stride, 1]) => (rows, cols, row_stride),
            (&[rows, ref inner @ ..], &[row_stride, ref strides @ ..]) if is_dense(inner, strides) => {
                (rows, inner.iter().product(), row_stride)
            }
            (shape, strides) => {
                return refuse(
                    tensor,
                    format!("shape {shape:?} with strides {strides:?} is not rows of values"),
                );
            }
        };
        let mut view = Matrix {
            format,
            rows: rows as usize,
            cols: cols as usize,
            row_stride: row_stride as usize,
            data: tensor.data,
            scale: tensor.scale,
            scale_stride: tensor.scale_stride as usize,
            group_offset: tensor.group_offset as usize,
        };
        if tensor.data.is_null() {
            self.synthesise(&mut view, tensor.name, tensor.seed);
        } else if format == Format::Mxfp8 && (tensor.scale.is_null() || view.group_offset >= GROUP) {
            return refuse(tensor, format!("MXFP8 needs scales and a group offset below {GROUP}"));
        }
        Ok(view)
    }

    /// Fills memory of the view's shape, the same for the same name and seed.
    fn synthesise(&mut self, view: &mut Matrix, name: &str, seed: u64) {
        view.row_stride = view.cols;
        let mut values = vec![0u32; (view.rows * view.cols * value_bytes(view.format)).div_ceil(4)];
        let deviation = synthetic_deviation(name, view.cols);
        values.par_chunks_mut(4096).enumerate().for_each(|(chunk, words)| {
            let mut random = Noise(seed.wrapping_add((chunk as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            words.iter_mut().for_each(|word| *word = random.word(view.format, deviation));
        });
        view.data = values.as_ptr().cast();
        self.owned.push(values);
        if view.format == Format::Mxfp8 {
            view.scale_stride = (view.cols + view.group_offset).div_ceil(GROUP);
            // Random codes below have a deviation of about 0.6.
            let exponent = (127.0 + (deviation / 0.6).log2().round()) as u8;
            let scales = vec![u32::from_ne_bytes([exponent; 4]); (view.rows * view.scale_stride).div_ceil(4)];
            view.scale = scales.as_ptr().cast();
            self.owned.push(scales);
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Matrix> {
        self.tensors.get(name)
    }

    pub(crate) fn matrix(&self, name: &str) -> Result<Matrix> {
        self.find(name).copied().ok_or_else(|| Error::Unsupported(format!("tensor {name} is missing")))
    }

    /// A vector as f32.
    pub(crate) fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let matrix = self.matrix(name)?;
        let mut values = vec![0.0; matrix.cols()];
        matrix.decode_row(0, &mut values);
        Ok(values)
    }

    /// `1 + w` of a norm, without the `.weight` of its name.
    pub(crate) fn gain(&self, name: &str) -> Result<Vec<f32>> {
        let mut values = self.vector(&format!("{name}.weight"))?;
        values.iter_mut().for_each(|value| *value += 1.0);
        Ok(values)
    }
}

/// Whether these dims lie row-major without gaps.
fn is_dense(shape: &[u64], strides: &[u64]) -> bool {
    !shape.is_empty() && strides == row_major_strides(shape).get(..shape.len()).unwrap_or_default()
}

fn value_bytes(format: Format) -> usize {
    match format {
        Format::F32 => 4,
        Format::Bf16 => 2,
        Format::Mxfp8 => 1,
    }
}

/// A cheap generator for synthetic weights; quality does not matter, speed does.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }

    /// Four bytes of weights.
    fn word(&mut self, format: Format, deviation: f32) -> u32 {
        let bits = self.next();
        // Uniform in -1..1, times sqrt(3) for unit variance.
        let uniform = |bits: u64| ((bits & 0xffff) as f32 / 32768.0 - 1.0) * 1.732 * deviation;
        match format {
            Format::F32 => uniform(bits).to_bits(),
            Format::Bf16 => {
                let pair = [f32_to_bf16(uniform(bits)), f32_to_bf16(uniform(bits >> 16))];
                u32::from(pair[0]) | (u32::from(pair[1]) << 16)
            }
            // A sign and magnitude codes 0x20..0x3f: 0.125 to 1.875.
            Format::Mxfp8 => (bits as u32 & 0x9f9f_9f9f) | 0x2020_2020,
        }
    }
}
