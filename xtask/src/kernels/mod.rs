//! `cargo xtask build --backend sm90`: kernels compiled ahead of time, checked, packed, and given typed launch stubs.
//!
//! `kernels/compile.py` compiles inside a pinned environment; here its results are checked again from the bytes
//! themselves and turned into `kernels.pack` and `kernels.rs`. Nothing of this runs on a server.
//!
//! CI compiles everything too ([`gate`]): a kernel that does not assemble, fit or hold its promise fails there.

mod compile;
mod elf;
mod environment;
mod index;
mod pack;
mod stubs;

use crate::process::target_folder;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Backends with rows in `kernels/manifest.toml`.
pub(crate) const TARGETS: [&str; 1] = ["sm90"];

/// Where everything that kernels leave behind goes.
fn folder(root: &Path) -> PathBuf {
    target_folder(root).join("kernels")
}

/// Compiles, checks and packs all kernels of a target; returns the pack's path.
pub(crate) fn build(root: &Path, target: &str, bless: bool) -> Result<PathBuf> {
    let python = environment::ready(root)?;
    let index = compile::run(root, &python, target)?;
    hold_stubs(root, target, &index.description, bless)?;
    pack::write(root, &index)
}

/// Only the stubs, from the manifest alone: quick, needs neither Triton nor a compiler.
pub(crate) fn stubs(root: &Path, target: &str, bless: bool) -> Result<()> {
    let description = compile::describe(root, &environment::any_python()?, target)?;
    hold_stubs(root, target, &description, bless)
}

/// What CI holds: every kernel of every target compiles and keeps its promises, and their own tests pass.
pub(crate) fn gate(root: &Path) -> Result<()> {
    for target in TARGETS {
        build(root, target, false)?;
    }
    test(root)
}

/// Runs every `test_*.py` under `kernels/` in the pinned environment.
pub(crate) fn test(root: &Path) -> Result<()> {
    let python = environment::ready(root)?;
    let tests: Vec<PathBuf> = crate::tidy::files(&root.join("kernels"), "py")?
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test_")))
        .collect();
    let failed = run_in_parallel(root, &python, &tests)?;
    ensure!(failed.is_empty(), "{} kernel test files failed: {}", failed.len(), failed.join(", "));
    println!("{} kernel test files passed on the CPU; this says nothing about a GPU", tests.len());
    Ok(())
}

/// As many at once as there are processors: each is one slow Python thread. Returns the names of those that failed.
fn run_in_parallel(root: &Path, python: &str, tests: &[PathBuf]) -> Result<Vec<String>> {
    let waiting = Mutex::new(tests.iter());
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().map_err(|_| anyhow!("another test's thread panicked"))?.next();
            let Some(test) = next else { return Ok(()) };
            let begun = Instant::now();
            let output = Command::new(python).arg(test).current_dir(root).stdin(Stdio::null()).output()?;
            let name = test.strip_prefix(root)?.display().to_string();
            let outcome = if output.status.success() { "passed" } else { "FAILED" };
            println!("{name} {outcome} after {} s", begun.elapsed().as_secs());
            if !output.status.success() {
                print!(
                    "{}{}",
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                );
                failed.lock().map_err(|_| anyhow!("another test's thread panicked"))?.push(name);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a test's thread panicked"))?)
    })?;
    failed.into_inner().map_err(|_| anyhow!("a test's thread panicked"))
}

/// The committed stubs are the lock of every kernel's arguments: they change only when asked to.
fn hold_stubs(root: &Path, target: &str, description: &index::Description, bless: bool) -> Result<()> {
    let path = root.join(format!("crates/backend-{target}/src/kernels.rs"));
    let made = stubs::generate(root, description)?;
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    if made == committed {
        return Ok(());
    }
    if bless {
        std::fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{} written", path.display());
        return Ok(());
    }
    bail!(
        "kernel arguments or variants differ from {}:\n{}\nlook whether every caller follows, then run \
         cargo xtask build --backend {target} --bless",
        path.display(),
        first_difference(&committed, &made)
    )
}

/// The first lines that differ, old and new.
fn first_difference(old: &str, new: &str) -> String {
    let differing = old.lines().zip(new.lines()).enumerate().find(|(_, (old, new))| old != new);
    match differing {
        Some((line, (old, new))) => format!("line {}\n- {old}\n+ {new}", line + 1),
        None => format!("{} lines became {}", old.lines().count(), new.lines().count()),
    }
}
