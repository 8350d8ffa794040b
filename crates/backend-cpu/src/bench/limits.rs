//! What the machine can do at best: bytes read and multiply-adds per second, with every thread of the current pool.

#![expect(unsafe_code, reason = "a SIMD loop over a slice")]

use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use crate::kernels::Kernels;
use crate::kernels::convert::f32_to_bf16;
use crate::kernels::gemm::Rows;
use crate::kernels::lanes::{Lanes, isa_fn};
use crate::kernels::matrix::Matrix;
use crate::kernels::random::Random;

/// Limits of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Reading memory with all threads, in 10^9 bytes a second.
    pub read_gb_per_s: f64,
    /// The best GEMM found with f32 activations, in 10^9 operations a second.
    pub gemm_f32_gflops: f64,
    /// The same with bf16 activations and weights.
    pub gemm_bf16_gflops: f64,
}

#[inline(always)]
unsafe fn sum_body<V: Lanes>(values: &[f32]) -> f32 {
    let mut sums = [0.0; 4];
    // SAFETY: whole groups of four vectors inside the slice; instruction set promised by the caller.
    unsafe {
        let mut acc = [V::splat(0.0); 4];
        for at in (0..values.len() / (4 * V::LEN) * 4 * V::LEN).step_by(4 * V::LEN) {
            for (lane, acc) in acc.iter_mut().enumerate() {
                *acc = acc.add(V::load(values.as_ptr().add(at + lane * V::LEN)));
            }
        }
        for (sum, acc) in sums.iter_mut().zip(acc) {
            *sum = acc.sum();
        }
    }
    sums.iter().sum()
}

isa_fn!(fn sum(values: &[f32]) -> f32 = sum_body);

/// Shortest of several runs of `work`, in seconds.
fn best_of(runs: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

impl Limits {
    pub(crate) fn measure(kernels: Kernels) -> Limits {
        Limits {
            read_gb_per_s: read_rate(kernels),
            gemm_f32_gflops: gemm_rate(kernels, false),
            gemm_bf16_gflops: gemm_rate(kernels, true),
        }
    }
}

fn read_rate(kernels: Kernels) -> f64 {
    const VALUES: usize = 1 << 28;
    let values = vec![1.0f32; VALUES];
    let seconds = best_of(7, || {
        let chunks = values.par_chunks(1 << 18);
        // SAFETY: the ISA was checked when `Kernels` was made.
        let total: f32 = chunks.map(|chunk| unsafe { sum(kernels.isa(), chunk) }).sum();
        assert!(std::hint::black_box(total) > 0.0);
    });
    VALUES as f64 * 4.0 / seconds / 1e9
}

fn gemm_rate(kernels: Kernels, is_bf16: bool) -> f64 {
    let mut best = 0.0f64;
    for size in [512, 1024, 2048] {
        let mut random = Random::new(size as u64);
        let values: Vec<f32> = (0..size * size).map(|_| random.normal()).collect();
        let bits: Vec<u16> = values.iter().map(|&value| f32_to_bf16(value)).collect();
        let w =
            if is_bf16 { Matrix::of_bf16(&bits, size, size) } else { Matrix::of_f32(&values, size, size) };
        let rows = Rows::new(&values, is_bf16.then_some(&bits[..]), size);
        let mut out = vec![0.0; size * size];
        let seconds = best_of(5, || kernels.gemm(rows, &w, &mut out));
        best = best.max(2.0 * (size as f64).powi(3) / seconds / 1e9);
    }
    best
}
