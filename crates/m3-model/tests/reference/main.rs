//! The scalar reference against the golden answers, and against itself: chunks, decode, caches, batches.

mod answers;
mod equalities;
mod golden;
mod greedy;
mod interface;
mod msa_units;
mod quantized;
mod run;
mod text;
