//! `stop_reason`: which stop string or stop id of the request ended an answer. Absent when the model ended its turn.

use serde::Serialize;

use crate::generate::Stop;

/// As vLLM's clients read it: a text, an id, or the word for an answer that went round in circles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StopCause {
    Text(String),
    Token(u32),
}

impl StopCause {
    /// `None` for the model's own end of its turn.
    pub fn of(stop: &Stop) -> Option<Self> {
        match stop {
            Stop::Text(text) => Some(StopCause::Text(text.clone())),
            Stop::Token(id) => Some(StopCause::Token(*id)),
            Stop::Turn(_) => None,
            Stop::Repetition => Some(StopCause::Text("repetition_detected".to_owned())),
        }
    }
}
