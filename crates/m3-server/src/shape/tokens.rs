//! How single tokens are named in log-probabilities.

use std::sync::Arc;

use m3_core::event::TokenScore;
use m3_core::text::tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::openai::chat_response::{TokenLogprob, TopLogprob};

/// Names tokens by their text, or as `token_id:7`.
#[derive(Clone)]
pub struct TokenNames {
    tokenizer: Option<Arc<Tokenizer>>,
}

/// What a log-probability of minus infinity becomes: JSON has no such number.
const LOWEST: f32 = -9999.0;

impl TokenNames {
    /// Ids instead of texts when asked for, or when there is no tokenizer.
    pub fn new(tokenizer: Option<Arc<Tokenizer>>, as_ids: bool) -> Self {
        TokenNames { tokenizer: tokenizer.filter(|_| !as_ids) }
    }

    /// A log-probability as JSON, finite and in as few digits as name it.
    pub fn number(&self, logprob: f32) -> Value {
        short(finite(logprob))
    }

    fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.tokenizer.as_ref().map(|tokenizer| tokenizer.token_bytes(id).unwrap_or_default())
    }

    /// For the chat form, which has the bytes beside it.
    fn lossy(&self, id: u32) -> String {
        match self.bytes(id) {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => format!("token_id:{id}"),
        }
    }

    /// For the completion form, where the name is a key: tokens that are no text stay apart as `bytes:\xe4`.
    pub fn distinct(&self, id: u32) -> String {
        let Some(bytes) = self.bytes(id) else { return format!("token_id:{id}") };
        match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
        }
    }

    /// The chat form of a score.
    pub fn chat(&self, score: &TokenScore) -> TokenLogprob {
        let top = |(id, logprob): &(u32, f32)| TopLogprob {
            token: self.lossy(*id),
            logprob: finite(one_number(score, *id, *logprob)),
            bytes: self.bytes(*id).map(<[u8]>::to_vec),
        };
        TokenLogprob {
            token: self.lossy(score.token),
            logprob: finite(score.logprob),
            bytes: self.bytes(score.token).map(<[u8]>::to_vec),
            top_logprobs: score.top.iter().map(top).collect(),
        }
    }

    /// The completion form of a score's alternatives, with the token itself.
    pub fn top_map(&self, score: &TokenScore) -> Map<String, Value> {
        let own = (score.token, score.logprob);
        let mut map = Map::new();
        for (id, logprob) in score.top.iter().chain(std::iter::once(&own)) {
            let logprob = one_number(score, *id, *logprob);
            map.entry(self.distinct(*id)).or_insert_with(|| short(finite(logprob)));
        }
        map
    }
}

/// A token has one log-probability, whether it stands for itself or among the alternatives.
fn one_number(score: &TokenScore, id: u32, logprob: f32) -> f32 {
    if id == score.token { score.logprob } else { logprob }
}

/// The fewest digits that name this number in 32 bits, as in every field of that type. Widened as it is, it would
/// print the digits of another number.
fn short(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// A number JSON can hold.
pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LOWEST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_token_prints_the_same_number_in_both_lists() {
        let names = TokenNames::new(None, true);
        for logprob in [-0.123_456_79_f32, -1.0, -0.0, -1e-7, -17.062_5, f32::NEG_INFINITY, -6.103_515_6e-5] {
            let score = TokenScore { token: 7, logprob, rank: 1, top: vec![(7, logprob + 1e-3), (8, -0.1)] };
            let own = serde_json::to_string(&Some(finite(score.logprob))).unwrap();
            let map = names.top_map(&score);
            assert_eq!(map["token_id:7"].to_string(), own);
            assert_eq!(map["token_id:8"].to_string(), "-0.1");
            let chat = names.chat(&score);
            assert_eq!(chat.logprob, chat.top_logprobs[0].logprob);
        }
    }
}
