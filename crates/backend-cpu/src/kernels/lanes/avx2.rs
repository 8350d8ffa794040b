//! Eight lanes of AVX2 with FMA.

use std::arch::x86_64::*;

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

impl Lanes for Avx2 {
    const LEN: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: AVX2 and eight elements, promised by the caller.
        Avx2(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: AVX2 and eight elements, promised by the caller.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: AVX2 and eight elements, promised by the caller.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> Self {
        // SAFETY: AVX2 and eight elements, promised by the caller.
        unsafe {
            let bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f));
            let sign = _mm256_slli_epi32::<24>(_mm256_and_si256(bits, _mm256_set1_epi32(0x80)));
            let nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)));
            // Exponent and mantissa land in the f32 fields with a bias 120 too small; subnormals come out right too.
            let small = _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32::<20>(magnitude), sign));
            let value = _mm256_mul_ps(small, _mm256_set1_ps(f32::from_bits(247 << 23)));
            Avx2(_mm256_blendv_ps(value, _mm256_set1_ps(f32::NAN), nan))
        }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the CPU has FMA, promised by the caller.
        Avx2(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Avx2(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }

    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(self.0), _mm256_set1_epi32(127));
            Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the CPU has AVX2, promised by the caller.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the CPU has AVX2, promised by the caller.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
