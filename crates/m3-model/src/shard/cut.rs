//! A tensor's part on a rank as pointers, shape and strides, ready for the plugin line.
//!
//! A cut never copies. A column cut of MXFP8 may fall inside a group of 32: then both ranks are given the group's
//! scale, and `group_offset` says how many of its values lie before the first column.

use m3_abi::TensorView;

use super::{Cut, ShardPlan};
use crate::checkpoint::{TensorData, row_major_strides};
use crate::error::ModelError;
use crate::formats::{Format, MX_GROUP, WeightRows};
use crate::names::TensorSpec;

/// Part of one tensor for one rank; borrows the mapped file, or nothing for a synthetic tensor.
#[derive(Clone, Debug)]
pub struct TensorCut<'a> {
    /// Canonical name.
    pub name: &'a str,
    pub format: Format,
    num_dims: usize,
    shape: [u64; 5],
    strides: [u64; 5],
    /// From the part's first value to its last; rows of a column cut lie `strides()[0]` apart in it.
    pub data: Option<&'a [u8]>,
    /// From the part's first scale to its last, `scale_stride` a row.
    pub scale: Option<&'a [u8]>,
    pub scale_stride: u64,
    /// Values of the first scale group that lie before the first column.
    pub group_offset: u32,
    /// Seeds the values of a synthetic tensor.
    pub seed: u64,
}

impl ShardPlan {
    /// The part of `data` that `rank` loads, `None` when it holds nothing of it.
    pub fn cut<'a>(&self, rank: usize, data: TensorData<'a>) -> Result<Option<TensorCut<'a>>, ModelError> {
        self.rank(rank)?;
        Ok(self.part(rank, data.spec).map(|part| real(data, &part)))
    }

    /// As [`ShardPlan::cut`] for a tensor that no file holds: shape and seed only.
    /// A dense tensor of the part's shape; the seed does not depend on the rank.
    pub fn synthetic<'a>(
        &self,
        rank: usize,
        spec: &'a TensorSpec,
        seed: u64,
    ) -> Result<Option<TensorCut<'a>>, ModelError> {
        self.rank(rank)?;
        Ok(self.part(rank, spec).map(|part| {
            let mut cut = frame(spec, &part);
            cut.strides = row_major_strides(cut.shape());
            cut.scale_stride = match spec.format {
                Format::Mxfp8 => groups(&cut),
                _ => 0,
            };
            cut.seed = seed;
            cut
        }))
    }

    /// Bytes that `rank` loads of the tensors in `specs`, scales included.
    pub fn rank_bytes<'a>(&self, rank: usize, specs: impl IntoIterator<Item = &'a TensorSpec>) -> u64 {
        let parts = specs.into_iter().filter_map(|spec| Some(frame(spec, &self.part(rank, spec)?)));
        parts.map(|cut| cut.bytes()).sum()
    }
}

impl<'a> TensorCut<'a> {
    pub fn shape(&self) -> &[u64] {
        &self.shape[..self.num_dims]
    }

    /// In elements, as long as the shape.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.num_dims]
    }

    /// Bytes of the part's values and scales, gaps between rows not counted.
    pub fn bytes(&self) -> u64 {
        let values: u64 = self.shape().iter().product();
        let rows = values / self.shape()[self.num_dims - 1].max(1);
        let scales = if self.format == Format::Mxfp8 { rows * groups(self) } else { 0 };
        values * self.format.value_bytes() as u64 + scales
    }

    /// What [`m3_abi::Backend::load`] takes.
    pub fn view(&self) -> TensorView<'_> {
        TensorView {
            name: self.name,
            format: self.format.abi(),
            shape: self.shape(),
            strides: self.strides(),
            data: self.data.map_or(std::ptr::null(), <[u8]>::as_ptr),
            scale: self.scale.map_or(std::ptr::null(), <[u8]>::as_ptr),
            scale_stride: self.scale_stride,
            group_offset: self.group_offset,
            seed: self.seed,
        }
    }

    /// The part as a matrix of rows, leading dims folded into rows; `None` for a synthetic tensor.
    pub fn rows(&self) -> Option<WeightRows<'a>> {
        let columns = self.shape()[self.num_dims - 1] as usize;
        let rows: u64 = self.shape()[..self.num_dims - 1].iter().product();
        let row_stride = if self.num_dims > 1 { self.strides[self.num_dims - 2] as usize } else { columns };
        Some(WeightRows {
            format: self.format,
            data: self.data?,
            rows: rows as usize,
            columns,
            row_stride,
            scale: self.scale.unwrap_or_default(),
            scale_stride: self.scale_stride as usize,
            group_offset: self.group_offset as usize,
        })
    }
}

/// Scale entries that a row of the part touches.
fn groups(cut: &TensorCut<'_>) -> u64 {
    (u64::from(cut.group_offset) + cut.shape()[cut.num_dims - 1]).div_ceil(MX_GROUP as u64)
}

/// Everything of a cut but its bytes.
fn frame<'a>(spec: &'a TensorSpec, part: &Cut) -> TensorCut<'a> {
    let num_dims = spec.shape.len();
    let mut shape = [0; 5];
    shape[..num_dims].copy_from_slice(&spec.shape);
    shape[0] = part.rows.end - part.rows.start;
    let mut first_column = 0;
    if let Some(columns) = &part.columns {
        shape[num_dims - 1] = columns.end - columns.start;
        first_column = columns.start;
    }
    let in_group = if spec.format == Format::Mxfp8 { first_column % MX_GROUP as u64 } else { 0 };
    TensorCut {
        name: &spec.name,
        format: spec.format,
        num_dims,
        shape,
        strides: row_major_strides(&spec.shape),
        data: None,
        scale: None,
        scale_stride: spec.scale_columns(),
        group_offset: in_group as u32,
        seed: 0,
    }
}

fn real<'a>(data: TensorData<'a>, part: &Cut) -> TensorCut<'a> {
    let mut cut = frame(data.spec, part);
    let first_column = part.columns.as_ref().map_or(0, |columns| columns.start);
    let width = data.spec.format.value_bytes() as u64;
    let first = part.rows.start * cut.strides[0] + first_column;
    let last = cut.shape().iter().zip(cut.strides()).map(|(size, stride)| (size - 1) * stride).sum::<u64>();
    cut.data = Some(&data.data[(first * width) as usize..((first + last + 1) * width) as usize]);
    cut.scale = data.scale.map(|scale| {
        let first = part.rows.start * data.scale_stride + first_column / MX_GROUP as u64;
        let last = (cut.shape[0] - 1) * data.scale_stride + groups(&cut);
        &scale[first as usize..(first + last) as usize]
    });
    cut
}
