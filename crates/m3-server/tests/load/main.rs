//! Load and faults: a thousand streams that must not be mixed up, clients that leave, bad requests beside good ones,
//! memory over many requests, a server that is killed, a full disk and a clock that jumps. The server is the program
//! itself, as a process.
//!
//! `cargo xtask soak load` runs the same with `M3_LOAD=full`, for longer, and records the figures; here is a bounded
//! sample of it. Nothing is timed: figures are counts and memory.
#![allow(clippy::unwrap_used, reason = "a test")]

mod asking;
mod clock;
mod disk;
mod memory;
mod nonce;
mod program;
mod refusals;
mod restart;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};

/// How much of it.
pub(crate) fn is_full() -> bool {
    std::env::var("M3_LOAD").is_ok_and(|size| size == "full")
}

/// The larger number in full, else the smaller.
pub(crate) fn size<N>(sample: N, full: N) -> N {
    if is_full() { full } else { sample }
}

/// Shows the figures of a test, and leaves them for whoever asked for a record.
pub(crate) fn record(name: &str, figures: &Value) {
    eprintln!("{name}: {figures}");
    if let Some(folder) = std::env::var_os("M3_LOAD_OUT") {
        let path = std::path::Path::new(&folder).join(format!("{name}.json"));
        std::fs::write(path, figures.to_string()).unwrap();
    }
}

/// The scripted backend's settings: every answer is its own prompt without the template's marks, a step takes so long.
pub(crate) fn echo(step_us: u64) -> Value {
    let marks: Vec<u32> = support::tokenizer().added_tokens().iter().map(|token| token.id).collect();
    json!({"echo": true, "echo_without": marks, "eos": support::EOS, "step_us": step_us, "max_pages": 8192})
}
