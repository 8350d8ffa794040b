//! Connections: accepted up to a number, spoken to in HTTP/1.1 or HTTP/2, with or without TLS, and let go when they
//! stall. What is asked and answered is the router's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::args::GuardOptions;

/// Header fields of one request.
const MOST_HEADERS: usize = 128;
/// Requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 1024;
/// How long accepting rests when the system has no more sockets to give.
const NO_SOCKETS: Duration = Duration::from_millis(200);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// How connections are treated; one for all ports.
#[derive(Clone)]
pub struct Connections {
    tls: Option<TlsAcceptor>,
    /// Zero = for ever.
    patience: Duration,
    header_bytes: usize,
    room: Arc<Semaphore>,
}

impl Connections {
    pub fn new(guard: &GuardOptions, tls: Option<TlsAcceptor>) -> Self {
        Connections {
            tls,
            patience: guard.patience,
            header_bytes: guard.header_bytes,
            room: Arc::new(Semaphore::new(guard.connections)),
        }
    }

    /// Serves until `stopped` changes or its sender goes; then open connections finish what they are at.
    pub async fn serve(self, listener: TcpListener, router: Router, mut stopped: watch::Receiver<()>) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&listener) => accepted,
                _ = stopped.changed() => break,
            };
            let (connection, peer, place) = accepted;
            let (this, router, watcher) = (self.clone(), router.clone(), graceful.watcher());
            tokio::spawn(async move {
                this.talk(connection, peer, router, watcher).await;
                drop(place);
            });
        }
        drop(listener);
        graceful.shutdown().await;
    }

    /// The next connection, once there is room for it.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, impl Send + use<>) {
        let room = Arc::clone(&self.room).acquire_owned().await;
        loop {
            match listener.accept().await {
                Ok((connection, peer)) => return (connection, peer, room),
                Err(error) => {
                    // A client that has gone again is its own business; a lack of sockets is everyone's.
                    tracing::debug!("a connection was not accepted: {error}");
                    if !matches!(error.kind(), std::io::ErrorKind::ConnectionAborted) {
                        tokio::time::sleep(NO_SOCKETS).await;
                    }
                }
            }
        }
    }

    async fn talk(&self, connection: TcpStream, peer: SocketAddr, router: Router, watcher: Watcher) {
        // Tokens are small; waiting to fill a packet would only delay them.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!("cannot turn off packet delay: {error}");
        }
        let mut connection = TimeoutStream::new(connection);
        connection.set_write_timeout((!self.patience.is_zero()).then_some(self.patience));
        let connection = Box::pin(connection);
        let Some(tls) = &self.tls else { return self.speak(connection, peer, router, watcher).await };
        let shaken = tls.accept(connection);
        let shaken = match self.patience.is_zero() {
            true => Ok(shaken.await),
            false => tokio::time::timeout(self.patience, shaken).await,
        };
        match shaken {
            Ok(Ok(connection)) => self.speak(connection, peer, router, watcher).await,
            Ok(Err(error)) => tracing::debug!("no TLS with {peer}: {error}"),
            Err(_) => tracing::debug!("no TLS with {peer}: it took too long"),
        }
    }

    async fn speak<C: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        connection: C,
        peer: SocketAddr,
        router: Router,
        watcher: Watcher,
    ) {
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer));
            router.clone().call(request)
        });
        let builder = self.builder();
        let connection = builder.serve_connection(TokioIo::new(connection), service);
        // Clients that leave, stall or talk nonsense end their connection with an error; that is no news.
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!("the connection of {peer} ended: {error}");
        }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        let patience = (!self.patience.is_zero()).then_some(self.patience);
        let mut http1 = builder.http1();
        http1.timer(TokioTimer::new()).header_read_timeout(patience);
        http1.max_buf_size(self.header_bytes).max_headers(MOST_HEADERS);
        // Packets of streams are small: copying one behind its chunk's head costs less than describing the pieces.
        http1.writev(false);
        let mut http2 = builder.http2();
        http2.timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS);
        http2.max_header_list_size(u32::try_from(self.header_bytes).unwrap_or(u32::MAX));
        http2.keep_alive_interval(patience.map(|patience| patience / 2));
        http2.keep_alive_timeout(patience.unwrap_or(Duration::MAX));
        builder
    }
}
