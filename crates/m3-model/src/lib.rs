//! What M3 is: configuration, layer plan, tensors, shard plan, formats, `Ops` and the scalar reference.

pub mod config;
