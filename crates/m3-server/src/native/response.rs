//! Answers of `/generate` on the wire. Every chunk of a stream has the whole text and all counts so far.

use serde::Serialize;
use serde_json::Value;

use crate::error::ErrorBody;
use crate::shape::Named;

/// One answer, as far as it is.
#[derive(Clone, Debug, Serialize)]
pub struct Generated {
    pub text: String,
    pub output_ids: Vec<u32>,
    pub meta_info: MetaInfo,
    /// Only in streams of several answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// What is known about an answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MetaInfo {
    pub id: String,
    pub finish_reason: Option<Value>,
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    pub reasoning_tokens: u32,
    pub cached_tokens: u32,
    pub weight_version: &'static str,
    /// Seconds since the request came; only with the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_latency: Option<f64>,
    #[serde(flatten)]
    pub logprobs: Option<LogprobLists>,
}

/// `[logprob, id, text or null]`; the first prompt token has no log-probability.
pub type Scored = (Option<f32>, u32, Option<String>);

/// Lists with one entry a token.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogprobLists {
    pub input_token_logprobs: Vec<Scored>,
    pub output_token_logprobs: Vec<Scored>,
    pub input_top_logprobs: Vec<Option<Vec<Scored>>>,
    pub output_top_logprobs: Vec<Option<Vec<Scored>>>,
}

/// A chunk of a stream.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Chunk {
    Generated(Box<Generated>),
    Error(ErrorBody),
}

impl Named for Chunk {}

/// One answer, or a list when a list was asked for.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Whole {
    One(Box<Generated>),
    Many(Vec<Generated>),
}
