//! Conversions against brute force over all codes, the documented check values, and edge shapes of cuts.

use super::*;

fn all_codes(to_f32: fn(u8) -> f32) -> Vec<(u8, f32)> {
    (0..=255).map(|code| (code, to_f32(code))).filter(|(_, value)| !value.is_nan()).collect()
}

/// Nearest code by search: ties to the even code, -0 kept apart by sign.
fn nearest(value: f32, codes: &[(u8, f32)]) -> u8 {
    let distance = |code: &(u8, f32)| (f64::from(code.1) - f64::from(value)).abs();
    let same_sign = codes.iter().filter(|code| code.1.is_sign_negative() == value.is_sign_negative());
    same_sign
        .min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a.0 & 1).cmp(&(b.0 & 1))))
        .expect("there are codes of both signs")
        .0
}

/// Values around every code, every midpoint, and the range's ends.
fn probes(codes: &[(u8, f32)]) -> Vec<f32> {
    let mut values: Vec<f32> = codes.iter().map(|code| code.1).collect();
    values.sort_by(f32::total_cmp);
    let middles: Vec<f32> = values.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    values.extend(middles);
    let around = values.clone();
    values.extend(around.iter().flat_map(|value| [value.next_up(), value.next_down()]));
    values.extend([0.0, -0.0, 1e-30, -1e-30, f32::MIN_POSITIVE / 4.0, 463.9, 464.0, 500.0, 1e9, -1e9]);
    values
}

#[test]
fn e4m3fn_rounds_to_nearest_even_and_saturates() {
    let codes = all_codes(e4m3fn_to_f32);
    assert_eq!(codes.len(), 254);
    for value in probes(&codes) {
        assert_eq!(f32_to_e4m3fn(value), nearest(value, &codes), "{value:e}");
    }
    assert_eq!([f32::INFINITY, f32::NEG_INFINITY].map(f32_to_e4m3fn), [0x7e, 0xfe]);
    assert_eq!([f32::NAN, -f32::NAN].map(f32_to_e4m3fn), [0x7f, 0xff]);
    assert_eq!([0x7e, 0x08, 0x01, 0x38, 0xb8].map(e4m3fn_to_f32), [448.0, 0.015625, 0.001953125, 1.0, -1.0]);
    assert!(e4m3fn_to_f32(0x7f).is_nan() && e4m3fn_to_f32(0xff).is_nan());
    assert!(e4m3fn_to_f32(0x80) == 0.0 && e4m3fn_to_f32(0x80).is_sign_negative());
}

#[test]
fn e4m3fnuz_rounds_to_nearest_even_and_has_no_negative_zero() {
    let codes = all_codes(e4m3fnuz_to_f32);
    assert_eq!(codes.len(), 255);
    for value in probes(&codes).into_iter().filter(|value| *value != 0.0) {
        let code = f32_to_e4m3fnuz(value);
        if code == 0 {
            assert!(value.abs() <= 0.00048828125, "{value:e}");
        } else {
            assert_eq!(code, nearest(value, &codes), "{value:e}");
        }
    }
    assert_eq!([-0.0, 0.0, -1e-9, f32::NAN, 1e9, -1e9].map(f32_to_e4m3fnuz), [0, 0, 0, 0x80, 0x7f, 0xff]);
    assert_eq!([0x7f, 0x08, 0x01].map(e4m3fnuz_to_f32), [240.0, 0.0078125, 0.0009765625]);
    assert!(e4m3fnuz_to_f32(0x80).is_nan());
}

