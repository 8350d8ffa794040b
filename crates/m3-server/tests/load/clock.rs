//! The wall clock jumps by years while streams run, and goes back before 1970: whatever lasts is measured by the clock
//! that only goes forward, and what shows the time only shows it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use serde_json::json;

use crate::asking::{APIS, Ask, Came};
use crate::program::{Model, Program};
use crate::{echo, record, size};

const YEAR: i64 = 365 * 24 * 3600;

/// A library that adds the seconds in a file to what the C library says the time is.
fn library(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/clock_shift.c");
    let library = folder.join("clock_shift.so");
    let mut compiler = Command::new("cc");
    let status =
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(status.expect("a C compiler").success(), "the library does not compile");
    library
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

struct Clock(PathBuf);

impl Clock {
    fn set(&self, shift: i64) {
        let fresh = self.0.with_extension("new");
        std::fs::write(&fresh, shift.to_string()).unwrap();
        std::fs::rename(fresh, &self.0).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_harms_no_stream_and_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock(folder.path().join("shift"));
    clock.set(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
    command.env("LD_PRELOAD", library(folder.path())).env("M3_CLOCK_SHIFT", &clock.0);
    let flags = [
        "--watchdog-timeout",
        "5",
        "--idle-probe-secs",
        "1",
        "--client-timeout",
        "30",
        "--request-timeout",
        "60",
        "--max-running-requests",
        "256",
        "--api-key",
        "tenant",
        "--api-key",
        "limited",
        "--key-max-concurrent-requests",
        "300",
        "--log-level",
        "debug",
    ];
    let program = Program::start_in(command, Model::Null(echo(size(5000, 20_000))), &flags, None).await;
    let jumps: &[i64] =
        size(&[10 * YEAR, -70 * YEAR, 0], &[10 * YEAR, -70 * YEAR, 0, 1, -1, 3600, -3600, 500 * YEAR, 0]);
    let (mut right, streams) = (0, size(60u64, 200));
    for (round, shift) in jumps.iter().enumerate() {
        let first = round as u64 * streams;
        let asks = (first..first + streams).map(|number| Ask {
            api: APIS[number as usize % 5],
            stream: true,
            number,
            repeats: 6,
        });
        let asks: Vec<Ask> = asks.collect();
        let running = join_all(asks.iter().map(|ask| ask.whole(&program.client, &program.base)));
        let jump = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let busy = program.metric("m3_requests_running", "").await;
            clock.set(*shift);
            busy
        };
        let (outcomes, busy) = tokio::join!(running, jump);
        assert!(busy > 0.0, "the clock jumped in the middle of streams");
        for came in &outcomes {
            assert_eq!(*came, Came::Right, "shift {shift}");
        }
        right += outcomes.len();
        // The library does what it says, or nothing was tried.
        let (status, answer) =
            program.keyed("tenant", "/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).await;
        let expected = (now() + shift).max(0);
        let created = answer["created"].as_i64().unwrap();
        assert!(status == 200 && (created - expected).abs() < 30, "{created} is not {expected}");
        assert_eq!(program.status("/ready").await, 200, "shift {shift}");
        // The idle probe and the watchdog go on as before.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(
            (program.status("/ready").await, program.status("/live").await),
            (200, 200),
            "shift {shift}"
        );
    }
    let slowest = program.metric("m3_e2e_request_latency_seconds_sum", "").await;
    assert!((0.0..600.0 * right as f64).contains(&slowest), "latencies sum up to {slowest} s");
    let log = program.log();
    assert!(!log.contains("panicked") && !log.contains("stalled"), "{log}");
    let (code, took) = program.stop();
    assert!(code == Some(0) && took < Duration::from_secs(30), "{code:?} after {took:?}");
    record(
        "clock",
        &json!({"jumps": jumps.len(), "largest_years": 500.min(jumps.iter().max().unwrap() / YEAR), "streams_right": right}),
    );
}

/// A rate counts by the clock that only goes forward: a day's jump gives nothing away and takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_does_not_follow_a_clock_that_jumps() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock(folder.path().join("shift"));
    clock.set(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
    command.env("LD_PRELOAD", library(folder.path())).env("M3_CLOCK_SHIFT", &clock.0);
    let flags = ["--api-key", "tenant", "--rate-limit", "3/min"];
    let program = Program::start_in(command, Model::Null(echo(0)), &flags, None).await;
    let ask =
        async || program.keyed("tenant", "/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).await.0;
    for _ in 0..3 {
        assert_eq!(ask().await, 200);
    }
    for shift in [0, 24 * 3600, -24 * 3600] {
        clock.set(shift);
        assert_eq!(ask().await, 429, "shift {shift}");
    }
}
