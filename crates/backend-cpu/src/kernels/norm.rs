//! Gemma RMS norm: `x * rsqrt(mean(x^2) + eps) * (1 + w)`, in f32 with at most one rounding at the end.
//!
//! Weights come as `1 + w`. Rounding to bf16 is the caller's, together with the copy of the bits.

use super::Kernels;
use super::lanes::{Lanes, isa_fn};

#[inline(always)]
unsafe fn body<V: Lanes>(row: &mut [f32], gain: &[f32], eps: f32) {
    let len = row.len();
    let whole = len / V::LEN * V::LEN;
    // SAFETY: vectors lie inside both slices, which are equally long; instruction set promised by the caller.
    unsafe {
        let mut squares = V::splat(0.0);
        for at in (0..whole).step_by(V::LEN) {
            let x = V::load(row.as_ptr().add(at));
            squares = x.mul_add(x, squares);
        }
        let sum = squares.sum() + row[whole..].iter().map(|x| x * x).sum::<f32>();
        let scale = 1.0 / (sum / len as f32 + eps).sqrt();
        for at in (0..whole).step_by(V::LEN) {
            let x = V::load(row.as_ptr().add(at)).mul(V::splat(scale));
            x.mul(V::load(gain.as_ptr().add(at))).store(row.as_mut_ptr().add(at));
        }
        for at in whole..len {
            row[at] = row[at] * scale * gain[at];
        }
    }
}

isa_fn!(fn rms_norm(row: &mut [f32], gain: &[f32], eps: f32) = body);

impl Kernels {
    /// Normalises a row in place; `gain` is `1 + w`.
    pub fn rms_norm(&self, row: &mut [f32], gain: &[f32], eps: f32) {
        assert_eq!(row.len(), gain.len(), "a norm of {} weights over {} values", gain.len(), row.len());
        // SAFETY: the ISA was checked when `Kernels` was made; lengths are equal.
        unsafe { rms_norm(self.isa, row, gain, eps) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::super::{Isa, Kernels};

    #[test]
    fn every_isa_normalises_ragged_rows() {
        for isa in Isa::available() {
            for len in [1, 7, 16, 33, 128, 6144] {
                let mut random = Random::new(len as u64);
                let x: Vec<f32> = (0..len).map(|_| random.normal() * 3.0).collect();
                let gain: Vec<f32> = (0..len).map(|_| 1.0 + random.normal() * 0.1).collect();
                let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / len as f64;
                let mut row = x.clone();
                Kernels::of(isa).unwrap().rms_norm(&mut row, &gain, 1e-6);
                for i in 0..len {
                    let exact = f64::from(x[i]) / (mean + 1e-6).sqrt() * f64::from(gain[i]);
                    assert!((f64::from(row[i]) - exact).abs() < 1e-5, "{isa:?} {len}: {} / {exact}", row[i]);
                }
            }
        }
    }
}
