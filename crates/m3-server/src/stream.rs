//! Answers as HTTP: server-sent events, or one JSON body folded from the same chunks.
//!
//! A stream's body owns the session: when the client goes, hyper drops the body, and with it goes every request.
//! A client that does not read stops the body from being polled; then the engine's channel fills and the engine
//! aborts. Silence, also before the first token, is broken by comments that proxies count as traffic.

mod coalesce;

use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, Stream};
use serde::Serialize;
use tokio::time::Sleep;

use crate::error::ApiError;
use crate::generate::{self, ChoiceEvent, Session};
use crate::shape::{Named, Shape};
use coalesce::Coalescer;
pub use coalesce::Pacing;

/// How a stream is paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    pub pacing: Pacing,
    /// Silence after which a comment is sent; zero sends none.
    pub heartbeat: Duration,
}

impl StreamOptions {
    /// With a request's own `stream_interval`, if it has one.
    pub fn with_interval(mut self, tokens: Option<u32>) -> Self {
        if let Some(tokens) = tokens {
            self.pacing.min_tokens = tokens as usize;
        }
        self
    }
}

/// Waits for everything and answers with one body.
pub async fn whole<S: Shape>(session: Session, shape: S) -> Result<Response, ApiError> {
    Ok(Json(fold(session, shape).await?).into_response())
}

/// Waits for everything.
pub async fn fold<S: Shape>(mut session: Session, mut shape: S) -> Result<S::Whole, ApiError> {
    while let Some((index, event)) = session.next().await {
        for chunk in shape.event(index, event)? {
            shape.fold(chunk);
        }
    }
    Ok(shape.whole())
}

/// Waits for all `best_of` answers to each prompt and answers with the `n` likeliest.
pub async fn best<S: Shape>(
    session: Session,
    mut shape: S,
    n: usize,
    best_of: usize,
) -> Result<Response, ApiError> {
    let best = generate::choose(session, n, best_of).await;
    shape.add_unseen(best.unseen_tokens, best.unseen_reasoning);
    for (index, event) in best.events {
        for chunk in shape.event(index, event)? {
            shape.fold(chunk);
        }
    }
    Ok(Json(shape.whole()).into_response())
}

/// Answers with events.
pub fn events<S: Shape>(session: Session, shape: S, options: StreamOptions) -> Response {
    response(Body::from_stream(frames(session, shape, options).map_ok()))
}

/// A response of server-sent events.
pub fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells nginx not to collect the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The events of a session as bytes; each item is one or more whole events, or a comment.
pub fn frames<S: Shape>(session: Session, shape: S, options: StreamOptions) -> Frames<S> {
    Frames(EventStream {
        session: Some(session),
        shape,
        coalescer: Coalescer::new(options.pacing),
        heartbeat: options.heartbeat,
        opened: false,
        last_sent: Instant::now(),
        timer: None,
    })
}

/// See [`frames`].
pub struct Frames<S>(EventStream<S>);

impl<S: Shape> Frames<S> {
    /// The next frame; `None` after the last event.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await
    }

    fn map_ok(self) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        futures_util::stream::unfold(self, |mut frames| async move {
            let bytes = frames.next().await?;
            Some((Ok(bytes), frames))
        })
    }
}

struct EventStream<S> {
    /// Gone after the last event.
    session: Option<Session>,
    shape: S,
    coalescer: Coalescer,
    heartbeat: Duration,
    opened: bool,
    last_sent: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

/// What a wait ended with.
enum Woken {
    Event(Option<(usize, ChoiceEvent)>),
    Time,
}

impl<S: Shape> EventStream<S> {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.opened, true) {
            let first = self.shape.open();
            first.iter().for_each(|chunk| encode(chunk, &mut out));
        }
        while out.is_empty() {
            self.session.as_ref()?;
            match self.wait().await {
                Woken::Event(event) => self.take(event),
                Woken::Time => {
                    let now = Instant::now();
                    self.coalescer.tick(now);
                    if !self.heartbeat.is_zero() && now >= self.last_sent + self.heartbeat {
                        out.extend_from_slice(self.shape.heartbeat());
                    }
                }
            }
            self.write(&mut out);
        }
        self.last_sent = Instant::now();
        Some(out.into())
    }

    /// Waits for the session or the next thing that time brings.
    async fn wait(&mut self) -> Woken {
        let Some(session) = self.session.as_mut() else { return Woken::Event(None) };
        // What is there already needs no timer.
        if let Some(event) = session.next().now_or_never() {
            return Woken::Event(event);
        }
        let beat = (!self.heartbeat.is_zero()).then(|| self.last_sent + self.heartbeat);
        let due = self.coalescer.due();
        let Some(wake) = beat.into_iter().chain(due).min() else { return Woken::Event(session.next().await) };
        let timer = armed(&mut self.timer, wake.into());
        tokio::select! {
            biased;
            event = session.next() => Woken::Event(event),
            () = timer => Woken::Time,
        }
    }

    fn take(&mut self, event: Option<(usize, ChoiceEvent)>) {
        let now = Instant::now();
        match event {
            Some((index, event)) => self.coalescer.push(index, event, now),
            None => self.session = None,
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        for (index, event) in self.coalescer.take_ready() {
            match self.shape.event(index, event) {
                Ok(chunks) => chunks.iter().for_each(|chunk| encode(chunk, out)),
                // It takes every other answer of the request with it, and nothing follows.
                Err(error) => {
                    self.session = None;
                    self.shape.broken(&error).iter().for_each(|chunk| encode(chunk, out));
                    out.extend_from_slice(S::LAST);
                    return;
                }
            }
        }
        if self.session.is_none() {
            self.shape.close().iter().for_each(|chunk| encode(chunk, out));
            out.extend_from_slice(S::LAST);
        }
    }
}

/// A timer that fires at `wake` or before: one that is armed for an earlier time is left alone, since moving it costs
/// more than waking once too often.
fn armed(timer: &mut Option<Pin<Box<Sleep>>>, wake: tokio::time::Instant) -> Pin<&mut Sleep> {
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wake)));
    if timer.deadline() > wake || timer.is_elapsed() {
        timer.as_mut().reset(wake);
    }
    timer.as_mut()
}

/// One event. JSON text has no line breaks, so one `data` line is enough.
pub fn encode<T: Serialize + Named>(value: &T, out: &mut Vec<u8>) {
    if let Some(name) = value.name() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, value).expect("wire types have string keys and finite numbers only");
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests;
