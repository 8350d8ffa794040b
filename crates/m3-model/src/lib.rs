//! What M3 is: configuration, layer plan, tensors, shard plan, formats, `Ops` and the scalar reference.

pub mod batch;
pub mod checkpoint;
pub mod config;
pub mod convert;
pub mod error;
pub mod formats;
pub mod names;
pub mod naming;
pub mod ops;
pub mod pages;
pub mod reference;
pub mod rope;
pub mod sampling;
pub mod shard;
pub mod taps;
pub mod verify;
pub mod vision;
