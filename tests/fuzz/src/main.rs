//! `m3-fuzz`: made-up input for so many seconds, or one file again.
#![allow(clippy::print_stdout, reason = "a command-line tool talks on standard output")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use m3_fuzz::{engine, targets};

#[derive(Parser)]
#[command(
    name = "m3-fuzz",
    about = "Tries made-up input on everything that reads what clients or models write"
)]
struct Arguments {
    /// Altogether, over all targets.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of the first round; each further one adds 1. Without it the clock decides.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this one.
    #[arg(long)]
    target: Option<String>,
    /// Tries this file on `--target` and nothing else.
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
}

/// Time after which a target makes room for the next one, and starts with its corpus again.
const ROUND: Duration = Duration::from_secs(300);

/// Failures after which a target is left out: most of them are one fault.
const MOST_FAILURES: usize = 3;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    std::panic::set_hook(Box::new(|_| {}));
    let wanted = |name: &str| arguments.target.as_deref().is_none_or(|target| target == name);
    let mut all: Vec<_> = targets::all().into_iter().filter(|(target, _)| wanted(target.name())).collect();
    ensure!(!all.is_empty(), "there is no target {}", arguments.target.unwrap_or_default());
    if let Some(path) = &arguments.replay {
        let outcome = engine::replay(all[0].0.as_mut(), path)?;
        println!("{outcome:?}");
        return Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let shares: u32 = all.iter().map(|(_, share)| share).sum();
    let round = Duration::from_secs(arguments.seconds).min(ROUND * all.len() as u32);
    let mut failures = vec![0; all.len()];
    while Instant::now() < end && failures.iter().any(|count| *count < MOST_FAILURES) {
        for (at, (target, share)) in all.iter_mut().enumerate() {
            if failures[at] == MOST_FAILURES {
                continue;
            }
            let time = (round * *share / shares).min(end.saturating_duration_since(Instant::now()));
            println!("{} for {} s with seed {seed}", target.name(), time.as_secs());
            match engine::run(target.as_mut(), seed, time)? {
                Ok(tally) => println!("  {} inputs, {} kinds of answers", tally.inputs, tally.signatures),
                Err(failure) => {
                    failures[at] += 1;
                    println!("  FAILED: {failure}");
                }
            }
        }
        seed += 1;
    }
    Ok(if failures.iter().all(|count| *count == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
