//! The engine: one thread that turns requests into steps and results into events, and the handle to it.
//!
//! Every admitted request ends in exactly one terminal event, also when a device fails or the engine itself does.
//! No text and no sockets: clients are [`Sink`]s, devices are [`Backend`]s.

mod gate;
mod run;
mod shared;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use m3_abi::Backend;

pub use crate::scheduler::{EngineConfig, EngineError, MediaLimits, MediaSupport};

use crate::event::Sink;
use crate::metrics::EngineStats;
use crate::ranks::Ranks;
use crate::request::{Refusal, Request, RequestId};
use crate::scheduler::Scheduler;
use gate::{Arrival, most_admitted};
use run::{Engine, Event};
use shared::Shared;

/// How long a shutdown waits for a step in flight before it leaves the threads to themselves.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// Whether requests are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Serving,
    /// Admitted requests run to their end, new ones are refused.
    Draining,
    /// Every request has been ended; the reason as a sentence.
    Dead(String),
}

/// The way to a running engine; clones reach the same one. The engine ends when the last one is dropped and the
/// requests it has are done.
#[derive(Clone)]
pub struct EngineHandle {
    inner: Arc<Inner>,
}

struct Inner {
    config: EngineConfig,
    events: Sender<Event>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EngineHandle {
    /// Starts the engine's thread and one per rank. `ranks` are reserved and warmed, in rank order.
    pub fn start(config: EngineConfig, ranks: Vec<Box<dyn Backend>>) -> Result<Self, EngineError> {
        config.validate()?;
        if ranks.is_empty() {
            return Err(EngineError::NoRanks);
        }
        let shared = Arc::new(Shared::new());
        let (sender, receiver) = channel();
        let scheduler = Scheduler::new(config.clone());
        let engine = Engine::new(scheduler, Ranks::start(ranks)?, receiver, shared.clone(), config.run_ahead);
        let thread = Builder::new().name("m3-engine".to_owned()).spawn(move || engine.run())?;
        let thread = Mutex::new(Some(thread));
        Ok(EngineHandle { inner: Arc::new(Inner { config, events: sender, shared, thread }) })
    }

    /// Admits or refuses at once; an admitted request's sink hears exactly one `finish`. Never waits for the engine's
    /// thread.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<(), Refusal> {
        self.submit_all(vec![(request, sink)])
    }

    /// Admits all of `requests`, in order, or none, at once. After a refusal every sink has been dropped unused. Never
    /// waits for the engine's thread.
    pub fn submit_all(&self, mut requests: Vec<(Request, Box<dyn Sink>)>) -> Result<(), Refusal> {
        let inner = &*self.inner;
        for (request, _) in &mut requests {
            inner.config.check(request)?;
            request.sampling.seed.get_or_insert_with(random_seed);
        }
        let (num_requests, most) = (requests.len(), most_admitted(&inner.config));
        if num_requests > most {
            return Err(Refusal::BatchTooLarge { num_requests, most });
        }
        let mut gate = inner.shared.gate();
        let ids = gate.admit(&mut requests, &inner.config, inner.shared.clock.now_us())?;
        // The receiver lives until after the gate says Dead.
        inner.events.send(Event::Arrive(ids)).map_err(|_| Refusal::Dead("its thread has gone".to_owned()))
    }

    /// Ends a request wherever it is; unknown ids are ignored. Before anything was computed for it, its place in the
    /// queue is free when this returns; its terminal event follows.
    pub fn abort(&self, id: RequestId) {
        let mut gate = self.inner.shared.gate();
        let (event, prompt) = match gate.abort(id) {
            None => (Event::Abort(id), Vec::new()),
            Some(Arrival { request, sink, at_us }) => {
                let prompt_tokens = request.prompt.len() as u32;
                (Event::Withdrawn { sink, prompt_tokens, at_us }, request.prompt)
            }
        };
        // A dead engine has ended the request already; one that is dying still hears what is sent under the lock.
        let _ = self.inner.events.send(event);
        drop(gate);
        drop(prompt);
    }

    /// Never waits for the engine's thread.
    pub fn stats(&self) -> EngineStats {
        self.inner.shared.stats()
    }

    /// Never waits for the engine's thread.
    pub fn health(&self) -> Health {
        self.inner.shared.gate().health.clone()
    }

    /// Requests whose terminal event is still owed, also those the engine's thread has not taken yet. Never waits for
    /// that thread.
    pub fn num_open(&self) -> usize {
        self.inner.shared.gate().num_open
    }

    /// Forgets every cached prefix no request is using; `true` when nothing is left in the cache. Waits for the step
    /// in flight.
    pub fn flush_cache(&self) -> bool {
        let (sender, receiver) = channel();
        let sent = self.inner.events.send(Event::FlushCache(sender));
        sent.is_ok() && receiver.recv().unwrap_or(false)
    }

    /// Refuses new requests from now on; returns at once.
    pub fn drain(&self) {
        let mut gate = self.inner.shared.gate();
        if gate.health == Health::Serving {
            gate.health = Health::Draining;
        }
    }

    /// Waits until every terminal event has been delivered; `false` when `timeout` has passed first.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.inner.shared.wait_until(timeout, |gate| gate.num_open == 0)
    }

    /// Ends every request and the engine's threads. Returns when they have ended, or after ten seconds when a device
    /// hangs.
    pub fn shutdown(&self) {
        let _ = self.inner.events.send(Event::Shutdown);
        if !self.inner.shared.wait_until(SHUTDOWN_PATIENCE, |gate| gate.closed) {
            return;
        }
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panics are contained, so there is nothing to hear from it.
            let _ = thread.join();
        }
    }
}

/// The standard library seeds its hashers from the operating system's entropy.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
