//! The double's address space: device memory by made-up addresses, and the pinned pages of the host.

use std::alloc::Layout;
use std::collections::BTreeMap;

use crate::launch::DevicePointer;

/// Addresses of device memory, far from anything on the host.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000_0000;
const PAGE: u64 = 4096;
/// What fresh memory holds.
const UNDEFINED: u8 = 0xcd;

/// An address outside every allocation, or a range that leaves its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadAddress(pub(super) u64);

/// Device memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) capacity: u64,
    allocations: BTreeMap<u64, Vec<u8>>,
    used: u64,
    /// Allocations so far.
    pub(super) count: u64,
    next: u64,
}

impl Memory {
    pub(super) fn len(&self) -> usize {
        self.allocations.len()
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity - self.used
    }

    /// `None` when it does not fit.
    pub(super) fn allocate(&mut self, bytes: u64) -> Option<DevicePointer> {
        if bytes > self.free_bytes() {
            return None;
        }
        let address = self.next.max(FIRST_ADDRESS);
        // A page between allocations, so that running over the end of one never reaches the next.
        self.next = address + bytes.next_multiple_of(PAGE) + PAGE;
        self.used += bytes;
        self.allocations.insert(address, vec![UNDEFINED; bytes as usize]);
        Some(DevicePointer(address))
    }

    pub(super) fn free(&mut self, pointer: DevicePointer) {
        let gone = self.allocations.remove(&pointer.0);
        self.used -= gone.map_or(0, |memory| memory.len() as u64);
    }

    pub(super) fn read(&self, at: DevicePointer, bytes: u64) -> Result<&[u8], BadAddress> {
        let bad = BadAddress(at.0);
        if bytes == 0 {
            return Ok(&[]);
        }
        let (start, memory) = self.allocations.range(..=at.0).next_back().ok_or(bad)?;
        let first = (at.0 - start) as usize;
        first.checked_add(bytes as usize).and_then(|end| memory.get(first..end)).ok_or(bad)
    }

    pub(super) fn place(&mut self, at: DevicePointer, bytes: u64) -> Result<&mut [u8], BadAddress> {
        let bad = BadAddress(at.0);
        if bytes == 0 {
            return Ok(&mut []);
        }
        let (start, memory) = self.allocations.range_mut(..=at.0).next_back().ok_or(bad)?;
        let first = (at.0 - start) as usize;
        first.checked_add(bytes as usize).and_then(|end| memory.get_mut(first..end)).ok_or(bad)
    }
}

/// Page-locked host memory, told apart from ordinary memory by address.
#[derive(Debug, Default)]
pub(super) struct PinnedPages {
    blocks: BTreeMap<usize, Layout>,
    /// Allocations so far.
    pub(super) count: u64,
}

impl PinnedPages {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Option<*mut u8> {
        let layout = Layout::from_size_align(usize::try_from(bytes).ok()?, PAGE as usize).ok()?;
        // SAFETY: the caller never asks for 0 bytes; the allocation is checked below.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        self.blocks.insert(start as usize, layout);
        Some(start)
    }

    pub(super) fn free(&mut self, start: *mut u8) {
        if let Some(layout) = self.blocks.remove(&(start as usize)) {
            // SAFETY: allocated above with this layout, removed from the list with it.
            unsafe { std::alloc::dealloc(start, layout) };
        }
    }

    /// All of the range is pinned.
    pub(super) fn holds(&self, start: *const u8, bytes: u64) -> bool {
        let address = start as usize;
        let block = self.blocks.range(..=address).next_back();
        block.is_some_and(|(first, layout)| address + bytes as usize <= first + layout.size())
    }
}
