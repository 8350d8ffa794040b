//! One reading thread: fill a chunk, queue its copy, fill the other one meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::{Piece, Shared, Source};
use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::memory::Pinned;
use crate::stream::{Event, Stream};

pub(super) struct Worker {
    shared: Arc<Shared>,
    stream: Stream,
    chunks: [Chunk; 2],
    next: usize,
}

enum Taken {
    Piece(Piece),
    Nothing,
    Over,
}

struct Chunk {
    pinned: Pinned,
    /// The copy from it is over.
    free: Event,
    /// Bytes on their way from it.
    on_the_way: u64,
}

impl Worker {
    pub(super) fn new(device: &Device, shared: Arc<Shared>, chunk_bytes: u64) -> Result<Self> {
        let chunk = || -> Result<Chunk> {
            let pinned = device.pinned(chunk_bytes.max(1), "an upload's chunk")?;
            Ok(Chunk { pinned, free: device.event(false)?, on_the_way: 0 })
        };
        Ok(Worker { shared, stream: device.stream()?, chunks: [chunk()?, chunk()?], next: 0 })
    }

    pub(super) fn run(mut self) {
        // Pieces taken whose copies were not seen through yet.
        let mut held = 0;
        loop {
            match self.take(held == 0) {
                Taken::Piece(piece) => {
                    held += 1;
                    // A panic must not leave `finish` waiting for this piece.
                    let carried = catch_unwind(AssertUnwindSafe(|| self.carry(&piece)));
                    let panicked = |_| Err(GpuError::Source("a reading thread panicked".to_owned()));
                    self.note(carried.unwrap_or_else(panicked));
                }
                Taken::Nothing => {
                    let settled = self.settle();
                    self.note(settled);
                    self.shared.lock().in_hand -= std::mem::take(&mut held);
                    self.shared.changed.notify_all();
                }
                Taken::Over => return,
            }
        }
    }

    /// The next piece; when there is none, waits for one, or answers at once.
    fn take(&self, may_wait: bool) -> Taken {
        let mut state = self.shared.lock();
        loop {
            if let Some(piece) = state.pieces.pop_front() {
                state.in_hand += 1;
                return Taken::Piece(piece);
            }
            if !may_wait {
                return Taken::Nothing;
            }
            if state.closed {
                return Taken::Over;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps the first failure, and drops what would follow it.
    fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            let mut state = self.shared.lock();
            state.failure.get_or_insert(error);
            state.pieces.clear();
        }
    }

    fn carry(&mut self, piece: &Piece) -> Result<()> {
        let chunk = &mut self.chunks[self.next];
        self.next = 1 - self.next;
        wait(&self.shared, chunk)?;
        let begun = Instant::now();
        let place = chunk.pinned.place(0, piece.to.bytes)?;
        // SAFETY: the chunk is free and has these bytes; the caller of `send` promised that the rows can be read.
        unsafe { gather(place, &piece.source) };
        self.shared.reading_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.stream.upload(piece.to, &chunk.pinned, 0)?;
        chunk.on_the_way = piece.to.bytes;
        chunk.free.record(&self.stream)
    }

    /// Waits for both chunks.
    fn settle(&mut self) -> Result<()> {
        self.chunks.iter_mut().try_for_each(|chunk| wait(&self.shared, chunk))
    }
}

/// Until the copy from the chunk is over.
fn wait(shared: &Shared, chunk: &mut Chunk) -> Result<()> {
    let begun = Instant::now();
    chunk.free.wait()?;
    shared.waiting_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    shared.sent_bytes.fetch_add(std::mem::take(&mut chunk.on_the_way), Ordering::Relaxed);
    Ok(())
}

/// # Safety
/// The rows can be read and `place` has room for all of them.
unsafe fn gather(place: *mut u8, source: &Source) {
    let (row_bytes, stride) = (source.row_bytes as usize, source.stride as usize);
    for row in 0..source.rows as usize {
        // SAFETY: the caller's promise.
        unsafe {
            place.add(row * row_bytes).copy_from_nonoverlapping(source.start.add(row * stride), row_bytes);
        }
    }
}
