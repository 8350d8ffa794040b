//! The backend for NVIDIA Hopper (H100, H200).
//!
//! [`driver`] says whether it can serve here, `backend` takes the calls of the plugin line in their order, `serving` puts
//! steps into the stream, `ops` is the model as launches of the generated stubs in [`kernels`]. Kernels themselves
//! are under `kernels/`; no scheduling, no text and no HTTP here.

pub mod backend;
mod dims;
pub mod driver;
pub mod kernels;
mod ops;
mod pages;
mod penalties;
mod serving;
mod step;
mod taps;
pub mod timing;
mod upkeep;
mod weights;

use driver::Sm90Driver;
use m3_abi::LinkedBackend;

/// The driver, with the name `sm90`.
pub const DRIVER: Sm90Driver = Sm90Driver { pack: PACK };

/// For programs that link this backend in.
pub const LINKED: LinkedBackend = m3_abi::linked_backend!("sm90", DRIVER);

/// The kernel pack that `cargo xtask build --backend sm90` made; empty in a plain `cargo build`.
pub const PACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.pack"));
