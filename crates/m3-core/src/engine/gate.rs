//! Admission: which requests are alive, how many of them wait, and those the engine's thread has not taken yet.
//! Arithmetic under one lock; it computes nothing and delivers nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::Health;
use crate::event::Sink;
use crate::request::{Refusal, Request, RequestId};
use crate::scheduler::EngineConfig;

/// An admitted request that the engine's thread has not taken yet.
pub(super) struct Arrival {
    pub(super) request: Request,
    pub(super) sink: Box<dyn Sink>,
    pub(super) at_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing has been computed for it.
    Waiting,
    Started,
    /// Aborted while it waited: its id is in use until its terminal event, its slot is free.
    Leaving,
}

/// Admission's view. Requests are sent to the engine under its lock, so that none slips in after the engine's death.
pub(super) struct Gate {
    pub(super) health: Health,
    /// Requests whose terminal event has not been delivered.
    pub(super) num_open: usize,
    /// The engine's thread has nothing left to do.
    pub(super) closed: bool,
    /// Of every id in use.
    standings: HashMap<RequestId, Standing>,
    arriving: HashMap<RequestId, Arrival>,
    num_waiting: usize,
    num_leaving: usize,
}

impl Gate {
    pub(super) fn new() -> Self {
        Gate {
            health: Health::Serving,
            num_open: 0,
            closed: false,
            standings: HashMap::new(),
            arriving: HashMap::new(),
            num_waiting: 0,
            num_leaving: 0,
        }
    }

    /// Takes all of `requests`, which [`EngineConfig::check`] has passed, or none: those are the caller's to drop
    /// without the lock. Their ids, in order.
    pub(super) fn admit(
        &mut self,
        requests: &mut Vec<(Request, Box<dyn Sink>)>,
        config: &EngineConfig,
        at_us: u64,
    ) -> Result<Vec<RequestId>, Refusal> {
        match &self.health {
            Health::Serving => {}
            Health::Draining => return Err(Refusal::Draining),
            Health::Dead(reason) => return Err(Refusal::Dead(reason.clone())),
        }
        let num_requests = requests.len();
        let ids: Vec<RequestId> = requests.iter().map(|(request, _)| request.id).collect();
        let mut own = HashSet::with_capacity(num_requests);
        if let Some(id) = ids.iter().find(|id| self.standings.contains_key(id) || !own.insert(**id)) {
            return Err(Refusal::DuplicateId(id.0));
        }
        let held = self.standings.len() - self.num_leaving;
        if held + num_requests > most_admitted(config) {
            let (queued, max_queued) = (self.num_waiting, config.max_queued);
            return Err(Refusal::QueueFull { num_requests, queued, max_queued });
        }
        for (request, sink) in requests.drain(..) {
            self.standings.insert(request.id, Standing::Waiting);
            self.arriving.insert(request.id, Arrival { request, sink, at_us });
        }
        self.num_waiting += num_requests;
        self.num_open += num_requests;
        Ok(ids)
    }

    /// Frees the slot of a request that has not been started. One that the engine's thread has not taken yet comes
    /// back and is forgotten, but for the terminal event it is owed.
    pub(super) fn abort(&mut self, id: RequestId) -> Option<Arrival> {
        if let Some(arrival) = self.arriving.remove(&id) {
            self.forget(id);
            return Some(arrival);
        }
        if let Some(standing) = self.standings.get_mut(&id)
            && *standing == Standing::Waiting
        {
            *standing = Standing::Leaving;
            self.num_waiting -= 1;
            self.num_leaving += 1;
        }
        None
    }

    /// `None` for one that was aborted before.
    pub(super) fn take_arrival(&mut self, id: RequestId) -> Option<Arrival> {
        self.arriving.remove(&id)
    }

    pub(super) fn take_arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arriving).into_values().collect()
    }

    /// The engine has begun to compute it.
    pub(super) fn start(&mut self, id: RequestId) {
        if let Some(standing) = self.standings.get_mut(&id)
            && *standing == Standing::Waiting
        {
            *standing = Standing::Started;
            self.num_waiting -= 1;
        }
    }

    /// Frees an id for use, and its slot.
    pub(super) fn forget(&mut self, id: RequestId) {
        let Entry::Occupied(entry) = self.standings.entry(id) else { return };
        match entry.remove() {
            Standing::Waiting => self.num_waiting -= 1,
            Standing::Started => {}
            Standing::Leaving => self.num_leaving -= 1,
        }
    }
}

/// Most requests alive at once.
pub(super) fn most_admitted(config: &EngineConfig) -> usize {
    config.max_running.saturating_add(config.max_queued)
}
