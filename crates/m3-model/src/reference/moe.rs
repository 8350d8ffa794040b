//! Router, clamped-SwiGLU MLPs and their weighted sum.

use crate::config::TextConfig;

use super::linear::Linear;
use super::math::{sigmoid, swiglu};

/// Gate, up and down projection: a dense MLP, a routed expert or the shared one.
#[derive(Clone, Debug)]
pub struct Mlp {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

impl Mlp {
    /// [T, hidden] -> [T, hidden].
    pub fn apply(&self, inputs: &[f32], config: &TextConfig) -> Vec<f32> {
        let mut inner = self.gate.apply(inputs);
        for (gate, up) in inner.iter_mut().zip(self.up.apply(inputs)) {
            *gate = swiglu(*gate, up, config.swiglu_alpha, config.swiglu_limit);
        }
        self.down.apply(&inner)
    }
}

/// Weights of a mixture-of-experts layer.
#[derive(Clone, Debug)]
pub struct Moe {
    /// [experts, hidden], never quantised.
    pub router: Linear,
    /// Takes part in choosing only.
    pub correction_bias: Vec<f32>,
    pub experts: Vec<Mlp>,
    pub shared: Mlp,
}

/// Where one token goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Sigmoid of every expert's logit, without bias.
    pub scores: Vec<f32>,
    /// Chosen experts, ascending.
    pub experts: Vec<usize>,
    /// Their weights, sum 1.
    pub weights: Vec<f32>,
}

/// Chooses `count` experts by score plus bias, ties to the lower id, and weighs them by their scores alone.
pub fn route(logits: &[f32], correction_bias: &[f32], count: usize) -> Routing {
    let scores: Vec<f32> = logits.iter().map(|&logit| sigmoid(logit)).collect();
    let biased: Vec<f32> =
        scores.iter().zip(correction_bias).map(|(score, bias)| score + bias + 0.0).collect();
    let mut experts: Vec<usize> = (0..scores.len()).collect();
    // Stable: equal values stay in ascending order of ids.
    experts.sort_by(|&left, &right| biased[right].total_cmp(&biased[left]));
    experts.truncate(count);
    experts.sort_unstable();
    let sum: f32 = experts.iter().map(|&expert| scores[expert]).sum();
    let weights = experts.iter().map(|&expert| scores[expert] / sum).collect();
    Routing { scores, experts, weights }
}

impl Moe {
    pub fn route(&self, inputs: &[f32], config: &TextConfig) -> Vec<Routing> {
        let logits = self.router.apply(inputs);
        let rows = logits.chunks(config.num_experts);
        rows.map(|row| route(row, &self.correction_bias, config.experts_per_token)).collect()
    }

    /// `shared(x) + scaling x sum of weight x expert(x)`, experts summed in ascending order; [T, hidden].
    pub fn apply(&self, inputs: &[f32], routing: &[Routing], config: &TextConfig) -> Vec<f32> {
        let hidden = config.hidden_size;
        let mut routed = vec![0.0; inputs.len()];
        for (expert, mlp) in self.experts.iter().enumerate() {
            let tokens: Vec<(usize, f32)> =
                routing.iter().enumerate().filter_map(weight_of(expert)).collect();
            let gathered: Vec<f32> =
                tokens.iter().flat_map(|&(token, _)| &inputs[token * hidden..][..hidden]).copied().collect();
            let outputs = mlp.apply(&gathered, config);
            for (&(token, weight), output) in tokens.iter().zip(outputs.chunks(hidden)) {
                let routed = &mut routed[token * hidden..][..hidden];
                routed.iter_mut().zip(output).for_each(|(routed, output)| *routed += weight * output);
            }
        }
        let shared = self.shared.apply(inputs, config);
        routed
            .iter()
            .zip(shared)
            .map(|(routed, shared)| config.routed_scaling_factor * routed + shared)
            .collect()
    }
}

/// (token, weight) of the tokens that chose `expert`.
fn weight_of(expert: usize) -> impl Fn((usize, &Routing)) -> Option<(usize, f32)> {
    move |(token, routing)| {
        let slot = routing.experts.binary_search(&expert).ok()?;
        Some((token, routing.weights[slot]))
    }
}

#[cfg(test)]
mod tests {
    use super::route;

    #[test]
    fn bias_changes_the_set_but_not_the_weights() {
        let logits = [0.3, 2.0, -1.0, 1.0, 0.0];
        let plain = route(&logits, &[0.0; 5], 2);
        assert_eq!(plain.experts, [1, 3]);
        let biased = route(&logits, &[0.0, -1.0, 1.0, 0.0, 0.0], 2);
        assert_eq!(biased.experts, [2, 3]);
        assert_eq!(biased.scores, plain.scores);
        let sum = plain.scores[2] + plain.scores[3];
        assert_eq!(biased.weights, [plain.scores[2] / sum, plain.scores[3] / sum]);
        // A bias that leaves the set alone leaves everything alone.
        assert_eq!(route(&logits, &[0.0, 0.5, 0.0, 0.1, 0.0], 2), plain);
    }

    #[test]
    fn ties_go_to_the_lower_expert() {
        assert_eq!(route(&[1.0; 6], &[0.0; 6], 4).experts, [0, 1, 2, 3]);
        assert_eq!(route(&[0.0, 1.0, 0.0, 0.0], &[0.0; 4], 2).experts, [0, 1]);
    }
}
