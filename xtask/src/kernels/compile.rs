//! Runs the compile driver and shows how far it is.

use super::folder;
use super::index::{self, Description, Index};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A line of the driver's output.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Plan { total: u64, cached: u64 },
    Done { title: String },
    Error { title: String, sentence: String },
}

/// Compiles what is not cached; every kernel that fails is named.
pub(super) fn run(root: &Path, python: &str, target: &str) -> Result<Index> {
    let begun = Instant::now();
    let mut child = driver(root, python, target)
        .args(["--json", "--out"])
        .arg(folder(root))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{python}`"))?;
    let output = child.stdout.take().context("the compile driver has no output")?;
    let mut progress = Progress::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        match serde_json::from_str::<Event>(&line) {
            Ok(event) => progress.note(event),
            Err(_) => println!("{line}"),
        }
    }
    let status = child.wait()?;
    progress.bar.finish_and_clear();
    if !progress.errors.is_empty() {
        bail!("{} kernel problems:\n{}", progress.errors.len(), progress.errors.join("\n"));
    }
    if !status.success() {
        bail!("the compile driver failed: {status}");
    }
    let (total, cached) = (progress.total, progress.cached);
    println!("{total} functions, {cached} of them cached, after {} s", begun.elapsed().as_secs());
    index::read(&folder(root).join(format!("{target}.json")))
}

/// The manifest as the driver understands it; nothing is compiled.
pub(super) fn describe(root: &Path, python: &str, target: &str) -> Result<Description> {
    let output = driver(root, python, target)
        .arg("--describe")
        .output()
        .with_context(|| format!("cannot start `{python}`"))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("the compile driver's description does not parse")
}

fn driver(root: &Path, python: &str, target: &str) -> Command {
    let mut command = Command::new(python);
    // Nothing of the caller's own Python set-up may reach a kernel.
    command.arg("-s").arg(root.join("kernels/compile.py")).args(["--target", target]);
    command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(root).stdin(Stdio::null());
    command
}

struct Progress {
    bar: ProgressBar,
    total: u64,
    cached: u64,
    errors: Vec<String>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { bar: ProgressBar::hidden(), total: 0, cached: 0, errors: Vec::new() }
    }
}

impl Progress {
    fn note(&mut self, event: Event) {
        match event {
            Event::Plan { total, cached } => {
                (self.total, self.cached) = (total, cached);
                self.bar = ProgressBar::new(total).with_position(cached);
                let style = ProgressStyle::with_template("{bar:30} {pos}/{len} kernels, {elapsed}  {msg}");
                self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            Event::Done { title } => {
                self.bar.inc(1);
                self.bar.set_message(title);
            }
            Event::Error { title, sentence } => self.errors.push(format!("{title}: {sentence}")),
        }
    }
}
