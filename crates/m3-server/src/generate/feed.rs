//! The bounded queue between the engine's thread and the answers of one request.
//!
//! The engine never waits for a client: an answer whose tokens are not read in time is aborted. The terminal message
//! is never lost to a full queue. Waking a reader costs more than a token does, so the reader says what it has to be
//! woken for ([`Patience`]), and the [`Pacer`] wakes the readers of a step together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use m3_core::engine::EngineHandle;
use m3_core::event::{Finish, FinishReason, RequestEvent, Sink, SinkError, Timings, Usage};
use m3_core::request::{Refusal, Request, RequestId};

use super::pacer::Pacer;

/// Tokens that wake a reader however patient it is: about a packet of text.
const ENOUGH_TOKENS: usize = 16;

/// What comes next of an answer.
#[derive(Debug)]
pub enum FeedItem {
    Event(RequestEvent),
    /// The last item.
    End(Finish),
}

/// An item with its answer and the time at which the engine sent it.
pub struct Sent {
    pub index: usize,
    pub item: FeedItem,
    pub at: Instant,
}

/// Which ordinary tokens a reader is woken for. Markers, scores and ends always wake it, and so does a queue that
/// grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Every one.
    AtOnce,
    /// None before the first of them is so old.
    Gather(Duration),
    /// None.
    Whole,
}

/// The engine's end of one answer.
pub struct QueueSink {
    queue: Arc<Queue>,
    index: usize,
    ended: bool,
}

impl Sink for QueueSink {
    fn send(&mut self, event: RequestEvent) -> Result<(), SinkError> {
        let now = Instant::now();
        let mut state = self.queue.state();
        if state.gone {
            return Err(SinkError::Closed);
        }
        if state.unread[self.index] >= state.limit {
            state.overflowed[self.index] = true;
            return Err(SinkError::Full);
        }
        state.unread[self.index] += 1;
        let urgent = state.is_urgent(&event, self.index);
        state.items.push_back(Sent { index: self.index, item: FeedItem::Event(event), at: now });
        self.queue.announce(state, urgent, now);
        Ok(())
    }

    fn finish(mut self: Box<Self>, finish: Finish) {
        self.end(finish);
    }
}

impl QueueSink {
    fn end(&mut self, finish: Finish) {
        self.ended = true;
        let now = Instant::now();
        let mut state = self.queue.state();
        // The client may have gone; then nobody needs to hear it.
        if !state.gone {
            state.items.push_back(Sent { index: self.index, item: FeedItem::End(finish), at: now });
            self.queue.announce(state, true, now);
        }
    }
}

impl Drop for QueueSink {
    fn drop(&mut self) {
        if !self.ended {
            let reason = FinishReason::Error("the engine dropped the request".to_owned());
            self.end(Finish { reason, usage: Usage::default(), timings: Timings::default() });
        }
    }
}

/// What the engine, the reader and the pacer share.
pub(super) struct Queue {
    state: Mutex<State>,
    pacer: Arc<Pacer>,
}

struct State {
    items: VecDeque<Sent>,
    /// Per answer.
    unread: Vec<usize>,
    overflowed: Vec<bool>,
    limit: usize,
    /// Tokens from this id on wake the reader: the markers of reasoning and calls are among them.
    markers_from: u32,
    /// There while the reader waits.
    reader: Option<Waker>,
    patience: Patience,
    /// When the reader has to be woken in any case.
    wake_at: Option<Instant>,
    /// It stands on the pacer's list already.
    called: bool,
    /// The pacer's alarms for it: the next one, and one that is seconds away and moved when it rings.
    alarms: [Option<Instant>; 2],
    /// The reader has gone.
    gone: bool,
}

/// From here on an alarm is a far one.
const FAR: Duration = Duration::from_secs(1);

impl State {
    fn is_urgent(&self, event: &RequestEvent, index: usize) -> bool {
        let RequestEvent::Tokens(tokens) = event else { return true };
        let enough = ENOUGH_TOKENS.min(self.limit.div_ceil(2));
        self.patience == Patience::AtOnce
            || self.unread[index] >= enough
            || tokens.iter().any(|sampled| sampled.token >= self.markers_from)
    }

