//! Temperature, `top_k`, `min_p`, `top_p` and the draw.

use super::logprobs::{ahead, normal_zero};
use super::{SamplingSettings, uniform};

/// Candidates sorted at first when a filter needs the order; four times as many while that is not enough.
const FIRST_SORTED: usize = 64;

/// Reused memory of [`draw`].
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// (logit, id) of what may be sampled.
    candidates: Vec<(f32, u32)>,
}

/// Steps 5 to 7 of the specification on adjusted logits; `None` when every logit is minus infinity.
pub fn draw(
    logits: &[f32],
    settings: &SamplingSettings,
    output_index: u32,
    filter: &mut Filter,
) -> Option<u32> {
    let best = logits
        .iter()
        .zip(0u32..)
        .filter(|(logit, _)| **logit > f32::NEG_INFINITY)
        .map(|(&logit, id)| (normal_zero(logit), id))
        .min_by(|&left, &right| ahead(left, right))?;
    if settings.is_greedy() {
        return Some(best.1);
    }
    let weight = |logit: f32| ((logit - best.0) / settings.temperature).exp();
    let candidates = &mut filter.candidates;
    candidates.clear();
    candidates.extend(logits.iter().zip(0u32..).map(|(&logit, id)| (normal_zero(logit), id)));
    candidates.retain(|&(logit, _)| weight(logit) > 0.0);
    keep_top_k(candidates, settings.top_k);
    if settings.min_p > 0.0 {
        candidates.retain(|&(logit, _)| weight(logit) >= settings.min_p);
    }
    if settings.top_p < 1.0 {
        keep_top_p(candidates, settings.top_p, weight);
    }
    candidates.sort_unstable_by_key(|&(_, id)| id);
    Some(invert(candidates, weight, uniform(settings.seed, output_index)))
}

fn keep_top_k(candidates: &mut Vec<(f32, u32)>, top_k: u32) {
    let top_k = top_k as usize;
    if top_k > 0 && top_k < candidates.len() {
        candidates.select_nth_unstable_by(top_k - 1, |&left, &right| ahead(left, right));
        candidates.truncate(top_k);
    }
}

/// Keeps the shortest run, most likely first, whose weight reaches `top_p` of the whole.
fn keep_top_p(candidates: &mut Vec<(f32, u32)>, top_p: f32, weight: impl Fn(f32) -> f32) {
    let total: f64 = candidates.iter().map(|&(logit, _)| f64::from(weight(logit))).sum();
    let wanted = f64::from(top_p) * total;
    let (mut sorted, mut sum) = (0, 0.0);
    while sorted < candidates.len() {
        let count = (sorted * 4).max(FIRST_SORTED).min(candidates.len());
        let rest = &mut candidates[sorted..];
        let take = count - sorted;
        if take < rest.len() {
            rest.select_nth_unstable_by(take - 1, |&left, &right| ahead(left, right));
        }
        rest[..take].sort_unstable_by(|&left, &right| ahead(left, right));
        for (index, &(logit, _)) in candidates[sorted..count].iter().enumerate() {
            sum += f64::from(weight(logit));
            if sum >= wanted {
                candidates.truncate(sorted + index + 1);
                return;
            }
        }
        sorted = count;
    }
}

/// The first candidate at which the running sum exceeds `u x total`; sums run in `f64`.
fn invert(candidates: &[(f32, u32)], weight: impl Fn(f32) -> f32, u: f64) -> u32 {
    let total: f64 = candidates.iter().map(|&(logit, _)| f64::from(weight(logit))).sum();
    let mut sum = 0.0;
    for &(logit, id) in candidates {
        sum += f64::from(weight(logit));
        if sum > u * total {
            return id;
        }
    }
    // `u x total` is below the total, which the same sum in the same order has just reached.
    candidates[candidates.len() - 1].1
}
