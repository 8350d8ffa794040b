//! Rotary position embedding on the first `rotary_dim` dims of a head, half-split pairs.
//!
//! The angle is `position x frequency` rounded to `f32` (positions reach 2^20, so a fast-math sine of that is not good
//! enough); sine and cosine are those of the rounded angle. Kernels may tabulate, they may not approximate.

/// Frequencies of one head geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// `theta^(-2j / rotary_dim)` for pair j, computed in `f64` and rounded once.
    pub frequencies: Vec<f32>,
}

impl Rope {
    pub fn new(theta: f64, rotary_dim: usize) -> Self {
        let frequency = |pair: usize| theta.powf(-2.0 * pair as f64 / rotary_dim as f64) as f32;
        Rope { frequencies: (0..rotary_dim / 2).map(frequency).collect() }
    }

    /// Cosine and sine per pair at a position.
    pub fn angles(&self, position: u32) -> Vec<(f32, f32)> {
        let angle = |frequency: &f32| {
            let angle = f64::from(position as f32 * frequency);
            (angle.cos() as f32, angle.sin() as f32)
        };
        self.frequencies.iter().map(angle).collect()
    }

    /// Rotates pairs (j, j + rotary_dim / 2) of one head; the dims after `rotary_dim` stay as they are.
    pub fn rotate(head: &mut [f32], angles: &[(f32, f32)]) {
        let half = angles.len();
        for (pair, &(cos, sin)) in angles.iter().enumerate() {
            let (left, right) = (head[pair], head[pair + half]);
            head[pair] = left * cos - right * sin;
            head[pair + half] = right * cos + left * sin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rope;

    #[test]
    fn frequencies_of_m3() {
        let rope = Rope::new(5e6, 64);
        assert_eq!(rope.frequencies.len(), 32);
        assert_eq!(rope.frequencies[0], 1.0);
        assert!((rope.frequencies[1] - 0.617_528_76).abs() < 1e-7);
        assert!((rope.frequencies[31] - 3.2387e-7).abs() < 1e-11);
    }

    #[test]
    fn dims_after_the_rotary_width_are_unchanged() {
        let head: Vec<f32> = (0..128).map(|dim| dim as f32 * 0.37 - 20.0).collect();
        let mut rotated = head.clone();
        Rope::rotate(&mut rotated, &Rope::new(5e6, 64).angles(1_048_575));
        assert_eq!(head[64..], rotated[64..]);
        assert!((0..64).any(|dim| head[dim] != rotated[dim]));
    }

    #[test]
    fn a_quarter_turn_pairs_halves() {
        let mut head = [1.0, 2.0, 3.0, 4.0, 5.0];
        Rope::rotate(&mut head, &[(0.0, 1.0), (1.0, 0.0)]);
        assert_eq!(head, [-3.0, 2.0, 1.0, 4.0, 5.0]);
    }

    #[test]
    fn angles_are_rounded_to_f32_first() {
        let rope = Rope { frequencies: vec![0.1] };
        let angle = f64::from(1_000_003f32 * 0.1f32);
        assert_eq!(rope.angles(1_000_003), vec![(angle.cos() as f32, angle.sin() as f32)]);
    }
}
