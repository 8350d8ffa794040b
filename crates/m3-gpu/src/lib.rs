//! What a GPU is to this engine, once for both vendors. No kernels, no model.
//!
//! Today: whether a vendor's driver is here and how many devices it has ([`driver`]), and the answer of a backend
//! whose kernels were not built ([`absent`]). Arena, streams, graphs and collectives are not here yet.

pub mod absent;
pub mod arguments;
#[allow(unsafe_code, reason = "calls two functions of the vendor's driver library")]
pub mod driver;
#[allow(unsafe_code, reason = "launches functions whose layout was compared")]
pub mod kernels;
#[allow(unsafe_code, reason = "declares the unsafe call that puts a kernel onto a device")]
pub mod launch;
pub mod pack;
