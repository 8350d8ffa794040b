//! A child process that may do nothing but read one file and write to its pipe: limits on memory, time and files, no
//! network, no signals, no changes to files, and where the kernel has Landlock no other files. A program that it starts
//! is held by the same. What it decodes it does not know.

#![allow(unsafe_code, reason = "the sandbox is put on between fork and exec")]

use crate::error::{Error, Result};
use crate::policy::Limits;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
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
    // The newest rules that the kernel knows are taken.
    let abi = ABI::V5;
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

/// System calls that answer "not permitted": the network, signals, ways to look into or change other processes, and
/// everything that changes a file or its place without writing to it. Opening is allowed for reading alone.
fn calls() -> std::result::Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_BY_OLD_NAMES).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_openat, writing(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, writing(1)?);
    let architecture = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture)
        .and_then(TryInto::try_into)
        .map_err(seccompiler::Error::Backend)
}

/// Rules that meet an open whose flags, the argument at `index`, would create, cut or write.
fn writing(index: u8) -> std::result::Result<Vec<SeccompRule>, seccompiler::Error> {
    let flags = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC];
    let rules = flags.map(|flag| {
        let flag = flag as u64;
        let has = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![has])
    });
    rules.into_iter().collect::<std::result::Result<_, _>>().map_err(seccompiler::Error::Backend)
}

const REFUSED: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
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
    libc::SYS_openat2,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
];

/// The same under names that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const REFUSED_BY_OLD_NAMES: &[i64] = &[
    libc::SYS_creat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_BY_OLD_NAMES: &[i64] = &[];

#[cfg(test)]
mod tests;
