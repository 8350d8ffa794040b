//! `cargo xtask goldens`: the committed copies of the golden data, held against the shared originals when those are there.

use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// Where the shared test data lies: `M3_SHARED`, else beside the workspace.
fn shared(root: &Path) -> PathBuf {
    std::env::var_os("M3_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from).join("data/golden")
}

/// Made smaller than their originals, as the README beside them says.
fn is_reduced(relative: &Path) -> bool {
    relative.starts_with("ckpt/real128") || relative == Path::new("golden/real128/text_300.safetensors")
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let (copies, originals) = (root.join("tests/data/golden"), shared(root));
    let compare = originals.is_dir();
    if !compare {
        println!("SKIPPED: comparison with the originals, {} is missing", originals.display());
    }
    let (mut bytes, mut count, mut different) = (0, 0, Vec::new());
    for path in files(&copies)? {
        let relative = path.strip_prefix(&copies)?;
        if relative == Path::new("README.md") {
            continue;
        }
        let copy = std::fs::read(&path)?;
        bytes += copy.len();
        count += 1;
        if compare
            && !is_reduced(relative)
            && std::fs::read(originals.join(relative)).ok().as_ref() != Some(&copy)
        {
            different.push(relative.display().to_string());
        }
    }
    println!("goldens: {count} files, {:.1} MB", bytes as f64 / 1e6);
    ensure!(count > 0, "no golden file lies in {}", copies.display());
    ensure!(different.is_empty(), "these differ from their originals: {}", different.join(", "));
    Ok(())
}
