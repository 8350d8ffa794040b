//! Why a render stops: the template raised, or it met something it cannot work with.

use crate::text::TextError;

/// A failure on its way up; the innermost statement adds its line.
#[derive(Debug)]
pub(crate) enum Fault {
    /// `raise_exception`, with the template's own message.
    Raised(String),
    /// Anything else; `line` is 0 until a statement fills it in.
    Failed { line: usize, message: String },
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Fault::Failed { line: 0, message: message.into() }
    }

    /// Fills in the line unless an inner statement already did.
    pub(crate) fn at(self, statement_line: usize) -> Self {
        match self {
            Fault::Failed { line: 0, message } => Fault::Failed { line: statement_line, message },
            other => other,
        }
    }
}

impl From<Fault> for TextError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Raised(message) => TextError::Raised(message),
            Fault::Failed { line, message } => TextError::Render { line, message },
        }
    }
}
