//! The CPU backend: the embedded default and the oracle that others are compared with.
//!
//! Weights are used where they lie in the mapped checkpoint; several ranks are threads of one process. In float32 nothing is
//! quantised and every step of the model is f32; in bfloat16 activations are rounded where the model says so.
//! Read [`kernels`] for the arithmetic, `ops` for the model made of it, `backend` and `worker` for how steps get there.
//! No scheduling, no text and no HTTP here.

mod backend;
pub mod bench;
mod buffer;
mod driver;
mod group;
pub mod kernels;
mod machine;
mod ops;
mod pages;
mod step;
mod taps;
mod vision;
mod weights;
mod worker;

pub use driver::{CpuDriver, driver};
