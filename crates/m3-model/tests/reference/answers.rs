//! Compares taps with golden answers, one after the other in the order of the forward pass.

use m3_abi::Tap;
use m3_model::taps::{TapPoint, all};

use super::golden::{Array, Golden};
use super::run::Run;

const LOGITS: f32 = 1e-4;
const HIDDEN: f32 = 2e-5;
const LAYER_OUT: f32 = 5e-5;
pub(crate) const FEATURES: f32 = 5e-5;
const BLOCK_SCORE: f32 = 3e-4;
const ROUTER_SCORE: f32 = 1e-5;
const ROUTED_WEIGHTS: f32 = 1e-5;
/// Choices are compared where the answer is this clear.
const ROUTER_MARGIN: f32 = 1e-5;
const BLOCK_MARGIN: f32 = 3e-4;

/// Every tap that the file has an answer for, after one step over all its tokens with logits everywhere.
/// Returns how many were compared.
pub(crate) fn compare_taps(run: &mut Run, golden: &Golden) -> Result<usize, String> {
    let mut compared = 0;
    for point in all(&run.config.clone()) {
        let Some(expected) = golden.get(&golden_name(point)) else { continue };
        let tap = run.tap(&point.to_string());
        compare_tap(point, &tap, &expected, golden)
            .map_err(|what| format!("tap {point} differs first: {what}"))?;
        compared += 1;
    }
    Ok(compared)
}

/// Golden files were written before the taps had their names.
fn golden_name(point: TapPoint) -> String {
    match point {
        TapPoint::Selected(layer) => format!("blocks.{layer}"),
        TapPoint::Routed(layer) => format!("experts.{layer}"),
        TapPoint::RoutedWeights(layer) => format!("expert_weights.{layer}"),
        other => other.to_string(),
    }
}

fn compare_tap(point: TapPoint, tap: &Tap, expected: &Array, golden: &Golden) -> Result<(), String> {
    let positions = golden.get("positions").map(|array| array.values);
    match point {
        TapPoint::BlockScore(_) => {
            close(&at_positions(tap, positions.as_deref(), 1), &expected.values, BLOCK_SCORE, |_| true)
        }
        TapPoint::Selected(layer) => {
            let margins = golden.array(&format!("block_margin.{layer}")).values;
            let (width, columns) = (tap.shape[2] as usize, expected.shape[2]);
            let clear = |index: usize| margins[index / columns] > BLOCK_MARGIN;
            let cut: Vec<f32> = tap.data.chunks(width).flat_map(|row| &row[..columns]).copied().collect();
            close(&cut, &expected.values, 0.0, clear)
        }
        TapPoint::RouterScore(_) => close(&tap.data, &expected.values, ROUTER_SCORE, |_| true),
        TapPoint::Routed(layer) | TapPoint::RoutedWeights(layer) => {
            let margins = golden.array(&format!("router_margin.{layer}")).values;
            let tolerance = if matches!(point, TapPoint::Routed(_)) { 0.0 } else { ROUTED_WEIGHTS };
            close(&tap.data, &expected.values, tolerance, |index| {
                margins[index / expected.shape[1]] > ROUTER_MARGIN
            })
        }
        TapPoint::LayerOut(_) => close(&tap.data, &expected.values, LAYER_OUT, |_| true),
        TapPoint::TowerOut | TapPoint::Features => close(&tap.data, &expected.values, FEATURES, |_| true),
        TapPoint::Hidden => close(&tap.data, &expected.values, HIDDEN, |_| true),
        TapPoint::Logits => {
            close(&at_positions(tap, positions.as_deref(), 0), &expected.values, LOGITS, |_| true)
        }
    }
}

/// Rows of dimension `dim` that `positions` name (all without a list).
fn at_positions(tap: &Tap, positions: Option<&[f32]>, dim: usize) -> Vec<f32> {
    let Some(positions) = positions else { return tap.data.clone() };
    let width: u64 = tap.shape[dim + 1..].iter().product();
    let num_rows = tap.shape[dim] as usize;
    let rows: Vec<&[f32]> = tap.data.chunks(width as usize).collect();
    let outer = rows.chunks(num_rows);
    outer.flat_map(|rows| positions.iter().flat_map(|&position| rows[position as usize])).copied().collect()
}

/// The first value that is further away than `tolerance`, among those that count.
pub(crate) fn close(
    found: &[f32],
    expected: &[f32],
    tolerance: f32,
    counts: impl Fn(usize) -> bool,
) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} values, {} expected", found.len(), expected.len()));
    }
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        // Written so that NaN is never close; infinities are equal or not.
        let is_close = found == expected || (found - expected).abs() <= tolerance;
        if counts(index) && !is_close {
            return Err(format!("value {index} is {found}, expected {expected} within {tolerance}"));
        }
    }
    Ok(())
}

/// Root mean square of the difference over that of the answer.
pub(crate) fn relative_rms(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |value: f32| f64::from(value) * f64::from(value);
    let error: f64 = found.iter().zip(expected).map(|(found, expected)| square(found - expected)).sum();
    (error / expected.iter().map(|&value| square(value)).sum::<f64>()).sqrt()
}

pub(crate) fn argmax(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best })
}
