//! Bit-exact conversions between f32 and the narrow formats of weights, activations and scales.
//!
//! To a narrow format: nearest, ties to even; the 8-bit floats saturate at their largest value (infinity too, they
//! have none) and keep NaN. From a narrow format every conversion is exact.

/// Largest OCP e4m3fn value.
pub const E4M3FN_MAX: f32 = 448.0;
/// Largest e4m3fnuz value (gfx942).
pub const E4M3FNUZ_MAX: f32 = 240.0;
/// The UE8M0 byte that is not a number.
pub const UE8M0_NAN: u8 = 0xff;

const E4M3FN_TABLE: [f32; 256] = table(7, Codes::Fn);
const E4M3FNUZ_TABLE: [f32; 256] = table(8, Codes::Fnuz);

#[derive(Clone, Copy)]
enum Codes {
    /// NaN at 0x7f and 0xff, a negative zero.
    Fn,
    /// NaN at 0x80 only.
    Fnuz,
}

const fn table(bias: i32, codes: Codes) -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let nan = match codes {
            Codes::Fn => code & 0x7f == 0x7f,
            Codes::Fnuz => code == 0x80,
        };
        let (exponent, mantissa) = (((code >> 3) & 15) as i32, (code & 7) as f32);
        let magnitude = if exponent == 0 {
            mantissa * power_of_two(-2 - bias)
        } else {
            (1.0 + mantissa / 8.0) * power_of_two(exponent - bias)
        };
        values[code] = if nan {
            f32::NAN
        } else if code >= 128 {
            -magnitude
        } else {
            magnitude
        };
        code += 1;
    }
    values
}

/// `exponent` within f32's normal range.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

pub const fn e4m3fn_to_f32(code: u8) -> f32 {
    E4M3FN_TABLE[code as usize]
}

pub const fn e4m3fnuz_to_f32(code: u8) -> f32 {
    E4M3FNUZ_TABLE[code as usize]
}

/// NaN becomes 0x7f with the sign kept.
pub fn f32_to_e4m3fn(value: f32) -> u8 {
    let sign = ((value.to_bits() >> 24) & 0x80) as u8;
    if value.is_nan() { sign | 0x7f } else { sign | magnitude(value.abs(), 7, 0x7e, E4M3FN_MAX) }
}

/// NaN becomes 0x80, and so there is no negative zero: it becomes 0.
pub fn f32_to_e4m3fnuz(value: f32) -> u8 {
    if value.is_nan() {
        return 0x80;
    }
    let code = magnitude(value.abs(), 8, 0x7f, E4M3FNUZ_MAX);
    if code != 0 && value.is_sign_negative() { code | 0x80 } else { code }
}

/// Code of a non-negative number: 4 exponent bits over 3 mantissa bits.
fn magnitude(value: f32, bias: i32, largest_code: u8, largest: f32) -> u8 {
    if value >= largest {
        return largest_code;
    }
    if value < power_of_two(1 - bias) {
        // Subnormal steps are equal, so scaling (exact) and rounding to a whole number is the conversion; 8 steps
        // are the smallest normal number and have its code.
        return (value * power_of_two(bias + 2)).round_ties_even() as u8;
    }
    let bits = value.to_bits();
    let odd = (bits >> 20) & 1;
    let rounded = bits + 0x7_ffff + odd;
    let rebias = (127 - bias as u32) << 3;
    ((rounded >> 20) - rebias) as u8
}

pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// NaN stays NaN, made quiet, sign kept.
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

/// The value nearest to `value` that bf16 can hold.
pub const fn round_to_bf16(value: f32) -> f32 {
    bf16_to_f32(f32_to_bf16(value))
}

/// `2^(code - 127)`; code 0 is the subnormal 2^-127, code 255 is NaN.
pub const fn ue8m0_to_f32(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        UE8M0_NAN => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}
