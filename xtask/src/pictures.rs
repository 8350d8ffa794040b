//! The corpus of odd pictures that decoding is tested with, made by a script under a pinned Pillow. Run by hand when the
//! script changes; the tests need only its files.

use crate::{process, python};
use anyhow::{Context, Result};
use std::path::Path;

pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("crates/m3-media/tests/corpus");
    let python = python::environment(root, "pictures", &folder.join("requirements.txt"))?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the workspace's path is not UTF-8");
    process::run(root, &python, &["-W", "ignore", &text(&folder.join("make.py"))?, &text(&folder)?])
}
