//! The clamped SwiGLU: `(clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g)` with `g = min(gate, limit)`.
//!
//! In f32 on the accumulators of the two projections; rounding to bf16 is the caller's.

use super::Kernels;
use super::lanes::{Lanes, isa_fn};

/// Constants of the activation.
#[derive(Clone, Copy, Debug)]
pub struct Swiglu {
    pub alpha: f32,
    pub limit: f32,
}

#[inline(always)]
unsafe fn vector<V: Lanes>(gate: V, up: V, swiglu: Swiglu) -> V {
    // SAFETY: instruction set promised by the caller.
    unsafe {
        let one = V::splat(1.0);
        // Operands in this order keep a NaN.
        let g = V::splat(swiglu.limit).min(gate);
        let u = V::splat(-swiglu.limit).max(V::splat(swiglu.limit).min(up));
        let sigmoid = one.div(one.add(g.mul(V::splat(-swiglu.alpha)).exp()));
        u.add(one).mul(g).mul(sigmoid)
    }
}

#[inline(always)]
unsafe fn body<V: Lanes>(gate: &mut [f32], up: &[f32], swiglu: Swiglu) {
    let whole = gate.len() / V::LEN * V::LEN;
    // SAFETY: vectors lie inside both slices, which are equally long.
    unsafe {
        for at in (0..whole).step_by(V::LEN) {
            let (g, u) = (V::load(gate.as_ptr().add(at)), V::load(up.as_ptr().add(at)));
            vector(g, u, swiglu).store(gate.as_mut_ptr().add(at));
        }
        let (mut g, mut u) = ([0.0; 16], [0.0; 16]);
        let rest = gate.len() - whole;
        g[..rest].copy_from_slice(&gate[whole..]);
        u[..rest].copy_from_slice(&up[whole..]);
        vector(V::load(g.as_ptr()), V::load(u.as_ptr()), swiglu).store(g.as_mut_ptr());
        gate[whole..].copy_from_slice(&g[..rest]);
    }
}

isa_fn!(fn swiglu_row(gate: &mut [f32], up: &[f32], swiglu: Swiglu) = body);

impl Kernels {
    /// Leaves the activation in `gate`.
    pub fn swiglu(&self, gate: &mut [f32], up: &[f32], swiglu: Swiglu) {
        assert_eq!(gate.len(), up.len(), "gate has {} values, up {}", gate.len(), up.len());
        // SAFETY: the ISA was checked when `Kernels` was made; lengths are equal.
        unsafe { swiglu_row(self.isa, gate, up, swiglu) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::super::{Isa, Kernels};
    use super::Swiglu;

    const M3: Swiglu = Swiglu { alpha: 1.702, limit: 7.0 };

    fn exact(gate: f32, up: f32) -> f64 {
        let g = f64::from(gate.min(7.0));
        (f64::from(up.clamp(-7.0, 7.0)) + 1.0) * g / (1.0 + (-1.702 * g).exp())
    }

    #[test]
    fn published_values() {
        for isa in Isa::available() {
            let mut gate = [0.0, 10.0, -3.0];
            Kernels::of(isa).unwrap().swiglu(&mut gate, &[5.0, 10.0, -9.0], M3);
            for (value, expected) in gate.into_iter().zip([0.0, 55.999_625, 0.108_428]) {
                assert!((value - expected).abs() < 1e-5, "{isa:?}: {value} / {expected}");
            }
        }
    }

    #[test]
    fn nan_is_not_clamped_away() {
        for isa in Isa::available() {
            let (mut gate, up) = ([1.0, f32::NAN, f32::NAN], [f32::NAN, 1.0, f32::NAN]);
            Kernels::of(isa).unwrap().swiglu(&mut gate, &up, M3);
            assert!(gate.into_iter().all(f32::is_nan), "{isa:?}: {gate:?}");
        }
    }

    #[test]
    fn every_isa_agrees_with_f64_over_ragged_rows() {
        for isa in Isa::available() {
            for len in [1, 15, 16, 37] {
                let mut random = Random::new(len as u64 + 3);
                let gate: Vec<f32> = (0..len).map(|_| random.normal() * 6.0).collect();
                let up: Vec<f32> = (0..len).map(|_| random.normal() * 6.0).collect();
                let mut out = gate.clone();
                Kernels::of(isa).unwrap().swiglu(&mut out, &up, M3);
                for i in 0..len {
                    let expected = exact(gate[i], up[i]);
                    assert!(
                        (f64::from(out[i]) - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                        "{isa:?} {len}"
                    );
                }
            }
        }
    }
}
