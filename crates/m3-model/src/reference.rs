//! The model in plain `f32` Rust: the executable specification that every kernel is compared with.
//!
//! Read it in this order: [`math`] (norm, SwiGLU, dot), [`msa`] (which blocks, and attention over them), [`moe`]
//! (router and experts), [`model`] (the nine [`crate::ops::Ops`]), [`backend`] (steps in, tokens out). [`fp8`] and
//! [`linear`] say what the quantised modes compute. Written to be read; its only concession to speed is threads over
//! rows. One rank. [`vision`] is the tower.

pub mod backend;
pub mod fp8;
pub mod linear;
pub mod math;
pub mod model;
pub mod moe;
pub mod msa;
pub mod store;
pub mod tensor;
pub mod vision;
pub mod vision_weights;
pub mod weights;

pub use backend::{ReferenceBackend, ReferenceDriver};
pub use linear::QuantMode;
pub use model::ReferenceModel;
