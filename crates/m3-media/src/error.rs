//! What can go wrong between a client's words and pixels, as sentences that name the value and the limit. They never
//! name an internal address, nor carry bytes of the medium.

/// Short for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// Whose fault it is: what an answer's status is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The medium or its address cannot be accepted: 400.
    Invalid,
    /// A limit on size, pixels, frames or length: 413.
    TooLarge,
    /// Time ran out: 408.
    Timeout,
    /// The other server failed: 502.
    Upstream,
    /// This machine failed: 500.
    Internal,
}

/// Why there are no pixels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not an address or a data URI that this server can read.
    #[error("{0}")]
    Source(String),
    /// A rule of the policy forbids it.
    #[error("{0}")]
    Refused(String),
    /// Bytes of a format that is not decoded here.
    #[error("{0}")]
    Unsupported(String),
    /// Bytes that claim a format and break its rules.
    #[error("{0}")]
    Broken(String),
    /// Pixels that are there, and a size or an option that the model's rules do not allow.
    #[error("{0}")]
    Shape(String),
    /// A value above its limit.
    #[error("{what} is {value}, above the limit of {limit}")]
    TooLarge {
        /// What was measured, with its unit.
        what: String,
        /// What it measured, or the part of it that was seen.
        value: u64,
        /// The largest value that is accepted.
        limit: u64,
    },
    /// A deadline passed.
    #[error("{what} took longer than {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// The deadline.
        seconds: u64,
    },
    /// The server that holds the medium failed.
    #[error("{0}")]
    Upstream(String),
    /// A program that decoding needs is not installed.
    #[error("{program} is not installed on this server, so {purpose} cannot be decoded")]
    Absent {
        /// The program's name.
        program: String,
        /// What it would have done.
        purpose: String,
    },
    /// This machine failed: no temporary file, no thread.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Source(_)
            | Error::Refused(_)
            | Error::Unsupported(_)
            | Error::Broken(_)
            | Error::Shape(_)
            | Error::Absent { .. } => Kind::Invalid,
            Error::TooLarge { .. } => Kind::TooLarge,
            Error::Timeout { .. } => Kind::Timeout,
            Error::Upstream(_) => Kind::Upstream,
            Error::Internal(_) => Kind::Internal,
        }
    }

    /// A value above its limit.
    pub fn too_large(what: impl Into<String>, value: u64, limit: u64) -> Error {
        Error::TooLarge { what: what.into(), value, limit }
    }
}
