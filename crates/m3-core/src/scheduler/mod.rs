//! Who is computed when. The scheduler is arithmetic: requests and times go in, plain [`Step`]s come out, results go
//! back in. It knows no device, no text, no thread and no socket, and it has no phases: a sequence has known and
//! computed tokens, and every step moves computed towards known within a token budget.
//!
//! Invariants, held by [`Scheduler::audit`] and the simulation: a page has one writer; free, leased and cached pages
//! add up to all; a step keeps its budget; every request has exactly one terminal event; the first in line always
//! gets on.

mod config;
mod follow;
mod media;
mod media_limits;
mod plan;
mod queue;
mod results;
mod sequence;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use config::{EngineConfig, EngineError};
pub use media::{Encode, MediaWork};
pub use media_limits::{MediaLimits, MediaSupport};
pub use plan::MAX_STEPS_IN_FLIGHT;
pub use step::Step;

use crate::cache::PageCache;
use crate::cache::media::MediaCache;
use crate::event::{Finish, FinishReason, RequestEvent};
use crate::metrics::{Counters, EngineStats, LastStep};
use crate::request::{Request, RequestId};
use plan::StepInFlight;
use queue::{Place, Queues};
use sequence::Sequence;

/// What a request is to be told. After its `Finish` nothing more comes for an id.
#[derive(Clone, Debug, PartialEq)]
pub enum Emission {
    Event(RequestId, RequestEvent),
    Finish(RequestId, Finish),
}

/// See the head of this file.
pub struct Scheduler {
    config: EngineConfig,
    queues: Queues,
    cache: PageCache,
    media: MediaCache,
    free_rows: Vec<u32>,
    /// Rows the device is to be told are free, with the next step.
    releases: Vec<u32>,
    /// The first in the queue that did not fit, and how many leases had been released then.
    blocked: Option<(Place, u64)>,
    in_flight: VecDeque<StepInFlight>,
    num_planned: u64,
    emissions: Vec<Emission>,
    /// First computed since the last time somebody asked.
    started: Vec<RequestId>,
    counters: Counters,
    last_step: LastStep,
}

impl Scheduler {
    /// `config` has been validated.
    pub fn new(config: EngineConfig) -> Self {
        Scheduler {
            cache: PageCache::new(config.num_pages, config.page_tokens, config.prefix_cache),
            media: MediaCache::new(config.media.limits().map_or(0, |limits| limits.cache_bytes)),
            free_rows: (0..config.max_running as u32).rev().collect(),
            queues: Queues::default(),
            releases: Vec::new(),
            blocked: None,
            in_flight: VecDeque::new(),
            num_planned: 0,
            emissions: Vec::new(),
            started: Vec::new(),
            counters: Counters::default(),
            last_step: LastStep::default(),
            config,
        }
    }

    /// Takes a request that [`EngineConfig::check`] has passed, under an id that is not in use, with its seed chosen.
    pub fn arrive(&mut self, request: Request, now_us: u64) {
        self.counters.arrived += 1;
        let id = request.id;
        let sequence = Sequence::new(request, &self.config, now_us);
        let nothing_to_do = sequence.max_outputs == 0 && sequence.remaining() == 0;
        self.queues.arrive(sequence);
        if nothing_to_do {
            self.end_id(id, FinishReason::Length, now_us);
        }
    }

    /// Ends a request wherever it is; its terminal event is emitted at once. Unknown ids are ignored.
    pub fn abort(&mut self, id: RequestId, now_us: u64) {
        self.end_id(id, FinishReason::Aborted, now_us);
    }

    /// Ends every request for the same reason.
    pub fn end_all(&mut self, reason: &FinishReason, now_us: u64) {
        let mut ids = self.queues.live_ids();
        ids.sort_unstable();
        for id in ids {
            self.end_id(id, reason.clone(), now_us);
        }
    }

    /// Counts a request that was aborted before it got here.
    pub fn count_withdrawn(&mut self) {
        self.counters.arrived += 1;
        self.counters.finished_aborted += 1;
    }

    /// Forgets the steps in flight, whose results will not come: the device has died or the engine is going. Every
    /// request has been ended; what the steps held is given back. No step may be planned after this.
    pub fn abandon_steps(&mut self) {
        self.in_flight.clear();
        for mut sequence in std::mem::take(&mut self.queues.ending).into_values() {
            sequence.steps_in_flight = 0;
            self.evacuate(&mut sequence);
        }
    }

