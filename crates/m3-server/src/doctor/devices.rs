//! GPUs, their drivers and the libraries between several of them, as the system shows them without asking any driver.
//! Whether a plugin can use them is the plugins' own answer.

use super::{Check, Machine};

/// CUDA 13's branch, which the `sm90` plugin needs.
const LEAST_NVIDIA_DRIVER: u32 = 580;
const LIBRARY_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/opt/rocm/lib",
];

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let (nvidia, amd) = (nvidia_gpus(machine), amd_gpus(machine));
    let mut checks = Vec::new();
    if nvidia.is_empty() && amd.is_empty() {
        let finding = "no GPU is visible: only the CPU backend can serve, which suits small models only";
        checks.push(Check::note("devices", "GPUs", finding.to_owned()));
        return checks;
    }
    if !nvidia.is_empty() {
        checks.push(counted("NVIDIA", &nvidia));
        checks.push(nvidia_driver(machine));
        checks.push(library(machine, "NCCL", "libnccl.so.2", nvidia.len()));
    }
    if !amd.is_empty() {
        checks.push(counted("AMD", &amd));
        checks.push(amd_driver(machine));
        checks.push(library(machine, "RCCL", "librccl.so.1", amd.len()));
    }
    checks
}

fn counted(vendor: &str, names: &[String]) -> Check {
    let mut kinds: Vec<&String> = names.iter().collect();
    kinds.dedup();
    let kinds = kinds.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    Check::good("devices", &format!("{vendor} GPUs"), format!("{} x {kinds}", names.len()))
}

fn nvidia_gpus(machine: &Machine) -> Vec<String> {
    const FOLDER: &str = "/proc/driver/nvidia/gpus";
    let model = |name: String| {
        let text = machine.read(&format!("{FOLDER}/{name}/information"))?;
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(model.trim().to_owned())
    };
    machine.names(FOLDER).into_iter().filter_map(model).collect()
}

fn nvidia_driver(machine: &Machine) -> Check {
    const NAME: &str = "NVIDIA driver";
    let text = machine.read("/proc/driver/nvidia/version").unwrap_or_default();
    let version = text
        .split_whitespace()
        .find(|word| word.split('.').count() >= 2 && word.split('.').all(|part| part.parse::<u32>().is_ok()));
    let Some(version) = version else {
        let remedy = "install the driver, or start the container with the NVIDIA runtime";
        return Check::problem("devices", NAME, "its version cannot be read".to_owned(), remedy);
    };
    let branch = version.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0);
    if branch < LEAST_NVIDIA_DRIVER {
        let finding = format!("{version}; the plugins need {LEAST_NVIDIA_DRIVER} or newer");
        return Check::problem("devices", NAME, finding, "install a newer driver on the host");
    }
    if find_library(machine, "libcuda.so.1").is_none() {
        let finding = format!("{version}, but libcuda.so.1 is in none of the usual folders");
        let remedy = "in a container, ask the runtime for the compute libraries (NVIDIA_DRIVER_CAPABILITIES)";
        return Check::warning("devices", NAME, finding, remedy);
    }
    Check::good("devices", NAME, version.to_owned())
}

/// Nodes of the compute driver that are GPUs: their architecture in words, such as gfx942.
fn amd_gpus(machine: &Machine) -> Vec<String> {
    const FOLDER: &str = "/sys/class/kfd/kfd/topology/nodes";
    let arch = |node: String| {
        let text = machine.read(&format!("{FOLDER}/{node}/properties"))?;
        let number = text.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?;
        gfx_name(number.trim().parse().ok()?)
    };
    machine.names(FOLDER).into_iter().filter_map(arch).collect()
}

/// 90402 is gfx942: major, minor and stepping, the last as a hexadecimal digit. 0 is a CPU.
fn gfx_name(version: u32) -> Option<String> {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

fn amd_driver(machine: &Machine) -> Check {
    let version = machine.read("/sys/module/amdgpu/version");
    let version = version.map_or("part of the kernel".to_owned(), |text| text.trim().to_owned());
    if !machine.at("/dev/kfd").exists() {
        let finding = format!("{version}, but /dev/kfd is not there");
        let remedy = "in a container, pass --device /dev/kfd --device /dev/dri";
        return Check::problem("devices", "AMD driver", finding, remedy);
    }
    Check::good("devices", "AMD driver", version)
}

/// The library for collectives, which only several GPUs need.
fn library(machine: &Machine, name: &str, file: &str, gpus: usize) -> Check {
    match find_library(machine, file) {
        Some((path, version)) => Check::good("devices", name, format!("{version} in {path}")),
        None if gpus > 1 => {
            let finding = format!("{file} is in none of the usual folders: --tp above 1 will be refused");
            Check::warning("devices", name, finding, "install it, or set LD_LIBRARY_PATH to its folder")
        }
        None => Check::note("devices", name, format!("{file} is not there; one GPU does not need it")),
    }
}

/// Path and version (the file that the link leads to says it).
fn find_library(machine: &Machine, file: &str) -> Option<(String, String)> {
    let more = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let more: Vec<&str> = more.split(':').filter(|folder| !folder.is_empty()).collect();
    let mut folders = more.into_iter().chain(LIBRARY_FOLDERS);
    let path = folders.find_map(|folder| {
        let path = machine.at(&format!("{folder}/{file}"));
        path.exists().then_some(path)
    })?;
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let real = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = real.split_once(".so.").map_or("unknown version", |(_, version)| version);
    Some((path.display().to_string(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::gfx_name;

    #[test]
    fn architectures_are_named_as_their_compilers_name_them() {
        let names = [90_402, 90_500, 90_010, 110_000, 0].map(gfx_name);
        let expected = [Some("gfx942"), Some("gfx950"), Some("gfx90a"), Some("gfx1100"), None];
        assert_eq!(names.map(|name| name.unwrap_or_default()), expected.map(Option::unwrap_or_default));
    }
}
