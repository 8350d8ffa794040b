//! `m3 serve`: opens the port, loads the model behind it, serves, and drains on a signal.
//!
//! The port is open before the model is there, so that `/live` and `/ready` answer from the first moment. On SIGTERM
//! (or Ctrl-C) readiness turns red at once, running requests get their time, then the process ends with 0; a second
//! signal cuts the wait short.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::app::{App, Serving};
use crate::args::Options;
use crate::boot;
use crate::error;
use crate::progress::ProgressView;
use crate::routes;

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
    let app = App::new(options.http.clone(), boot::first_name(&options.model))?;
    let address = SocketAddr::new(options.http.host, options.http.port);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    bound(address);
    // Tokens are small; waiting to fill a packet would only delay them.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!("cannot turn off packet delay: {error}");
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let router = routes::router(Arc::clone(&app));
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        // A dropped sender means the same: stop.
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(async move { server.await });
    let mut loading = start_loading(&app, options)?;
    let mut loaded = false;
    loop {
        tokio::select! {
            result = &mut loading, if !loaded => {
                loaded = true;
                let serving = result.context("the loading thread ended without an answer")??;
                tracing::info!("serving {} on http://{address}", serving.model.names.join(", "));
                app.publish(serving);
            }
            ended = &mut server => return ended?.context("the HTTP server failed"),
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

/// Loading blocks for minutes and may be left behind when a signal comes, so it has a thread of its own.
fn start_loading(
    app: &Arc<App>,
    options: Options,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<Serving>>> {
    let (answer, answered) = oneshot::channel();
    let app = Arc::clone(app);
    let load = move || {
        let view = ProgressView::default();
        let result = boot::boot(&options, &|progress| view.report(&app.phase, progress));
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
