//! Sampling settings of one answer: the request's, else the model's.

use m3_core::request::Sampling;

use crate::model::ServedModel;
use crate::openai::generation::Generation;

/// Below this a temperature is greedy: the division would only overflow.
const GREEDY_BELOW: f32 = 1e-5;

/// Settings of the `at`th answer of a request. `unique` is the engine's request id.
pub fn resolve_sampling(generation: &Generation, model: &ServedModel, at: u32, unique: u64) -> Sampling {
    let defaults = &model.sampling_defaults;
    let mut sampling = Sampling {
        temperature: generation.temperature.unwrap_or(defaults.temperature),
        top_k: generation.top_k.unwrap_or(defaults.top_k).min(model.limits.vocab_size),
        top_p: generation.top_p.unwrap_or(defaults.top_p),
        min_p: generation.min_p.unwrap_or(0.0),
        seed: seed(generation.seed, model.random_seed, at, unique),
        repetition_penalty: generation.repetition_penalty.unwrap_or(1.0),
        presence_penalty: generation.presence_penalty,
        frequency_penalty: generation.frequency_penalty,
        biases: generation.logit_bias.clone(),
    };
    if sampling.temperature < GREEDY_BELOW || sampling.top_p == 0.0 {
        sampling.temperature = 0.0;
        sampling.top_p = 1.0;
    }
    sampling
}

/// Answers of one seeded request differ, and the set is reproducible. Without any seed the engine draws one.
fn seed(asked: Option<u64>, server: Option<u64>, at: u32, unique: u64) -> Option<u64> {
    match (asked, server) {
        (Some(seed), _) if at == 0 => Some(seed),
        (Some(seed), _) => Some(mix(seed, u64::from(at))),
        (None, Some(base)) => Some(mix(base, unique)),
        (None, None) => None,
    }
}

/// SplitMix64's finaliser over both numbers.
fn mix(seed: u64, number: u64) -> u64 {
    let mut value = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_one_seed_differ_and_repeat() {
        let set: Vec<_> = (0..3).map(|at| seed(Some(7), None, at, 99)).collect();
        assert_eq!(set[0], Some(7));
        assert!(set[0] != set[1] && set[1] != set[2]);
        assert_eq!(set, (0..3).map(|at| seed(Some(7), Some(1), at, 5)).collect::<Vec<_>>());
        assert_eq!(seed(None, None, 0, 1), None);
        assert_ne!(seed(None, Some(1), 0, 1), seed(None, Some(1), 0, 2));
    }
}
