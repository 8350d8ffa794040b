//! Running other programs: shown before they run, an error that names them when they fail.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `program` in `folder` with its output shown.
pub(crate) fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    run_with(folder, program, arguments, &[])
}

fn run_with(folder: &Path, program: &str, arguments: &[&str], variables: &[(&str, String)]) -> Result<()> {
    println!("\n$ {program} {}", arguments.join(" "));
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{program}`"))?;
    ensure!(status.success(), "`{program} {}` failed: {status}", arguments.join(" "));
    Ok(())
}

/// The cargo that runs this task.
pub(crate) fn cargo(folder: &Path, arguments: &[&str]) -> Result<()> {
    cargo_with(folder, arguments, &[])
}

/// [`cargo`] with these variables in its environment.
pub(crate) fn cargo_with(folder: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    run_with(folder, &cargo, arguments, variables)
}

/// Whether `program arguments` starts and succeeds.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}
