//! The engine's numbers as plain data: counters that only grow and a snapshot of now.
//! How they are named and exposed is the server's business.

/// Pages by state; `free + leased + cached == total` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    pub free: usize,
    /// Held by at least one sequence.
    pub leased: usize,
    /// Only in the prefix cache; given up when pages run short.
    pub cached: usize,
    pub total: usize,
}

/// Encoded media on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounts {
    /// Images, and pieces of videos.
    pub pieces: usize,
    /// Of these, in use by a request.
    pub held: usize,
    pub bytes: u64,
    pub budget_bytes: u64,
}

/// Requests that found less in the prefix cache than it could have held for them, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The cache is off.
    pub off: u64,
    /// The prompt does not fill a page.
    pub short: u64,
    /// Its first page was never cached, as far as is remembered.
    pub new: u64,
    /// Its first pages are cached, then comes one that never was: the text before it differs from what was asked earlier.
    pub diverged: u64,
    /// The page was cached and had to make room.
    pub evicted: u64,
}

/// Totals since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tokens of the prompts of requests that started to run.
    pub prompt_tokens: u64,
    /// Of these, found in the prefix cache.
    pub cached_tokens: u64,
    /// Sampled tokens of requests, stop ids included.
    pub generated_tokens: u64,
    /// Tokens passed through the model, recomputed ones included.
    pub computed_tokens: u64,
    /// Tokens computed ahead of a stop and thrown away.
    pub overrun_tokens: u64,
    pub steps: u64,
    pub preemptions: u64,
    pub evicted_pages: u64,
    /// Images, and pieces of videos, that were encoded.
    pub media_encodes: u64,
    /// Their patches.
    pub media_patches: u64,
    /// Times a request found an image, or a piece of a video, encoded already.
    pub media_hits: u64,
    /// Times it did not.
    pub media_misses: u64,
    /// Encoded ones given up for room.
    pub media_evictions: u64,
    /// Of all steps, from submission to completion; steps in flight overlap.
    pub steps_us: u64,
    /// Of all steps, as the backend reports it.
    pub device_us: u64,
    pub misses: Misses,
    pub arrived: u64,
    pub finished_stop: u64,
    pub finished_length: u64,
    pub finished_aborted: u64,
    pub finished_error: u64,
}

impl Counters {
    /// Requests that have had their terminal message.
    pub fn finished(&self) -> u64 {
        self.finished_stop + self.finished_length + self.finished_aborted + self.finished_error
    }
}

/// The step completed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastStep {
    pub num_seqs: usize,
    pub num_tokens: usize,
    /// From submission to completion; steps in flight overlap.
    pub wall_us: u64,
    /// As the backend reports it; 0 = unknown.
    pub device_us: u64,
}

/// The engine as of its last turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that hold a table row.
    pub running: usize,
    /// Requests that do not, preempted ones included.
    pub waiting: usize,
    pub pages: PageCounts,
    pub media: MediaCounts,
    pub counters: Counters,
    pub last_step: LastStep,
    pub steps_in_flight: usize,
    /// Age of the oldest step in flight at the time of asking, 0 = none: a stalled device shows here.
    pub oldest_step_us: u64,
    /// Why the engine stopped.
    pub fatal: Option<String>,
}
