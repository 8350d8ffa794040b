//! Token counts, in the one shape that streams and whole answers share.

use serde::Serialize;

use crate::vision::MediaTokens;

/// `usage` of an answer. `completion_tokens` counts sampled ids, reasoning and the stop id included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    pub total_tokens: u32,
    pub prompt_tokens_details: PromptDetails,
    pub completion_tokens_details: CompletionDetails,
}

/// Where the prompt's tokens came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptDetails {
    pub cached_tokens: u32,
    /// Of images; absent when there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_tokens: u32,
    /// Of videos, without the text of their times; absent when there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub video_tokens: u32,
}

/// What the completion's tokens were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompletionDetails {
    pub reasoning_tokens: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Usage {
    /// The same with the prompt's media tokens, which `prompt_tokens` counts already.
    pub fn with_media(mut self, media: MediaTokens) -> Self {
        self.prompt_tokens_details.image_tokens = media.image;
        self.prompt_tokens_details.video_tokens = media.video;
        self
    }

    /// `total_tokens` is the sum.
    pub fn new(
        prompt_tokens: u32,
        cached_tokens: u32,
        completion_tokens: u32,
        reasoning_tokens: u32,
    ) -> Self {
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens, ..PromptDetails::default() },
            completion_tokens_details: CompletionDetails { reasoning_tokens },
        }
    }
}
