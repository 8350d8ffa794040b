//! Step arrays: laid out once, written to pinned memory, sent to the device with one copy a step.
//!
//! The device side has fixed addresses, as graphs need; the host side is doubled, so that the next step is written while
//! the copy of the last one may still be in flight.

use std::marker::PhantomData;

use bytemuck::NoUninit;

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::launch::DevicePointer;
use crate::memory::{Pinned, Region, check};
use crate::stream::{Event, Stream};

/// Every array starts at a multiple of this, as the kernels' pointers must.
const ALIGNMENT: u64 = 16;

/// Where each array of a step lies, the same on both sides.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    names: Vec<&'static str>,
    end: u64,
}

/// One array of a [`Layout`].
#[derive(Debug)]
pub struct Field<T> {
    index: usize,
    offset: u64,
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> Field<T> {
    /// Elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Of the array, when the layout starts at `start`.
    pub fn pointer(&self, start: Region) -> DevicePointer {
        start.pointer.offset(self.offset)
    }

    /// The array on the device, when the layout starts at `start`.
    pub fn region(&self, start: Region) -> Result<Region> {
        start.part(self.offset, (self.count * size_of::<T>()) as u64)
    }
}

impl Layout {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an array of `count` elements.
    pub fn field<T: NoUninit>(&mut self, name: &'static str, count: usize) -> Field<T> {
        let offset = self.end.next_multiple_of(ALIGNMENT);
        self.end = offset + (count * size_of::<T>()) as u64;
        self.names.push(name);
        Field { index: self.names.len() - 1, offset, count, element: PhantomData }
    }

    /// Of the whole.
    pub fn bytes(&self) -> u64 {
        self.end.next_multiple_of(ALIGNMENT)
    }
}

/// Pinned memory for as many steps as are in flight.
#[derive(Debug)]
pub struct Staging {
    slots: Vec<(Pinned, Event)>,
    next: usize,
}

impl Staging {
    /// `slots` buffers of the largest layout's `bytes`.
    pub fn new(device: &Device, bytes: u64, slots: usize) -> Result<Self> {
        let slot = || Ok((device.pinned(bytes, "step arrays")?, device.event(false)?));
        Ok(Staging { slots: (0..slots.max(1)).map(|_| slot()).collect::<Result<_>>()?, next: 0 })
    }

    /// The next buffer in turn, for arrays of `layout`. Blocks until the copy that was last sent from it is over.
    /// It still holds what was written then: write every array that the step reads.
    pub fn begin<'a>(&'a mut self, layout: &'a Layout) -> Result<StepArrays<'a>> {
        let slot = self.next;
        self.next = (slot + 1) % self.slots.len();
        let (pinned, sent) = &mut self.slots[slot];
        check("step arrays", 0, layout.bytes(), pinned.bytes())?;
        sent.wait()?;
        Ok(StepArrays { pinned, sent, layout })
    }
}

/// Arrays being written.
#[derive(Debug)]
pub struct StepArrays<'a> {
    pinned: &'a mut Pinned,
    sent: &'a Event,
    layout: &'a Layout,
}

impl StepArrays<'_> {
    /// Writes the front of an array.
    pub fn write<T: NoUninit>(&mut self, field: Field<T>, values: &[T]) -> Result<()> {
        self.write_at(field, 0, values)
    }

    /// Writes elements `first..`.
    pub fn write_at<T: NoUninit>(&mut self, field: Field<T>, first: usize, values: &[T]) -> Result<()> {
        self.fits(field, first, values.len())?;
        self.pinned.write(field.offset + (first * size_of::<T>()) as u64, values)
    }

    /// Sets elements `first..` to one value: the padding of a bucket.
    pub fn pad<T: NoUninit>(&mut self, field: Field<T>, first: usize, value: T) -> Result<()> {
        let rest = vec![value; field.count.saturating_sub(first)];
        self.write_at(field, first, &rest)
    }

    /// One copy of the whole layout to the front of `to`. The buffer is free again when the stream has passed it.
    pub fn send(self, stream: &Stream, to: Region) -> Result<()> {
        stream.upload(to.part(0, self.layout.bytes())?, self.pinned, 0)?;
        self.sent.record(stream)
    }

    fn fits<T>(&self, field: Field<T>, first: usize, count: usize) -> Result<()> {
        if first.checked_add(count).is_some_and(|end| end <= field.count) {
            return Ok(());
        }
        let size = size_of::<T>() as u64;
        Err(GpuError::Bounds {
            what: self.layout.names.get(field.index).map_or("step arrays", |name| name).to_owned(),
            offset: (first as u64).saturating_mul(size),
            wanted: (count as u64).saturating_mul(size),
            available: field.count as u64 * size,
        })
    }
}
