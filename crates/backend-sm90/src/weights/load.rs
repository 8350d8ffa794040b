//! Takes tensors as `load` brings them and copies each to its place; counts what is still missing.
//!
//! Copies run on the uploader's threads until [`Loading::finish`]; parts of rows (column cuts) arrive as dense rows. Synthetic
//! tensors are filled on the device.

#![expect(unsafe_code, reason = "tensor views are pointers into the host's mapping")]

use std::collections::HashSet;

use m3_abi::{Error, Result, TensorView};
use m3_gpu::arena::Arena;
use m3_gpu::device::Device;
use m3_gpu::memory::Region;
use m3_gpu::stream::Stream;
use m3_gpu::upload::{Source as Rows, UploadSettings, Uploader};
use m3_model::formats::{Format, MX_GROUP, WeightRows};
use m3_model::names::synthetic_deviation;

use super::Weights;
use super::place::{MatrixPlan, Place, WeightPlan};

/// Names of missing tensors that a refusal spells out.
const SHOWN: usize = 10;

/// Fills a dense tensor on the device from a seed.
pub(crate) trait Synthesise {
    /// `values` gets values of `format` with mean 0 and a standard deviation of `deviation`; MXFP8 codes have their own.
    fn fill(&self, stream: &Stream, values: Region, format: Format, deviation: f32, seed: u64) -> Result<()>;
}

/// A rank between `open` and `ready`.
pub(crate) struct Loading {
    plan: WeightPlan,
    arena: Arena,
    uploader: Uploader,
    /// Fills and converted tensors.
    stream: Stream,
    loaded: HashSet<String>,
    bytes: u64,
}

impl Loading {
    pub(crate) fn new(device: &Device, plan: WeightPlan) -> Result<Loading> {
        let arena = plan.arena.clone().carve(device, "weights")?;
        let uploader = Uploader::new(device, UploadSettings::default())?;
        Ok(Loading { uploader, stream: device.stream()?, plan, arena, loaded: HashSet::new(), bytes: 0 })
    }

    /// Copies one tensor's part to its place. Vision tensors are left alone: this backend encodes no media yet.
    pub(crate) fn load(&mut self, tensor: &TensorView<'_>, synthesise: &dyn Synthesise) -> Result<()> {
        if !tensor.name.starts_with("language_model.") {
            return Ok(());
        }
        let Some(place) = self.plan.places.get(tensor.name).cloned() else {
            return refuse(tensor, "this rank has no place for it");
        };
        let source = Source::new(tensor, &place)?;
        let matrix = &self.plan.matrices[place.matrix.0];
        let (values, scales) = regions(&self.arena, matrix, &place)?;
        if !self.loaded.insert(tensor.name.to_owned()) {
            return refuse(tensor, "loaded twice");
        }
        self.bytes += values.bytes + scales.map_or(0, |scales| scales.bytes);
        if source.format != matrix.format && !source.widens_to(matrix.format) {
            return refuse(tensor, format!("it is {}, its matrix is {}", source.format, matrix.format));
        }
        if tensor.data.is_null() {
            let deviation = synthetic_deviation(tensor.name, place.columns);
            if let Some(scales) = scales {
                self.stream.fill(scales, synthetic_scale(deviation))?;
            }
            return synthesise.fill(&self.stream, values, matrix.format, deviation, tensor.seed);
        }
        if source.format != matrix.format {
            return Ok(self.stream.upload_values(values, &source.rows().to_f32())?);
        }
        self.send(source.value_rows(), values)?;
        match scales {
            Some(scales) => self.send(source.scale_rows(), scales),
            None => Ok(()),
        }
    }

    fn send(&self, rows: Rows, to: Region) -> Result<()> {
        // SAFETY: a view's memory outlives `ready`, which finishes (or drops) the uploader.
        Ok(unsafe { self.uploader.send(rows, to) }?)
    }

    /// All tensors are there and on the device. Answers the weights and their bytes.
    pub(crate) fn finish(self) -> Result<(Weights, u64)> {
        self.uploader.finish()?;
        self.stream.synchronize()?;
        let mut missing: Vec<&str> =
            self.plan.places.keys().filter(|name| !self.loaded.contains(*name)).map(String::as_str).collect();
        if !missing.is_empty() {
            missing.sort_unstable();
            let count = missing.len();
            missing.truncate(SHOWN);
            return Err(Error::Unsupported(format!("{count} tensors are missing: {}", missing.join(", "))));
        }
        Ok((Weights::new(&self.plan.matrices, &self.plan.model, self.arena), self.bytes))
    }
}