    /// Notes an alarm; false when an earlier one will do.
    fn arm(&mut self, at: Instant, now: Instant) -> bool {
        if self.alarms.iter().flatten().any(|alarm| *alarm <= at) {
            return false;
        }
        self.alarms[usize::from(at > now + FAR)] = Some(at);
        true
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has been put in.
    fn announce(self: &Arc<Self>, mut state: MutexGuard<'_, State>, urgent: bool, now: Instant) {
        if state.reader.is_none() {
            return;
        }
        if urgent {
            if !std::mem::replace(&mut state.called, true) {
                drop(state);
                self.pacer.call(Arc::clone(self));
            }
        } else if let Patience::Gather(patience) = state.patience
            && !state.called
            && state.arm(now + patience, now)
        {
            drop(state);
            self.pacer.alarm(now + patience, Arc::clone(self));
        }
    }

    /// The pacer has come to it.
    pub(super) fn wake(&self) {
        let mut state = self.state();
        state.called = false;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// An alarm rings: wakes the reader, or gives the time at which to ring again.
    pub(super) fn ring(&self, at: Instant, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        for alarm in &mut state.alarms {
            alarm.take_if(|alarm| *alarm == at);
        }
        let due = state.wake_at.is_some_and(|wake_at| wake_at <= now);
        if !state.items.is_empty() || due {
            let reader = state.reader.take();
            drop(state);
            if let Some(reader) = reader {
                reader.wake();
            }
            return None;
        }
        state.reader.as_ref()?;
        let again = state.wake_at?;
        state.arm(again, now).then_some(again)
    }

    /// Whether nobody reads it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.state().gone
    }
}

/// The reader's end of the queue.
struct Reader {
    queue: Arc<Queue>,
    /// Taken out of the queue and not read.
    taken: VecDeque<Sent>,
    ended: Vec<bool>,
}

impl Reader {
    /// For `count` answers of which `limit` events each may wait; tokens from `markers_from` on wake it at once.
    fn new(pacer: &Arc<Pacer>, count: usize, limit: usize, markers_from: u32) -> Self {
        let state = State {
            items: VecDeque::new(),
            unread: vec![0; count],
            overflowed: vec![false; count],
            limit: limit.max(1),
            markers_from,
            reader: None,
            patience: Patience::AtOnce,
            wake_at: None,
            called: false,
            alarms: [None; 2],
            gone: false,
        };
        let queue = Arc::new(Queue { state: Mutex::new(state), pacer: Arc::clone(pacer) });
        Reader { queue, taken: VecDeque::new(), ended: vec![false; count] }
    }

    fn sink(&self, index: usize) -> QueueSink {
        QueueSink { queue: Arc::clone(&self.queue), index, ended: false }
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        patience: Patience,
        wake_at: Option<Instant>,
    ) -> Poll<Option<Sent>> {
        if self.taken.is_empty() {
            if self.ended.iter().all(|ended| *ended) {
                return Poll::Ready(None);
            }
            let mut state = self.queue.state();
            if state.items.is_empty() {
                park(&self.queue, state, context, patience, wake_at);
                return Poll::Pending;
            }
            state.reader = None;
            std::mem::swap(&mut state.items, &mut self.taken);
            state.unread.fill(0);
        }
        let sent = self.taken.pop_front();
        if let Some(Sent { index, item: FeedItem::End(_), .. }) = &sent {
            self.ended[*index] = true;
        }
        Poll::Ready(sent)
    }

    /// Nobody reads any more; the answers whose end was not sent.
    fn close(&mut self) -> impl Iterator<Item = usize> {
        let mut state = self.queue.state();
        state.gone = true;
        state.reader = None;
        let items = std::mem::take(&mut state.items);
        let alarms = state.alarms.iter().flatten().count();
        drop(state);
        self.queue.pacer.leave(alarms);
        let ended = |sent: &Sent| matches!(sent.item, FeedItem::End(_)).then_some(sent.index);
        items.iter().chain(&self.taken).filter_map(ended).for_each(|index| self.ended[index] = true);
        let open = self.ended.iter().enumerate().filter(|(_, ended)| !**ended).map(|(index, _)| index);
        open.collect::<Vec<_>>().into_iter()
    }
}

/// Leaves the reader's waker and what it waits for.
fn park(
    queue: &Arc<Queue>,
    mut state: MutexGuard<'_, State>,
    context: &Context<'_>,
    patience: Patience,
    wake_at: Option<Instant>,
) {
    if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
        state.reader = Some(context.waker().clone());
    }
    (state.patience, state.wake_at) = (patience, wake_at);
    let now = Instant::now();
    let alarm = wake_at.filter(|at| state.arm(*at, now));
    drop(state);
    if let Some(at) = alarm {
        queue.pacer.alarm(at, Arc::clone(queue));
    }
}

/// The answers of one request as they come. Dropping it aborts every answer that has not ended.
pub struct Feed {
    engine: EngineHandle,
    reader: Reader,
    ids: Vec<RequestId>,
}

impl Feed {
    /// Submits requests, all or none; `limit` events of each may wait for the reader. Answers are numbered in order.
    /// Tokens from `markers_from` on are never kept waiting.
    pub fn submit_all(
        engine: &EngineHandle,
        pacer: &Arc<Pacer>,
        requests: Vec<Request>,
        limit: usize,
        markers_from: u32,
    ) -> Result<Self, Refusal> {
        let reader = Reader::new(pacer, requests.len(), limit, markers_from);
        let ids = requests.iter().map(|request| request.id).collect();
        let submitted = requests.into_iter().enumerate();
        let submitted = submitted
            .map(|(index, request)| -> (Request, Box<dyn Sink>) { (request, Box::new(reader.sink(index))) });
        engine.submit_all(submitted.collect())?;
        Ok(Feed { engine: engine.clone(), reader, ids })
    }

    /// The next item; `None` when every answer has ended. While there is none, `patience` says which tokens wake the
    /// task, and it is woken at `wake_at` in any case.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        patience: Patience,
        wake_at: Option<Instant>,
    ) -> Poll<Option<Sent>> {
        self.reader.poll_next(context, patience, wake_at)
    }

    /// Asks the engine to stop an answer; its end still comes.
    pub fn abort(&self, index: usize) {
        self.engine.abort(self.ids[index]);
    }

    /// Whether the engine gave an answer up because nobody read it.
    pub fn overflowed(&self, index: usize) -> bool {
        self.reader.queue.state().overflowed[index]
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        for index in self.reader.close() {
            self.engine.abort(self.ids[index]);
        }
    }
}

#[cfg(test)]
mod tests;
