//! `y = x W^T`, and what each quantised mode does to `x` and `W` first.

use m3_abi::types::{QUANT_BLOCK_FP8, QUANT_W8A8, QUANT_WEIGHT_ONLY};

use super::fp8::{quantize_block_activation, quantize_block_weight, quantize_mx};
use super::math::{dot, for_rows};

/// How linears with quantised weights are computed. Router, head and embedding are never quantised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantMode {
    /// Weights as stored, inputs as they are.
    #[default]
    WeightOnly,
    /// Weights as stored, inputs to MXFP8.
    W8A8,
    /// Weights from MXFP8 to bf16 to block fp8, inputs to fp8 per 128 values.
    BlockFp8,
}

impl QuantMode {
    /// The `QUANT_*` of `probe`.
    pub fn to_abi(self) -> u32 {
        match self {
            QuantMode::WeightOnly => QUANT_WEIGHT_ONLY,
            QuantMode::W8A8 => QUANT_W8A8,
            QuantMode::BlockFp8 => QUANT_BLOCK_FP8,
        }
    }
}

/// A weight [rows, columns] without bias.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Dequantised, row-major.
    values: Vec<f32>,
    columns: usize,
    /// What is done to inputs.
    mode: QuantMode,
}

impl Linear {
    /// A weight that is stored unquantised: inputs are used as they are.
    pub fn plain(values: Vec<f32>, columns: usize) -> Self {
        Linear { values, columns, mode: QuantMode::WeightOnly }
    }

    /// A weight that is stored in MXFP8, given dequantised.
    pub fn quantized(mut values: Vec<f32>, columns: usize, mode: QuantMode) -> Self {
        if mode == QuantMode::BlockFp8 {
            quantize_block_weight(&mut values, columns);
        }
        Linear { values, columns, mode }
    }

    /// Outputs per input row.
    pub fn num_rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// Inputs per row.
    pub fn num_columns(&self) -> usize {
        self.columns
    }

    /// What the stored weight means, row-major (after requantisation in [`QuantMode::BlockFp8`]).
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// [T, columns] -> [T, rows].
    pub fn apply(&self, inputs: &[f32]) -> Vec<f32> {
        let mut inputs = inputs.to_vec();
        for row in inputs.chunks_mut(self.columns) {
            match self.mode {
                QuantMode::WeightOnly => {}
                QuantMode::W8A8 => quantize_mx(row),
                QuantMode::BlockFp8 => quantize_block_activation(row),
            }
        }
        let num_rows = self.num_rows();
        let mut outputs = vec![0.0; inputs.len() / self.columns * num_rows];
        for_rows(&mut outputs, num_rows, |token, outputs| {
            let input = &inputs[token * self.columns..][..self.columns];
            for (output, weight) in outputs.iter_mut().zip(self.values.chunks(self.columns)) {
                *output = dot(input, weight);
            }
        });
        outputs
    }
}
