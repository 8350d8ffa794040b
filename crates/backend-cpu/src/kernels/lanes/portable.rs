//! Eight lanes in plain Rust: the specification of [`Lanes`] and what runs where nothing better exists.

use super::super::convert::{bf16_to_f32, e4m3_to_f32};
use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Lanes for Portable {
    const LEN: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Portable([value; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: eight elements, promised by the caller.
        Portable(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: eight elements, promised by the caller.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: eight elements, promised by the caller.
        let bits = unsafe { from.cast::<[u16; 8]>().read_unaligned() };
        Portable(bits.map(bf16_to_f32))
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> Self {
        // SAFETY: eight elements, promised by the caller.
        let bits = unsafe { from.cast::<[u8; 8]>().read_unaligned() };
        Portable(bits.map(e4m3_to_f32))
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // Two roundings: a fused one would be a library call on CPUs without FMA.
        Portable(std::array::from_fn(|i| self.0[i] * factor.0[i] + addend.0[i]))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        Portable(self.0.map(f32::round_ties_even))
    }

    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        Portable(self.0.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23)))
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let v = self.0;
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
