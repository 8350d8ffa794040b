//! The double's streams and events: work in order, events between streams, one piece run at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::kernel::{Call, Kernel, LaunchRecord};
use super::memory::{BadAddress, Memory};
use crate::error::GpuError;
use crate::launch::{DevicePointer, Geometry};

/// One piece of stream work.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// From pinned memory, read when it runs.
    CopyIn {
        to: DevicePointer,
        from: HostAddress,
        bytes: u64,
    },
    /// From ordinary memory, read when it was queued.
    Write {
        to: DevicePointer,
        values: Arc<[u8]>,
    },
    CopyOut {
        to: HostAddress,
        from: DevicePointer,
        bytes: u64,
    },
    CopyWithin {
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
    },
    Fill {
        to: DevicePointer,
        value: u8,
        bytes: u64,
    },
    Launch {
        kernel: Arc<Kernel>,
        geometry: Geometry,
        arguments: Arc<[Vec<u8>]>,
    },
    Graph(Arc<[Work]>),
    Record {
        event: u64,
        count: u64,
    },
    WaitFor {
        event: u64,
        count: u64,
    },
}

/// Host memory that a queued copy will touch; its owner keeps it alive until the device is idle.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostAddress(pub(super) *mut u8);

// SAFETY: only dereferenced under the state's lock, while the memory is alive.
unsafe impl Send for HostAddress {}
// SAFETY: as above.
unsafe impl Sync for HostAddress {}

impl Work {
    /// Equal for work that a graph update may replace.
    pub(super) fn same_node(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Launch { kernel, .. }, Work::Launch { kernel: other, .. }) => Arc::ptr_eq(kernel, other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Why a piece of work killed the device.
#[derive(Debug)]
pub(super) enum Death {
    BadAddress(BadAddress),
    Kernel(GpuError),
}

impl From<BadAddress> for Death {
    fn from(bad: BadAddress) -> Self {
        Death::BadAddress(bad)
    }
}

#[derive(Debug, Default)]
pub(super) struct EventState {
    /// Records queued, and records that have run.
    pub(super) recorded: u64,
    passed: u64,
    stream: u64,
    at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) streams: HashMap<u64, VecDeque<Work>>,
    pub(super) events: HashMap<u64, EventState>,
    pub(super) launches: Vec<LaunchRecord>,
    /// Pieces of work that have run: also the time of the double, in microseconds.
    pub(super) clock: u64,
}

impl Queues {
    pub(super) fn push(&mut self, stream: u64, work: Work) {
        self.streams.entry(stream).or_default().push_back(work);
    }

    pub(super) fn record(&mut self, event: u64, stream: u64) {
        let state = self.events.entry(event).or_default();
        state.recorded += 1;
        state.stream = stream;
        let count = state.recorded;
        self.push(stream, Work::Record { event, count });
    }

    pub(super) fn wait_for(&mut self, stream: u64, event: u64) {
        let count = self.events.get(&event).map_or(0, |state| state.recorded);
        self.push(stream, Work::WaitFor { event, count });
    }

    pub(super) fn is_passed(&self, event: u64) -> bool {
        self.events.get(&event).is_none_or(|state| state.passed >= state.recorded)
    }

    /// The stream that an event was last recorded in.
    pub(super) fn stream_of(&self, event: u64) -> u64 {
        self.events.get(&event).map_or(0, |state| state.stream)
    }

    pub(super) fn is_idle(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_none_or(VecDeque::is_empty)
    }

    /// Microseconds between two passed records.
    pub(super) fn between(&self, start: u64, end: u64) -> Option<u64> {
        let at = |event| self.events.get(&event).filter(|state| state.passed > 0).map(|state| state.at);
        Some(at(end)?.saturating_sub(at(start)?))
    }

    /// The next stream whose front can run, starting from `stream` and following the events that it waits for.
    pub(super) fn runnable(&self, stream: u64) -> Option<u64> {
        match self.streams.get(&stream)?.front()? {
            Work::WaitFor { event, count } => {
                let state = self.events.get(event);
                match state {
                    // Recorded before the wait was queued, so this ends.
                    Some(state) if state.passed < *count => {
                        self.runnable(self.holder(*event, *count).unwrap_or(state.stream))
                    }
                    _ => Some(stream),
                }
            }
            _ => Some(stream),
        }
    }

    /// The stream in which this record of the event is queued.
    fn holder(&self, event: u64, count: u64) -> Option<u64> {
        let is_it =
            |work: &Work| matches!(work, Work::Record { event: e, count: c } if (*e, *c) == (event, count));
        self.streams.iter().find(|(_, queue)| queue.iter().any(is_it)).map(|(stream, _)| *stream)
    }

    pub(super) fn pop(&mut self, stream: u64) -> Option<Work> {
        self.streams.get_mut(&stream)?.pop_front()
    }

    pub(super) fn run(&mut self, work: &Work, memory: &mut Memory) -> Result<(), Death> {
        self.clock += 1;
        match work {
            Work::CopyIn { to, from, bytes } => {
                let place = memory.place(*to, *bytes)?;
                // SAFETY: pinned memory is freed only when the device is idle; it holds `bytes` bytes from here on, as was
                // checked when the copy was queued.
                unsafe { from.0.copy_to_nonoverlapping(place.as_mut_ptr(), place.len()) };
            }
            Work::Write { to, values } => memory.place(*to, values.len() as u64)?.copy_from_slice(values),
            Work::CopyOut { to, from, bytes } => {
                let values = memory.read(*from, *bytes)?;
                // SAFETY: as for `CopyIn`.
                unsafe { to.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
            }
            Work::CopyWithin { to, from, bytes } => {
                let values = memory.read(*from, *bytes)?.to_vec();
                memory.place(*to, *bytes)?.copy_from_slice(&values);
            }
            Work::Fill { to, value, bytes } => memory.place(*to, *bytes)?.fill(*value),
            Work::Launch { kernel, geometry, arguments } => {
                self.launches.push(LaunchRecord { symbol: kernel.symbol.clone(), geometry: *geometry });
                let mut call = Call { geometry: *geometry, arguments, memory };
                (kernel.body)(&mut call).map_err(Death::Kernel)?;
            }
            Work::Graph(nodes) => nodes.iter().try_for_each(|node| self.run(node, memory))?,
            Work::Record { event, count } => {
                if let Some(state) = self.events.get_mut(event) {
                    state.passed = *count;
                    state.at = self.clock;
                }
            }
            Work::WaitFor { .. } => {}
        }
        Ok(())
    }
}
