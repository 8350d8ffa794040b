//! The watchdog: notices an engine that has work and makes no step, one that is idle and could not make one, and a
//! disk that is full. It only looks and says so; whoever runs the server restarts it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::app::App;
use crate::args::HealthOptions;
use crate::generate::{ChoiceEvent, Session};
use crate::routes::one_token;

/// How often it looks, unless a shorter limit asks for more.
const SLOWEST_ROUND: Duration = Duration::from_secs(1);
/// How long a disk may take to say how much room it has.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// How long an idle engine may take for one token when no watchdog says so.
const LONGEST_PROBE: Duration = Duration::from_secs(300);

/// What the watchdog has seen; read by the probes, which never wait.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Steps done when last looked.
    steps: u64,
    /// When steps were last done, or nothing was to be done.
    progress: Option<Instant>,
    /// When something was last done or to be done.
    work: Option<Instant>,
    /// Since when there is work and no step.
    stalled: Option<Instant>,
    /// Why an idle engine made no token.
    probe: Option<String>,
    disk: Option<String>,
}

impl Watch {
    /// For how long there has been work without a step, once that is too long. A step that was done since the last look,
    /// as the engine's count `steps` tells, ends it at once.
    pub fn stalled(&self, steps: u64) -> Option<Duration> {
        let seen = self.lock();
        seen.stalled.filter(|_| seen.steps == steps).map(|since| since.elapsed())
    }

    /// What keeps this server from being ready although it may still answer, as a sentence; `steps` as above.
    pub fn unwell(&self, steps: u64) -> Option<String> {
        let seen = self.lock();
        seen.disk.clone().or_else(|| seen.probe.clone().filter(|_| seen.steps == steps))
    }

    /// Notes the engine's numbers. `true` when this is when a stall is first noticed.
    fn note(&self, steps: u64, open: usize, limit: Duration, now: Instant) -> bool {
        let mut seen = self.lock();
        let moved = steps != seen.steps;
        let since = seen.progress.filter(|_| open > 0 && !moved).unwrap_or(now);
        if open > 0 || moved || seen.work.is_none() {
            seen.work = Some(now);
        }
        if moved {
            // A step is what a probe asks for.
            seen.probe = None;
        }
        (seen.steps, seen.progress) = (steps, Some(since));
        let stalls = !limit.is_zero() && now.saturating_duration_since(since) > limit;
        let begins = stalls && seen.stalled.is_none();
        seen.stalled = stalls.then_some(since);
        begins
    }

    fn note_disk(&self, full: Option<String>) {
        let mut seen = self.lock();
        if let (Some(sentence), None) = (&full, &seen.disk) {
            tracing::error!("not ready: {sentence}");
        }
        seen.disk = full;
    }

    fn note_probe(&self, failed: Option<String>) {
        let mut seen = self.lock();
        (seen.probe, seen.work) = (failed, Some(Instant::now()));
    }

