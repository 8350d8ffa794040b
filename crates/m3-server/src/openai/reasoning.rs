//! Under which names reasoning is sent. `reasoning_content` is the usual one; some clients only read `reasoning`.

use super::chat_response::ChunkDelta;

/// The names in use; neither = the reasoning is thought and not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningNames {
    pub reasoning_content: bool,
    pub reasoning: bool,
}

impl ReasoningNames {
    /// A value of `--reasoning-field`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "reasoning_content" => Some(ReasoningNames { reasoning_content: true, reasoning: false }),
            "reasoning" => Some(ReasoningNames { reasoning_content: false, reasoning: true }),
            "both" => Some(ReasoningNames { reasoning_content: true, reasoning: true }),
            _ => None,
        }
    }

    /// Nothing when the request wants none.
    pub fn only_if(self, wanted: bool) -> Self {
        ReasoningNames {
            reasoning_content: self.reasoning_content && wanted,
            reasoning: self.reasoning && wanted,
        }
    }

    /// A delta with this text under every name; `None` when there is no name.
    pub fn delta(self, text: String) -> Option<ChunkDelta> {
        let reasoning = self.reasoning.then(|| text.clone());
        let reasoning_content = self.reasoning_content.then_some(text);
        let sent = reasoning.is_some() || reasoning_content.is_some();
        sent.then(|| ChunkDelta { reasoning_content, reasoning, ..ChunkDelta::default() })
    }
}
