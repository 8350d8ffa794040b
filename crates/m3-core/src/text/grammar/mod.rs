//! Constrained decoding: which tokens may come next so that an answer is what a request asked for. From JSON Schemas,
//! regular expressions, Lark or EBNF grammars, lists of choices and structural tags, and from the tools of a request,
//! whose calls are written in the model's own markup. Matching is llguidance's; the grammars are written here.
//!
//! `schema` reads JSON Schemas, `json` and `markup` write grammars from them, `ebnf` and `structural` from the other
//! forms; `vocabulary` holds the tokens, `compile` the limits and the cache, and `mask` follows one answer: thinking is
//! free, then the grammar holds. HTTP fields are the server's business.

mod compile;
mod ebnf;
mod json;
mod lark;
mod markup;
mod mask;
mod names;
mod schema;
mod spelling;
mod structural;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use compile::{Compiled, Content, GrammarCompiler, GrammarSpec};
pub use markup::{CallRules, CallableTool};
pub use mask::GrammarMask;
pub use vocabulary::Vocabulary;

/// Why an output cannot be constrained as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct GrammarError {
    /// JSON pointer into the schema; empty for its root, `None` when it is no place in a schema.
    pub pointer: Option<String>,
    /// The tool whose schema it is.
    pub tool: Option<String>,
    /// A lower-case sentence.
    pub reason: String,
    /// The server had no time for it; the request may be fine.
    pub busy: bool,
}

impl GrammarError {
    fn at(pointer: &str, reason: impl Into<String>) -> Self {
        GrammarError { pointer: Some(pointer.to_owned()), tool: None, reason: reason.into(), busy: false }
    }

    fn whole(reason: impl Into<String>) -> Self {
        GrammarError { pointer: None, tool: None, reason: reason.into(), busy: false }
    }

    fn busy(reason: impl Into<String>) -> Self {
        GrammarError { busy: true, ..Self::whole(reason) }
    }

    fn within_tool(self, name: &str) -> Self {
        GrammarError { tool: Some(name.to_owned()), ..self }
    }

    fn sentence(&self) -> String {
        let tool =
            self.tool.as_ref().map(|name| format!("parameters of tool \"{name}\": ")).unwrap_or_default();
        let place = match self.pointer.as_deref() {
            None => String::new(),
            Some("") => "at the schema's root: ".to_owned(),
            Some(pointer) => format!("at {pointer}: "),
        };
        format!("{tool}{place}{}", self.reason)
    }
}
