//! Wakes the readers of answers: all readers that a step has something for at one go, and those whose time has come by
//! one timer for all of them.
//!
//! Waking a task from the engine's thread costs a lock of the runtime's shared list and often a system call, each
//! time; here the engine wakes one task, which wakes the others from inside the runtime. It knows no tokens: what a
//! reader waits for is [`Queue`]'s business.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::feed::Queue;

/// One for all requests of a server.
#[derive(Default)]
pub struct Pacer {
    inbox: Mutex<Inbox>,
    notify: Notify,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What the pacer's task has not seen.
#[derive(Default)]
struct Inbox {
    calls: Vec<Arc<Queue>>,
    alarms: Vec<Alarm>,
    /// Alarms that nobody waits for any more.
    stale: usize,
    /// While it sleeps: until when; `None` = until it is notified.
    asleep: Option<Option<Instant>>,
}

struct Alarm {
    at: Instant,
    queue: Arc<Queue>,
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// Stale alarms that are not worth a look through all of them.
const FEW_STALE: usize = 256;

impl Pacer {
    /// Makes sure that its task runs; called inside of the runtime whose tasks it wakes.
    pub fn start(self: &Arc<Self>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let pacer = Arc::clone(self);
            *task = Some(tokio::spawn(async move { pacer.run().await }));
        }
    }

    /// Wakes the reader of `queue` soon.
    pub(super) fn call(&self, queue: Arc<Queue>) {
        let mut inbox = self.inbox();
        inbox.calls.push(queue);
        let asleep = inbox.asleep.take().is_some();
        drop(inbox);
        if asleep {
            self.notify.notify_one();
        }
    }

    /// Rings at `queue` at a time.
    pub(super) fn alarm(&self, at: Instant, queue: Arc<Queue>) {
        let mut inbox = self.inbox();
        inbox.alarms.push(Alarm { at, queue });
        let too_long = inbox.asleep.is_some_and(|until| until.is_none_or(|until| until > at));
        if too_long {
            inbox.asleep = None;
        }
        drop(inbox);
        if too_long {
            self.notify.notify_one();
        }
    }

    /// A reader has left that many alarms behind.
    pub(super) fn leave(&self, alarms: usize) {
        self.inbox().stale += alarms;
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self) {
        let mut alarms: BinaryHeap<Reverse<Alarm>> = BinaryHeap::new();
        let mut calls = Vec::new();
        loop {
            let until = self.turn(&mut alarms, &mut calls);
            let Some(until) = until else { continue };
            match until {
                None => self.notify.notified().await,
                Some(until) => {
                    // The timer's end and a notice mean the same: look again.
                    let _ = tokio::time::timeout_at(until.into(), self.notify.notified()).await;
                }
            }
        }
    }

    /// Does what there is to do; then until when to sleep, unless more has come.
    fn turn(
        &self,
        alarms: &mut BinaryHeap<Reverse<Alarm>>,
        calls: &mut Vec<Arc<Queue>>,
    ) -> Option<Option<Instant>> {
        {
            let mut inbox = self.inbox();
            inbox.asleep = None;
            std::mem::swap(&mut inbox.calls, calls);
            alarms.extend(inbox.alarms.drain(..).map(Reverse));
            if inbox.stale > FEW_STALE && inbox.stale > alarms.len() / 2 {
                inbox.stale = 0;
                drop(inbox);
                alarms.retain(|Reverse(alarm)| !alarm.queue.is_gone());
            }
        }
        calls.drain(..).for_each(|queue| queue.wake());
        let now = Instant::now();
        while alarms.peek().is_some_and(|Reverse(alarm)| alarm.at <= now) {
            let Some(Reverse(Alarm { at, queue })) = alarms.pop() else { break };
            if let Some(again) = queue.ring(at, now) {
                alarms.push(Reverse(Alarm { at: again, queue }));
            }
        }
        let until = alarms.peek().map(|Reverse(alarm)| alarm.at);
        let mut inbox = self.inbox();
        if !inbox.calls.is_empty() || !inbox.alarms.is_empty() {
            return None;
        }
        inbox.asleep = Some(until);
        Some(until)
    }
}
