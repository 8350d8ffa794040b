//! Bias and penalties: how what was already said changes the logits.

use std::collections::{HashMap, HashSet};

use super::RowSampling;

/// Which tokens a row's prompt and output hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenCounts {
    prompt: HashSet<u32>,
    output: HashMap<u32, u32>,
}

impl TokenCounts {
    pub fn new(prompt: &[u32], output: &[u32]) -> Self {
        let mut counts = TokenCounts { prompt: prompt.iter().copied().collect(), output: HashMap::new() };
        for &token in output {
            counts.add_output(token);
        }
        counts
    }

    pub fn add_output(&mut self, token: u32) {
        *self.output.entry(token).or_insert(0) += 1;
    }

    /// Takes one occurrence back; a token that is not there stays at none.
    pub fn remove_output(&mut self, token: u32) {
        if let Some(count) = self.output.get_mut(&token) {
            *count -= 1;
            if *count == 0 {
                self.output.remove(&token);
            }
        }
    }

    /// Times `token` was generated.
    pub fn num_output(&self, token: u32) -> u32 {
        self.output.get(&token).copied().unwrap_or(0)
    }

    /// (token, times generated), in no order.
    pub fn output(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.output.iter().map(|(&token, &count)| (token, count))
    }

    /// Distinct prompt tokens, in no order.
    pub fn prompt(&self) -> impl Iterator<Item = u32> + '_ {
        self.prompt.iter().copied()
    }

    pub fn in_prompt(&self, token: u32) -> bool {
        self.prompt.contains(&token)
    }
}

/// Adds biases, then applies penalties; `drafts` count as generated.
///
/// Repetition divides a positive logit and multiplies any other, once, for a token of the prompt or the output;
/// frequency subtracts its value for every occurrence in the output, presence once for a token in the output.
pub fn adjust(logits: &mut [f32], row: &RowSampling, drafts: &[u32]) {
    for bias in &row.biases {
        logits[bias.token as usize] += bias.bias;
    }
    let settings = &row.settings;
    if !settings.has_penalties() {
        return;
    }
    let seen = seen_tokens(&row.counts, drafts);
    for (&token, &num_output) in &seen {
        let logit = &mut logits[token as usize];
        if *logit > 0.0 {
            *logit /= settings.repetition_penalty;
        } else {
            *logit *= settings.repetition_penalty;
        }
        if num_output > 0 {
            *logit -= settings.frequency_penalty * num_output as f32;
            *logit -= settings.presence_penalty;
        }
    }
}

/// Every token of prompt, output and drafts with its number of occurrences in the last two.
fn seen_tokens(counts: &TokenCounts, drafts: &[u32]) -> HashMap<u32, u32> {
    let mut seen = counts.output.clone();
    for &token in drafts {
        *seen.entry(token).or_insert(0) += 1;
    }
    for &token in &counts.prompt {
        seen.entry(token).or_insert(0);
    }
    seen
}
