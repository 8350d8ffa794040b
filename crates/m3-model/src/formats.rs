//! Number formats of weights and activations: which there are, and exact conversions between them.
//!
//! Scalar and readable: backends convert with their own instructions and are tested against this.

mod block;
mod float;
mod mx;
mod rows;
#[cfg(test)]
mod tests;

pub use block::{
    BLOCK, BlockFp8, fn_to_fnuz, mx_to_bf16_for_blocks, quantise_block_rows, quantise_block_weight,
};
pub use float::{
    E4M3FN_MAX, E4M3FNUZ_MAX, UE8M0_NAN, bf16_to_f32, e4m3fn_to_f32, e4m3fnuz_to_f32, f32_to_bf16,
    f32_to_e4m3fn, f32_to_e4m3fnuz, round_to_bf16, ue8m0_to_f32,
};
pub use mx::{dequantise_mx, mx_scale_code, quantise_mx};
pub use rows::WeightRows;

use m3_abi::types::{FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8};

/// Values that share one scale byte in MXFP8, along the last dimension.
pub const MX_GROUP: usize = 32;

/// How a tensor's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    Bf16,
    /// OCP e4m3fn bytes with a UE8M0 scale byte for every [`MX_GROUP`] values of a row.
    Mxfp8,
}

impl Format {
    /// Bytes of one value, scales not counted.
    pub const fn value_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::Bf16 => 2,
            Format::Mxfp8 => 1,
        }
    }

    /// The `FORMAT_*` bit of the plugin line.
    pub const fn abi(self) -> u32 {
        match self {
            Format::F32 => FORMAT_F32,
            Format::Bf16 => FORMAT_BF16,
            Format::Mxfp8 => FORMAT_MXFP8,
        }
    }

    /// The format behind a `FORMAT_*` bit, `None` for one that is not implemented.
    pub const fn from_abi(bit: u32) -> Option<Self> {
        match bit {
            FORMAT_F32 => Some(Format::F32),
            FORMAT_BF16 => Some(Format::Bf16),
            FORMAT_MXFP8 => Some(Format::Mxfp8),
            _ => None,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Format::F32 => "F32",
            Format::Bf16 => "BF16",
            Format::Mxfp8 => "MXFP8",
        })
    }
}
