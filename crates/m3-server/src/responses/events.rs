//! The events of a streamed response, each with its name and its number.

use serde::Serialize;
use serde_json::Value;

use crate::openai::chat_response::TokenLogprob;
use crate::shape::Named;

/// One event.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Counts from 0 within a response.
    pub sequence_number: u64,
    #[serde(flatten)]
    pub body: Body,
}

/// What it is about.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Body {
    Response {
        response: Value,
    },
    Item {
        output_index: usize,
        item: Value,
    },
    Part {
        item_id: String,
        output_index: usize,
        content_index: usize,
        part: Value,
    },
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
        /// Only of message text, and there always, if only empty.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TokenLogprob>>,
    },
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<TokenLogprob>>,
    },
    ArgumentsDelta {
        item_id: String,
        output_index: usize,
        delta: String,
    },
    ArgumentsDone {
        item_id: String,
        output_index: usize,
        name: String,
        arguments: String,
    },
}

impl Named for Event {
    fn name(&self) -> Option<&str> {
        Some(self.kind)
    }
}
