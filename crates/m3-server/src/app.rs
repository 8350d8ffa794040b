//! What all routes share: the served model once it is loaded, counters, limits and the drain state.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use m3_core::engine::{EngineHandle, Health};
use tokio::sync::Notify;

use crate::args::HttpOptions;
use crate::error::ApiError;
use crate::generate::Pacer;
use crate::info::ServerInfo;
use crate::limits::Limits;
use crate::media::Media;
use crate::metrics::ServerMetrics;
use crate::model::ServedModel;
use crate::phase::PhaseCell;
use crate::responses::Store;
use crate::running::Running;
use crate::watch::Watch;

/// One server.
pub struct App {
    pub http: HttpOptions,
    /// The model's first name, known before it is loaded.
    pub model_name: String,
    pub phase: PhaseCell,
    pub metrics: ServerMetrics,
    /// Earlier responses of `/v1/responses`.
    pub responses: Store,
    /// Requests by the names that callers know.
    pub running: Running,
    /// Fetches and decodes images and videos.
    pub media: Media,
    /// Wakes the readers of answers.
    pub pacer: Arc<Pacer>,
    /// What each client may take from the others.
    pub limits: Arc<Limits>,
    pub watch: Watch,
    serving: OnceLock<Serving>,
    draining: AtomicBool,
    /// Draining because an admin asked for it, who may change their mind.
    paused: AtomicBool,
    active: Arc<Active>,
    next_id: AtomicU64,
}

/// A loaded model and its engine.
pub struct Serving {
    pub model: ServedModel,
    pub engine: EngineHandle,
    pub info: ServerInfo,
}

#[derive(Default)]
struct Active {
    count: AtomicUsize,
    idle: Notify,
}

/// A request that a drain waits for; counted until it is dropped.
pub struct InFlight(Arc<Active>);

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Whether this server should get traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Loading,
    Ready,
    Draining,
    /// Alive, but no step has finished for too long.
    Stalled(Duration),
    /// Requests are answered, and yet new ones should go elsewhere; why, as a sentence.
    Unwell(String),
    /// Nothing will be served again.
    Dead(String),
}

impl App {
    /// A server without a model yet; `model_name` is what it will go by.
    ///
    /// # Errors
    /// What the options say about media cannot be done: no such folder, no TLS.
    pub fn new(http: HttpOptions, model_name: String) -> Result<Arc<Self>, m3_media::Error> {
        let media = Media::new(&http.media)?;
        let responses = Store::new(http.max_responses, http.max_response_bytes);
        Ok(Arc::new(App {
            responses,
            media,
            running: Running::default(),
            pacer: Arc::default(),
            limits: Limits::new(http.guard.clone()),
            watch: Watch::default(),
            http,
            model_name,
            phase: PhaseCell::default(),
            metrics: ServerMetrics::default(),
            serving: OnceLock::new(),
            draining: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            active: Arc::default(),
            next_id: AtomicU64::new(1),
        }))
    }

    /// The model is there: requests are served from now on.
    pub fn publish(&self, serving: Serving) {
        // A second model would be a bug of the loader; the first one keeps serving.
        let _ = self.serving.set(serving);
        self.phase.set(m3_core::load::Progress::Ready);
    }

    /// The model, or 503 with how far loading is.
    pub fn serving(&self) -> Result<&Serving, ApiError> {
        self.serving.get().ok_or_else(|| {
            let phase = self.phase.get();
            let sentence =
                format!("the model is not ready: {} ({} %) {}", phase.name, phase.percent, phase.detail);
            ApiError::unavailable("loading", sentence.trim_end())
        })
    }

    /// The model, when it is there.
    pub fn loaded(&self) -> Option<&Serving> {
        self.serving.get()
    }

    /// Counts a request until the guard is dropped; refused while draining.
    pub fn enter(&self) -> Result<InFlight, ApiError> {
        self.active.count.fetch_add(1, Ordering::AcqRel);
        let guard = InFlight(Arc::clone(&self.active));
        if self.is_draining() {
            return Err(ApiError::unavailable(
                "draining",
                "this server is shutting down and takes no new requests",
            ));
        }
        Ok(guard)
    }

    /// A number no other engine request of this process has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the server stands now.
    pub fn state(&self) -> State {
        let Some(serving) = self.loaded() else {
            let phase = self.phase.get();
            return if phase.name == "failed" { State::Dead(phase.detail) } else { State::Loading };
        };
        match serving.engine.health() {
            Health::Dead(reason) => return State::Dead(reason),
            Health::Draining => return State::Draining,
            Health::Serving => {}
        }
        if self.is_draining() {
            return State::Draining;
        }
        let stats = serving.engine.stats();
        let (steps, oldest) = (stats.counters.steps, Duration::from_micros(stats.oldest_step_us));
        let limit = self.http.health.watchdog;
        if !limit.is_zero() && oldest > limit {
            return State::Stalled(oldest.max(self.watch.stalled(steps).unwrap_or_default()));
        }
        match (self.watch.stalled(steps), self.watch.unwell(steps)) {
            (Some(age), _) => State::Stalled(age),
            (None, Some(sentence)) => State::Unwell(sentence),
            (None, None) => State::Ready,
        }
    }

    /// Whether new requests are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) || self.paused.load(Ordering::Acquire)
    }

    /// Refuses new requests, or takes them again unless the server is shutting down.
    pub fn pause(&self, pause: bool) {
        self.paused.store(pause, Ordering::Release);
    }

    /// Requests that a drain would wait for.
    pub fn num_active(&self) -> usize {
        self.active.count.load(Ordering::Acquire)
    }

    /// No new requests from now on; running ones go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Waits until no request is in flight; `false` when `limit` passes first.
    pub async fn wait_idle(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let notified = self.active.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.active.count.load(Ordering::Acquire) == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || tokio::time::timeout(left, notified).await.is_err() {
                return self.active.count.load(Ordering::Acquire) == 0;
            }
        }
    }
}
