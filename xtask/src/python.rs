//! Python environments for tools and clients under `target/`, every package pinned by hash.

use crate::process::{run, target_folder};
use anyhow::{Context, Result};
use std::path::Path;

/// Makes the environment of a requirements file once, in the target folder under `name`, and again when the file
/// changes; returns its interpreter.
pub(crate) fn environment(root: &Path, name: &str, requirements: &Path) -> Result<String> {
    let folder = target_folder(root).join(name);
    let python =
        folder.join("bin/python").to_str().context("the target folder's path is not UTF-8")?.to_owned();
    let wanted = std::fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let marker = folder.join("requirements.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    let folder = folder.to_str().context("the target folder's path is not UTF-8")?;
    run(root, "python3", &["-m", "venv", "--clear", folder])?;
    let requirements = requirements.to_str().context("the workspace's path is not UTF-8")?;
    run(
        root,
        &python,
        &["-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:", "-r", requirements],
    )?;
    std::fs::write(marker, wanted)?;
    Ok(python)
}
