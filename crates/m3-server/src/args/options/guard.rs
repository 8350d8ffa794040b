//! What one client may take from the others, how slow it may be, and when this server calls itself unwell.

use std::path::PathBuf;
use std::time::Duration;

use super::values::{bad, count, seconds};
use crate::args::numbers::{parse_bytes, parse_count};
use crate::args::{ArgError, Parsed};

/// Most bytes free that can be asked for, in the sentence of a refusal.
const BYTES: &str = "bytes, such as 64M or 1G";

/// Limits of clients and connections.
#[derive(Clone, Debug)]
pub struct GuardOptions {
    /// Of the whole server and of each key.
    pub rate: Option<Rate>,
    pub key_rate: Option<Rate>,
    /// Requests being answered at once; 0 = no limit of its own.
    pub concurrency: usize,
    pub key_concurrency: usize,
    pub connections: usize,
    pub header_bytes: usize,
    /// A client that sends or takes nothing for so long is let go; zero = never.
    pub patience: Duration,
    /// From a request's arrival to the end of its answer; zero = no limit.
    pub deadline: Duration,
}

/// So many requests in so much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub requests: u32,
    pub period: Duration,
}

/// When `/ready` and `/live` turn red.
#[derive(Clone, Debug)]
pub struct HealthOptions {
    /// Work without a finished step for so long is a stall; zero = never.
    pub watchdog: Duration,
    /// A stall of so long turns `/live` red too; zero = never.
    pub hard_limit: Duration,
    /// An idle engine makes one token after so long, to see that it still can; zero = never.
    pub idle_probe: Duration,
    /// Folders whose disks must have `min_free_bytes` free.
    pub disks: Vec<PathBuf>,
    pub min_free_bytes: u64,
}

impl GuardOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let size =
            |name, least, most, default| Ok(count(parsed, name, least, most)?.unwrap_or(default) as usize);
        Ok(GuardOptions {
            rate: rate(parsed, "rate-limit")?,
            key_rate: rate(parsed, "key-rate-limit")?,
            concurrency: size("max-concurrent-requests", 0, 1 << 20, 0)?,
            key_concurrency: size("key-max-concurrent-requests", 0, 1 << 20, 0)?,
            connections: size("max-connections", 1, 1 << 20, 8192)?,
            header_bytes: size("max-header-bytes", 8192, 1 << 24, 65_536)?,
            patience: seconds(parsed, "client-timeout", 60.0)?,
            deadline: seconds(parsed, "request-timeout", 0.0)?,
        })
    }
}

impl HealthOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let watchdog = seconds(parsed, "watchdog-timeout", 300.0)?;
        let disks = parsed.many("watch-disk").iter().map(PathBuf::from).collect::<Vec<_>>();
        if let Some(missing) = disks.iter().find(|dir| !dir.is_dir()) {
            return Err(bad("watch-disk", &missing.display().to_string(), "a folder that is there"));
        }
        let min_free = parsed
            .value("min-free-disk")
            .map(|text| parse_bytes(text).ok_or_else(|| bad("min-free-disk", text, BYTES)));
        Ok(HealthOptions {
            watchdog,
            hard_limit: seconds(parsed, "live-timeout", 4.0 * watchdog.as_secs_f64().min(21_600.0))?,
            idle_probe: seconds(parsed, "idle-probe-secs", 30.0)?,
            disks: if disks.is_empty() { vec![std::env::temp_dir()] } else { disks },
            min_free_bytes: min_free.transpose()?.unwrap_or(64 << 20),
        })
    }
}

/// `10/s`, `600/min`, `10000/h`; a bare number is for a minute.
fn rate(parsed: &Parsed, name: &str) -> Result<Option<Rate>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(None) };
    let (number, unit) = text.split_once('/').unwrap_or((text, "min"));
    let period = match unit.trim() {
        "s" | "sec" | "second" => Some(1),
        "m" | "min" | "minute" => Some(60),
        "h" | "hour" => Some(3600),
        _ => None,
    };
    let requests = parse_count(number).filter(|number| (1..=1_000_000_000).contains(number));
    match (requests, period) {
        (Some(requests), Some(period)) => {
            Ok(Some(Rate { requests: requests as u32, period: Duration::from_secs(period) }))
        }
        _ => Err(bad(name, text, "requests in a time, such as 10/s, 600/min or 10000/h")),
    }
}
