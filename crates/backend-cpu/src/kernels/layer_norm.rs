//! Layer norm: mean 0 and variance 1, then weight and bias, in f32.

use super::Kernels;
use super::lanes::{Lanes, isa_fn};

#[inline(always)]
unsafe fn body<V: Lanes>(row: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    let len = row.len();
    let whole = len / V::LEN * V::LEN;
    // SAFETY: vectors lie inside the slices, which are equally long; instruction set promised by the caller.
    unsafe {
        let mut sums = V::splat(0.0);
        for at in (0..whole).step_by(V::LEN) {
            sums = sums.add(V::load(row.as_ptr().add(at)));
        }
        let mean = (sums.sum() + row[whole..].iter().sum::<f32>()) / len as f32;
        let mut squares = V::splat(0.0);
        for at in (0..whole).step_by(V::LEN) {
            let x = V::load(row.as_ptr().add(at)).add(V::splat(-mean));
            squares = x.mul_add(x, squares);
        }
        let rest: f32 = row[whole..].iter().map(|x| (x - mean) * (x - mean)).sum();
        let scale = 1.0 / ((squares.sum() + rest) / len as f32 + eps).sqrt();
        for at in (0..whole).step_by(V::LEN) {
            let x = V::load(row.as_ptr().add(at)).add(V::splat(-mean)).mul(V::splat(scale));
            let scaled = x.mul_add(V::load(weight.as_ptr().add(at)), V::load(bias.as_ptr().add(at)));
            scaled.store(row.as_mut_ptr().add(at));
        }
        for at in whole..len {
            row[at] = (row[at] - mean) * scale * weight[at] + bias[at];
        }
    }
}

isa_fn!(fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) = body);

impl Kernels {
    /// Normalises a row in place.
    pub(crate) fn layer_norm(&self, row: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
        assert!(
            row.len() == weight.len() && row.len() == bias.len(),
            "a norm of another width than {}",
            row.len()
        );
        // SAFETY: the ISA was checked when `Kernels` was made; lengths are equal.
        unsafe { layer_norm(self.isa, row, weight, bias, eps) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::super::{Isa, Kernels};

    #[test]
    fn every_isa_normalises_rows_that_stand_far_from_zero() {
        for isa in Isa::available() {
            for len in [1, 7, 80, 1280] {
                let mut random = Random::new(len as u64);
                let x: Vec<f32> = (0..len).map(|_| 100.0 + random.normal()).collect();
                let weight: Vec<f32> = (0..len).map(|_| 1.0 + random.normal() * 0.1).collect();
                let bias: Vec<f32> = (0..len).map(|_| random.normal()).collect();
                let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / len as f64;
                let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / len as f64;
                let mut row = x.clone();
                Kernels::of(isa).unwrap().layer_norm(&mut row, &weight, &bias, 1e-5);
                for i in 0..len {
                    let exact = (f64::from(x[i]) - mean) / (variance + 1e-5).sqrt() * f64::from(weight[i])
                        + f64::from(bias[i]);
                    assert!((f64::from(row[i]) - exact).abs() < 1e-4, "{isa:?} {len}: {} / {exact}", row[i]);
                }
            }
        }
    }
}