fn refuse<T>(tensor: &TensorView<'_>, why: impl std::fmt::Display) -> Result<T> {
    Err(Error::Unsupported(format!("tensor {}: {why}", tensor.name)))
}

/// The parts of a matrix that a tensor fills.
fn regions(arena: &Arena, matrix: &MatrixPlan, place: &Place) -> Result<(Region, Option<Region>)> {
    let rows = |piece, row_bytes: usize| {
        let (first, bytes) = (place.first_row * row_bytes, place.rows * row_bytes);
        arena.region(piece).part(first as u64, bytes as u64)
    };
    let values = rows(matrix.values, matrix.columns * matrix.format.value_bytes())?;
    let scales = matrix.scales.map(|piece| rows(piece, matrix.columns.div_ceil(MX_GROUP))).transpose()?;
    Ok((values, scales))
}

/// The scale byte of synthetic MXFP8 values: their codes have a deviation of about 0.6.
fn synthetic_scale(deviation: f32) -> u8 {
    (127.0 + (deviation / 0.6).log2()).round() as u8
}

/// A checked tensor view.
struct Source<'a> {
    format: Format,
    rows: usize,
    columns: usize,
    row_stride: usize,
    scale_stride: usize,
    view: &'a TensorView<'a>,
}

impl<'a> Source<'a> {
    fn new(view: &'a TensorView<'a>, place: &Place) -> Result<Source<'a>> {
        let Some(format) = Format::from_abi(view.format) else {
            return refuse(view, format!("weight format {}; sm90 reads F32, BF16 and MXFP8", view.format));
        };
        let (rows, columns, row_stride) = match (view.shape, view.strides) {
            (&[columns], &[1]) => (1, columns, columns),
            (&[rows, columns], &[row_stride, 1]) => (rows, columns, row_stride),
            (shape, strides) => {
                return refuse(
                    view,
                    format!("shape {shape:?} with strides {strides:?} is not rows of values"),
                );
            }
        };
        let (rows, columns) = (rows as usize, columns as usize);
        if (rows, columns) != (place.rows, place.columns) {
            return refuse(view, format!("{rows} x {columns}, not {} x {}", place.rows, place.columns));
        }
        if format == Format::Mxfp8 && view.group_offset != 0 {
            return refuse(view, format!("it starts {} values inside an MXFP8 group", view.group_offset));
        }
        if format == Format::Mxfp8 && !view.data.is_null() && view.scale.is_null() {
            return refuse(view, "MXFP8 needs scales");
        }
        let (row_stride, scale_stride) = (row_stride as usize, view.scale_stride as usize);
        Ok(Source { format, rows, columns, row_stride, scale_stride, view })
    }

    /// The router is F32 as released and bf16 when saved again; here it is F32.
    fn widens_to(&self, format: Format) -> bool {
        self.format == Format::Bf16 && format == Format::F32
    }

    fn rows(&self) -> WeightRows<'a> {
        let width = self.format.value_bytes();
        let len = ((self.rows - 1) * self.row_stride + self.columns) * width;
        WeightRows {
            format: self.format,
            // SAFETY: the view's rows lie in memory that outlives `ready`, the last one ending here.
            data: unsafe { std::slice::from_raw_parts(self.view.data, len) },
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            scale: &[],
            scale_stride: 0,
            group_offset: 0,
        }
    }

    fn value_rows(&self) -> Rows {
        let width = self.format.value_bytes();
        rows(self.view.data, self.rows, self.columns * width, self.row_stride * width)
    }

    fn scale_rows(&self) -> Rows {
        rows(self.view.scale, self.rows, self.columns.div_ceil(MX_GROUP), self.scale_stride)
    }
}

/// `count` runs of `len` bytes, `stride` apart; one run when they touch.
fn rows(start: *const u8, count: usize, len: usize, stride: usize) -> Rows {
    if stride == len || count == 1 {
        return Rows::contiguous(start, (count * len) as u64);
    }
    Rows { start, rows: count as u64, row_bytes: len as u64, stride: stride as u64 }
}

#[cfg(test)]
mod tests;
