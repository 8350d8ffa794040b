//! A vector of `f32` lanes, so that one kernel body serves every instruction set.
//!
//! Bodies are generic over [`Lanes`] and `#[inline(always)]`; a wrapper with `#[target_feature]` per instruction set
//! pulls them in, and only then do the intrinsics inline. Nothing here checks the CPU: [`super::Isa`] did.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// `LEN` f32 values.
///
/// # Safety
/// Every method: the CPU has the instruction set of the implementor, and pointers are good for `LEN` elements.
pub(crate) trait Lanes: Copy {
    const LEN: usize;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn load_bf16(from: *const u16) -> Self;
    /// OCP e4m3fn, exact; 0x7f and 0xff become NaN.
    unsafe fn load_e4m3(from: *const u8) -> Self;
    /// `self * factor + addend`.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// The larger; a NaN in `other` is kept, one in `self` may be lost.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller; NaN as for `max`.
    unsafe fn min(self, other: Self) -> Self;
    /// To the nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// `2^self` for integers in -126..=127.
    unsafe fn pow2(self) -> Self;
    /// Sum over the lanes, in a fixed order.
    unsafe fn sum(self) -> f32;
    /// Largest lane.
    unsafe fn largest(self) -> f32;

    /// `e^self`, relative error below 2e-7; at most -87.3 gives about 1e-38, more than 88 is cut to 88, NaN stays.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: same instruction set.
        unsafe {
            let x = Self::splat(88.0).min(Self::splat(-87.3).max(self));
            let n = x.mul(Self::splat(std::f32::consts::LOG2_E)).round();
            // ln 2 in two parts, so that x - n ln 2 keeps its low bits.
            let r = n.mul_add(Self::splat(-0.693_359_4), x);
            let r = n.mul_add(Self::splat(2.121_944_4e-4), r);
            let mut p = Self::splat(1.0 / 5040.0);
            for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
                p = p.mul_add(r, Self::splat(c));
            }
            p.mul(n.pow2())
        }
    }
}

/// Defines `unsafe fn name(isa, args) -> result` that runs the generic body `unsafe fn body<V: Lanes>(args)` compiled for
/// that instruction set. Callers promise that the CPU has it, and what the body asks for.
macro_rules! isa_fn {
    ($visibility:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident) => {
        $visibility unsafe fn $name(isa: $crate::kernels::Isa, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn avx512($($arg: $type),*) $(-> $result)? {
                // SAFETY: the caller's promise.
                unsafe { $body::<$crate::kernels::lanes::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $type),*) $(-> $result)? {
                // SAFETY: the caller's promise.
                unsafe { $body::<$crate::kernels::lanes::Avx2>($($arg),*) }
            }
            // SAFETY: the caller's promise.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::Isa::Avx512 | $crate::kernels::Isa::Avx512Bf16 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::Isa::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernels::Isa::Neon => $body::<$crate::kernels::lanes::Neon>($($arg),*),
                    _ => $body::<$crate::kernels::lanes::Portable>($($arg),*),
                }
            }
        }
    };
}

pub(crate) use isa_fn;
