//! What a row was bound with.

use m3_abi::types::{NONE, RowBind, TokenBias};

use super::TokenCounts;

/// Below this temperature sampling is greedy.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// Checked sampling settings of a row; fields as in [`RowBind`].
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingSettings {
    pub seed: u64,
    pub temperature: f32,
    /// 0 keeps one candidate, 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 0 is off.
    pub top_k: u32,
    /// 1 is off.
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Alternatives wanted; `None` = no log-probabilities.
    pub num_logprobs: Option<u32>,
}

impl Default for SamplingSettings {
    /// Greedy, nothing else on.
    fn default() -> Self {
        SamplingSettings {
            seed: 0,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            num_logprobs: None,
        }
    }
}

impl SamplingSettings {
    pub fn from_bind(bind: &RowBind) -> Self {
        SamplingSettings {
            seed: bind.seed,
            temperature: bind.temperature,
            top_p: bind.top_p,
            min_p: bind.min_p,
            top_k: bind.top_k,
            repetition_penalty: bind.repetition_penalty,
            presence_penalty: bind.presence_penalty,
            frequency_penalty: bind.frequency_penalty,
            num_logprobs: (bind.num_logprobs != NONE).then_some(bind.num_logprobs),
        }
    }

    /// The highest logit wins whatever the random number.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_TEMPERATURE || self.top_k == 1 || self.top_p == 0.0
    }

    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

/// Everything that shapes a row's samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSampling {
    pub settings: SamplingSettings,
    pub biases: Vec<TokenBias>,
    /// Empty when the settings have no penalties.
    pub counts: TokenCounts,
}
