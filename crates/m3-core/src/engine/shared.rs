//! What the handles and the engine's thread both see: who is alive, how healthy the engine is, its latest numbers.
//! Locks are held for a few instructions, so that asking never waits for a step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Health;
use super::gate::{Arrival, Gate};
use crate::clock::Clock;
use crate::metrics::EngineStats;
use crate::request::RequestId;

pub(super) struct Shared {
    pub(super) clock: Clock,
    gate: Mutex<Gate>,
    changed: Condvar,
    stats: Mutex<EngineStats>,
    /// When the oldest step in flight was submitted, plus 1; 0 = none.
    oldest_step: AtomicU64,
}

impl Shared {
    pub(super) fn new() -> Self {
        Shared {
            clock: Clock::start(),
            gate: Mutex::new(Gate::new()),
            changed: Condvar::new(),
            stats: Mutex::new(EngineStats::default()),
            oldest_step: AtomicU64::new(0),
        }
    }

    /// A holder that panicked leaves the gate usable: every change to it is complete in itself.
    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees an id for use; its terminal event follows.
    pub(super) fn forget(&self, id: RequestId) {
        self.gate().forget(id);
    }

    /// Those of `ids` that have not been aborted yet.
    pub(super) fn take_arrivals(&self, ids: &[RequestId]) -> Vec<Arrival> {
        let mut gate = self.gate();
        ids.iter().filter_map(|id| gate.take_arrival(*id)).collect()
    }

    /// The engine has begun to compute these.
    pub(super) fn start(&self, ids: &[RequestId]) {
        let mut gate = self.gate();
        ids.iter().for_each(|id| gate.start(*id));
    }

    /// One terminal event was delivered.
    pub(super) fn delivered(&self) {
        let mut gate = self.gate();
        gate.num_open -= 1;
        if gate.num_open == 0 {
            self.changed.notify_all();
        }
    }

    /// No request is admitted after this.
    pub(super) fn die(&self, reason: &str) {
        self.gate().health = Health::Dead(reason.to_owned());
        self.lock_stats().fatal = Some(reason.to_owned());
    }

    pub(super) fn close(&self) {
        self.gate().closed = true;
        self.changed.notify_all();
    }

    /// Waits for `holds`; `false` when `timeout` has passed first.
    pub(super) fn wait_until(&self, timeout: Duration, holds: impl Fn(&Gate) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut gate = self.gate();
        while !holds(&gate) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            gate = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(super) fn publish(&self, stats: EngineStats, oldest_step_us: Option<u64>) {
        self.oldest_step.store(oldest_step_us.map_or(0, |at| at + 1), Ordering::Relaxed);
        let mut published = self.lock_stats();
        let fatal = published.fatal.take();
        *published = EngineStats { fatal, ..stats };
    }

    pub(super) fn stats(&self) -> EngineStats {
        let mut stats = self.lock_stats().clone();
        let submitted = self.oldest_step.load(Ordering::Relaxed);
        if submitted > 0 {
            stats.oldest_step_us = (self.clock.now_us() + 1).saturating_sub(submitted);
        }
        stats
    }

    fn lock_stats(&self) -> MutexGuard<'_, EngineStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
