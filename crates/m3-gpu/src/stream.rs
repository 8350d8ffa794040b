//! Streams (work in order) and events (points in a stream), with the copies and fills that a stream carries.
//!
//! Everything returns at once unless its name says otherwise. Kernels are launched through the generated stubs with
//! [`Stream::queue`]; graphs are in [`crate::graph`].

use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};

use crate::api::EventHandle;
use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::kernels::Queue;
use crate::launch::StreamHandle;
use crate::memory::{Pinned, Region, check};

/// Work that runs in order, beside other streams.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: StreamHandle,
    capturing: AtomicBool,
}

impl Stream {
    pub(crate) fn new(device: &Device, urgent: bool) -> Result<Self> {
        let handle = device.api().create_stream(urgent)?;
        Ok(Stream { device: device.clone(), handle, capturing: AtomicBool::new(false) })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The vendor's own.
    pub fn handle(&self) -> StreamHandle {
        self.handle
    }

    /// Where the generated stubs launch to.
    pub fn queue(&self) -> Queue<'_> {
        Queue { launcher: &self.device, stream: self.handle }
    }

    /// Blocks until everything put in so far has run.
    pub fn synchronize(&self) -> Result<()> {
        self.device.api().wait_stream(self.handle)
    }

    pub fn is_idle(&self) -> Result<bool> {
        self.device.api().stream_is_idle(self.handle)
    }

    /// Work put in later runs after `event`, whichever stream recorded it.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.device.api().stream_waits_for(self.handle, event.handle)
    }

    /// Copies all of `to.bytes` bytes from byte `offset` of pinned memory, which must not change until then.
    pub fn upload(&self, to: Region, from: &Pinned, offset: u64) -> Result<()> {
        let place = from.place(offset, to.bytes)?;
        // SAFETY: both ranges were checked; pinned memory waits for the device before it is freed.
        unsafe { self.device.api().copy_in(self.handle, to.pointer, place, to.bytes) }
    }

    /// Copies `values` to the front of `to`; they may be dropped or changed at once. For set-up, not for steps: the
    /// driver stages ordinary memory by itself, and a graph cannot hold such a copy.
    pub fn upload_values<T: NoUninit>(&self, to: Region, values: &[T]) -> Result<()> {
        self.refuse_in_capture("upload_values")?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        check("an upload's region", 0, bytes.len() as u64, to.bytes)?;
        // SAFETY: bounds were checked; memory that is not pinned is read before the call returns.
        unsafe { self.device.api().copy_in(self.handle, to.pointer, bytes.as_ptr(), bytes.len() as u64) }
    }

    /// Copies all of `from` to byte `offset` of pinned memory, to be read once the stream has passed this.
    pub fn download(&self, to: &Pinned, offset: u64, from: Region) -> Result<()> {
        let place = to.place(offset, from.bytes)?;
        // SAFETY: as in `upload`.
        unsafe { self.device.api().copy_out(self.handle, place, from.pointer, from.bytes) }
    }

    /// Waits for the stream and returns what `from` holds. For set-up, checks and conformance.
    pub fn download_values<T: NoUninit + AnyBitPattern + Zeroable>(&self, from: Region) -> Result<Vec<T>> {
        self.refuse_in_capture("download_values")?;
        let count = usize::try_from(from.bytes / size_of::<T>() as u64).unwrap_or(usize::MAX);
        let mut values = vec![T::zeroed(); count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        // SAFETY: `bytes` is at most as long as `from` and outlives the copy, which is waited for even if it fails.
        let copied = unsafe {
            self.device.api().copy_out(self.handle, bytes.as_mut_ptr(), from.pointer, bytes.len() as u64)
        };
        self.synchronize()?;
        copied.map(|()| values)
    }

    /// Copies all of `from` to the front of `to`, on the device. They must not overlap.
    pub fn copy(&self, to: Region, from: Region) -> Result<()> {
        check("a copy's target", 0, from.bytes, to.bytes)?;
        // SAFETY: the target is long enough; overlap gives wrong bytes on the device and nothing else.
        unsafe { self.device.api().copy_within(self.handle, to.pointer, from.pointer, from.bytes) }
    }

    /// Sets every byte: 0 to clear, 0xff to make every float a NaN.
    pub fn fill(&self, to: Region, byte: u8) -> Result<()> {
        // SAFETY: the region's own length.
        unsafe { self.device.api().fill(self.handle, to.pointer, byte, to.bytes) }
    }

    pub(crate) fn set_capturing(&self, capturing: bool) {
        self.capturing.store(capturing, Ordering::Relaxed);
    }

    fn refuse_in_capture(&self, function: &'static str) -> Result<()> {
        if self.capturing.load(Ordering::Relaxed) {
            let cause = "it is not a copy that a graph can repeat".to_owned();
            return Err(GpuError::Capture { function, device: self.device.info().ordinal, cause });
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.synchronize();
        self.device.api().destroy_stream(self.handle);
    }
}

/// A point in a stream, recorded as often as wanted; waits are for the latest record.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: EventHandle,
}

impl Event {
    pub(crate) fn new(device: &Device, timed: bool) -> Result<Self> {
        Ok(Event { device: device.clone(), handle: device.api().create_event(timed)? })
    }

    /// After everything put into `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.device.api().record_event(self.handle, stream.handle)
    }

    /// Blocks until the latest record has passed; an event that was never recorded has passed.
    pub fn wait(&self) -> Result<()> {
        self.device.api().wait_event(self.handle)
    }

    pub fn is_done(&self) -> Result<bool> {
        self.device.api().event_is_done(self.handle)
    }

    /// Milliseconds on the device from `start` to this, both timed and passed.
    pub fn since_ms(&self, start: &Event) -> Result<f32> {
        self.device.api().elapsed_ms(start.handle, self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.api().destroy_event(self.handle);
    }
}
