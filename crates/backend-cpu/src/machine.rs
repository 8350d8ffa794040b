//! What this machine is: memory, name and number of cores, read from the operating system.

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub total_bytes: u64,
    /// What can be had without swapping, file cache included.
    pub available_bytes: u64,
}

/// Memory as `/proc/meminfo` tells it; zeros where there is none.
pub(crate) fn memory() -> Memory {
    std::fs::read_to_string("/proc/meminfo").map(|text| parse_memory(&text)).unwrap_or_default()
}

fn parse_memory(text: &str) -> Memory {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Memory { total_bytes: kib("MemTotal") * 1024, available_bytes: kib("MemAvailable") * 1024 }
}

/// Model name of the CPU, or its architecture where the system does not say.
pub(crate) fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Cores this process may use.
pub(crate) fn num_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kibibytes() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:     512 kB\n";
        assert_eq!(parse_memory(text), Memory { total_bytes: 16384 * 1024, available_bytes: 512 * 1024 });
        assert_eq!(parse_memory(""), Memory::default());
    }
}
