//! Output items: what an answer consists of here, and how each looks on the wire.

use serde_json::{Value, json};

use super::input::seal;
use crate::openai::chat_response::TokenLogprob;

/// An id of this API: a prefix and 32 hex digits.
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::new_v4().simple())
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    InProgress,
    Completed,
    /// Cut by a limit.
    Incomplete,
}

impl Status {
    /// On the wire.
    pub fn name(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
        }
    }
}

/// What an item holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Reasoning,
    Message { logprobs: Vec<TokenLogprob> },
    Call { call_id: String, name: String },
}

/// One item of the output. `text` is the reasoning, the message's text or the call's arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub id: String,
    pub content: Content,
    pub text: String,
    pub status: Status,
}

impl Item {
    /// An item that has just begun.
    pub fn begin(content: Content) -> Self {
        let prefix = match content {
            Content::Reasoning => "rs",
            Content::Message { .. } => "msg",
            Content::Call { .. } => "fc",
        };
        Item { id: new_id(prefix), content, text: String::new(), status: Status::InProgress }
    }

    /// The part of a reasoning or message item; calls have none.
    pub fn part(&self) -> Value {
        match &self.content {
            Content::Reasoning => json!({"type": "reasoning_text", "text": self.text}),
            Content::Message { logprobs } => {
                json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs})
            }
            Content::Call { .. } => Value::Null,
        }
    }

    /// The whole item. One in progress is shown as it began, without text: its deltas bring that. With `sealed` a
    /// reasoning item carries what brings it back in a later request.
    pub fn value(&self, sealed: bool) -> Value {
        let status = self.status.name();
        let begun = self.status == Status::InProgress;
        let parts = if begun { json!([]) } else { json!([self.part()]) };
        match &self.content {
            Content::Reasoning => {
                let mut item = json!({"id": self.id, "type": "reasoning", "summary": [], "content": parts});
                if sealed {
                    item["encrypted_content"] = seal(if begun { "" } else { &self.text }).into();
                }
                item["status"] = status.into();
                item
            }
            Content::Message { .. } => json!({
                "id": self.id, "type": "message", "status": status, "role": "assistant", "content": parts,
            }),
            Content::Call { call_id, name } => json!({
                "id": self.id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
                "arguments": if begun { "" } else { &self.text },
            }),
        }
    }
}
