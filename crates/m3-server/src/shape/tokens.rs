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
            logprob: finite(*logprob),
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
            map.entry(self.distinct(*id)).or_insert_with(|| finite(*logprob).into());
        }
        map
    }
}

/// A number JSON can hold.
pub(super) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LOWEST }
}
