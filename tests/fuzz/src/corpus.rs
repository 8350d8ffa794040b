//! Inputs on disk: the corpus of a target, and failing inputs written where they can be tried again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The corpora of all targets.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/fuzz")
}

/// Inputs of one target, by file name.
///
/// # Errors
/// When the folder or a file cannot be read, or there is none.
pub fn load(target: &str) -> Result<Vec<Vec<u8>>> {
    let folder = folder().join(target);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    anyhow::ensure!(!paths.is_empty(), "{} has no inputs", folder.display());
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    paths.iter().map(read).collect()
}

/// Where failing inputs go: beside the build's other output, or where `M3_FUZZ_FAILURES` says.
pub fn failures() -> PathBuf {
    let chosen = std::env::var_os("M3_FUZZ_FAILURES").map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    chosen.unwrap_or_else(|| target.join("fuzz"))
}

/// Writes a failing input; its name is a hash of its bytes.
///
/// # Errors
/// When it cannot be written.
pub fn save(target: &str, input: &[u8]) -> Result<PathBuf> {
    let folder = failures().join(target);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(format!("{:016x}", hash(input)));
    std::fs::write(&path, input).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// FNV-1a: the same on every machine and in every version.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
