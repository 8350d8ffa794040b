//! Text on both sides of the model: chat template, tokenizer and incremental detokenisation.
//! It turns messages into token ids and ids back into text. It knows no HTTP and no request limits.

pub mod detokenize;
pub mod exact;
pub mod grammar;
pub mod parse;
pub mod template;
pub mod tokenizer;

/// Why text could not be turned into tokens or back.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file as it was asked for.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A tokenizer file is not one this engine can run.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template does not parse.
    #[error("chat template: {0}")]
    Template(String),
    /// The template refused the conversation through `raise_exception`; the text is the template's.
    #[error("{0}")]
    Raised(String),
    /// The template met a value it cannot work with, or passed a limit.
    #[error("chat template, line {line}: {message}")]
    Render {
        /// Line of the template, counted from 1.
        line: usize,
        /// What went wrong.
        message: String,
    },
}
