//! The engine's thread: drain events, plan and submit, read a step, tell the clients; and the one way it ends, in
//! which every request still open gets its terminal event.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use super::gate::Arrival;
use super::shared::Shared;
use crate::contain::contain;
use crate::event::{Finish, FinishReason, Sink, Timings, Usage};
use crate::ranks::Ranks;
use crate::request::RequestId;
use crate::scheduler::{Emission, MAX_STEPS_IN_FLIGHT, Scheduler};

pub(super) enum Event {
    /// Their requests are at the gate.
    Arrive(Vec<RequestId>),
    Abort(RequestId),
    /// Aborted at the gate: only the terminal event is owed.
    Withdrawn {
        sink: Box<dyn Sink>,
        prompt_tokens: u32,
        at_us: u64,
    },
    FlushCache(Sender<bool>),
    Shutdown,
}

/// Why the loop was left.
enum Ending {
    Shutdown,
    Fault(String),
}

struct Client {
    sink: Box<dyn Sink>,
    /// An event was refused; nothing more is sent but the end.
    deaf: bool,
}

pub(super) struct Engine {
    scheduler: Scheduler,
    ranks: Ranks,
    events: Receiver<Event>,
    shared: Arc<Shared>,
    clients: HashMap<RequestId, Client>,
    /// Steps submitted and not read: id and time.
    in_flight: VecDeque<(u64, u64)>,
    depth: usize,
}

impl Engine {
    pub(super) fn new(
        scheduler: Scheduler,
        ranks: Ranks,
        events: Receiver<Event>,
        shared: Arc<Shared>,
        run_ahead: bool,
    ) -> Self {
        let depth = if run_ahead { MAX_STEPS_IN_FLIGHT } else { 1 };
        let engine = Engine {
            scheduler,
            ranks,
            events,
            shared,
            clients: HashMap::new(),
            in_flight: VecDeque::new(),
            depth,
        };
        engine.publish();
        engine
    }

    /// The whole life of the thread. A panic of the loop means a broken invariant: the engine ends like after a
    /// device fault, because limping on would be worse.
    pub(super) fn run(mut self) {
        let ending = contain("the engine", || self.serve()).unwrap_or_else(Ending::Fault);
        let shared = self.shared.clone();
        self.close(ending);
        shared.close();
    }

    fn serve(&mut self) -> Ending {
        loop {
            if let Err(ending) = self.take_events() {
                return ending;
            }
            if let Err(fault) = self.submit_steps() {
                return Ending::Fault(fault);
            }
            self.deliver();
            if let Err(fault) = self.read_step() {
                return Ending::Fault(fault);
            }
            self.deliver();
            self.publish();
        }
    }