    /// Requests that were computed for the first time since the last call.
    pub fn take_started(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.started)
    }

    /// What has happened since the last call, in order.
    pub fn take_emissions(&mut self) -> Vec<Emission> {
        std::mem::take(&mut self.emissions)
    }

    /// Forgets every cached prefix and encoded medium nobody holds; `true` when no prefix is left.
    pub fn flush_cache(&mut self) -> bool {
        self.media.flush();
        self.cache.flush()
    }

    /// Requests without a terminal event.
    pub fn num_live(&self) -> usize {
        self.queues.num_live()
    }

    pub fn num_steps_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Numbers of now; what only the engine knows is left at its default.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            running: self.queues.running.len(),
            waiting: self.queues.waiting.len(),
            pages: self.cache.counts(),
            media: self.media.counts(),
            counters: Counters {
                evicted_pages: self.cache.num_evicted(),
                media_evictions: self.media.num_evicted(),
                misses: self.cache.misses(),
                ..self.counters
            },
            last_step: self.last_step,
            steps_in_flight: self.in_flight.len(),
            ..EngineStats::default()
        }
    }

    /// Checks the books: every page and row is where exactly one owner says. A sentence when they do not agree.
    pub fn audit(&self) -> Result<(), String> {
        let queues = &self.queues;
        let resident = || queues.running.values().chain(queues.ending.values());
        let residences = || resident().filter_map(|sequence| sequence.residence.as_ref());
        self.cache.audit(residences().map(|residence| &residence.lease))?;
        self.media.audit(resident().flat_map(|sequence| sequence.media.held()))?;
        let mut rows: Vec<u32> = self.free_rows.iter().copied().chain(residences().map(|r| r.row)).collect();
        rows.sort_unstable();
        if rows != (0..self.config.max_running as u32).collect::<Vec<_>>() {
            return Err(format!("free and used rows are {rows:?}; there are {}", self.config.max_running));
        }
        let holds =
            |sequence: &&Sequence| sequence.residence.is_some() || sequence.media.held().next().is_some();
        if let Some(waiting) = queues.waiting.values().find(holds) {
            return Err(format!("request {} waits and still holds pages or media", waiting.request.id.0));
        }
        for sequence in queues.running.values().filter(|sequence| sequence.steps_in_flight == 0) {
            if sequence.remaining() == 0 || sequence.done != sequence.computed || sequence.pending != 0 {
                return Err(format!("request {} runs, but no step will move it on", sequence.request.id.0));
            }
        }
        Ok(())
    }

    fn end_id(&mut self, id: RequestId, reason: FinishReason, now_us: u64) {
        if let Some(place) = self.queues.place(id) {
            self.end(place, reason, now_us);
        }
    }

    /// The one way out: emits the terminal event and gives everything back, at once or, while a step in flight still
    /// writes to the sequence's pages, when that step has completed.
    fn end(&mut self, place: Place, reason: FinishReason, now_us: u64) {
        let Some(mut sequence) = self.queues.remove(place) else { return };
        let counter = match reason {
            FinishReason::Stop { .. } => &mut self.counters.finished_stop,
            FinishReason::Length => &mut self.counters.finished_length,
            FinishReason::Aborted => &mut self.counters.finished_aborted,
            FinishReason::Error(_) => &mut self.counters.finished_error,
        };
        *counter += 1;
        let finish = Finish { reason, usage: sequence.usage(), timings: sequence.timings(now_us) };
        self.emissions.push(Emission::Finish(sequence.request.id, finish));
        if sequence.steps_in_flight > 0 {
            self.queues.ending.insert(place, sequence);
        } else {
            self.evacuate(&mut sequence);
        }
    }

    /// Takes row and pages back from a sequence no step in flight knows.
    fn evacuate(&mut self, sequence: &mut Sequence) {
        assert_eq!(sequence.steps_in_flight, 0, "pages are not taken from under a step in flight");
        self.release_all_pieces(sequence);
        let Some(residence) = sequence.residence.take() else { return };
        self.cache.release(residence.lease);
        self.free_rows.push(residence.row);
        if residence.bound {
            self.releases.push(residence.row);
        }
    }
}
