//! Four lanes of Arm NEON, which every 64-bit Arm CPU has.

use std::arch::aarch64::*;

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Neon(float32x4_t);

impl Lanes for Neon {
    const LEN: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: four elements, promised by the caller.
        Neon(unsafe { vld1q_f32(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: four elements, promised by the caller.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: four elements, promised by the caller.
        Neon(unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from))) })
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> Self {
        // SAFETY: four elements, promised by the caller.
        unsafe {
            let bytes = vcreate_u8(u64::from(from.cast::<u32>().read_unaligned()));
            let bits = vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
            let magnitude = vandq_u32(bits, vdupq_n_u32(0x7f));
            let sign = vshlq_n_u32::<24>(vandq_u32(bits, vdupq_n_u32(0x80)));
            let nan = vceqq_u32(magnitude, vdupq_n_u32(0x7f));
            // Exponent and mantissa land in the f32 fields with a bias 120 too small; subnormals come out right too.
            let small = vreinterpretq_f32_u32(vorrq_u32(vshlq_n_u32::<20>(magnitude), sign));
            let value = vmulq_f32(small, vdupq_n_f32(f32::from_bits(247 << 23)));
            Neon(vbslq_f32(nan, vdupq_n_f32(f32::NAN), value))
        }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vfmaq_f32(addend.0, self.0, factor.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vaddq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vmulq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vdivq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vmaxq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vminq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        Neon(unsafe { vrndnq_f32(self.0) })
    }

    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: NEON is always there on this architecture.
        unsafe {
            let biased = vaddq_s32(vcvtnq_s32_f32(self.0), vdupq_n_s32(127));
            Neon(vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: NEON is always there on this architecture.
        unsafe { vaddvq_f32(self.0) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: NEON is always there on this architecture.
        unsafe { vmaxvq_f32(self.0) }
    }
}
