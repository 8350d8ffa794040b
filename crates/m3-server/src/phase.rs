//! How far loading is, for `/ready` and the progress bar.

use std::sync::Mutex;

use m3_core::load::Progress;

/// Where start-up is.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// A word: `downloading`, `opening`, `loading`, `repacking`, `reserving`, `warming`, `ready`, `failed`.
    pub name: &'static str,
    /// Of the whole start-up, 0 to 100, never falling.
    pub percent: u8,
    /// More, in words.
    pub detail: String,
}

/// The current phase; shared by the loader and the routes.
#[derive(Debug)]
pub struct PhaseCell(Mutex<(Phase, u8)>);

/// What a download is of the whole, when there is one.
const DOWNLOAD_PERCENT: u8 = 50;

impl Default for PhaseCell {
    fn default() -> Self {
        PhaseCell(Mutex::new((Phase { name: "opening", percent: 0, detail: String::new() }, 0)))
    }
}

impl PhaseCell {
    /// A snapshot.
    pub fn get(&self) -> Phase {
        self.lock().0.clone()
    }

    /// Notes progress; a late report of an earlier phase changes nothing.
    pub fn set(&self, progress: Progress) {
        let mut next = Phase::of(progress);
        let mut cell = self.lock();
        // What comes after a download shares the rest.
        let floor = u32::from(cell.1);
        next.percent = (floor + u32::from(next.percent) * (100 - floor) / 100) as u8;
        if next.percent >= cell.0.percent {
            cell.0 = next;
        }
    }

    /// Notes how much of a model has come from a hub.
    pub fn download(&self, done_bytes: u64, total_bytes: u64) {
        let mut cell = self.lock();
        cell.1 = DOWNLOAD_PERCENT;
        let share = done_bytes as f64 / total_bytes.max(1) as f64;
        let percent = ((share * f64::from(DOWNLOAD_PERCENT)) as u8).min(DOWNLOAD_PERCENT);
        let detail = format!("{} of {} MiB", done_bytes >> 20, total_bytes >> 20);
        // A file that has to come again makes the bytes fall, never the percent.
        let percent = percent.max(if cell.0.name == "downloading" { cell.0.percent } else { 0 });
        cell.0 = Phase { name: "downloading", percent, detail };
    }

    /// Start-up has failed for good.
    pub fn fail(&self, reason: String) {
        let mut cell = self.lock();
        cell.0 = Phase { name: "failed", percent: cell.0.percent, detail: reason };
    }

    /// A panic elsewhere cannot leave a phase half written.
    fn lock(&self) -> std::sync::MutexGuard<'_, (Phase, u8)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Phase {
    /// The share of each phase is a guess; within loading it is exact.
    fn of(progress: Progress) -> Self {
        const LOADING: (u64, u64) = (2, 85);
        let plain = |name, percent| Phase { name, percent, detail: String::new() };
        match progress {
            Progress::Opening => plain("opening", 0),
            Progress::Loading { done_bytes, total_bytes } => {
                let (from, to) = LOADING;
                let share = (to - from) as f64 * done_bytes as f64 / total_bytes.max(1) as f64;
                let percent = (from + share as u64).min(to) as u8;
                let detail = format!("{} of {} MiB", done_bytes >> 20, total_bytes >> 20);
                Phase { name: "loading", percent, detail }
            }
            Progress::Repacking => plain("repacking", 86),
            Progress::Reserving { pages } => {
                Phase { detail: format!("{pages} pages"), ..plain("reserving", 90) }
            }
            Progress::Warming => plain("warming", 94),
            Progress::Ready => plain("ready", 100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_grows_with_bytes_and_never_falls() {
        let cell = PhaseCell::default();
        let mut last = 0;
        for done in 0..=10 {
            cell.set(Progress::Loading { done_bytes: done * 100, total_bytes: 1000 });
            let phase = cell.get();
            assert!(phase.percent >= last && phase.name == "loading");
            last = phase.percent;
        }
        assert_eq!(last, 85);
        cell.set(Progress::Warming);
        cell.set(Progress::Loading { done_bytes: 1000, total_bytes: 1000 });
        assert_eq!((cell.get().name, cell.get().percent), ("warming", 94));
        cell.set(Progress::Ready);
        assert_eq!(cell.get().percent, 100);
    }

    #[test]
    fn a_download_is_half_of_the_way() {
        let cell = PhaseCell::default();
        cell.download(500, 1000);
        assert_eq!((cell.get().name, cell.get().percent), ("downloading", 25));
        cell.download(100, 1000);
        assert_eq!(cell.get().percent, 25, "it never falls");
        cell.download(1000, 1000);
        cell.set(Progress::Loading { done_bytes: 0, total_bytes: 10 });
        assert_eq!((cell.get().name, cell.get().percent), ("loading", 51));
        cell.set(Progress::Ready);
        assert_eq!(cell.get().percent, 100);
    }
}
