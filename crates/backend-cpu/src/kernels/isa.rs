//! Which instruction set the kernels of this process use; found once, or forced by a test.
//!
//! Not a list of everything a CPU can do: one entry per family of kernels that exists here.

/// A family of kernels. Every value that [`Isa::available`] returns can run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust; runs anywhere and is what the others are tested against.
    Scalar,
    /// 128-bit Arm SIMD.
    Neon,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL; bf16 is widened to f32.
    Avx512,
    /// AVX-512 with the bf16 dot product and the byte permutes that decode e4m3 (BF16 and VBMI).
    Avx512Bf16,
}

impl Isa {
    /// Every family, slowest first.
    pub const ALL: [Isa; 5] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16];

    /// The best family of this machine.
    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa::Scalar)
    }

    /// The families this machine can run, slowest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_here()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        let avx512 = || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        };
        match self {
            Isa::Scalar => true,
            Isa::Neon => false,
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Isa::Avx512 => avx512(),
            Isa::Avx512Bf16 => {
                avx512() && is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512vbmi")
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_here(self) -> bool {
        matches!(self, Isa::Scalar | Isa::Neon)
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_here(self) -> bool {
        self == Isa::Scalar
    }

    /// As `probe` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512-bf16",
        }
    }
}
