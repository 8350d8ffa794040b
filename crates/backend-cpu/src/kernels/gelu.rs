//! Bias and exact GELU: `x * Phi(x)` with `x = value + bias`, in f32.
//!
//! `x * Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt 2) / 2`, so no sign has to be restored; the complementary error function
//! is a polynomial in `1 / (1 + p z)` times `exp(-z^2)` (Hastings), within 1.5e-7.

use super::Kernels;
use super::lanes::{Lanes, isa_fn};

#[inline(always)]
unsafe fn vector<V: Lanes>(x: V) -> V {
    // SAFETY: instruction set promised by the caller.
    unsafe {
        // Operands in this order keep a NaN.
        let size = x.mul(V::splat(-1.0)).max(x);
        let t = V::splat(1.0)
            .div(size.mul_add(V::splat(0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2), V::splat(1.0)));
        let mut p = V::splat(1.061_405_4);
        for c in [-1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6] {
            p = p.mul_add(t, V::splat(c));
        }
        let gauss = x.mul(x).mul(V::splat(-0.5)).exp();
        let tail = p.mul(t).mul(gauss).mul(size);
        tail.mul_add(V::splat(-0.5), V::splat(0.0).max(x))
    }
}

#[inline(always)]
unsafe fn body<V: Lanes>(row: &mut [f32], bias: &[f32]) {
    let whole = row.len() / V::LEN * V::LEN;
    // SAFETY: vectors lie inside both slices, which are equally long.
    unsafe {
        for at in (0..whole).step_by(V::LEN) {
            let x = V::load(row.as_ptr().add(at)).add(V::load(bias.as_ptr().add(at)));
            vector(x).store(row.as_mut_ptr().add(at));
        }
        let mut rest = [0.0; 16];
        for at in whole..row.len() {
            rest[at - whole] = row[at] + bias[at];
        }
        vector(V::load(rest.as_ptr())).store(rest.as_mut_ptr());
        let count = row.len() - whole;
        row[whole..].copy_from_slice(&rest[..count]);
    }
}

isa_fn!(fn gelu_row(row: &mut [f32], bias: &[f32]) = body);

impl Kernels {
    /// Adds the bias and leaves the activation in `row`.
    pub(crate) fn gelu(&self, row: &mut [f32], bias: &[f32]) {
        assert_eq!(row.len(), bias.len(), "{} values with {} biases", row.len(), bias.len());
        // SAFETY: the ISA was checked when `Kernels` was made; lengths are equal.
        unsafe { gelu_row(self.isa, row, bias) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Kernels};
    use m3_model::reference::vision::gelu;

    #[test]
    fn every_isa_follows_the_error_function() {
        let values: Vec<f32> = (-1200..=1200).map(|index| index as f32 * 0.01).collect();
        for isa in Isa::available() {
            let mut row: Vec<f32> = values.iter().map(|value| value - 0.25).collect();
            Kernels::of(isa).unwrap().gelu(&mut row, &vec![0.25; values.len()]);
            for (value, found) in values.iter().zip(&row) {
                let wanted = gelu(*value);
                assert!((found - wanted).abs() < 2e-6, "{isa:?}: gelu({value}) is {found}, not {wanted}");
            }
            let mut row = [f32::NAN];
            Kernels::of(isa).unwrap().gelu(&mut row, &[0.0]);
            assert!(row[0].is_nan());
        }
    }
}
