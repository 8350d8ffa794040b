//! `m3 serve`: opens the port, loads the model behind it, serves, and drains on a signal.
//!
//! The port is open before the model is there, so that `/live` and `/ready` answer from the first moment. On SIGTERM
//! (or Ctrl-C) readiness turns red at once, running requests get their time, then the process ends with 0; a second
//! signal cuts the wait short.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::app::{App, Serving};
use crate::args::Options;
use crate::boot;
use crate::error;
use crate::listen::Connections;
use crate::place;
use crate::progress::ProgressView;
use crate::routes::{self, Door};
use crate::tls;

/// What aborted requests get to say goodbye with.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT ends it; `bound` hears the address.
pub async fn serve(options: Options, bound: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (ask, asked) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if ask.send(()).await.is_err() {
                return;
            }
        }
    });
    serve_until(options, bound, asked).await
}

/// Runs until the first message of `stops`, which starts the drain; the second one cuts it short.
pub async fn serve_until(
    options: Options,
    bound: impl FnOnce(SocketAddr),
    mut stops: mpsc::Receiver<()>,
) -> anyhow::Result<()> {
    let app = App::new(options.http.clone(), place::first_name(&options.model))?;
    let (ports, address) = Ports::bind(&app).await?;
    bound(address);
    let (stop, stopped) = watch::channel(());
    let mut server = tokio::spawn(ports.serve(Arc::clone(&app), stopped));
    crate::watch::start(&app);
    let mut loading = start_loading(&app, options)?;
    let mut loaded = false;
    loop {
        tokio::select! {
            result = &mut loading, if !loaded => {
                loaded = true;
                let serving = result.context("the loading thread ended without an answer")??;
                tracing::info!("serving {} on {address}", serving.model.names.join(", "));
                app.publish(serving);
            }
            ended = &mut server => return ended.context("the HTTP server failed"),
            Some(()) = stops.recv() => break,
        }
    }
    drain(&app, &mut stops).await;
    drop(stop);
    // Connections without a request are closed at once; the others have had their time.
    if tokio::time::timeout(LAST_WORDS, server).await.is_err() {
        tracing::warn!("some connections did not close in time");
    }
    if let Some(serving) = app.loaded() {
        let engine = serving.engine.clone();
        let _ = tokio::task::spawn_blocking(move || engine.shutdown()).await;
    }
    Ok(())
}

/// The sockets of one server.
struct Ports {
    connections: Connections,
    listeners: Vec<(TcpListener, Door)>,
}

impl Ports {
    /// Opens them all, or says which one cannot be; the address is that of the first.
    async fn bind(app: &App) -> anyhow::Result<(Self, SocketAddr)> {
        let access = &app.http.access;
        let tls = access.tls.as_ref().map(tls::acceptor).transpose()?;
        raise_file_limit();
        let main = SocketAddr::new(app.http.host, app.http.port);
        let door = if access.admin.is_some() { Door::Public } else { Door::Only };
        let asked = [Some((main, door)), access.admin.map(|address| (address, Door::Admin))];
        let mut listeners = Vec::new();
        for (address, door) in asked.into_iter().flatten() {
            let listener = TcpListener::bind(address).await;
            listeners.push((listener.with_context(|| format!("cannot listen on {address}"))?, door));
        }
        let address = listeners[0].0.local_addr()?;
        if let Some((admin, _)) = listeners.get(1) {
            tracing::info!("the admin's port is {}", admin.local_addr()?);
        }
        if !address.ip().is_loopback() && access.api_keys.is_empty() {
            tracing::warn!(
                "everyone who reaches {address} may ask: give --api-key, or keep it behind a proxy"
            );
        }
        Ok((Ports { connections: Connections::new(&app.http.guard, tls), listeners }, address))
    }

    async fn serve(self, app: Arc<App>, stopped: watch::Receiver<()>) {
        let each = self.listeners.into_iter().map(|(listener, door)| {
            let router = routes::router(Arc::clone(&app), door);
            self.connections.clone().serve(listener, router, stopped.clone())
        });
        futures_util::future::join_all(each).await;
    }
}

/// Every connection is a file, and many shells allow a thousand: as many as the system lets this process have.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::debug!("at most {:?} files can be open: {error}", limit.current);
    }
}

/// Loading blocks for minutes and may be left behind when a signal comes, so it has a thread of its own.
fn start_loading(
    app: &Arc<App>,
    options: Options,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Serving>>> {
    let (answer, answered) = oneshot::channel();
    let app = Arc::clone(app);
    let load = move || {
        let view = ProgressView::default();
        let mut options = options;
        let fetched = place::fetch(&mut options.model, &|done, total| view.download(&app.phase, done, total));
        let result =
            fetched.and_then(|()| boot::boot(&options, &|progress| view.report(&app.phase, progress)));
        view.end();
        if let Err(error) = &result {
            app.phase.fail(error::sentence(error));
        }
        // Nobody waits any more when a signal came first.
        let _ = answer.send(result);
    };
    std::thread::Builder::new().name("m3-load".into()).spawn(load)?;
    Ok(answered)
}

async fn drain(app: &App, stops: &mut mpsc::Receiver<()>) {
    app.drain();
    if let Some(serving) = app.loaded() {
        serving.engine.drain();
    }
    let limit = app.http.drain;
    tracing::info!("shutting down: running requests have {} s", limit.as_secs());
    let idle = tokio::select! {
        idle = app.wait_idle(limit) => idle,
        Some(()) = stops.recv() => false,
    };
    if idle {
        return;
    }
    tracing::warn!("requests are still running and are aborted now");
    if let Some(serving) = app.loaded() {
        let engine = serving.engine.clone();
        let _ = tokio::task::spawn_blocking(move || engine.shutdown()).await;
    }
    app.wait_idle(LAST_WORDS).await;
}
