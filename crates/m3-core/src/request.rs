//! What a client asks of the engine, in token ids: prompt, sampling settings, limits and the reasons a request is
//! refused before it is admitted. No text and no wire types here.

/// Names a request for as long as it lives; chosen by the caller, refused when already in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A generation (or, with `max_tokens` 0, a scoring) request.
pub struct Request {
    pub id: RequestId,
    pub prompt: Vec<u32>,
    pub sampling: Sampling,
    /// Most tokens to sample; 0 only scores the prompt. The end of the context also ends a request.
    pub max_tokens: u32,
    /// Stop ids are not sampled before this many tokens.
    pub min_tokens: u32,
    /// Sampling one of these ends the request; end-of-sequence ids are ordinary members.
    pub stop_token_ids: Vec<u32>,
    /// Alternatives per sampled token; `Some(0)` is the token's own log-probability only.
    pub logprobs: Option<u32>,
    /// The same for the tokens of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// Requests share cached prefixes only when their salts are equal.
    pub cache_salt: Option<Vec<u8>>,
    /// Lower goes first; 0 is usual.
    pub priority: i32,
    pub mask: Option<Box<dyn TokenMask>>,
    /// Images and videos, in prompt order. Their rows replace embeddings of the prompt.
    pub media: Vec<Medium>,
}

/// One image or video of a prompt, pre-processed: what [`m3_abi::Backend::encode`] takes and where its rows go.
#[derive(Clone)]
pub struct Medium {
    /// Digest over the bytes, the chosen size, the rule and every option that changes `patches`; equal digests mean
    /// equal rows. Part of the prefix cache's key.
    pub digest: [u8; 32],
    /// Normalised patch rows of `row_len` values in merge order.
    pub patches: std::sync::Arc<[f32]>,
    pub row_len: usize,
    /// t, h, w in patches; `t * h * w * row_len == patches.len()`. The backend cuts long videos into segments.
    pub grid: [u32; 3],
    /// Prompt positions that its rows fill, in row order; the lengths add up to `t * h * w / merge^2`.
    pub runs: Vec<MediumRun>,
}

/// `len` prompt positions from `first_position`, filled by consecutive rows of one medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumRun {
    pub first_position: u32,
    pub len: u32,
}

impl MediumRun {
    /// One past its last position.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.first_position) + u64::from(self.len)
    }
}

impl Request {
    /// A neutral request: sampled at temperature 1, nothing else asked for.
    pub fn new(id: RequestId, prompt: Vec<u32>, max_tokens: u32) -> Self {
        Request {
            id,
            prompt,
            sampling: Sampling::default(),
            max_tokens,
            min_tokens: 0,
            stop_token_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: None,
            priority: 0,
            mask: None,
            media: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Request")
            .field("id", &self.id)
            .field("prompt_len", &self.prompt.len())
            .field("max_tokens", &self.max_tokens)
            .field("priority", &self.priority)
            .field("masked", &self.mask.is_some())
            .field("media", &self.media.len())
            .finish_non_exhaustive()
    }
}

/// Says before every sampled token which ids are allowed. A request with a mask never runs ahead of its tokens.
pub trait TokenMask: Send {
    /// Sets bit `i % 32` of word `i / 32` for every allowed token `i`; `words` comes in zeroed.
    fn fill(&mut self, words: &mut [u32]);
    /// The token that was sampled under the last mask; not called for the token that stops the request.
    fn accept(&mut self, token: u32);
}

/// How the next token is drawn. The default is neutral: temperature 1 and every filter off.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    /// `None` draws a seed from the operating system's entropy.
    pub seed: Option<u64>,
    /// 1 is off.
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub biases: Vec<(u32, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: None,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            biases: Vec::new(),
        }
    }
}

impl Sampling {
    /// Whether the device must know the tokens so far in order to sample.
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

/// Why an image or video cannot be used as it was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediumProblem {
    #[error("its patches have {row_len} values each; those of this model have {wanted}")]
    RowLen { row_len: usize, wanted: usize },
    #[error(
        "its grid is {t} x {h} x {w} patches; no side may be 0, height and width must be multiples of {merge}"
    )]
    Grid { t: u32, h: u32, w: u32, merge: usize },
    #[error("it has {values} patch values; its grid needs {wanted}")]
    Values { values: usize, wanted: u64 },
    #[error("{positions} positions of the prompt are for its rows; its grid makes {rows} rows")]
    Runs { positions: u64, rows: u64 },
    #[error(
        "its run of {len} positions from {first_position} is empty, out of order or outside the prompt of \
         {prompt_tokens} tokens"
    )]
    Place { first_position: u32, len: u32, prompt_tokens: usize },
    #[error("its run from position {first_position} overlaps one before it")]
    Overlap { first_position: u32 },
    #[error(
        "its run from position {first_position} comes after another medium has begun; media must follow each other"
    )]
    Interleaved { first_position: u32 },
    #[error("{bytes} bytes of it must be on the device at once; this server keeps up to {cache_bytes}")]
    TooLarge { bytes: u64, cache_bytes: u64 },
}

/// Why a request was not admitted. Nothing of it remains in the engine and its sink is dropped unused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("the prompt has no tokens; at least one is needed")]
    EmptyPrompt,
    #[error("the prompt has {prompt_tokens} tokens; this server accepts contexts of {max_context} tokens")]
    PromptTooLong { prompt_tokens: usize, max_context: usize },
    #[error("the request may need {needed_pages} cache pages; this server has {total_pages} in all")]
    NeverFits { needed_pages: usize, total_pages: usize },
    /// `queued` requests had not been started when this one, or this batch of `num_requests`, came.
    #[error(
        "{queued} requests are waiting and {num_requests} more do not fit; this server queues {max_queued} \
         besides those it computes"
    )]
    QueueFull { num_requests: usize, queued: usize, max_queued: usize },
    /// Not even an idle engine would take them.
    #[error("{num_requests} answers were asked for at once; this server computes and queues up to {most}")]
    BatchTooLarge { num_requests: usize, most: usize },
    #[error("token id {token} is outside the vocabulary of {vocab_size} tokens")]
    TokenOutOfRange { token: u32, vocab_size: usize },
    #[error("{asked} log-probability alternatives were asked for; this server gives up to {max_logprobs}")]
    TooManyLogprobs { asked: u32, max_logprobs: u32 },
    #[error("{name} is {value}; it must be {limit}")]
    BadSampling { name: &'static str, value: f32, limit: &'static str },
    #[error("this model takes text only; it has no vision tower for images and videos")]
    TextModel,
    #[error("this server takes text only; its backend encodes no images and no videos")]
    TextBackend,
    /// Media are counted from 0, in the order of the request.
    #[error("medium {index} of this request cannot be used: {problem}")]
    Medium { index: usize, problem: MediumProblem },
    #[error("request id {0} is already in use")]
    DuplicateId(u64),
    #[error("this server is shutting down and takes no new requests")]
    Draining,
    #[error("the engine has stopped: {0}")]
    Dead(String),
}
