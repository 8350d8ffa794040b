//! The scalar reference against the golden answers, and against itself: chunks, decode, caches, batches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod answers;
mod equalities;
mod golden;
mod greedy;
mod interface;
mod media;
mod msa_units;
mod quantized;
mod run;
mod sampled;
mod text;
