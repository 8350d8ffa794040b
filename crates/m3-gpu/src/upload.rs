//! Weights from a mapped file to the device, at the speed at which their bytes come.
//!
//! Reading a mapped page, and first of all faulting it in, is work of a CPU core; the copy to the device is not. So several
//! threads fill pinned chunks, each with a stream of its own and two chunks in turn, while the device copies the filled
//! ones. What a tensor is and where it goes is the caller's; nothing is converted.

mod worker;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::memory::Region;

/// How much to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadSettings {
    /// Threads that read, each with two chunks.
    pub threads: usize,
    /// Bytes of a chunk: large enough that a copy's start does not count, small enough that all threads have some.
    pub chunk_bytes: u64,
}

impl Default for UploadSettings {
    /// One reader reaches a fraction of what a device takes in; eight of them are near it, and no more than the machine has.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        UploadSettings { threads: cores.clamp(1, 8), chunk_bytes: 8 << 20 }
    }
}

/// Equal rows of host memory, `stride` bytes apart: a whole tensor, or the columns that a shard keeps.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub start: *const u8,
    pub rows: u64,
    pub row_bytes: u64,
    /// From one row to the next, at least `row_bytes`.
    pub stride: u64,
}

impl Source {
    /// Bytes without gaps.
    pub fn contiguous(start: *const u8, bytes: u64) -> Self {
        Source { start, rows: 1, row_bytes: bytes, stride: bytes }
    }

    pub fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes)
    }
}

/// What was sent, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UploadReport {
    pub bytes: u64,
    pub elapsed: Duration,
    /// Summed over the threads: filling chunks (with the file's own delays), and waiting for the device to take them.
    pub reading: Duration,
    pub waiting: Duration,
}

impl UploadReport {
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Threads that carry bytes to one device.
#[derive(Debug)]
pub struct Uploader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    settings: UploadSettings,
    begun: Instant,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is a piece, or it is over.
    changed: Condvar,
    sent_bytes: AtomicU64,
    reading_ns: AtomicU64,
    waiting_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// Pieces taken whose copies were not seen through yet.
    in_hand: usize,
    /// The first one; nothing more is sent after it.
    failure: Option<GpuError>,
    closed: bool,
}

/// A part of a source that fits a chunk: whole rows, or a stretch of one.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    to: Region,
}

// SAFETY: the caller of `send` promised that the memory may be read from any thread until `finish` or the drop.
unsafe impl Send for Piece {}

impl Uploader {
    /// Starts the threads and pins their chunks.
    pub fn new(device: &Device, settings: UploadSettings) -> Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            sent_bytes: AtomicU64::new(0),
            reading_ns: AtomicU64::new(0),
            waiting_ns: AtomicU64::new(0),
        });
        let begun = Instant::now();
        let mut uploader = Uploader { shared, threads: Vec::new(), settings, begun };
        for number in 0..settings.threads.max(1) {
            let worker = worker::Worker::new(device, Arc::clone(&uploader.shared), settings.chunk_bytes)?;
            let name = format!("upload-{number}");
            let thread = std::thread::Builder::new().name(name).spawn(move || worker.run());
            let thread = thread.map_err(|error| GpuError::Source(format!("a thread to upload: {error}")))?;
            uploader.threads.push(thread);
        }
        Ok(uploader)
    }

    /// Queues the rows of `source`, to lie without gaps from the front of `to`, and returns at once. An error may be an
    /// earlier piece's.
    ///
    /// # Safety
    /// The rows can be read, from any thread, until [`Uploader::finish`] has returned or the uploader was dropped.
    pub unsafe fn send(&self, source: Source, to: Region) -> Result<()> {
        if source.stride < source.row_bytes && source.rows > 1 {
            let sentence = format!("rows of {} bytes lie {} bytes apart", source.row_bytes, source.stride);
            return Err(GpuError::Source(sentence));
        }
        let whole = to.part(0, source.bytes())?;
        let mut state = self.shared.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        cut(source, whole, self.settings.chunk_bytes.max(1), &mut state.pieces)?;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Bytes on the device so far, for a progress bar.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Blocks until everything that was queued is on the device, or reports the first failure. More may be sent after.
    pub fn finish(&self) -> Result<UploadReport> {
        let mut state = self.shared.lock();
        // After a failure too: nobody may read the caller's memory once this has returned.
        while !(state.pieces.is_empty() && state.in_hand == 0) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.report()),
        }
    }

    fn report(&self) -> UploadReport {
        let nanoseconds = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        UploadReport {
            bytes: self.sent_bytes(),
            elapsed: self.begun.elapsed(),
            reading: nanoseconds(&self.shared.reading_ns),
            waiting: nanoseconds(&self.shared.waiting_ns),
        }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.pieces.clear();
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked holds nothing any more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts a source into pieces of at most a chunk.
fn cut(source: Source, to: Region, chunk_bytes: u64, pieces: &mut VecDeque<Piece>) -> Result<()> {
    if source.bytes() == 0 {
        return Ok(());
    }
    let is_dense = source.rows == 1 || source.stride == source.row_bytes;
    let source = if is_dense { Source::contiguous(source.start, source.bytes()) } else { source };
    let mut done = 0;
    if source.row_bytes <= chunk_bytes {
        let rows_at_once = chunk_bytes / source.row_bytes;
        let mut row = 0;
        while row < source.rows {
            let rows = rows_at_once.min(source.rows - row);
            let start = source.start.wrapping_add((row * source.stride) as usize);
            let part = Source { start, rows, ..source };
            pieces.push_back(Piece { source: part, to: to.part(done, part.bytes())? });
            done += part.bytes();
            row += rows;
        }
        return Ok(());
    }
    for row in 0..source.rows {
        let mut column = 0;
        while column < source.row_bytes {
            let bytes = chunk_bytes.min(source.row_bytes - column);
            let start = source.start.wrapping_add((row * source.stride + column) as usize);
            pieces.push_back(Piece { source: Source::contiguous(start, bytes), to: to.part(done, bytes)? });
            done += bytes;
            column += bytes;
        }
    }
    Ok(())
}
