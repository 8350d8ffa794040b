//! The hardware abstraction line of the M3 engine: one step-level C ABI, in Rust.
//!
//! A backend is one rank on one device. It is opened, given its tensors, asked how many pages fit, told to reserve
//! and warm, and then takes steps; nothing smaller than a step crosses this line.

pub mod backend;
pub mod types;

pub use backend::{
    Backend, Driver, Error, Media, OpenRequest, Output, ProbeReport, ProbeRequest, Result, Step, Tap, TensorView, Ticket,
};