#[test]
fn bf16_agrees_with_an_independent_library_on_every_high_half() {
    for high in 0..=u16::MAX {
        for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let value = f32::from_bits(u32::from(high) << 16 | low);
            let (ours, theirs) = (f32_to_bf16(value), half::bf16::from_f32(value));
            assert_eq!(ours, theirs.to_bits(), "{value:e}");
        }
        let (ours, theirs) = (bf16_to_f32(high), half::bf16::from_bits(high).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{high:#x}");
    }
}

#[test]
fn scale_codes_are_powers_of_two_with_a_nan() {
    for code in 0..255u8 {
        assert_eq!(f64::from(ue8m0_to_f32(code)), 2f64.powi(i32::from(code) - 127), "{code}");
    }
    assert!(ue8m0_to_f32(255).is_nan());
}

fn one(code: u8, scale: u8) -> f32 {
    let (data, scale) = ([code], [scale]);
    let rows = WeightRows {
        format: Format::Mxfp8,
        data: &data,
        rows: 1,
        columns: 1,
        row_stride: 1,
        scale: &scale,
        scale_stride: 1,
        group_offset: 0,
    };
    rows.to_f32()[0]
}

#[test]
fn documented_dequantisation_values_hold() {
    assert_eq!([127, 128, 120].map(|scale| one(0x38, scale)), [1.0, 2.0, 0.0078125]);
    assert!(one(0x38, 255).is_nan());
    assert_eq!(one(0x38, 0), 2f32.powi(-127));
    assert_eq!(mx_to_bf16_for_blocks(0x38, 0), 0.0);
    assert_eq!(mx_to_bf16_for_blocks(0x38, 128), 2.0);
}

/// Public fault L10: rounding the exponent to nearest, or the floor rule, clips groups whose maximum is 449..511.
#[test]
fn l10_no_group_clips_and_no_smaller_scale_would_do() {
    for base in [449.0f32, 480.0, 511.0, 448.0, 447.0, 256.0, 1.75, 1.7500001, 3e-5, 1e30] {
        for shift in [-20, -1, 0, 1, 7] {
            let amax = base * 2f32.powi(shift);
            let code = mx_scale_code(amax);
            let scaled = f64::from(amax) / 2f64.powi(i32::from(code) - 127);
            assert!(scaled <= 448.0 && scaled > 224.0, "{amax:e} scaled to {scaled}");
        }
    }
    assert_eq!([0.0, -0.0, 1e-40, f32::MIN_POSITIVE, f32::NAN].map(mx_scale_code), [0; 5]);
    assert_eq!(mx_scale_code(f32::MAX), 247);
    assert_eq!(mx_scale_code(448.0), 127);
    assert_eq!(mx_scale_code(448.0f32.next_up()), 128);
}

#[test]
fn mx_rows_restart_their_groups_and_keep_bad_values_apart() {
    let columns = 40;
    let mut values: Vec<f32> = (0..2 * columns).map(|i| (i as f32 - 30.0) * 0.37).collect();
    values[3] = f32::NAN;
    values[35] = f32::INFINITY;
    let (mut codes, mut scales, mut back) = (vec![0; 80], vec![0; 4], vec![0.0; 80]);
    quantise_mx(&values, columns, &mut codes, &mut scales);
    dequantise_mx(&codes, columns, &scales, &mut back);
    assert!(back[3].is_nan() && back[35] == f32::INFINITY);
    for (at, (value, back)) in values.iter().zip(&back).enumerate() {
        if at != 3 && !(32..40).contains(&at) {
            assert!((value - back).abs() <= value.abs() / 16.0 + 0.01, "{at}: {value} {back}");
        }
    }
}

#[test]
fn a_column_cut_inside_a_group_reads_the_right_scales() {
    let (rows, columns) = (3, 96);
    let data: Vec<u8> = (0..rows * columns).map(|i| (i * 7 % 120) as u8).collect();
    let scale: Vec<u8> = (0..rows * 3).map(|i| 120 + i as u8).collect();
    let whole = WeightRows {
        format: Format::Mxfp8,
        data: &data,
        rows,
        columns,
        row_stride: columns,
        scale: &scale,
        scale_stride: 3,
        group_offset: 0,
    };
    let full = whole.to_f32();
    for (start, width) in [(0, 96), (16, 16), (16, 48), (40, 5), (80, 16), (31, 2), (64, 32)] {
        let cut = WeightRows {
            data: &data[start..],
            columns: width,
            scale: &scale[start / 32..],
            group_offset: start % 32,
            ..whole
        };
        let expected: Vec<f32> =
            (0..rows).flat_map(|row| full[row * columns + start..][..width].to_vec()).collect();
        assert_eq!(cut.to_f32(), expected, "columns {start}..{}", start + width);
        assert_eq!(cut.scale_code(1, 0), Some(scale[3 + start / 32]));
    }
}

#[test]
fn block_conversion_keeps_ragged_edges_and_zero_tiles() {
    let (rows, columns) = (130, 200);
    let mut bytes = Vec::new();
    for at in 0..rows * columns {
        let zero = at / columns >= 128 && at % columns >= 128;
        let value = if zero { 0.0 } else { ((at * 31 % 257) as f32 - 128.0) / 64.0 };
        bytes.extend(f32_to_bf16(value).to_le_bytes());
    }
    let weight = WeightRows {
        format: Format::Bf16,
        data: &bytes,
        rows,
        columns,
        row_stride: columns,
        scale: &[],
        scale_stride: 0,
        group_offset: 0,
    };
    let block = quantise_block_weight(&weight);
    assert_eq!((block.codes.len(), block.scales.len()), (rows * columns, 4));
    assert_eq!(block.scales[3], 1e-4 / 448.0);
    let values = weight.to_f32();
    for (at, value) in values.iter().enumerate() {
        let scale = block.scales[at / columns / 128 * 2 + at % columns / 128];
        let back = e4m3fn_to_f32(block.codes[at]) * scale;
        assert!((back - value).abs() <= value.abs() / 15.0 + scale / 512.0, "{at}: {value} {back}");
    }
}

#[test]
fn fnuz_conversion_keeps_every_value() {
    let mut codes: Vec<u8> = (0..=255).filter(|code| code & 0x7f != 0x7f).collect();
    let before: Vec<f32> = codes.iter().map(|code| e4m3fn_to_f32(*code) * 0.3).collect();
    let mut scales = [0.3];
    fn_to_fnuz(&mut codes, &mut scales);
    let after: Vec<f32> = codes.iter().map(|code| e4m3fnuz_to_f32(*code) * scales[0]).collect();
    assert_eq!(before, after);
    assert!(!codes.contains(&0x80));
}
