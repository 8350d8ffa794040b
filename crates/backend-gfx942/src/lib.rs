//! The backend for AMD CDNA 3 (MI300X, MI325X).
//!
//! It has no kernels yet: the plugin builds and loads anywhere, and `probe` says what is missing.

use m3_abi::LinkedBackend;
use m3_gpu::absent::Absent;
use m3_gpu::driver::Vendor;

/// The driver, with the name `gfx942`.
pub const DRIVER: Absent = Absent { name: "gfx942", version: env!("CARGO_PKG_VERSION"), vendor: Vendor::Hip };

/// For programs that link this backend in.
pub const LINKED: LinkedBackend = m3_abi::linked_backend!("gfx942", DRIVER);
