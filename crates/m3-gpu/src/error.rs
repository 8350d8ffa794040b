//! What can go wrong on a device, and what the engine is told: a refusal before serving, or a dead instance.

use crate::driver::Absence;
use crate::launch::LaunchError;

/// Failures of this crate. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    #[error("no device: {0}")]
    Absent(#[from] Absence),
    #[error("driver {found} is too old: these kernels need {needed} or newer (driver {package} or newer)")]
    OldDriver { found: String, needed: String, package: &'static str },
    #[error("there is no device {wanted}; {count} are here")]
    NoSuchDevice { wanted: u32, count: u32 },
    #[error("{what} needs {wanted} bytes of device memory; device {device} has {free} of {total} free")]
    OutOfMemory { what: String, wanted: u64, device: u32, free: u64, total: u64 },
    #[error("{what} needs {wanted} bytes of pinned host memory and the system gives none ({cause})")]
    OutOfPinned { what: String, wanted: u64, cause: String },
    #[error("{what}: {wanted} bytes at offset {offset} do not lie in its {available}")]
    Bounds { what: String, offset: u64, wanted: u64, available: u64 },
    #[error("{what} is named twice in one arena")]
    NamedTwice { what: String },
    #[error("{function} answered {name} ({status}) on device {device}")]
    Driver { function: &'static str, name: String, status: i32, device: u32 },
    #[error("{function} failed on device {device} while a graph was captured: {cause}")]
    Capture { function: &'static str, device: u32, cause: String },
    #[error("ticket {ticket} was never given; the newest is {newest}")]
    NoTicket { ticket: u64, newest: u64 },
    #[error("step {step} was begun while step {open} is still open")]
    StepOpen { step: u64, open: u64 },
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("collectives: {0}")]
    Collective(String),
    #[error("collective {what} of rank {rank} did not finish within {limit_ms} ms and was aborted")]
    CollectiveTimeout { what: &'static str, rank: u32, limit_ms: u64 },
    #[error("reading weights: {0}")]
    Source(String),
    #[error("device {device} cannot reach the memory of device {peer}")]
    NoPeer { device: u32, peer: u32 },
}

pub type Result<T, E = GpuError> = std::result::Result<T, E>;

impl GpuError {
    /// Nothing has changed and serving is merely not possible here, as opposed to a dead device.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            GpuError::Absent(_)
                | GpuError::OldDriver { .. }
                | GpuError::NoSuchDevice { .. }
                | GpuError::OutOfMemory { .. }
                | GpuError::OutOfPinned { .. }
                | GpuError::NoPeer { .. }
        )
    }
}

impl From<GpuError> for m3_abi::Error {
    fn from(error: GpuError) -> Self {
        if error.is_refusal() {
            m3_abi::Error::Unsupported(error.to_string())
        } else {
            m3_abi::Error::Fatal(error.to_string())
        }
    }
}
