//! Block fp8: e4m3 with one f32 scale for each 128 x 128 tile of a weight and each 128 values of an activation row.
//!
//! For devices without MX instructions. The order of roundings is fixed, byte for byte: MXFP8 to bf16, tile maximum,
//! f32 scale, f32 division, nearest e4m3. gfx942 needs one more step, [`fn_to_fnuz`].

use super::float::{E4M3FN_MAX, e4m3fn_to_f32, f32_to_e4m3fn, round_to_bf16};
use super::{MX_GROUP, WeightRows};

/// Rows and columns of a tile.
pub const BLOCK: usize = 128;
/// Least tile maximum of a weight, so that an all-zero tile has a scale.
const LEAST_WEIGHT: f32 = 1e-4;
/// Least group maximum of an activation.
const LEAST_ACTIVATION: f32 = 1e-10;

/// A weight in block fp8.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFp8 {
    /// OCP e4m3fn, `[rows, columns]`.
    pub codes: Vec<u8>,
    /// `[rows.div_ceil(128), columns.div_ceil(128)]`
    pub scales: Vec<f32>,
    pub rows: usize,
    pub columns: usize,
}

/// MXFP8 to the bf16 value that block quantisation starts from. Scale code 0 reads as factor 0 here, not 2^-127.
pub fn mx_to_bf16_for_blocks(code: u8, scale: u8) -> f32 {
    round_to_bf16(e4m3fn_to_f32(code) * f32::from_bits(u32::from(scale) << 23))
}

/// Quantises a weight (any stored format, rounded to bf16 first) tile by tile. Memory: 4 bytes a value of 128 rows.
pub fn quantise_block_weight(weight: &WeightRows<'_>) -> BlockFp8 {
    let (rows, columns) = (weight.rows, weight.columns);
    let tiles = columns.div_ceil(BLOCK);
    let mut codes = vec![0; rows * columns];
    let mut scales = Vec::with_capacity(rows.div_ceil(BLOCK) * tiles);
    let mut band = vec![0.0; BLOCK.min(rows) * columns];
    for (first, band_codes) in (0..rows).step_by(BLOCK).zip(codes.chunks_mut(BLOCK * columns)) {
        let band = &mut band[..band_codes.len()];
        for (row, values) in band.chunks_mut(columns).enumerate() {
            bf16_row(weight, first + row, values);
        }
        scales.extend((0..tiles).map(|tile| quantise_tile(band, band_codes, columns, tile)));
    }
    BlockFp8 { codes, scales, rows, columns }
}

fn bf16_row(weight: &WeightRows<'_>, row: usize, values: &mut [f32]) {
    weight.read_row(row, values);
    for (column, value) in values.iter_mut().enumerate() {
        let zero_scale = weight.scale_code(row, column) == Some(0);
        *value = if zero_scale { *value * 0.0 } else { round_to_bf16(*value) };
    }
}

fn quantise_tile(band: &[f32], codes: &mut [u8], columns: usize, tile: usize) -> f32 {
    let range = tile * BLOCK..columns.min((tile + 1) * BLOCK);
    let largest = |amax: f32, row: &[f32]| row[range.clone()].iter().fold(amax, |amax, v| amax.max(v.abs()));
    let scale = band.chunks(columns).fold(LEAST_WEIGHT, largest) / E4M3FN_MAX;
    for (row, row_codes) in band.chunks(columns).zip(codes.chunks_mut(columns)) {
        for (value, code) in row[range.clone()].iter().zip(&mut row_codes[range.clone()]) {
            *code = f32_to_e4m3fn(value / scale);
        }
    }
    scale
}

/// Quantises activation rows of `columns` values in groups of 128 from each row's start; the last may be short.
/// `scales` has `columns.div_ceil(128)` entries a row.
pub fn quantise_block_rows(values: &[f32], columns: usize, codes: &mut [u8], scales: &mut [f32]) {
    let groups = columns.div_ceil(BLOCK);
    let rows = values.chunks(columns).zip(codes.chunks_mut(columns)).zip(scales.chunks_mut(groups));
    for ((values, codes), scales) in rows {
        for ((values, codes), scale) in values.chunks(BLOCK).zip(codes.chunks_mut(BLOCK)).zip(scales) {
            let amax = values.iter().fold(LEAST_ACTIVATION, |amax, value| amax.max(value.abs()));
            *scale = amax / E4M3FN_MAX;
            for (value, code) in values.iter().zip(codes) {
                *code = f32_to_e4m3fn(value / *scale);
            }
        }
    }
}

/// e4m3fn to e4m3fnuz without changing a value: the same byte means half as much there, so scales double; negative
/// zero, which would be NaN, becomes zero. e4m3fn's own NaN bytes must not occur (they would read as 240).
pub fn fn_to_fnuz(codes: &mut [u8], scales: &mut [f32]) {
    for code in codes.iter_mut().filter(|code| **code == 0x80) {
        *code = 0;
    }
    for scale in scales {
        *scale *= 2.0;
    }
}

const _: () = assert!(BLOCK.is_multiple_of(MX_GROUP), "a tile holds whole scale groups");
