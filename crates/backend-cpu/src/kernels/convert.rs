//! Exact conversions between the number formats of weights, pages and activations, one value at a time.

/// Widens the bits of a bf16.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Bits of the nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) | 0x40) as u16;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// OCP e4m3fn: bias 7, largest 448, no infinity; 0x7f and 0xff are NaN.
#[inline(always)]
pub(crate) fn e4m3_to_f32(bits: u8) -> f32 {
    let magnitude = u32::from(bits & 0x7f);
    if magnitude == 0x7f {
        return f32::NAN;
    }
    let sign = u32::from(bits & 0x80) << 24;
    f32::from_bits((magnitude << 20) | sign) * f32::from_bits(247 << 23)
}

/// UE8M0: `2^(bits - 127)`, also for 0; 255 is NaN by definition and does not occur (it yields infinity here).
#[inline(always)]
pub(crate) fn e8m0_to_f32(bits: u8) -> f32 {
    f32::from_bits((u32::from(bits) << 23).max(0x0040_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_give_the_published_values() {
        assert_eq!(e4m3_to_f32(0x38), 1.0);
        assert_eq!(e4m3_to_f32(0x7e), 448.0);
        assert_eq!(e4m3_to_f32(0x01), 2f32.powi(-9));
        assert_eq!(e4m3_to_f32(0x88), -(2f32.powi(-6)));
        assert!(e4m3_to_f32(0xff).is_nan());
        assert_eq!(e8m0_to_f32(127), 1.0);
        assert_eq!(e8m0_to_f32(120), 0.0078125);
        assert_eq!(e8m0_to_f32(0), 2f32.powi(-127));
    }

    #[test]
    fn bf16_rounds_like_the_half_crate() {
        for bits in (0..u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            let expected = half::bf16::from_f32(value);
            assert_eq!(f32_to_bf16(value), expected.to_bits(), "{value}");
        }
    }
}
