//! Memory of the device and page-locked memory of the host: who owns it and which part of it is meant.
//!
//! A [`Region`] is an address and a length, copied freely, as step code needs it; it does not keep its owner alive. A stale
//! one is a wrong answer or an error of the device, never a fault of the host's memory.

use bytemuck::{AnyBitPattern, NoUninit};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::launch::DevicePointer;

/// A piece of device memory. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    pub pointer: DevicePointer,
    pub bytes: u64,
}

impl Region {
    /// Nothing, at address 0.
    pub const EMPTY: Region = Region { pointer: DevicePointer::NULL, bytes: 0 };

    /// `bytes` bytes from `offset` on; refused when they do not lie in this region.
    pub fn part(&self, offset: u64, bytes: u64) -> Result<Region> {
        check("a region", offset, bytes, self.bytes)?;
        Ok(Region { pointer: self.pointer.offset(offset), bytes })
    }

    /// `count` elements from element `first` on.
    pub fn elements<T>(&self, first: u64, count: u64) -> Result<Region> {
        let size = size_of::<T>() as u64;
        self.part(first.saturating_mul(size), count.saturating_mul(size))
    }
}

/// Device memory that is freed when dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Device,
    region: Region,
}

impl DeviceMemory {
    pub(crate) fn new(device: &Device, bytes: u64, what: &str) -> Result<Self> {
        let pointer = device.api().allocate(bytes.max(1), what)?;
        Ok(DeviceMemory { device: device.clone(), region: Region { pointer, bytes } })
    }

    pub fn region(&self) -> Region {
        self.region
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A device that is lost cannot be waited for, and then nothing uses the memory any more.
        let _ = self.device.synchronize();
        // SAFETY: allocated by this device in `new`, freed here only; the device is idle.
        unsafe { self.device.api().free(self.region.pointer) };
    }
}

/// Page-locked host memory that is freed when dropped.
///
/// The device reads and writes it while a copy is in flight: whoever starts copies orders the accesses here after them
/// with events, as [`crate::staging`] does.
#[derive(Debug)]
pub struct Pinned {
    device: Device,
    start: *mut u8,
    bytes: u64,
    what: String,
}

// SAFETY: plain memory behind a pointer; `write` takes the only reference, and what the device does meanwhile is
// ordered by events as on one thread.
unsafe impl Send for Pinned {}
// SAFETY: `&Pinned` only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(device: &Device, bytes: u64, what: &str) -> Result<Self> {
        let start = device.api().allocate_pinned(bytes.max(1), what)?;
        // SAFETY: just allocated with this size.
        unsafe { start.write_bytes(0, host_len(bytes.max(1))) };
        Ok(Pinned { device: device.clone(), start, bytes, what: what.to_owned() })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies `values` to byte `offset`.
    pub fn write<T: NoUninit>(&mut self, offset: u64, values: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        check(&self.what, offset, bytes.len() as u64, self.bytes)?;
        // SAFETY: in bounds by the check; `values` is another allocation or part of one.
        unsafe { self.start.add(host_len(offset)).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `values.len()` elements from byte `offset`.
    pub fn read<T: NoUninit + AnyBitPattern>(&self, offset: u64, values: &mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        check(&self.what, offset, bytes.len() as u64, self.bytes)?;
        // SAFETY: in bounds by the check; `values` is another allocation.
        unsafe { self.start.add(host_len(offset)).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// The address of `bytes` bytes at `offset`.
    pub(crate) fn place(&self, offset: u64, bytes: u64) -> Result<*mut u8> {
        check(&self.what, offset, bytes, self.bytes)?;
        // SAFETY: in bounds by the check.
        Ok(unsafe { self.start.add(host_len(offset)) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.device.synchronize();
        // SAFETY: allocated by this device in `new`, freed here only; no copy is in flight on an idle (or lost) device.
        unsafe { self.device.api().free_pinned(self.start) };
    }
}

/// Sizes of host memory that was allocated fit `usize`.
fn host_len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a size of this machine's memory")
}

pub(crate) fn check(what: &str, offset: u64, wanted: u64, available: u64) -> Result<()> {
    match offset.checked_add(wanted) {
        Some(end) if end <= available => Ok(()),
        _ => Err(GpuError::Bounds { what: what.to_owned(), offset, wanted, available }),
    }
}
