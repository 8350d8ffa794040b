//! What was asked over HTTP: by route, method and status, and why it was refused. Labels come from the table of routes
//! and from this program, never from a client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Method;

use crate::app::App;
use crate::routes::ROUTES;

/// Counts since start.
#[derive(Debug, Default)]
pub struct HttpCounts {
    active: AtomicUsize,
    counts: Mutex<Counts>,
}

/// By route and method, those by status as well, and by the code of a refusal.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) responses: BTreeMap<(&'static str, &'static str, u16), u64>,
    pub(super) refusals: BTreeMap<&'static str, u64>,
}

/// A request until its last byte is out.
pub struct Active(Arc<App>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.metrics.http.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The route and the method as labels.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    route: &'static str,
    method: &'static str,
}

impl Asked {
    /// `matched` is the path of the route as the table has it; anything else is `other`.
    pub fn of(method: &Method, matched: Option<&str>) -> Self {
        let row = matched.and_then(|matched| ROUTES.iter().find(|row| row.path == matched));
        let known = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
        let method = known.into_iter().find(|known| method.as_str() == *known).unwrap_or("other");
        Asked { route: row.map_or("other", |row| row.path), method }
    }
}

impl HttpCounts {
    /// Counts a request until the guard is dropped.
    pub fn begin(app: &Arc<App>, asked: Asked) -> Active {
        let counts = &app.metrics.http;
        counts.active.fetch_add(1, Ordering::Relaxed);
        *counts.lock().requests.entry((asked.route, asked.method)).or_default() += 1;
        Active(Arc::clone(app))
    }

    /// Counts its answer; `refused` is the code of an error.
    pub fn answered(&self, asked: Asked, status: u16, refused: Option<&'static str>) {
        let mut counts = self.lock();
        *counts.responses.entry((asked.route, asked.method, status)).or_default() += 1;
        if let Some(code) = refused {
            *counts.refusals.entry(code).or_default() += 1;
        }
    }

    /// Requests whose answer is not yet out.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    pub(super) fn snapshot(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
