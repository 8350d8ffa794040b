//! What a request hears from the engine: scores, tokens, and exactly one terminal message.
//! Channels are the receiver's business: the engine only knows [`Sink`].

/// Progress of a request, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestEvent {
    /// Log-probabilities of prompt tokens from `first_position` on; position 0 has none, so the first is 1.
    Prompt { first_position: u32, scores: Vec<TokenScore> },
    /// Newly sampled tokens, normally one.
    Tokens(Vec<SampledToken>),
}

/// A token's log-probability under the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    pub token: u32,
    /// Natural logarithm.
    pub logprob: f32,
    /// 0 is the most likely token.
    pub rank: u32,
    /// Alternatives, most likely first.
    pub top: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    pub token: u32,
    /// Present when log-probabilities were asked for.
    pub score: Option<TokenScore>,
}

/// The terminal message.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub reason: FinishReason,
    pub usage: Usage,
    pub timings: Timings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop id was sampled; it is not sent as a token event.
    Stop { token: u32 },
    /// `max_tokens` or the end of the context.
    Length,
    /// Asked for, or the receiver went away or did not read.
    Aborted,
    /// A fault of the engine or of a device, as a sentence.
    Error(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    /// Prompt tokens whose keys and values were found in the prefix cache when the request first ran.
    pub cached_tokens: u32,
    /// All sampled ids, the stop id included.
    pub output_tokens: u32,
}

/// Where the time went, in microseconds of the engine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From arrival until a first step was planned for it.
    pub queued_us: u64,
    /// From there until its first token (or, when only scored, its end).
    pub prefill_us: u64,
    /// From the first token to the end.
    pub decode_us: u64,
    /// Times its pages were taken back and its tokens computed again.
    pub preemptions: u32,
}

/// Where a request's events go. Called from the engine's thread.
pub trait Sink: Send {
    /// Must not block. An error makes the engine abort the request; `finish` is still called.
    fn send(&mut self, event: RequestEvent) -> Result<(), SinkError>;
    /// Called exactly once for every admitted request, also when `send` has failed.
    fn finish(self: Box<Self>, finish: Finish);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    #[error("the receiver does not read")]
    Full,
    #[error("the receiver has gone")]
    Closed,
}
