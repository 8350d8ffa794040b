//! Comparing values: absolute differences for exact modes, relative rms and arg-max agreement for rounded ones.

use anyhow::{Result, ensure};

/// Tolerances of a `float32` backend against the goldens.
pub const LOGITS: f32 = 1e-4;
pub const HIDDEN: f32 = 2e-5;
pub const BLOCK_SCORE: f32 = 3e-4;
/// Rows of the vision tower.
pub const TOWER: f32 = 1e-4;
pub const FEATURES: f32 = 5e-5;
pub const ROUTER: f32 = 1e-5;
/// Choices are compared where the decision was at least this clear.
pub const ROUTER_MARGIN: f32 = 1e-5;
pub const BLOCK_MARGIN: f32 = 3e-4;

/// Tolerances of a `bfloat16` backend, on positions where all choices match.
pub const ROUNDED_REL_RMS: f64 = 0.03;
pub const ROUNDED_ARGMAX: f64 = 0.95;
/// Of best tokens that stand clear, percent that may differ all the same.
pub const ROUNDED_CLEAR_PERCENT: usize = 2;
pub const ROUNDED_GREEDY: f64 = 0.9;
pub const ROUNDED_ROUTER_MARGIN: f32 = 0.02;
pub const ROUNDED_BLOCK_MARGIN: f32 = 0.5;
/// Share of clear choices that may differ all the same.
pub const ROUNDED_FLIPS: f64 = 0.01;

/// Every value within `tolerance`; equal infinities agree, NaN never does. The error names the worst place.
pub fn close(what: &str, found: &[f32], wanted: &[f32], tolerance: f32) -> Result<()> {
    ensure!(found.len() == wanted.len(), "{what}: {} values, {} wanted", found.len(), wanted.len());
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    let mut worst = (0, 0.0f32);
    for (index, pair) in found.iter().zip(wanted).enumerate() {
        let difference = difference(pair);
        if difference > worst.1 || difference.is_nan() {
            worst = (index, if difference.is_nan() { f32::INFINITY } else { difference });
        }
    }
    let (index, by) = worst;
    ensure!(
        by <= tolerance,
        "{what}: value {index} is {}, not {} (off by {by:e}, at most {tolerance:e})",
        found[index],
        wanted[index]
    );
    Ok(())
}

/// Root mean square of the difference over that of `wanted`.
pub fn rel_rms(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let difference: f64 = found.iter().zip(wanted).map(|(a, b)| square(f64::from(a - b))).sum();
    let size: f64 = wanted.iter().map(|&b| square(f64::from(b))).sum();
    (difference / size.max(f64::MIN_POSITIVE)).sqrt()
}

/// Lowest id of the greatest value.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}

/// `close` in exact mode; relative rms in rounded mode.
pub fn same_logits(what: &str, found: &[f32], wanted: &[f32], exact: bool) -> Result<()> {
    if exact {
        return close(what, found, wanted, LOGITS);
    }
    ensure!(found.len() == wanted.len(), "{what}: {} values, {} wanted", found.len(), wanted.len());
    let off = rel_rms(found, wanted);
    ensure!(off <= ROUNDED_REL_RMS, "{what}: relative rms {off:.4}, at most {ROUNDED_REL_RMS}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_never_agrees_and_equal_infinities_do() {
        assert!(close("x", &[f32::NEG_INFINITY], &[f32::NEG_INFINITY], 0.0).is_ok());
        assert!(close("x", &[f32::NAN], &[f32::NAN], 1.0).is_err());
        assert!(close("x", &[1.0, 2.0], &[1.0, 2.5], 0.4).unwrap_err().to_string().contains("value 1"));
    }

    #[test]
    fn argmax_takes_the_lowest_id_of_a_tie() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
    }
}
