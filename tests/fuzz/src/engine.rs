//! The loop: corpus first, then changed inputs until the time is up or one fails; a failing one is made smaller.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::mutate::Mutator;
use crate::watchdog::Watchdog;
use crate::{Target, corpus};

/// Most inputs that are kept because they behaved in a new way.
const MAX_KEPT: usize = 4096;
/// Longest input.
const MAX_BYTES: usize = 16 << 10;
/// Most time and tries for making a failing input smaller.
const SHRINK_TIME: Duration = Duration::from_secs(20);
const SHRINK_TRIES: usize = 2000;

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Inputs tried.
    pub inputs: u64,
    /// Different signatures seen.
    pub signatures: usize,
}

/// A failing input.
#[derive(Debug)]
pub struct Failure {
    /// Made small.
    pub input: Vec<u8>,
    /// What is wrong with it.
    pub reason: String,
    /// Where it was written.
    pub path: PathBuf,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.input);
        write!(out, "{}\ninput: {text}\nkept at {}", self.reason, self.path.display())
    }
}

/// Tries inputs for so long. The first failing one ends the run.
///
/// # Errors
/// When the corpus cannot be read or a failing input cannot be written.
pub fn run(target: &mut dyn Target, seed: u64, time: Duration) -> Result<Result<Tally, Failure>> {
    let begun = Instant::now();
    let mut rng = Rng::with_seed(seed);
    let mut pool = corpus::load(target.name())?;
    let mutator = Mutator::new(target.dialect(), target.words(), &pool);
    let watchdog = Watchdog::start(target.name());
    let mut signatures = HashSet::new();
    let mut inputs = 0;
    for input in pool.clone() {
        inputs += 1;
        match attempt(target, &watchdog, &input) {
            Ok(signature) => drop(signatures.insert(signature)),
            Err(reason) => return Ok(Err(keep(target, input, reason)?)),
        }
    }
    while begun.elapsed() < time {
        let mut input = mutator.change(&pool, &mut rng);
        input.truncate(MAX_BYTES);
        inputs += 1;
        match attempt(target, &watchdog, &input) {
            Ok(signature) => {
                if signatures.insert(signature) && pool.len() < MAX_KEPT {
                    pool.push(input);
                }
            }
            Err(reason) => {
                let (input, reason) = shrink(target, &watchdog, input, reason);
                return Ok(Err(keep(target, input, reason)?));
            }
        }
    }
    Ok(Ok(Tally { inputs, signatures: signatures.len() }))
}

/// Tries one input from a file.
///
/// # Errors
/// When the file cannot be read.
pub fn replay(target: &mut dyn Target, path: &std::path::Path) -> Result<Result<String, String>> {
    let input = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let watchdog = Watchdog::start(target.name());
    Ok(attempt(target, &watchdog, &input))
}

fn attempt(target: &mut dyn Target, watchdog: &Watchdog, input: &[u8]) -> Result<String, String> {
    watchdog.trying(Some(input));
    let outcome = catch_unwind(AssertUnwindSafe(|| target.check(input)));
    watchdog.trying(None);
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("no message")))
    })
}

fn keep(target: &dyn Target, input: Vec<u8>, reason: String) -> Result<Failure> {
    let path = corpus::save(target.name(), &input)?;
    Ok(Failure { input, reason, path })
}

/// Leaves out whatever the fault does not need: ever smaller pieces, as long as anything fails.
fn shrink(
    target: &mut dyn Target,
    watchdog: &Watchdog,
    mut input: Vec<u8>,
    mut reason: String,
) -> (Vec<u8>, String) {
    let begun = Instant::now();
    let mut tries = 0;
    let mut size = input.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = input.len();
        while at < input.len() {
            if tries >= SHRINK_TRIES || begun.elapsed() > SHRINK_TIME {
                return (input, reason);
            }
            tries += 1;
            let mut shorter = input.clone();
            shorter.drain(at..(at + size).min(input.len()));
            match attempt(target, watchdog, &shorter) {
                Err(still) => (input, reason) = (shorter, still),
                Ok(_) => at += size,
            }
        }
        match (size, input.len() < before) {
            (1, false) => return (input, reason),
            (1, true) => {}
            _ => size = size.div_ceil(2),
        }
    }
}
