//! Answers as HTTP: server-sent events, or one JSON body folded from the same chunks.
//!
//! A stream's body owns the session: when the client goes, hyper drops the body, and with it goes every request.
//! A client that does not read stops the body from being polled; then the engine's channel fills and the engine
//! aborts. Silence, also before the first token, is broken by comments that proxies count as traffic.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Serialize;

use crate::error::ApiError;
use crate::generate::{self, Session};
use crate::shape::Shape;

/// Waits for everything and answers with one body.
pub async fn whole<S: Shape>(mut session: Session, mut shape: S) -> Result<Response, ApiError> {
    while let Some((index, event)) = session.next().await {
        for chunk in shape.event(index, event)? {
            shape.fold(chunk);
        }
    }
    Ok(Json(shape.whole()).into_response())
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

/// Answers with events. Zero `heartbeat` sends no comments.
pub fn events<S: Shape>(session: Session, shape: S, heartbeat: Duration) -> Response {
    let state = EventStream { session: Some(session), shape, heartbeat, queue: VecDeque::new() };
    let mut response = Response::new(Body::from_stream(state.into_stream()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells nginx not to collect the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct EventStream<S> {
    /// Gone after the last event.
    session: Option<Session>,
    shape: S,
    heartbeat: Duration,
    queue: VecDeque<Bytes>,
}

impl<S: Shape> EventStream<S> {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        futures_util::stream::unfold(self, |mut state| async move {
            let bytes = state.next().await?;
            Some((Ok(bytes), state))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                return Some(bytes);
            }
            let session = self.session.as_mut()?;
            let event = if self.heartbeat.is_zero() {
                session.next().await
            } else {
                match tokio::time::timeout(self.heartbeat, session.next()).await {
                    Ok(event) => event,
                    Err(_) => return Some(Bytes::from_static(b": heartbeat\n\n")),
                }
            };
            match event {
                Some((index, event)) => match self.shape.event(index, event) {
                    Ok(chunks) => self.queue.extend(chunks.iter().map(encode)),
                    Err(error) => self.end(Some(&error)),
                },
                None => self.end(None),
            }
        }
    }

    /// The last events; nothing ever follows `[DONE]`. An error takes every other answer of the request with it.
    fn end(&mut self, error: Option<&ApiError>) {
        self.session = None;
        match error {
            Some(error) => self.queue.push_back(encode(&error.body())),
            None => self.queue.extend(self.shape.usage_chunk().iter().map(encode)),
        }
        self.queue.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }
}

/// One event. JSON text has no line breaks, so one `data` line is enough.
fn encode<T: Serialize>(value: &T) -> Bytes {
    let mut bytes = b"data: ".to_vec();
    serde_json::to_writer(&mut bytes, value).expect("wire types have string keys and finite numbers only");
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}
