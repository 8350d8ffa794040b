//! The progress of loading on the terminal: a bar where there is one, lines in the log elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};
use m3_core::load::Progress;

use crate::phase::PhaseCell;

/// Shows a [`PhaseCell`] as it advances.
pub struct ProgressView {
    bar: Option<ProgressBar>,
    /// Phase and ten-percent step last logged.
    logged: Mutex<(&'static str, u8)>,
}

impl Default for ProgressView {
    fn default() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix:>10} [{bar:40}] {percent:>3} % {msg}");
            let bar = ProgressBar::new(100);
            // The template is a constant that parses; a plain bar would do as well.
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        ProgressView { bar, logged: Mutex::new(("", 0)) }
    }
}

impl ProgressView {
    /// Notes progress in `cell` and shows it.
    pub fn report(&self, cell: &PhaseCell, progress: Progress) {
        // Ready is said when the engine serves, not when the weights are there.
        if progress != Progress::Ready {
            cell.set(progress);
        }
        self.show(cell);
    }

    /// Notes how much of a model is here in `cell` and shows it.
    pub fn download(&self, cell: &PhaseCell, done_bytes: u64, total_bytes: u64) {
        cell.download(done_bytes, total_bytes);
        self.show(cell);
    }

    fn show(&self, cell: &PhaseCell) {
        let phase = cell.get();
        if let Some(bar) = &self.bar {
            bar.set_prefix(phase.name);
            bar.set_message(phase.detail);
            bar.set_position(u64::from(phase.percent));
            return;
        }
        let step = (phase.name, phase.percent / 10);
        let mut logged = self.logged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *logged != step {
            *logged = step;
            tracing::info!("{} {} % {}", phase.name, phase.percent, phase.detail);
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
