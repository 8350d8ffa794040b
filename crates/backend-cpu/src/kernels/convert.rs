//! Exact conversions between the number formats of weights, pages and activations, one value or one row at a time.

use std::sync::OnceLock;

use super::isa::Isa;
use super::lanes::{Lanes, isa_fn};

/// Widens the bits of a bf16.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Bits of the nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // Both ways without a branch, so that loops over rows become vectors.
    let quiet = (bits >> 16) | 0x40;
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if value.is_nan() { quiet } else { nearest }) as u16
}

/// Integer arithmetic without branches, which the compiler makes vectors of once it may use them.
#[inline(always)]
unsafe fn round_body<V: Lanes>(values: &mut [f32], bits: &mut [u16]) {
    for (value, bits) in values.iter_mut().zip(bits) {
        *bits = f32_to_bf16(*value);
        *value = bf16_to_f32(*bits);
    }
}

isa_fn!(fn round_row(values: &mut [f32], bits: &mut [u16]) = round_body);

/// Rounds values to bf16 in place and keeps the bits. The same on every instruction set.
pub(crate) fn round_to_bf16(values: &mut [f32], bits: &mut [u16]) {
    static BEST: OnceLock<Isa> = OnceLock::new();
    let isa = *BEST.get_or_init(Isa::detect);
    // SAFETY: this machine has what was detected on it.
    unsafe { round_row(isa, values, bits) }
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
    fn rows_are_rounded_like_their_values_on_every_isa() {
        let values: Vec<f32> = (0..u32::MAX).step_by(654_321).map(f32::from_bits).collect();
        let wanted: Vec<u16> = values.iter().map(|value| f32_to_bf16(*value)).collect();
        for isa in Isa::available() {
            let (mut rounded, mut bits) = (values.clone(), vec![0; values.len()]);
            // SAFETY: only what is available.
            unsafe { round_row(isa, &mut rounded, &mut bits) };
            assert_eq!(bits, wanted, "{isa:?}");
            assert!(rounded.iter().zip(&bits).all(|(value, bits)| value.to_bits() >> 16 == u32::from(*bits)));
        }
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