    /// Takes all events there are; parks for the first one when there is nothing else to do.
    fn take_events(&mut self) -> Result<(), Ending> {
        if self.in_flight.is_empty() && self.scheduler.num_live() == 0 {
            // Every handle gone is a shutdown nobody asked for by name.
            let event = self.events.recv().map_err(|_| Ending::Shutdown)?;
            self.take(event)?;
        }
        loop {
            match self.events.try_recv() {
                Ok(event) => self.take(event)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) if self.scheduler.num_live() == 0 => {
                    return Err(Ending::Shutdown);
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Ending> {
        match event {
            Event::Arrive(ids) => {
                for Arrival { request, sink, at_us } in self.shared.take_arrivals(&ids) {
                    self.clients.insert(request.id, Client { sink, deaf: false });
                    self.scheduler.arrive(request, at_us);
                }
            }
            Event::Withdrawn { sink, prompt_tokens, at_us } => {
                self.scheduler.count_withdrawn();
                let usage = Usage { prompt_tokens, ..Usage::default() };
                let queued_us = self.shared.clock.now_us().saturating_sub(at_us);
                let timings = Timings { queued_us, ..Timings::default() };
                sink.finish(Finish { reason: FinishReason::Aborted, usage, timings });
                self.shared.delivered();
            }
            Event::Abort(id) => self.scheduler.abort(id, self.shared.clock.now_us()),
            Event::FlushCache(reply) => {
                // The asker may have stopped waiting.
                let flushed = self.scheduler.flush_cache();
                // Whoever hears that the cache is empty finds it so in the numbers.
                self.publish();
                let _ = reply.send(flushed);
            }
            Event::Shutdown => return Err(Ending::Shutdown),
        }
        Ok(())
    }

    fn submit_steps(&mut self) -> Result<(), String> {
        while self.in_flight.len() < self.depth {
            self.encode_media()?;
            let now_us = self.shared.clock.now_us();
            let Some(step) = self.scheduler.plan(now_us) else {
                // Newcomers may have been admitted whose first chunk begins with a picture.
                if self.encode_media()? {
                    continue;
                }
                break;
            };
            let started = self.scheduler.take_started();
            if !started.is_empty() {
                self.shared.start(&started);
            }
            self.in_flight.push_back((step.id, now_us));
            self.ranks.submit(step);
        }
        let stuck = self.in_flight.is_empty() && self.scheduler.num_live() > 0;
        assert!(!stuck, "{} requests are live and no step can be planned", self.scheduler.num_live());
        self.publish();
        Ok(())
    }

    /// Frees and encodes what the next step asks for; `false` when that changed nothing for it.
    fn encode_media(&mut self) -> Result<bool, String> {
        let work = self.scheduler.media_work();
        work.frees.iter().for_each(|id| self.ranks.free(*id));
        for encode in &work.encodes {
            let outcome = self.ranks.encode(encode)?;
            self.scheduler.encoded(encode, outcome, self.shared.clock.now_us());
        }
        Ok(work.num_taken > 0)
    }

    fn read_step(&mut self) -> Result<(), String> {
        let Some(&(id, _)) = self.in_flight.front() else { return Ok(()) };
        let output = self.ranks.wait()?;
        self.in_flight.pop_front();
        self.scheduler.complete(id, &output, self.shared.clock.now_us());
        Ok(())
    }

    /// Tells the clients; those that do not hear are aborted, which may have more to tell.
    fn deliver(&mut self) {
        loop {
            let emissions = self.scheduler.take_emissions();
            if emissions.is_empty() {
                return;
            }
            for emission in emissions {
                match emission {
                    Emission::Event(id, event) => {
                        let Some(client) = self.clients.get_mut(&id) else { continue };
                        if !client.deaf && client.sink.send(event).is_err() {
                            client.deaf = true;
                            self.scheduler.abort(id, self.shared.clock.now_us());
                        }
                    }
                    Emission::Finish(id, finish) => self.finish(id, finish),
                }
            }
        }
    }

    fn finish(&mut self, id: RequestId, mut finish: Finish) {
        let Some(client) = self.clients.remove(&id) else { return };
        if client.deaf && !matches!(finish.reason, FinishReason::Error(_)) {
            // It ended well in the same step, but the client has missed tokens.
            finish.reason = FinishReason::Aborted;
        }
        self.shared.forget(id);
        client.sink.finish(finish);
        self.shared.delivered();
    }

    fn publish(&self) {
        let oldest = self.in_flight.front().map(|&(_, submitted_us)| submitted_us);
        self.shared.publish(self.scheduler.stats(), oldest);
    }

    fn close(mut self, ending: Ending) {
        let reason = match &ending {
            Ending::Shutdown => "the engine was shut down".to_owned(),
            Ending::Fault(reason) => reason.clone(),
        };
        // First, so that the events drained below are the last ones.
        self.shared.die(&reason);
        let ended = FinishReason::Error(reason);
        // After a panic the scheduler may be in any state; whoever it cannot end properly is ended below.
        let _ = contain("the engine", || {
            self.scheduler.end_all(&ended, self.shared.clock.now_us());
            self.scheduler.abandon_steps();
        });
        self.in_flight.clear();
        // Before the clients hear of their end, so that whoever looks then sees nothing held.
        let _ = contain("the engine", || self.publish());
        let _ = contain("the engine", || self.deliver());
        for (id, client) in std::mem::take(&mut self.clients) {
            self.end_unserved(id, client.sink, &ended);
        }
        let arrivals = self.shared.gate().take_arrivals();
        for Arrival { request, sink, .. } in arrivals {
            self.end_unserved(request.id, sink, &ended);
        }
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Withdrawn { sink, .. } => self.finish_unserved(sink, FinishReason::Aborted),
                Event::FlushCache(reply) => drop(reply.send(false)),
                Event::Arrive(_) | Event::Abort(_) | Event::Shutdown => {}
            }
        }
        if matches!(ending, Ending::Shutdown) {
            self.ranks.close();
        }
    }

    fn end_unserved(&self, id: RequestId, sink: Box<dyn Sink>, reason: &FinishReason) {
        self.shared.forget(id);
        self.finish_unserved(sink, reason.clone());
    }

    fn finish_unserved(&self, sink: Box<dyn Sink>, reason: FinishReason) {
        let finish = Finish { reason, usage: Usage::default(), timings: Timings::default() };
        let _ = contain("a client", || sink.finish(finish));
        self.shared.delivered();
    }
}
