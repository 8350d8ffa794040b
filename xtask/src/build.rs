//! `cargo xtask build --backend NAME`: one backend as a plugin file beside the `m3` binary.

use crate::process::{cargo, target_folder};
use anyhow::{Result, ensure};
use std::path::Path;

/// Backends of this workspace; the GPU ones are plugins without kernels so far.
const BACKENDS: [&str; 6] = ["cpu", "null", "sm90", "sm100", "gfx942", "gfx950"];

pub(crate) fn run(root: &Path, backend: &str, release: bool) -> Result<()> {
    ensure!(
        BACKENDS.contains(&backend),
        "no backend is called `{backend}`; there are {}",
        BACKENDS.join(", ")
    );
    let package = format!("backend-{backend}-plugin");
    let mut arguments = vec!["build", "--package", &package, "--package", "m3-server"];
    if release {
        arguments.push("--release");
    }
    cargo(root, &arguments)?;
    let profile = if release { "release" } else { "debug" };
    let plugin = target_folder(root).join(profile).join(format!("libm3_backend_{backend}.so"));
    let bytes = std::fs::metadata(&plugin)?.len();
    println!("{} ({:.1} MB)", plugin.display(), bytes as f64 / 1e6);
    if !matches!(backend, "cpu" | "null") {
        println!("This plugin holds no kernels yet: it loads, says so in `m3 backends`, and serves nothing.");
    }
    Ok(())
}
