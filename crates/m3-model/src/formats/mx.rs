//! MXFP8 activations: 32 values share a power of two, the smallest with which none of them saturates.
//!
//! Weights keep the scales they were published with; nothing here derives those.

use super::MX_GROUP;
use super::float::{e4m3fn_to_f32, f32_to_e4m3fn, ue8m0_to_f32};

/// UE8M0 code for a group whose largest magnitude is `amax`: `ceil(log2(amax / 448)) + 127` within 0..=254.
///
/// Taken from the bits, so no rounding of a logarithm can move it: 448 is 1.75 x 2^8. Zero and NaN give 0.
pub fn mx_scale_code(amax: f32) -> u8 {
    const LARGEST_FRACTION: u32 = 0x60_0000; // of 1.75
    let bits = amax.abs().to_bits();
    // Subnormal amax: far below 448 x 2^-127, where the code stops at 0.
    let exponent = (bits >> 23) as i32;
    if exponent == 0 || amax.is_nan() {
        return 0;
    }
    let beyond = i32::from(bits & 0x7f_ffff > LARGEST_FRACTION);
    (exponent - 8 + beyond).clamp(0, 254) as u8
}

/// Quantises rows of `columns` values, each row from a new group.
///
/// `codes` is as long as `values`; `scales` has `columns.div_ceil(32)` entries a row. NaN becomes the NaN code of its
/// value and leaves its group alone; infinity dequantises to infinity.
pub fn quantise_mx(values: &[f32], columns: usize, codes: &mut [u8], scales: &mut [u8]) {
    assert_eq!(values.len(), codes.len(), "a code per value");
    let groups = columns.div_ceil(MX_GROUP);
    assert_eq!(scales.len(), values.len() / columns * groups, "a scale per group");
    let rows = values.chunks(columns).zip(codes.chunks_mut(columns)).zip(scales.chunks_mut(groups));
    for ((values, codes), scales) in rows {
        let groups = values.chunks(MX_GROUP).zip(codes.chunks_mut(MX_GROUP)).zip(scales);
        for ((values, codes), scale) in groups {
            *scale = quantise_group(values, codes);
        }
    }
}

fn quantise_group(values: &[f32], codes: &mut [u8]) -> u8 {
    let amax = values.iter().fold(0.0f32, |amax, value| amax.max(value.abs()));
    let scale = mx_scale_code(amax);
    // The reciprocal power of two, not a division: both are exact here, and GPUs flush subnormal divisors.
    let factor = ue8m0_to_f32(254 - scale);
    for (value, code) in values.iter().zip(codes) {
        *code = f32_to_e4m3fn(value * factor);
    }
    scale
}

/// Values of rows that [`quantise_mx`] made.
pub fn dequantise_mx(codes: &[u8], columns: usize, scales: &[u8], values: &mut [f32]) {
    let groups = columns.div_ceil(MX_GROUP);
    for (row, (codes, values)) in codes.chunks(columns).zip(values.chunks_mut(columns)).enumerate() {
        for (column, (code, value)) in codes.iter().zip(values).enumerate() {
            *value = e4m3fn_to_f32(*code) * ue8m0_to_f32(scales[row * groups + column / MX_GROUP]);
        }
    }
}
