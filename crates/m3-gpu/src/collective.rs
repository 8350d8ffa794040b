//! Sums and gathers over the ranks of one model, through NCCL, each with a deadline.
//!
//! The library is opened by hand when it is first needed, so that one device needs none. Communicators do not block: every
//! call is followed until NCCL says that it is through, and one that is not in time is aborted with the rank's number. When to
//! sum, and in which order ranks join, is the backend's.

mod library;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::memory::{Region, check};
use crate::stream::{Event, Stream};
use library::{Config, Status};

pub use library::{ID_BYTES, Library};

/// What is summed or gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U8,
    I32,
    F32,
    Bf16,
}

impl Element {
    pub fn bytes(self) -> u64 {
        match self {
            Element::U8 => 1,
            Element::I32 | Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }

    /// `ncclDataType_t`.
    fn code(self) -> i32 {
        match self {
            Element::U8 => 1,
            Element::I32 => 2,
            Element::F32 => 7,
            Element::Bf16 => 9,
        }
    }
}

/// `ncclSum`.
const SUM: i32 = 0;
/// Between two looks at something that is not through.
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// One rank's end of a group.
#[derive(Debug)]
pub struct Communicator {
    library: Arc<Library>,
    device: Device,
    handle: Handle,
    rank: u32,
    limit: Duration,
    /// Aborted or broken: nothing more is asked of it.
    dead: bool,
}

#[derive(Clone, Copy, Debug)]
struct Handle(*mut c_void);

// SAFETY: NCCL lets a communicator be used from any thread, one at a time; the methods that use it take `&mut`.
unsafe impl Send for Handle {}

impl Communicator {
    /// Joins the group of `world` ranks that `id` (of [`Library::unique_id`], the same for all) stands for. Blocks until all
    /// have joined, `limit` at most; the same limit holds for every later call.
    pub fn join(
        library: &Arc<Library>,
        device: &Device,
        id: &[u8],
        (rank, world): (u32, u32),
        limit: Duration,
    ) -> Result<Self> {
        let Ok(id) = <[u8; ID_BYTES]>::try_from(id) else {
            let sentence = format!("the group's id has {} bytes; NCCL's have {ID_BYTES}", id.len());
            return Err(GpuError::Collective(sentence));
        };
        if rank >= world {
            return Err(GpuError::Collective(format!("rank {rank} cannot join a group of {world}")));
        }
        device.make_current()?;
        let (handle, status) = library.join(id, rank, world, &Config::without_blocking());
        let handle = Handle(handle);
        let mut joined = Communicator {
            library: Arc::clone(library),
            device: device.clone(),
            handle,
            rank,
            limit,
            dead: false,
        };
        joined.follow("join", status)?;
        Ok(joined)
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Puts the sum of all ranks' `from` into every rank's `to`, in the stream. The two may be the same region.
    pub fn all_reduce(&mut self, stream: &Stream, to: Region, from: Region, element: Element) -> Result<()> {
        check("a sum's target", 0, from.bytes, to.bytes)?;
        self.enter("all-reduce")?;
        let count = (from.bytes / element.bytes()) as usize;
        // SAFETY: both regions hold `count` elements; the communicator is alive.
        let status = unsafe {
            (self.library.all_reduce)(
                from.pointer.0 as *const c_void,
                to.pointer.0 as *mut c_void,
                count,
                element.code(),
                SUM,
                self.handle.0,
                stream.handle().0 as *mut c_void,
            )
        };
        self.follow("all-reduce", status)
    }

    /// Puts all ranks' `from`, in rank order, into every rank's `to`, in the stream.
    pub fn all_gather(&mut self, stream: &Stream, to: Region, from: Region, world: u32) -> Result<()> {
        check("a gather's target", 0, from.bytes.saturating_mul(world.into()), to.bytes)?;
        self.enter("all-gather")?;
        // SAFETY: `to` holds `world` times the bytes of `from`; the communicator is alive.
        let status = unsafe {
            (self.library.all_gather)(
                from.pointer.0 as *const c_void,
                to.pointer.0 as *mut c_void,
                from.bytes as usize,
                Element::U8.code(),
                self.handle.0,
                stream.handle().0 as *mut c_void,
            )
        };
        self.follow("all-gather", status)
    }

    /// Blocks until `event`, recorded behind collectives, has passed. When another rank never comes, the communicator is
    /// aborted after the limit, so that the stream is free again, and the error names this rank.
    pub fn wait(&mut self, what: &'static str, event: &Event) -> Result<()> {
        let begun = Instant::now();
        while !event.is_done()? {
            let status = self.asynchronous();
            if status != Status::SUCCESS && status != Status::IN_PROGRESS {
                return Err(self.broken(what, status));
            }
            if begun.elapsed() > self.limit {
                return Err(self.too_late(what));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn enter(&self, what: &'static str) -> Result<()> {
        if self.dead {
            let sentence = format!("{what} of rank {} after its group was aborted", self.rank);
            return Err(GpuError::Collective(sentence));
        }
        self.device.make_current()
    }

    /// Until the call is through, or too late.
    fn follow(&mut self, what: &'static str, status: i32) -> Result<()> {
        let begun = Instant::now();
        let mut status = Status(status);
        while status == Status::IN_PROGRESS {
            if begun.elapsed() > self.limit {
                return Err(self.too_late(what));
            }
            std::thread::sleep(LOOK_EVERY);
            status = self.asynchronous();
        }
        if status == Status::SUCCESS { Ok(()) } else { Err(self.broken(what, status)) }
    }

    fn asynchronous(&self) -> Status {
        let mut status = Status::SUCCESS.0;
        // SAFETY: the communicator is alive; writes a local.
        let asked = unsafe { (self.library.get_async_error)(self.handle.0, &raw mut status) };
        Status(if asked == Status::SUCCESS.0 { status } else { asked })
    }

    fn broken(&mut self, what: &'static str, status: Status) -> GpuError {
        let said = self.library.describe(status);
        self.abort();
        GpuError::Collective(format!("{what} of rank {}: {said}", self.rank))
    }

    fn too_late(&mut self, what: &'static str) -> GpuError {
        self.abort();
        let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        GpuError::CollectiveTimeout { what, rank: self.rank, limit_ms }
    }

    fn abort(&mut self) {
        if !std::mem::replace(&mut self.dead, true) && !self.handle.0.is_null() {
            // SAFETY: alive until now, and not used afterwards.
            unsafe { (self.library.abort)(self.handle.0) };
        }
    }
}

impl Drop for Communicator {
    /// Leaves without waiting for the others: who drops this has waited for what it needs.
    fn drop(&mut self) {
        let _ = self.device.make_current();
        self.abort();
    }
}
