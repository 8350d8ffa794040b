//! Log-probabilities of the model's own distribution, ranks and alternatives.

use std::cmp::Ordering;

/// Order of candidates: higher logit first, ties to the lower id.
pub(super) fn ahead(left: (f32, u32), right: (f32, u32)) -> Ordering {
    right.0.total_cmp(&left.0).then(left.1.cmp(&right.1))
}

/// `ln(sum(exp(logit)))`; a token's log-probability is its logit minus this. The sum runs in `f64`.
pub fn log_sum_exp(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    (f64::from(highest) + sum.ln()) as f32
}

/// Candidates ahead of `token`: 0 = most likely; equal logits rank by id.
pub fn rank(logits: &[f32], token: u32) -> u32 {
    let own = logits[token as usize];
    let ahead = |(id, &logit): (usize, &f32)| logit > own || (logit == own && id < token as usize);
    logits.iter().enumerate().filter(|&entry| ahead(entry)).count() as u32
}

/// The `count` most likely ids, most likely first, ties to the lower id.
pub fn top(logits: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    if count == 0 {
        return Vec::new();
    }
    let mut order: Vec<(f32, u32)> =
        logits.iter().zip(0..).map(|(&logit, id)| (normal_zero(logit), id)).collect();
    order.select_nth_unstable_by(count - 1, |&left, &right| ahead(left, right));
    order.truncate(count);
    order.sort_unstable_by(|&left, &right| ahead(left, right));
    order.into_iter().map(|(_, id)| id).collect()
}

/// -0 and 0 are the same logit, so that a tie between them goes by id.
pub(super) fn normal_zero(logit: f32) -> f32 {
    logit + 0.0
}
