//! Chat answers on the wire. A stream sends [`ChatChunk`]s; a whole answer is the fold of the very same choices, so
//! the two cannot differ.

use serde::Serialize;

use super::prompt_scores::PromptScores;
use super::stop_cause::StopCause;
use super::usage::Usage;

/// One event of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// More of one answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChunkChoice {
    pub index: usize,
    pub delta: ChunkDelta,
    pub logprobs: Option<Logprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new. Reasoning and content never come in one delta.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<CallDelta>>,
}

/// The start of a call (with id and name) or more of its arguments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallDelta {
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionDelta,
}

/// Inside of [`CallDelta`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub arguments: String,
}

/// Log-probabilities of the tokens of a chunk or an answer, every sampled token in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Logprobs {
    pub content: Vec<TokenLogprob>,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: f32,
    pub bytes: Option<Vec<u8>>,
    pub top_logprobs: Vec<TopLogprob>,
}

/// One alternative.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopLogprob {
    pub token: String,
    pub logprob: f32,
    pub bytes: Option<Vec<u8>>,
}

/// A whole answer.
#[derive(Clone, Debug, Serialize)]
pub struct ChatResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One answer of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChatChoice {
    pub index: usize,
    pub message: Message,
    pub logprobs: Option<Logprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// The assistant's message.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Message {
    pub role: &'static str,
    pub content: Option<String>,
    pub reasoning_content: Option<String>,
    /// Only with `--reasoning-field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<MessageCall>,
}

/// A complete tool call.
#[derive(Clone, Debug, Serialize)]
pub struct MessageCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: MessageFunction,
}

/// Inside of [`MessageCall`]; `arguments` is JSON text.
#[derive(Clone, Debug, Serialize)]
pub struct MessageFunction {
    pub name: String,
    pub arguments: String,
}

impl ChatChoice {
    /// Adds the next chunk of this answer.
    pub fn fold(&mut self, chunk: ChunkChoice) {
        self.index = chunk.index;
        let message = &mut self.message;
        message.role = "assistant";
        // The chunk that carries the role has an empty content, which is no content yet.
        if let Some(text) = chunk.delta.content.filter(|text| !text.is_empty()) {
            message.content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = chunk.delta.reasoning_content {
            message.reasoning_content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = chunk.delta.reasoning {
            message.reasoning.get_or_insert_default().push_str(&text);
        }
        for call in chunk.delta.tool_calls.into_iter().flatten() {
            fold_call(&mut message.tool_calls, call);
        }
        if let Some(logprobs) = chunk.logprobs {
            self.logprobs.get_or_insert_default().content.extend(logprobs.content);
        }
        if let Some(ids) = chunk.token_ids {
            self.token_ids.get_or_insert_default().extend(ids);
        }
        self.finish_reason = self.finish_reason.or(chunk.finish_reason);
        self.stop_reason = self.stop_reason.take().or(chunk.stop_reason);
    }
}

fn fold_call(calls: &mut Vec<MessageCall>, call: CallDelta) {
    if let (Some(id), Some(name)) = (call.id, call.function.name) {
        let function = MessageFunction { name, arguments: String::new() };
        calls.push(MessageCall { id, kind: "function", function });
    }
    if let Some(last) = calls.get_mut(call.index) {
        last.function.arguments.push_str(&call.function.arguments);
    }
}
