//! The router: sigmoid scores, the best experts by score plus bias, and tokens grouped by expert.
//!
//! In f32 in both modes. Ties go to the lower expert id; the bias chooses but does not weigh.

use m3_model::config::TextConfig;

/// Who goes where in one MoE layer of one step.
pub(crate) struct Routing {
    /// [T, experts]: router logits, then sigmoid scores.
    pub(crate) scores: Vec<f32>,
    /// [T, experts per token], ids ascending.
    pub(crate) experts: Vec<u32>,
    /// [T, experts per token], sum 1, in the order of `experts`.
    pub(crate) weights: Vec<f32>,
    /// Tokens grouped by expert, ascending inside a group.
    pub(crate) tokens: Vec<u32>,
    /// Weights in the order of `tokens`, routed scaling factor included.
    pub(crate) scaled: Vec<f32>,
    /// [experts + 1]: first entry of each group.
    pub(crate) starts: Vec<usize>,
    num_experts: usize,
    per_token: usize,
}

impl Routing {
    pub(crate) fn new(config: &TextConfig, max_tokens: usize) -> Routing {
        let chosen = max_tokens * config.experts_per_token;
        Routing {
            scores: Vec::with_capacity(max_tokens * config.num_experts),
            experts: Vec::with_capacity(chosen),
            weights: Vec::with_capacity(chosen),
            tokens: Vec::with_capacity(chosen),
            scaled: Vec::with_capacity(chosen),
            starts: Vec::with_capacity(config.num_experts + 1),
            num_experts: config.num_experts,
            per_token: config.experts_per_token,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let floats = self.scores.capacity() + self.weights.capacity() + self.scaled.capacity();
        (floats + self.experts.capacity() + self.tokens.capacity()) * 4 + self.starts.capacity() * 8
    }

    /// Chooses from the logits in `scores` and groups the tokens.
    pub(crate) fn choose(&mut self, bias: &[f32], scaling: f32) {
        self.experts.clear();
        self.weights.clear();
        for scores in self.scores.chunks_mut(self.num_experts) {
            scores.iter_mut().for_each(|score| *score = 1.0 / (1.0 + (-*score).exp()));
            choose_token(scores, bias, self.per_token, &mut self.experts, &mut self.weights);
        }
        self.group(scaling);
    }

    /// Counting sort by expert; stable, so tokens stay in order.
    fn group(&mut self, scaling: f32) {
        self.starts.clear();
        self.starts.resize(self.num_experts + 1, 0);
        for &expert in &self.experts {
            self.starts[expert as usize + 1] += 1;
        }
        for expert in 0..self.num_experts {
            self.starts[expert + 1] += self.starts[expert];
        }
        self.tokens.resize(self.experts.len(), 0);
        self.scaled.resize(self.experts.len(), 0.0);
        let mut next = self.starts.clone();
        for (entry, (&expert, &weight)) in self.experts.iter().zip(&self.weights).enumerate() {
            let at = &mut next[expert as usize];
            self.tokens[*at] = (entry / self.per_token) as u32;
            self.scaled[*at] = weight * scaling;
            *at += 1;
        }
    }
}

fn choose_token(scores: &[f32], bias: &[f32], count: usize, experts: &mut Vec<u32>, weights: &mut Vec<f32>) {
    let first = experts.len();
    for _ in 0..count {
        let mut best: Option<(f32, u32)> = None;
        for (id, (score, bias)) in (0u32..).zip(scores.iter().zip(bias)) {
            let value = score + bias;
            // A NaN is taken when nothing is left, so that a bad row still has ids; its logits will be NaN too.
            let is_better =
                best.is_none_or(|(highest, _)| value > highest || (highest.is_nan() && !value.is_nan()));
            if is_better && !experts[first..].contains(&id) {
                best = Some((value, id));
            }
        }
        experts.extend(best.map(|(_, id)| id));
    }
    experts[first..].sort_unstable();
    let sum: f32 = experts[first..].iter().map(|&id| scores[id as usize]).sum();
    weights.extend(experts[first..].iter().map(|&id| scores[id as usize] / sum));
}

#[cfg(test)]
mod tests {
    use super::choose_token;

    fn choose(scores: &[f32], bias: &[f32], count: usize) -> (Vec<u32>, Vec<f32>) {
        let (mut experts, mut weights) = (Vec::new(), Vec::new());
        choose_token(scores, bias, count, &mut experts, &mut weights);
        (experts, weights)
    }

    #[test]
    fn bias_changes_the_set_but_not_the_weights() {
        let scores = [0.5, 0.25, 0.75, 0.125];
        assert_eq!(choose(&scores, &[0.0; 4], 2), (vec![0, 2], vec![0.4, 0.6]));
        assert_eq!(choose(&scores, &[0.0, 9.0, 0.0, 0.0], 2), (vec![1, 2], vec![0.25, 0.75]));
    }

    #[test]
    fn ties_go_to_the_lower_id_and_nan_does_not_panic() {
        assert_eq!(choose(&[0.5; 4], &[0.0; 4], 2).0, [0, 1]);
        assert_eq!(choose(&[f32::NAN, 0.5, 0.25, 0.125], &[0.0; 4], 2).0, [1, 2]);
        assert_eq!(choose(&[f32::NAN; 3], &[0.0; 3], 2).0, [0, 1]);
    }
}
