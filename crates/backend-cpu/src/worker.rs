//! The thread of a rank: takes steps and media in order, runs the model, and reports results, faults and panics.
//!
//! One per instance, so that `submit` returns at enqueue and a chained step can wait in line. Kernels run on the rank's
//! own thread pool. After a fault the worker is gone and every later call gets the same sentence.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use m3_abi::{Error, Output, Result};
use m3_model::batch::{Batch, RowTable};
use m3_model::ops::Ops;
use rayon::ThreadPool;

use crate::ops::CpuOps;
use crate::step::OwnedStep;
use crate::taps::Taps;
use crate::vision::Encoder;

/// What the thread is asked for.
pub(crate) enum Job {
    Step {
        ticket: u64,
        step: Box<OwnedStep>,
    },
    /// Checked patches. The handle is the ticket's number.
    Encode {
        ticket: u64,
        patches: Vec<f32>,
        grids: Vec<[u32; 3]>,
    },
    Free {
        handle: u64,
    },
}

/// What a finished step or encode leaves.
pub(crate) struct Finished {
    pub(crate) ticket: u64,
    pub(crate) output: Output,
    /// Output slots in use.
    pub(crate) slots: Vec<usize>,
    pub(crate) taps: Option<Taps>,
    /// To be filled again.
    pub(crate) step: Option<Box<OwnedStep>>,
}

#[derive(Default)]
struct Progress {
    finished: u64,
    results: VecDeque<Finished>,
    fault: Option<String>,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics while holding the lock.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host's end. Dropping it lets the worker finish what is queued and ends it.
pub(crate) struct Worker {
    queue: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Everything the thread owns.
pub(crate) struct Rank {
    pub(crate) ops: CpuOps,
    /// When the model has a tower.
    pub(crate) encoder: Option<Encoder>,
    pub(crate) rows: RowTable,
    pub(crate) pool: ThreadPool,
    /// Alternatives per position.
    pub(crate) max_logprobs: usize,
}

impl Worker {
    pub(crate) fn spawn(rank: Rank, name: String) -> Result<Worker> {
        let (queue, jobs) = channel();
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || work(rank, &jobs, &theirs));
        let thread = thread.map_err(|error| Error::Unsupported(format!("no thread for a rank: {error}")))?;
        Ok(Worker { queue: Some(queue), shared, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: Job) -> Result<()> {
        if let Some(fault) = &self.shared.lock().fault {
            return Err(Error::Fatal(fault.clone()));
        }
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(job).is_ok());
        if sent { Ok(()) } else { Err(Error::Fatal("the rank's thread has ended".to_owned())) }
    }

    /// Newest finished ticket.
    pub(crate) fn finished(&self) -> Result<u64> {
        let progress = self.shared.lock();
        match &progress.fault {
            Some(fault) => Err(Error::Fatal(fault.clone())),
            None => Ok(progress.finished),
        }
    }

    /// Parks until `ticket` has finished; hands out its result and drops older ones, unless `accept` refuses it.
    pub(crate) fn wait(
        &self,
        ticket: u64,
        accept: impl Fn(&Finished) -> Result<()>,
    ) -> Result<Option<Finished>> {
        let mut progress = self.shared.lock();
        while progress.finished < ticket {
            if let Some(fault) = &progress.fault {
                return Err(Error::Fatal(fault.clone()));
            }
            progress = self.shared.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(at) = progress.results.iter().position(|result| result.ticket == ticket) else {
            return Ok(None);
        };
        accept(&progress.results[at])?;
        progress.results.drain(..at);
        Ok(progress.results.pop_front())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was caught and reported by `work`.
            let _ = thread.join();
        }
    }
}

fn work(mut rank: Rank, jobs: &Receiver<Job>, shared: &Shared) {
    let mut batch = Batch::default();
    while let Ok(job) = jobs.recv() {
        let outcome = catch_unwind(AssertUnwindSafe(|| rank.take(job, &mut batch)));
        let outcome =
            outcome.unwrap_or_else(|panic| Err(Error::Fatal(format!("panicked: {}", text_of(&*panic)))));
        let mut progress = shared.lock();
        match outcome {
            Ok(None) => {}
            Ok(Some(finished)) => {
                progress.finished = finished.ticket;
                progress.results.push_back(finished);
                shared.changed.notify_all();
            }
            Err(error) => {
                let fault = rank.name_fault(&error.to_string());
                progress.fault = Some(fault);
                shared.changed.notify_all();
                return;
            }
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

impl Rank {
    fn take(&mut self, job: Job, batch: &mut Batch) -> Result<Option<Finished>> {
        match job {
            Job::Step { ticket, step } => self.run(ticket, step, batch).map(Some),
            Job::Encode { ticket, patches, grids } => self.encode(ticket, &patches, &grids).map(Some),
            Job::Free { handle } => {
                self.ops.media.remove(&handle);
                Ok(None)
            }
        }
    }

    fn encode(&mut self, ticket: u64, patches: &[f32], grids: &[[u32; 3]]) -> Result<Finished> {
        let Some(encoder) = &self.encoder else {
            return Err(Error::Fatal("media are encoded without a vision tower".to_owned()));
        };
        let started = Instant::now();
        let taps = &mut self.ops.taps;
        let rows = self.pool.install(|| encoder.encode(patches, grids, taps));
        self.ops.media.insert(ticket, rows);
        let device_time_us = started.elapsed().as_micros() as u64;
        let output = Output { device_time_us, ..Output::default() };
        Ok(Finished { ticket, output, slots: Vec::new(), taps: self.ops.taps.take(), step: None })
    }

    fn run(&mut self, ticket: u64, step: Box<OwnedStep>, batch: &mut Batch) -> Result<Finished> {
        let started = Instant::now();
        self.rows.apply(&step.view(), batch)?;
        let slots: Vec<usize> = batch.logits.iter().map(|position| position.output_slot).collect();
        let capacity = slots.iter().max().map_or(0, |slot| slot + 1);
        let mut output = Output::with_capacity(capacity, self.max_logprobs);
        let (ops, rows) = (&mut self.ops, &mut self.rows);
        if batch.num_tokens() > 0 {
            self.pool.install(|| ops.forward(batch, rows, &mut output))?;
        }
        output.device_time_us = started.elapsed().as_micros() as u64;
        Ok(Finished { ticket, output, slots, taps: ops.taps.take(), step: Some(step) })
    }

    /// Tells the peers, and names the rank when there are several.
    fn name_fault(&self, fault: &str) -> String {
        match &self.ops.peers {
            Some(peers) => peers.poison(&format!("failed: {fault}")).to_string(),
            None => fault.to_owned(),
        }
    }
}
