//! The text side of the core from the outside: tokenizer, detokenizer and chat template.

mod detokenize;
mod injection;
mod released;
mod support;
mod template;
mod tokenizer;
