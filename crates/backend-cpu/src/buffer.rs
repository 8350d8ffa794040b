//! Activations between kernels: f32 values and, when the engine computes in bf16, the same values as bf16 bits.
//!
//! In bf16 the values are rounded where the model says so, by [`Buffer::fill`]; the bits are what the bf16 dot product
//! takes. Buffers keep their memory from step to step.

use rayon::prelude::*;

use crate::kernels::convert::round_to_bf16;
use crate::kernels::gemm::Rows;

/// What activations are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    Bf16,
}

/// A dense array of activations.
pub(crate) struct Buffer {
    precision: Precision,
    pub(crate) values: Vec<f32>,
    /// Empty in f32.
    pub(crate) bits: Vec<u16>,
}

impl Buffer {
    /// Room for `capacity` values.
    pub(crate) fn new(precision: Precision, capacity: usize) -> Buffer {
        let bits = if precision == Precision::Bf16 { capacity } else { 0 };
        Buffer { precision, values: Vec::with_capacity(capacity), bits: Vec::with_capacity(bits) }
    }

    /// Nothing: what stands in a workspace while its buffer is being filled.
    pub(crate) fn empty() -> Buffer {
        Buffer { precision: Precision::F32, values: Vec::new(), bits: Vec::new() }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.values.capacity() * 4 + self.bits.capacity() * 2
    }

    /// Makes it `len` values long; what they hold is unspecified.
    pub(crate) fn reset(&mut self, len: usize) {
        self.values.resize(len, 0.0);
        if self.precision == Precision::Bf16 {
            self.bits.resize(len, 0);
        }
    }

    /// As rows of `width` for a GEMM.
    pub(crate) fn rows(&self, width: usize) -> Rows<'_> {
        Rows::new(&self.values, self.bits(), width)
    }

    pub(crate) fn bits(&self) -> Option<&[u16]> {
        (self.precision == Precision::Bf16).then_some(&self.bits[..])
    }

    /// Makes it `count` rows of `width`, each written by `fill(index, row)` and then rounded; rows run in parallel.
    pub(crate) fn fill(&mut self, count: usize, width: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
        self.reset(count * width);
        let rows = self.values.par_chunks_mut(width).enumerate();
        match self.precision {
            Precision::F32 => rows.for_each(|(index, row)| fill(index, row)),
            Precision::Bf16 => rows.zip(self.bits.par_chunks_mut(width)).for_each(|((index, row), bits)| {
                fill(index, row);
                round_to_bf16(row, bits);
            }),
        }
    }
}
