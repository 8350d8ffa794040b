//! e4m3fn and the two ways activations and weights are quantised to it. Values stay `f32`: a quantised array is the
//! array of what its bytes mean.

pub use crate::formats::MX_GROUP;

/// Values that share one `f32` scale in block fp8: along K for activations, in both directions for weights.
pub const BLOCK: usize = 128;
/// The largest e4m3fn value.
pub const E4M3_MAX: f32 = 448.0;
/// Smallest magnitude a block fp8 activation scale is made from.
const MIN_ACTIVATION: f32 = 1e-10;
/// Smallest magnitude a block fp8 weight scale is made from.
const MIN_WEIGHT: f32 = 1e-4;

/// What an e4m3fn byte means: bias 7, no infinity, 0x7F and 0xFF are NaN.
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte >> 7 == 1 { -magnitude } else { magnitude }
}

/// The nearest e4m3fn value, ties to even, saturating at 448.
pub fn round_to_e4m3(value: f32) -> f32 {
    let magnitude = value.abs().min(E4M3_MAX);
    // Below the smallest normal, 2^-6, the step stays that of the subnormals, 2^-9.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-6);
    let step = 2f32.powi(exponent - 3);
    ((magnitude / step).round_ties_even() * step).min(E4M3_MAX).copysign(value)
}

/// The byte of a value that e4m3fn can hold exactly (NaN becomes 0x7F).
pub fn e4m3_byte(value: f32) -> u8 {
    let sign = u8::from(value.is_sign_negative()) << 7;
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return 0x7F;
    }
    if magnitude < 2f32.powi(-6) {
        return sign | (magnitude * 512.0) as u8;
    }
    let bits = magnitude.to_bits();
    sign | ((bits >> 23) as u8 - 120) << 3 | (bits >> 20) as u8 & 7
}

/// `2^(byte - 127)`, the factor of a UE8M0 byte; 255 is NaN.
pub fn ue8m0_to_f32(byte: u8) -> f32 {
    match byte {
        // 2^-127 is subnormal.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// UE8M0 byte for a group whose largest magnitude is `max`: the smallest power of two that does not saturate
/// (`ceil(log2(max / 448))`), 0 for an all-zero group.
pub fn mx_scale_byte(max: f32) -> u8 {
    if max == 0.0 {
        return 0;
    }
    // Exact: 448 = 1.75 x 2^8, so the quotient's exponent follows from the parts.
    let ratio = f64::from(max) / f64::from(E4M3_MAX);
    let bits = ratio.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 + i32::from(bits << 12 != 0);
    (exponent + 127).clamp(0, 254) as u8
}

/// Quantises a row to MXFP8 along K: each 32 values share a power of two.
pub fn quantize_mx(row: &mut [f32]) {
    for group in row.chunks_mut(MX_GROUP) {
        let byte = mx_scale_byte(max_magnitude(group));
        let (scale, inverse) = (ue8m0_to_f32(byte), ue8m0_to_f32(254 - byte));
        for value in group {
            *value = round_to_e4m3(*value * inverse) * scale;
        }
    }
}

/// Quantises a row to fp8 per 128 values along K with `f32` scales, by division (a reciprocal rounds ties elsewhere).
pub fn quantize_block_activation(row: &mut [f32]) {
    for group in row.chunks_mut(BLOCK) {
        let scale = max_magnitude(group).max(MIN_ACTIVATION) / E4M3_MAX;
        for value in group {
            *value = round_to_e4m3(*value / scale) * scale;
        }
    }
}

/// Quantises a weight [rows, columns] to bf16 and then to fp8 with one `f32` scale per 128 x 128 tile, smaller at the
/// edges. Returns the scales, [tiles of rows, tiles of columns].
pub fn quantize_block_weight(values: &mut [f32], columns: usize) -> Vec<f32> {
    let num_rows = values.len() / columns;
    let mut scales = Vec::new();
    for first_row in (0..num_rows).step_by(BLOCK) {
        for first_column in (0..columns).step_by(BLOCK) {
            let rows = first_row..(first_row + BLOCK).min(num_rows);
            let width = first_column..(first_column + BLOCK).min(columns);
            let spans: Vec<_> =
                rows.map(|row| row * columns + width.start..row * columns + width.end).collect();
            let mut max = MIN_WEIGHT;
            for span in &spans {
                values[span.clone()].iter_mut().for_each(|value| *value = round_to_bf16(*value));
                max = max.max(max_magnitude(&values[span.clone()]));
            }
            let scale = max / E4M3_MAX;
            for value in spans.into_iter().flatten() {
                values[value] = round_to_e4m3(values[value] / scale) * scale;
            }
            scales.push(scale);
        }
    }
    scales
}

/// Nearest bf16 value, ties to even.
pub fn round_to_bf16(value: f32) -> f32 {
    half::bf16::from_f32(value).to_f32()
}

fn max_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max, value| max.max(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for byte in 0..=255u8 {
            let value = e4m3_to_f32(byte);
            if value.is_nan() {
                assert!(matches!(byte, 0x7F | 0xFF));
                continue;
            }
            assert_eq!(round_to_e4m3(value), value, "{byte:#x}");
            assert_eq!(e4m3_byte(value), byte, "{byte:#x}");
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest_value_and_ties_to_even() {
        let mut values: Vec<f32> = (0..0x7Fu8).map(e4m3_to_f32).collect();
        values.sort_by(f32::total_cmp);
        for (index, pair) in values.windows(2).enumerate() {
            let middle = (pair[0] + pair[1]) / 2.0;
            assert_eq!(round_to_e4m3(middle), pair[index % 2], "between {} and {}", pair[0], pair[1]);
            assert_eq!(round_to_e4m3(middle * 0.9999), pair[0]);
            assert_eq!(round_to_e4m3(-middle * 1.0001), -pair[1]);
        }
        assert_eq!(round_to_e4m3(1e9), 448.0);
    }

    #[test]
    fn mxfp8_dequantises_one_at_three_scales() {
        for (byte, value) in [(127, 1.0), (128, 2.0), (120, 0.007_812_5)] {
            assert_eq!(e4m3_to_f32(0x38) * ue8m0_to_f32(byte), value);
        }
        assert_eq!(ue8m0_to_f32(0), 2f32.powi(-127));
    }

    #[test]
    fn scale_bytes_follow_the_ceil_rule() {
        for (max, byte) in [(448.0, 127), (448.1, 128), (447.9, 127), (224.0, 126), (1.0, 119), (0.0, 0)] {
            assert_eq!(mx_scale_byte(max), byte, "{max}");
        }
        assert_eq!(mx_scale_byte(f32::from_bits(1)), 0, "tiny values stay at the smallest scale");
        assert_eq!(mx_scale_byte(f32::MAX), 247);
    }

    #[test]
    fn groups_of_zeros_stay_zero() {
        let mut row = vec![0.0; 160];
        row[40] = -3.0;
        quantize_mx(&mut row);
        assert!(row.iter().enumerate().all(|(index, &value)| value == if index == 40 { -3.0 } else { 0.0 }));
        let mut zeros = vec![0.0; 200];
        quantize_block_activation(&mut zeros);
        assert!(zeros.iter().all(|&value| value == 0.0));
    }
}
