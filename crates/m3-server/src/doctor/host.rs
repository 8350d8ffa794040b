//! The machine around the devices: memory, shared memory, disk and limits of the process.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::check::gib;
use super::{Check, Machine};
use crate::args::Options;
use crate::place;

/// Open files: one for each connection, and those of the model.
const LEAST_FILES: u64 = 4096;
/// Collectives of several ranks meet in shared memory.
const LEAST_SHARED: u64 = 1 << 30;
/// Logs and temporary files.
const LEAST_DISK: u64 = 1 << 30;

pub(super) fn checks(machine: &Machine, plan: &Options) -> Vec<Check> {
    let mut checks = vec![processors(machine), memory(machine), shared_memory(machine, plan)];
    checks.extend(disks(plan));
    checks.push(open_files(getrlimit(Resource::Nofile).current));
    checks.push(locked_memory(getrlimit(Resource::Memlock).current));
    checks
}

fn processors(machine: &Machine) -> Check {
    let seen = std::thread::available_parallelism().map_or(0, usize::from);
    let quota = machine.read("/sys/fs/cgroup/cpu.max").and_then(|text| cpu_quota(&text));
    match quota {
        Some(quota) if quota < seen as f64 => {
            let finding = format!("{seen}, of which the control group allows {quota:.1} at a time");
            Check::note("host", "processors", finding)
        }
        _ => Check::good("host", "processors", seen.to_string()),
    }
}

/// `max 100000` or `250000 100000`: time and period in microseconds.
fn cpu_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn memory(machine: &Machine) -> Check {
    let text = machine.read("/proc/meminfo").unwrap_or_default();
    let Some((total, free)) = meminfo(&text, "MemTotal").zip(meminfo(&text, "MemAvailable")) else {
        return Check::note("host", "memory", "/proc/meminfo tells nothing".to_owned());
    };
    let limit = machine.read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let limited = limit.filter(|limit| *limit < total);
    let limit = limited.map_or(String::new(), |limit| format!(", limited to {} here", gib(limit)));
    Check::good("host", "memory", format!("{} of {} available{limit}", gib(free), gib(total)))
}

/// Bytes of a row of `/proc/meminfo`.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(row.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn shared_memory(machine: &Machine, plan: &Options) -> Check {
    const NAME: &str = "shared memory";
    let Some((total, free)) = space(&machine.at("/dev/shm")) else {
        let finding = "/dev/shm is not there".to_owned();
        return Check::warning(
            "host",
            NAME,
            finding,
            "mount a tmpfs there; collectives of several ranks need it",
        );
    };
    let finding = format!("{} of {} free in /dev/shm", gib(free), gib(total));
    if plan.backend.tp > 1 && free < LEAST_SHARED {
        let remedy = "start the container with --shm-size 32g or --ipc=host";
        return Check::warning("host", NAME, format!("{finding}: little for several ranks"), remedy);
    }
    Check::good("host", NAME, finding)
}

fn disks(plan: &Options) -> Vec<Check> {
    let mut places = vec![("temporary files", std::env::temp_dir())];
    if let Ok(dir) = place::model_dir(&plan.model) {
        places.push(("model's disk", dir));
    }
    let check = |(name, path): (&str, std::path::PathBuf)| {
        let (total, free) = space(&path)?;
        let finding = format!("{} of {} free at {}", gib(free), gib(total), path.display());
        Some(if name == "temporary files" && free < LEAST_DISK {
            Check::warning("host", name, finding, "make room: a full disk stops logs")
        } else {
            Check::good("host", name, finding)
        })
    };
    places.into_iter().filter_map(check).collect()
}

/// Total and free bytes where `path` lies.
fn space(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

fn open_files(limit: Option<u64>) -> Check {
    match limit {
        Some(limit) if limit < LEAST_FILES => {
            let finding = format!("{limit}; every connection takes one");
            Check::warning(
                "host",
                "open files",
                finding,
                "raise it: ulimit -n 65536, or LimitNOFILE= in the unit",
            )
        }
        limit => {
            Check::good("host", "open files", limit.map_or("no limit".to_owned(), |limit| limit.to_string()))
        }
    }
}

/// Only a note: the drivers' pinned memory does not always count towards it.
fn locked_memory(limit: Option<u64>) -> Check {
    match limit {
        None => Check::good("host", "locked memory", "no limit".to_owned()),
        Some(limit) => {
            let finding = format!("at most {} KiB; network cards that move pages may need more", limit >> 10);
            Check::note("host", "locked memory", finding)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_quota("max 100000\n"), None);
        assert_eq!(cpu_quota("250000 100000\n"), Some(2.5));
        assert_eq!(meminfo("MemTotal:       16 kB\nMemAvailable:  8 kB\n", "MemAvailable"), Some(8192));
        assert_eq!(meminfo("MemTotal: x kB\n", "MemTotal"), None);
    }

    #[test]
    fn few_files_are_a_warning_with_a_way_out() {
        let check = open_files(Some(1024));
        assert_eq!(check.level, Level::Warning);
        assert!(check.finding.contains("1024") && check.remedy.unwrap().contains("ulimit -n"));
        assert_eq!(open_files(None).level, Level::Good);
        assert_eq!(open_files(Some(65_536)).level, Level::Good);
    }
}