    /// Whether nothing was done or to be done for so long.
    fn idles(&self, limit: Duration) -> bool {
        self.lock().work.is_some_and(|work| work.elapsed() >= limit)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts looking; ends with the process.
pub fn start(app: &Arc<App>) {
    // Apart, because a disk that hangs must not keep a stall from being seen.
    tokio::spawn(look(Arc::clone(app)));
    tokio::spawn(look_at_disks(Arc::clone(app)));
    if !app.http.health.idle_probe.is_zero() {
        tokio::spawn(probe(Arc::clone(app)));
    }
}

/// A quarter of the limit, so that what lasts for so long is noticed soon after.
fn round(limit: Duration) -> Duration {
    let asked = if limit.is_zero() { SLOWEST_ROUND } else { limit / 4 };
    asked.clamp(Duration::from_millis(10), SLOWEST_ROUND)
}

async fn look(app: Arc<App>) {
    let watchdog = app.http.health.watchdog;
    loop {
        look_at_engine(&app, watchdog);
        tokio::time::sleep(round(watchdog)).await;
    }
}

async fn look_at_disks(app: Arc<App>) {
    loop {
        let options = app.http.health.clone();
        ask_disks(&app.watch, DISK_PATIENCE, move || full_disk(&options)).await;
        tokio::time::sleep(SLOWEST_ROUND).await;
    }
}

/// Notes what `ask` finds, and, when it takes too long as a network's disk may, that it does.
async fn ask_disks(watch: &Watch, patience: Duration, ask: impl FnOnce() -> Option<String> + Send + 'static) {
    let mut asked = tokio::task::spawn_blocking(ask);
    let full = match tokio::time::timeout(patience, &mut asked).await {
        Ok(full) => full,
        Err(_) => {
            let seconds = patience.as_secs_f64();
            watch.note_disk(Some(format!("the disks to watch have not answered for {seconds} s")));
            // One question at a time, however long it takes.
            asked.await
        }
    };
    watch.note_disk(full.unwrap_or(None));
}

fn look_at_engine(app: &App, watchdog: Duration) {
    let Some(serving) = app.loaded() else { return };
    let (stats, open) = (serving.engine.stats(), serving.engine.num_open());
    if app.watch.note(stats.counters.steps, open, watchdog, Instant::now()) {
        tracing::error!(
            open,
            running = stats.running,
            waiting = stats.waiting,
            steps = stats.counters.steps,
            steps_in_flight = stats.steps_in_flight,
            oldest_step_us = stats.oldest_step_us,
            pages_free = stats.pages.free,
            pages_leased = stats.pages.leased,
            pages_cached = stats.pages.cached,
            "stalled: there is work and no step has finished for {} s",
            watchdog.as_secs()
        );
    }
}

/// Has an idle engine make one token from time to time: a device that went away while nobody asked is noticed before
/// somebody does.
async fn probe(app: Arc<App>) {
    let health = app.http.health.clone();
    let patience = if health.watchdog.is_zero() { LONGEST_PROBE } else { health.watchdog };
    loop {
        tokio::time::sleep(round(health.idle_probe)).await;
        if app.loaded().is_none() || app.is_draining() || !app.watch.idles(health.idle_probe) {
            continue;
        }
        let failed = make_a_token(&app, patience).await.err();
        app.metrics.idle_probe(failed.is_none());
        if let Some(reason) = &failed {
            tracing::error!("not ready: {reason}");
        }
        app.watch.note_probe(failed);
    }
}

/// One token through the whole engine, or why it did not come.
pub async fn make_a_token(app: &Arc<App>, patience: Duration) -> Result<(), String> {
    let job = one_token(app).map_err(|error| error.message)?;
    let answered = async {
        let mut session = Session::start(app, &job).map_err(|error| error.message)?;
        while let Some((_, event)) = session.next().await {
            if let ChoiceEvent::Failed(error) = event {
                return Err(error.message);
            }
        }
        Ok(())
    };
    let late =
        format!("the engine was asked for one token and made none within {} s", patience.as_secs_f64());
    tokio::time::timeout(patience, answered).await.unwrap_or(Err(late))
}

/// The first disk that has too little room. One that is only read is nobody's concern, nor is a folder that has gone.
fn full_disk(options: &HealthOptions) -> Option<String> {
    let least = options.min_free_bytes;
    options.disks.iter().filter(|_| least > 0).find_map(|dir| {
        let free = free_bytes(dir)?;
        (free < least).then(|| {
            format!("the disk of {} has {free} bytes free; at least {least} are needed", dir.display())
        })
    })
}

/// Bytes that may still be written; `None` where nothing ever may.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(dir).ok()?;
    let read_only = about.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    (!read_only).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_without_steps_is_a_stall() {
        let (watch, limit, start) = (Watch::default(), Duration::from_secs(10), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // Idle for an hour, then busy, then without a step.
        assert!(!watch.note(5, 0, limit, start) && !watch.note(5, 0, limit, at(3600)));
        assert!(!watch.note(5, 3, limit, at(3601)) && !watch.note(6, 3, limit, at(3608)));
        assert!(!watch.note(6, 3, limit, at(3618)), "ten seconds are allowed");
        assert!(watch.note(6, 3, limit, at(3619)), "eleven are not");
        assert!(!watch.note(6, 3, limit, at(3625)), "it is said once");
        assert!(watch.stalled(6).is_some());
        assert!(watch.stalled(7).is_none(), "a step that was not looked at yet ends it too");
        watch.note(7, 3, limit, at(3626));
        assert!(watch.lock().stalled.is_none(), "a step ends it");
        assert!(!watch.note(7, 1, Duration::ZERO, at(9999)), "without a limit nothing stalls");
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_told_until_it_answers() {
        let watch = std::sync::Arc::new(Watch::default());
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let asking = {
            let watch = std::sync::Arc::clone(&watch);
            let hang = move || wait.recv().ok().and(None);
            tokio::spawn(async move { ask_disks(&watch, Duration::from_millis(20), hang).await })
        };
        let begun = Instant::now();
        while watch.unwell(0).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody noticed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(watch.unwell(0).unwrap(), "the disks to watch have not answered for 0.02 s");
        go_on.send(()).unwrap();
        asking.await.unwrap();
        assert_eq!(watch.unwell(0), None);
    }

    #[test]
    fn a_full_disk_is_told_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let words = ["serve".to_owned()];
        let mut options =
            crate::args::Options::read(&crate::args::parse(&words).unwrap()).unwrap().http.health;
        options.disks = vec![dir.path().join("gone"), dir.path().to_owned()];
        for (least, full) in [(0, false), (1, false), (u64::MAX, true)] {
            options.min_free_bytes = least;
            assert_eq!(full_disk(&options).is_some(), full, "{least}");
        }
        let sentence = full_disk(&options).unwrap();
        assert!(
            sentence.contains(&dir.path().display().to_string()) && sentence.contains(&u64::MAX.to_string())
        );
    }
}
