//! The bounded channel between the engine's thread and one answer.
//!
//! The engine never waits for a client: a full channel makes it abort the request. The terminal message has a
//! channel of its own, so it is never lost to a full one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use m3_core::engine::EngineHandle;
use m3_core::event::{Finish, FinishReason, RequestEvent, Sink, SinkError, Timings, Usage};
use m3_core::request::{Refusal, Request, RequestId};
use tokio::sync::{mpsc, oneshot};

/// The engine's end.
pub struct ChannelSink {
    events: mpsc::Sender<RequestEvent>,
    finish: oneshot::Sender<Finish>,
    overflowed: Arc<AtomicBool>,
}

impl Sink for ChannelSink {
    fn send(&mut self, event: RequestEvent) -> Result<(), SinkError> {
        self.events.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                self.overflowed.store(true, Ordering::Relaxed);
                SinkError::Full
            }
            mpsc::error::TrySendError::Closed(_) => SinkError::Closed,
        })
    }

    fn finish(self: Box<Self>, finish: Finish) {
        // The client may have gone; then nobody needs to hear it.
        let _ = self.finish.send(finish);
    }
}

/// What comes next.
#[derive(Debug)]
pub enum FeedItem {
    Event(RequestEvent),
    /// The last item.
    End(Finish),
}

/// The answer's end. Dropping it before the end aborts the request.
pub struct Feed {
    engine: EngineHandle,
    id: RequestId,
    events: mpsc::Receiver<RequestEvent>,
    finish: oneshot::Receiver<Finish>,
    overflowed: Arc<AtomicBool>,
    ended: bool,
}

impl Feed {
    /// Submits requests, all or none; `buffer` events of each may wait for the reader. Feeds come in order.
    pub fn submit_all(
        engine: &EngineHandle,
        requests: Vec<Request>,
        buffer: usize,
    ) -> Result<Vec<Self>, Refusal> {
        let mut feeds = Vec::with_capacity(requests.len());
        let mut submitted: Vec<(Request, Box<dyn Sink>)> = Vec::with_capacity(requests.len());
        for request in requests {
            let (events_in, events) = mpsc::channel(buffer.max(1));
            let (finish_in, finish) = oneshot::channel();
            let overflowed = Arc::new(AtomicBool::new(false));
            let sink =
                ChannelSink { events: events_in, finish: finish_in, overflowed: Arc::clone(&overflowed) };
            let id = request.id;
            // Nothing is there to abort before the engine has admitted it.
            feeds.push(Feed { engine: engine.clone(), id, events, finish, overflowed, ended: true });
            submitted.push((request, Box::new(sink)));
        }
        engine.submit_all(submitted)?;
        feeds.iter_mut().for_each(|feed| feed.ended = false);
        Ok(feeds)
    }

    /// The next item; call it until it gives the end.
    pub async fn next(&mut self) -> FeedItem {
        if let Some(event) = self.events.recv().await {
            return FeedItem::Event(event);
        }
        // The sink is gone, so its terminal message is there, or the engine broke its promise.
        let finish = (&mut self.finish).await.unwrap_or_else(|_| {
            let reason = FinishReason::Error("the engine dropped the request".to_owned());
            Finish { reason, usage: Usage::default(), timings: Timings::default() }
        });
        self.ended = true;
        FeedItem::End(finish)
    }

    /// Asks the engine to stop; the end still comes.
    pub fn abort(&self) {
        self.engine.abort(self.id);
    }

    /// Whether the engine gave up because nobody read.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.ended {
            self.engine.abort(self.id);
        }
    }
}
