//! `prompt_logprobs`: one entry per token of the prompt, in vLLM's form. The first token has none.

use serde::Serialize;
use serde_json::{Map, Value, json};

use m3_core::event::TokenScore;

use crate::shape::TokenNames;

/// An object of token id to score per token, the token itself and its alternatives, or null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct PromptScores(Vec<Option<Map<String, Value>>>);

impl PromptScores {
    /// Adds the scores of the next tokens.
    pub fn add(&mut self, names: &TokenNames, scores: &[TokenScore]) {
        if self.0.is_empty() {
            self.0.push(None);
        }
        self.0.extend(scores.iter().map(|score| Some(entry(names, score))));
    }
}

/// Ranks count from 1, and a token that is among the alternatives stands once.
fn entry(names: &TokenNames, score: &TokenScore) -> Map<String, Value> {
    let own = std::iter::once((score.token, score.logprob, u64::from(score.rank) + 1));
    let top = score.top.iter().zip(1..).map(|((id, logprob), rank)| (*id, *logprob, rank));
    let mut entries = Map::new();
    for (id, logprob, rank) in own.chain(top) {
        let named =
            || json!({"logprob": names.number(logprob), "rank": rank, "decoded_token": names.distinct(id)});
        entries.entry(id.to_string()).or_insert_with(named);
    }
    entries
}
