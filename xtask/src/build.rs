//! `cargo xtask build --backend NAME`: one backend as a plugin file beside the `m3` binary, its kernels inside.

use crate::kernels;
use crate::process::{cargo_with, target_folder};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Backends of this workspace; GPU ones that are not in [`kernels::TARGETS`] are plugins without kernels so far.
pub(crate) const BACKENDS: [&str; 6] = ["cpu", "null", "sm90", "sm100", "gfx942", "gfx950"];
/// Most bytes of a stripped plugin.
const MOST_PLUGIN_BYTES: u64 = 20_000_000;

pub(crate) fn run(root: &Path, backend: &str, release: bool, bless: bool) -> Result<()> {
    ensure!(
        BACKENDS.contains(&backend),
        "no backend is called `{backend}`; there are {}",
        BACKENDS.join(", ")
    );
    let has_kernels = kernels::TARGETS.contains(&backend);
    let mut variables = Vec::new();
    if has_kernels {
        let pack = kernels::build(root, backend, bless)?;
        variables.push(("M3_KERNEL_PACK", pack.to_str().context("the pack's path is not UTF-8")?.to_owned()));
    }
    let package = format!("backend-{backend}-plugin");
    let mut arguments = vec!["build", "--package", &package, "--package", "m3-server"];
    if release {
        arguments.push("--release");
    }
    cargo_with(root, &arguments, &variables)?;
    let profile = if release { "release" } else { "debug" };
    let plugin = target_folder(root).join(profile).join(format!("libm3_backend_{backend}.so"));
    let bytes = std::fs::metadata(&plugin)?.len();
    println!("{} ({:.1} MB)", plugin.display(), bytes as f64 / 1e6);
    // Release builds are stripped; a debug build's symbols say nothing about what is shipped.
    ensure!(
        !release || bytes <= MOST_PLUGIN_BYTES,
        "the plugin has {bytes} bytes; at most {MOST_PLUGIN_BYTES} are shipped"
    );
    if !has_kernels && !matches!(backend, "cpu" | "null") {
        println!("This plugin holds no kernels yet: it loads, says so in `m3 backends`, and serves nothing.");
    }
    Ok(())
}

/// This backend's name, if it has kernels.
pub(crate) fn with_kernels(backend: &str) -> Result<&'static str> {
    let found = kernels::TARGETS.into_iter().find(|target| *target == backend);
    found.with_context(|| format!("`{backend}` has no kernels; {} has", kernels::TARGETS.join(", ")))
}
