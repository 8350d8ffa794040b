//! The backend for NVIDIA Hopper (H100, H200).
//!
//! It has no kernels yet: the plugin builds and loads anywhere, and `probe` says what is missing.

pub mod kernels;

use m3_abi::LinkedBackend;
use m3_gpu::absent::Absent;
use m3_gpu::driver::Vendor;

/// The driver, with the name `sm90`.
pub const DRIVER: Absent = Absent { name: "sm90", version: env!("CARGO_PKG_VERSION"), vendor: Vendor::Cuda };

/// For programs that link this backend in.
pub const LINKED: LinkedBackend = m3_abi::linked_backend!("sm90", DRIVER);

/// The kernel pack that `cargo xtask build --backend sm90` made; empty in a plain `cargo build`.
pub static PACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.pack"));
