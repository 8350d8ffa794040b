//! `cargo xtask check`: what is held without running a test, cheapest first.

use crate::process::{cargo, run as run_program, works};
use anyhow::Result;
use std::path::Path;
use std::time::Instant;

pub(crate) fn run(root: &Path) -> Result<()> {
    let begun = Instant::now();
    let done = |what: &str| println!("\n--- {what} done after {} s", begun.elapsed().as_secs());
    cargo(root, &["fmt", "--all", "--check"])?;
    crate::tidy::run(root)?;
    crate::nano::run(root, true)?;
    crate::goldens::run(root)?;
    crate::abi::run(root, false)?;
    for target in crate::kernels::TARGETS {
        crate::kernels::stubs(root, target, false)?;
    }
    done("format, tidy, models, header and launch stubs");
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    done("lints");
    licences(root)?;
    done("licences");
    Ok(())
}

/// Licences, sources and bans; advisories need a network and are not asked for here.
fn licences(root: &Path) -> Result<()> {
    if !works("cargo-deny", &["--version"]) {
        cargo(root, &["install", "--locked", "cargo-deny"])?;
    }
    run_program(root, "cargo-deny", &["check", "bans", "licenses", "sources"])
}
