//! Every target for a few seconds with a fixed seed, so that a failure comes again; `cargo xtask soak fuzz` goes on for
//! hours with others. The corpus is tried first and holds what has failed once.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use m3_fuzz::{engine, targets};

/// Seconds for each share of a target.
const SECONDS: u64 = 5;

fn minute(name: &str) {
    let seconds = std::env::var("M3_FUZZ_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let seed = std::env::var("M3_FUZZ_SEED").map_or(1, |text| text.parse().unwrap());
    let (mut target, share) =
        targets::all().into_iter().find(|(target, _)| target.name() == name).expect("the target exists");
    let time = Duration::from_secs(seconds) * share;
    match engine::run(target.as_mut(), seed, time).unwrap() {
        Ok(tally) => {
            eprintln!("{name}: {} inputs, {} kinds of answers", tally.inputs, tally.signatures);
            assert!(tally.signatures > 5, "{tally:?}: the target answers everything alike");
        }
        Err(failure) => panic!("{name}, seed {seed}: {failure}"),
    }
}

#[test]
fn output() {
    minute("output");
}

#[test]
fn answer() {
    minute("answer");
}

#[test]
fn template() {
    minute("template");
}

#[test]
fn grammar() {
    minute("grammar");
}

#[test]
fn request() {
    minute("request");
}

#[test]
fn stream() {
    minute("stream");
}
