//! Clients that send a body too slowly, and answers that hold something until they have been sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// Every so many bytes of a body buy its sender one more second.
const BYTES_A_SECOND: u64 = 16 << 10;

/// Why a body was given up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the body came too slowly: {received} bytes in {seconds} s")]
pub struct TooSlow {
    received: u64,
    seconds: u64,
}

/// A request's body that must come: one that trickles is given up like one that stalls.
struct Paced {
    body: Body,
    patience: Duration,
    begun: Instant,
    received: u64,
    timer: Pin<Box<Sleep>>,
}

/// A body that fails with [`TooSlow`] unless it keeps coming; zero `patience` waits for ever.
pub fn paced(body: Body, patience: Duration) -> Body {
    if patience.is_zero() || body.is_end_stream() {
        return body;
    }
    let begun = Instant::now();
    let timer = Box::pin(sleep_until(begun + patience));
    Body::new(Paced { body, patience, begun, received: 0, timer })
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                let bought = Duration::from_secs(this.received / BYTES_A_SECOND);
                this.timer.as_mut().reset(this.begun + this.patience + bought);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending => this.timer.as_mut().poll(context).map(|()| {
                let seconds = this.begun.elapsed().as_secs();
                Some(Err(axum::Error::new(TooSlow { received: this.received, seconds })))
            }),
            ended => ended,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

/// A response's body with what must live until it was sent.
struct Holding<T> {
    body: Body,
    _held: T,
    span: tracing::Span,
}

/// Keeps `held` until the last byte is out or the client has gone; the body is made within `span`.
pub fn holding<T: Send + Unpin + 'static>(body: Body, held: T, span: tracing::Span) -> Body {
    Body::new(Holding { body, _held: held, span })
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _entered = this.span.enter();
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}
