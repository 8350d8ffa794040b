//! The hardware abstraction line of the M3 engine: one step-level C ABI, in Rust.
//!
//! A backend is one rank on one device. It is opened, given its tensors, asked how many pages fit, told to reserve
//! and warm, and then takes steps; nothing smaller than a step crosses this line.
//!
//! [`types`] and [`table`] are what crosses (and what `include/m3_backend.h` declares), [`backend`] is what a Rust
//! backend implements and what the engine calls, [`export`] and [`load`] turn one into the other and back, and
//! [`discover`] finds backends.

pub mod backend;
#[allow(unsafe_code, reason = "copies structs that belong to the other side")]
pub mod crossing;
pub mod discover;
#[allow(unsafe_code, reason = "entries of the C table")]
pub mod export;
pub mod layout;
#[allow(unsafe_code, reason = "calls entries of a C table")]
pub mod load;
#[allow(unsafe_code, reason = "calls the host's callback")]
pub mod log;
#[allow(unsafe_code, reason = "says that a table may be shared between threads")]
pub mod table;
pub mod types;

pub use backend::{
    Backend, Driver, Error, Media, OpenRequest, Output, ProbeReport, ProbeRequest, Result, Step, Tap,
    TensorView, Ticket,
};
pub use load::{LinkedBackend, Plugin};
