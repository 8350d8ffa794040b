//! The CPU backend: the embedded default and the oracle that others are compared with.
//!
//! Weights are used where they lie in the mapped checkpoint; several ranks are threads of one process. No scheduling, no
//! text and no HTTP here.

pub mod kernels;
