//! Answers as HTTP: server-sent events, or one JSON body folded from the same chunks.
//!
//! A stream's body owns the session: when the client goes, hyper drops the body, and with it goes every request.
//! A client that does not read stops the body from being polled; then the engine's channel fills and the engine
//! aborts. Silence, also before the first token, is broken by comments that proxies count as traffic.

mod coalesce;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Serialize;

use crate::error::ApiError;
use crate::generate::{self, Session};
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
    while let Some((index, event)) = session.next_of_whole().await {
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
    response(Body::from_stream(frames(session, shape, options)))
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
    Frames {
        session: Some(session),
        shape,
        coalescer: Coalescer::new(options.pacing),
        heartbeat: options.heartbeat,
        opened: false,
        last_sent: Instant::now(),
        out: Vec::new(),
    }
}

/// See [`frames`].
pub struct Frames<S> {
    /// Gone after the last event.
    session: Option<Session>,
    shape: S,
    coalescer: Coalescer,
    heartbeat: Duration,
    opened: bool,
    last_sent: Instant,
    out: Vec<u8>,
}

/// Bytes above which a frame is sent although more events are there.
const LARGEST_FRAME: usize = 16 << 10;

impl<S: Shape> Stream for Frames<S> {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_frame(context).map(|frame| frame.map(Ok))
    }
}

impl<S: Shape> Frames<S> {
    /// The next frame; `None` after the last event.
    pub async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|context| self.poll_frame(context)).await
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !std::mem::replace(&mut self.opened, true) {
            let first = self.shape.open();
            first.iter().for_each(|chunk| encode(chunk, &mut self.out));
        }
        // What is there already goes into one frame.
        let mut now = Instant::now();
        let mut ticked = false;
        while self.out.len() < LARGEST_FRAME {
            let Some(session) = self.session.as_mut() else { break };
            let (patience, due) = self.coalescer.next_look(now, |index| session.is_eager(index));
            let beat = (!self.heartbeat.is_zero()).then(|| self.last_sent + self.heartbeat);
            let wake_at = beat.into_iter().chain(due).min();
            match session.poll_next(context, patience, wake_at) {
                Poll::Ready(Some((index, event, at))) => self.coalescer.push(index, event, at),
                Poll::Ready(None) => self.session = None,
                Poll::Pending if ticked => break,
                Poll::Pending => {
                    now = Instant::now();
                    self.coalescer.tick(now);
                    ticked = true;
                }
            }
            self.write();
        }
        if self.out.is_empty() && self.session.is_some() {
            if self.heartbeat.is_zero() || now < self.last_sent + self.heartbeat {
                return Poll::Pending;
            }
            self.out.extend_from_slice(self.shape.heartbeat());
        }
        if self.out.is_empty() {
            return Poll::Ready(None);
        }
        self.last_sent = now;
        Poll::Ready(Some(Bytes::from(std::mem::take(&mut self.out))))
    }

    fn write(&mut self) {
        for (index, event) in self.coalescer.take_ready() {
            match self.shape.event(index, event) {
                Ok(chunks) => chunks.iter().for_each(|chunk| encode(chunk, &mut self.out)),
                // It takes every other answer of the request with it, and nothing follows.
                Err(error) => {
                    self.session = None;
                    self.shape.broken(&error).iter().for_each(|chunk| encode(chunk, &mut self.out));
                    self.out.extend_from_slice(S::LAST);
                    return;
                }
            }
        }
        if self.session.is_none() {
            self.shape.close().iter().for_each(|chunk| encode(chunk, &mut self.out));
            self.out.extend_from_slice(S::LAST);
        }
    }
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
