//! The text side of the core from the outside: tokenizer, detokenizer and chat template.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod detokenize;
mod injection;
mod released;
mod support;
mod template;
mod tokenizer;
