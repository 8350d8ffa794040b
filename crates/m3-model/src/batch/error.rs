//! What can be wrong with a step, as sentences that name the value and the limit.

/// A step that breaks the contract of [`m3_abi::Step`]. The table's state is unspecified afterwards: the instance is
/// to be treated as dead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BatchError {
    #[error("row {row} is beyond the table of {max_rows} rows")]
    RowRange { row: u32, max_rows: u32 },
    #[error("row {row} is not bound")]
    RowUnbound { row: u32 },
    #[error("row {row} is bound again without a release")]
    RowBound { row: u32 },
    #[error("row {row} has two sequences in one step")]
    RowTwice { row: u32 },
    #[error("row {row}: {field} is {value}, which is not {allowed}")]
    Setting { row: u32, field: &'static str, value: f32, allowed: &'static str },
    #[error("row {row}: {num_logprobs} log-probabilities are asked for, the limit is {max_logprobs}")]
    Logprobs { row: u32, num_logprobs: u32, max_logprobs: u32 },
    #[error("row {row}: {array} {start}..{end} reach beyond its {len} entries")]
    Span { row: u32, array: &'static str, start: u64, end: u64, len: usize },
    #[error("row {row}: pages are appended at entry {first}, the table ends at {len}")]
    PageGap { row: u32, first: u32, len: usize },
    #[error("row {row}: page {page} is beyond the {num_pages} reserved pages")]
    PageRange { row: u32, page: u32, num_pages: u64 },
    #[error("row {row}: positions up to {end} need {needed} pages, the table has {len}")]
    PagesMissing { row: u32, end: u64, needed: usize, len: usize },
    #[error("page {page} is written by rows {first} and {second} in one step")]
    PageShared { page: u32, first: u32, second: u32 },
    #[error("row {row}: the sequence has no tokens")]
    Empty { row: u32 },
    #[error("row {row}: unknown sequence flags {flags:#x}")]
    Flags { row: u32, flags: u32 },
    #[error("row {row}: position {first} follows a gap, the next position is {next}")]
    PositionGap { row: u32, first: u32, next: u32 },
    #[error("row {row}: positions up to {end} exceed the context of {max_context}")]
    Context { row: u32, end: u64, max_context: u32 },
    #[error("the step has {num_tokens} tokens, the limit is {max_step_tokens}")]
    StepTokens { num_tokens: u64, max_step_tokens: u32 },
    #[error("row {row}: token {token} is beyond the vocabulary of {vocab_size}")]
    Token { row: u32, token: u32, vocab_size: usize },
    #[error(
        "row {row}: a chained sequence has one token right after a sampled one, not {num_tokens} at {first}"
    )]
    Chained { row: u32, num_tokens: u32, first: u32 },
    #[error("row {row}: logits of {num_logits} positions are asked for, the sequence has {num_tokens}")]
    Logits { row: u32, num_logits: u32, num_tokens: u32 },
    #[error("output slot {slot} is used twice")]
    OutputSlot { slot: u64 },
    #[error(
        "row {row}: media at {first}..{end} lie outside the positions {seq_first}..{seq_end} of this step"
    )]
    Media { row: u32, first: u64, end: u64, seq_first: u64, seq_end: u64 },
    #[error("row {row}: media at {first} overlap other media of the step")]
    MediaOverlap { row: u32, first: u64 },
}

impl From<BatchError> for m3_abi::Error {
    fn from(error: BatchError) -> Self {
        m3_abi::Error::Fatal(error.to_string())
    }
}
