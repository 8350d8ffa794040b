//! `m3 doctor`: what this machine has for serving, what of it will not do, and what to do about that.
//!
//! It looks and never changes anything: no file is written, no driver is set up but by the plugins' own probes. Each
//! finding is a [`Check`] with a sentence; a finding that would keep the server from starting is a problem, and with one
//! the program ends with 1.

mod check;
mod devices;
mod host;
mod network;
mod plugins;
mod report;
mod videos;

use std::path::{Path, PathBuf};

use crate::args::{Options, Parsed};
pub use check::{Check, Level};
pub use videos::warn_without_landlock;

/// Where the machine tells about itself; the tests have a machine of their own.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        Machine { root: PathBuf::from("/") }
    }

    /// `path` is absolute.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok()
    }

    /// Names in a folder, in order; none when it is not there.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// Looks at everything and prints it. `false` = something keeps the server from starting.
pub fn run(parsed: &Parsed) -> anyhow::Result<bool> {
    let plan = Options::read(parsed)?;
    let checks = examine(&Machine::this(), &plan);
    let text = if parsed.has("json") { report::json(&checks) } else { report::text(&checks) };
    crate::tools::print(&text)?;
    Ok(checks.iter().all(|check| check.level != Level::Problem))
}

/// All findings, in the order they are told.
pub fn examine(machine: &Machine, plan: &Options) -> Vec<Check> {
    let mut checks = vec![program()];
    checks.extend(devices::checks(machine));
    checks.extend(plugins::checks(plan));
    checks.extend(host::checks(machine, plan));
    checks.extend(videos::checks(plan));
    checks.extend(network::checks(machine, plan));
    checks
}

fn program() -> Check {
    let place = std::env::current_exe().unwrap_or_else(|_| Path::new("m3").to_owned());
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let build = if cfg!(debug_assertions) { ", built for development: slow" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    Check::good("program", "m3", format!("{version} on {os} {arch}{build}, {}", place.display()))
}

#[cfg(test)]
mod tests;
