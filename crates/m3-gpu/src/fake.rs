//! A double of a driver, on host memory: runs host code that needs a device, in order, with faults on demand.
//!
//! Work is really queued: with [`Progress::Lazy`] nothing runs until somebody waits, so that a buffer reused too early or a
//! missing event shows as a wrong result. Kernels are closures. It knows nothing of time or speed, and what passes here
//! has not run on a GPU.

mod calls;
mod capture;
mod kernel;
mod memory;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::AnyBitPattern;

use crate::api::DeviceInfo;
use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::launch::DevicePointer;

pub use kernel::{Call, LaunchRecord};

/// When queued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At once.
    Eager,
    /// When somebody waits for it; a question (`is_done`, `is_idle`) runs one piece.
    Lazy,
}

/// Something that goes wrong. Counts start at 1 and count calls from the device's making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This allocation finds no memory.
    OutOfMemory { allocation: u64 },
    /// This pinned allocation finds no memory.
    OutOfPinned { allocation: u64 },
    /// This launch is refused; the device lives on.
    Launch { launch: u64 },
    /// The device is lost when this piece of work runs: every later call fails.
    Lost { work: u64 },
}

/// What is alive: all zero once everything was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub allocations: usize,
    pub pinned: usize,
    pub streams: usize,
    pub events: usize,
    pub modules: usize,
    pub recordings: usize,
    pub graphs: usize,
}

/// The double; clones are the same device.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    info: DeviceInfo,
    progress: Progress,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    memory: memory::Memory,
    pinned: memory::PinnedPages,
    queues: queue::Queues,
    kernels: kernel::Kernels,
    capture: Option<capture::Capture>,
    recordings: HashMap<u64, Arc<[queue::Work]>>,
    graphs: HashMap<u64, Arc<[queue::Work]>>,
    faults: Vec<Fault>,
    next_handle: u64,
    lost: bool,
}

impl FakeDevice {
    /// A small Hopper with `memory_bytes` of memory.
    pub fn new(memory_bytes: u64, progress: Progress) -> Self {
        let info = DeviceInfo {
            ordinal: 0,
            name: "double of an H200".to_owned(),
            arch: "sm_90".to_owned(),
            capability: (9, 0),
            processors: 132,
            memory_bytes,
            l2_bytes: 60 << 20,
            shared_bytes: 227 << 10,
            driver: "13.0".to_owned(),
        };
        Self::with_info(info, progress)
    }

    /// Any device.
    pub fn with_info(info: DeviceInfo, progress: Progress) -> Self {
        let mut state = State { next_handle: 1, ..State::default() };
        state.memory.capacity = info.memory_bytes;
        FakeDevice { shared: Arc::new(Shared { info, progress, state: Mutex::new(state) }) }
    }

    /// The device as backends hold it.
    pub fn device(&self) -> Device {
        Device::new(Box::new(self.clone()))
    }

    /// Adds a fault to come.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Every module now has this kernel; `argument_bytes` are the sizes of its parameters, in order.
    pub fn add_kernel(
        &self,
        symbol: &str,
        argument_bytes: &[usize],
        body: impl Fn(&mut Call<'_>) -> Result<()> + Send + Sync + 'static,
    ) {
        self.state().kernels.add(symbol, argument_bytes, Box::new(body));
    }

    /// From now on modules have every symbol that is asked for; unknown ones do nothing when launched.
    pub fn accept_all_kernels(&self) {
        self.state().kernels.accept_all = true;
    }

    /// Kernels that have run, in order.
    pub fn launches(&self) -> Vec<LaunchRecord> {
        self.state().queues.launches.clone()
    }

    /// Pieces of work that have run.
    pub fn work_done(&self) -> u64 {
        self.state().queues.clock
    }

    pub fn live(&self) -> Live {
        let state = self.state();
        Live {
            allocations: state.memory.len(),
            pinned: state.pinned.len(),
            streams: state.queues.streams.len(),
            events: state.queues.events.len(),
            modules: state.kernels.modules.len(),
            recordings: state.recordings.len(),
            graphs: state.graphs.len(),
        }
    }

    /// What device memory holds right now, whatever is still queued.
    pub fn peek<T: AnyBitPattern>(&self, at: DevicePointer, count: usize) -> Result<Vec<T>> {
        let state = self.state();
        let bytes =
            state.memory.read(at, (count * size_of::<T>()) as u64).map_err(|bad| self.illegal(bad))?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, function: &'static str, name: &str, status: i32) -> GpuError {
        GpuError::Driver { function, name: name.to_owned(), status, device: self.shared.info.ordinal }
    }

    fn illegal(&self, bad: memory::BadAddress) -> GpuError {
        self.fail("access", &format!("CUDA_ERROR_ILLEGAL_ADDRESS at {:#x}", bad.0), 700)
    }
}

impl State {
    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Takes the fault out of the list when it is due.
    fn due(&mut self, fault: Fault) -> bool {
        let before = self.faults.len();
        self.faults.retain(|waiting| *waiting != fault);
        self.faults.len() != before
    }
}
