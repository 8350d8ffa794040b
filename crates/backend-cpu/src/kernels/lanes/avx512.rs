//! Sixteen lanes of AVX-512 (F, BW, DQ, VL).

use std::arch::x86_64::*;

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

impl Lanes for Avx512 {
    const LEN: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: AVX-512 and sixteen elements, promised by the caller.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: AVX-512 and sixteen elements, promised by the caller.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: AVX-512 and sixteen elements, promised by the caller.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> Self {
        // SAFETY: AVX-512 and sixteen elements, promised by the caller.
        unsafe {
            let bits = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7f));
            let sign = _mm512_slli_epi32::<24>(_mm512_and_si512(bits, _mm512_set1_epi32(0x80)));
            let nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
            // Exponent and mantissa land in the f32 fields with a bias 120 too small; subnormals come out right too.
            let small = _mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32::<20>(magnitude), sign));
            let value = _mm512_mul_ps(small, _mm512_set1_ps(f32::from_bits(247 << 23)));
            Avx512(_mm512_mask_blend_ps(nan, value, _mm512_set1_ps(f32::NAN)))
        }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        Avx512(unsafe { _mm512_roundscale_ps::<0>(self.0) })
    }

    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        unsafe { _mm512_reduce_add_ps(self.0) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the CPU has AVX-512, promised by the caller.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
}
