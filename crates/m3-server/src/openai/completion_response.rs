//! Completion answers on the wire: one shape for chunks and whole answers, which are the fold of the chunks.

use serde::Serialize;
use serde_json::{Map, Value};

use super::prompt_scores::PromptScores;
use super::stop_cause::StopCause;
use super::usage::Usage;

/// A chunk of a stream, or a whole answer.
#[derive(Clone, Debug, Serialize)]
pub struct CompletionResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// One answer, or more of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// OpenAI's old form: parallel lists. The first token of a prompt has no log-probability.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompletionLogprobs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<Option<f32>>,
    /// Text to log-probability, most likely first, the token itself included.
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Characters of the choice's text before each token.
    pub text_offset: Vec<u32>,
}

impl CompletionChoice {
    /// Adds the next chunk of this answer.
    pub fn fold(&mut self, chunk: CompletionChoice) {
        self.index = chunk.index;
        self.text.push_str(&chunk.text);
        if let Some(more) = chunk.logprobs {
            let logprobs = self.logprobs.get_or_insert_default();
            logprobs.tokens.extend(more.tokens);
            logprobs.token_logprobs.extend(more.token_logprobs);
            logprobs.top_logprobs.extend(more.top_logprobs);
            logprobs.text_offset.extend(more.text_offset);
        }
        if let Some(ids) = chunk.token_ids {
            self.token_ids.get_or_insert_default().extend(ids);
        }
        if chunk.prompt_token_ids.is_some() {
            self.prompt_token_ids = chunk.prompt_token_ids;
        }
        if chunk.prompt_logprobs.is_some() {
            self.prompt_logprobs = chunk.prompt_logprobs;
        }
        self.finish_reason = self.finish_reason.or(chunk.finish_reason);
        self.stop_reason = self.stop_reason.take().or(chunk.stop_reason);
    }
}
