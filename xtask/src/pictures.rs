//! The corpus of odd pictures that decoding is tested with, and the table that resizing is held to, made by scripts under
//! a pinned Pillow and torch. Run by hand when a script changes; the tests need only their files.

use crate::{process, python};
use anyhow::{Context, Result};
use std::path::Path;

pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("crates/m3-media/tests/corpus");
    let python = python::environment(root, "pictures", &folder.join("requirements.txt"))?;
    process::run(root, &python, &["-W", "ignore", &text(&folder.join("make.py"))?, &text(&folder)?])
}

/// What torch and Pillow resize made-up pictures to.
pub(crate) fn resize_oracle(root: &Path) -> Result<()> {
    let tests = root.join("crates/m3-media/tests");
    let scripts = tests.join("python");
    let python = python::environment(root, "resize-oracle", &scripts.join("requirements.txt"))?;
    process::run(root, &python, &[&text(&scripts.join("resize_oracle.py"))?, &text(&tests.join("data"))?])
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("the workspace's path is not UTF-8")
}
