//! `cargo xtask ui`: the web page in headless Chromium, driven by Playwright, against the real `m3` with scripted answers.
//! What it checks is in `crates/m3-server/tests/ui`; this only sets it up. The browser is the system's.

use crate::process::{self, target_folder, works};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Names the distributions have for it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const FILES: [&str; 4] = ["package.json", "package-lock.json", "scripted.mjs", "test_page.mjs"];

/// Builds what is tested first.
pub(crate) fn build_and_test(root: &Path) -> Result<()> {
    process::cargo(root, &["build", "--workspace"])?;
    test(root)
}

/// Needs a built workspace. Without node or a browser nothing is tested, which is an error in CI and said loudly elsewhere.
pub(crate) fn test(root: &Path) -> Result<()> {
    let Some(browser) = BROWSERS.into_iter().find(|name| works(name, &["--version"])) else {
        return missing("Chromium (apt install chromium)");
    };
    if !works("node", &["--version"]) || !works("npm", &["--version"]) {
        return missing("node and npm");
    }
    let begun = Instant::now();
    let folder = install(root)?;
    println!("\n$ node {}", folder.join("test_page.mjs").display());
    let status = Command::new("node")
        .arg("test_page.mjs")
        .env("M3_BINARY", target_folder(root).join("debug/m3"))
        .env("M3_MODELS", root.join("tests/data/random"))
        .env("CHROMIUM", path_of(browser)?)
        .current_dir(&folder)
        .status()
        .context("cannot start node")?;
    ensure!(status.success(), "the page's tests failed: {status}");
    println!("the page took {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn missing(what: &str) -> Result<()> {
    if std::env::var_os("CI").is_some() {
        bail!("CI needs {what} for the web page");
    }
    println!("\nSKIPPED: the web page is not tested, because {what} is missing\n");
    Ok(())
}

/// A folder with the tests and their two packages, which are pinned by hash.
fn install(root: &Path) -> Result<PathBuf> {
    let sources = root.join("crates/m3-server/tests/ui");
    let folder = target_folder(root).join("page");
    std::fs::create_dir_all(&folder)?;
    let wanted = std::fs::read(sources.join("package-lock.json"))?;
    let current = std::fs::read(folder.join("package-lock.json")).is_ok_and(|made| made == wanted)
        && folder.join("node_modules/playwright-core").is_dir();
    for name in FILES {
        std::fs::copy(sources.join(name), folder.join(name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    if !current {
        let path = folder.to_str().context("the target folder's path is not UTF-8")?;
        process::run(root, "npm", &["ci", "--prefix", path, "--ignore-scripts", "--no-audit", "--no-fund"])?;
    }
    Ok(folder)
}

/// Playwright wants a path, not a name.
fn path_of(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("{program} is not in PATH"))
}
