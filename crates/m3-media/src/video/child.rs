//! A child process that may do nothing but read one file and write to its pipe: limits on memory, time and files, no
//! network, no other programs, and where the kernel has Landlock no other files. What it decodes it does not know.

#![allow(unsafe_code, reason = "the sandbox is put on between fork and exec")]

use crate::error::{Error, Result};
use crate::policy::Limits;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The video's name inside the workplace, as an address that is a file and nothing else.
pub(super) const INPUT: &str = "file:input";

/// What a dynamically linked program reads to start.
const SYSTEM_FOLDERS: [&str; 9] = [
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/opt",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/dev/null",
];

/// A private folder with the video in it; gone with everything in it when this is dropped.
pub(super) struct Workplace {
    folder: TempDir,
}

impl Workplace {
    /// Writes the video into a folder that only this user may enter.
    pub(super) async fn new(bytes: &[u8]) -> Result<Workplace> {
        let failed = |error: io::Error| {
            Error::Internal(format!("cannot store the video for decoding: {}", error.kind()))
        };
        let folder = tempfile::Builder::new().prefix("m3-video-").tempdir().map_err(failed)?;
        tokio::fs::write(folder.path().join("input"), bytes).await.map_err(failed)?;
        Ok(Workplace { folder })
    }

    /// Starts `program` in the folder with its output piped; it is killed when the child is dropped.
    pub(super) fn start(&self, program: &Path, arguments: &[String], limits: &Limits) -> Result<Child> {
        let sandbox = Sandbox::new(self.folder.path(), program, limits)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut sandbox = Some(sandbox);
        // SAFETY: between fork and exec only system calls are made, on values that were built before the fork; nothing
        // takes a lock, and nothing is allocated unless one of them fails, which ends the child.
        unsafe { command.pre_exec(move || sandbox.take().map_or(Ok(()), Sandbox::enter)) };
        command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::Absent { program: program.display().to_string(), purpose: "video".into() }
            }
            kind => Error::Internal(format!("cannot start {}: {kind}", program.display())),
        })
    }
}

/// Whether this kernel keeps a child from files that are not its own (Landlock). Without it only the other limits hold.
pub fn confines_files() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let handled = rules.handle_access(AccessFs::from_all(ABI::V1));
    handled.and_then(|rules| rules.create()).is_ok()
}

/// Everything that a child gives up, prepared before the fork.
struct Sandbox {
    limits: [(Resource, u64); 5],
    files: Option<RulesetCreated>,
    calls: BpfProgram,
}

impl Sandbox {
    fn new(folder: &Path, program: &Path, limits: &Limits) -> Result<Sandbox> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::Internal(format!("cannot build the video sandbox: {error}"))
        };
        // Two decoding threads, and one for everything else.
        let processor_seconds = limits.video_time.as_secs().max(1) * 3;
        Ok(Sandbox {
            limits: [
                (Resource::As, limits.video_memory),
                (Resource::Cpu, processor_seconds),
                (Resource::Fsize, 0),
                (Resource::Nofile, 64),
                (Resource::Core, 0),
            ],
            files: Some(files(folder, program).map_err(|error| failed(&error))?),
            calls: calls().map_err(|error| failed(&error))?,
        })
    }

    fn enter(mut self) -> io::Result<()> {
        for (resource, limit) in self.limits {
            setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
        }
        if let Some(files) = self.files.take() {
            files.restrict_self().map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        }
        seccompiler::apply_filter(&self.calls).map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

/// Files that may be opened: the system's for reading and running, the workplace for reading. Kernels without Landlock
/// leave this out; the other limits hold there.
fn files(folder: &Path, program: &Path) -> std::result::Result<RulesetCreated, landlock::RulesetError> {
    let abi = ABI::V1;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .create()?;
    let read = AccessFs::from_read(abi);
    let own = program.parent().filter(|folder| folder.is_absolute());
    for path in SYSTEM_FOLDERS.iter().map(Path::new).chain(own).chain([folder]) {
        if let Ok(opened) = PathFd::new(path) {
            let access = if path.is_dir() { read } else { read & AccessFs::from_file(abi) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
    }
    Ok(rules)
}

/// System calls that answer "not permitted": the network, and ways to look into or change other processes.
fn calls() -> std::result::Result<BpfProgram, seccompiler::Error> {
    let refused = [
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_io_uring_setup,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_mount,
        libc::SYS_unshare,
        libc::SYS_setns,
    ];
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        refused.iter().map(|call| (*call, Vec::new())).collect();
    let architecture = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture)
        .and_then(TryInto::try_into)
        .map_err(seccompiler::Error::Backend)
}

#[cfg(test)]
mod tests;
