//! `m3 verify` and `--verify`: whether a model's files hold what was published. The list is a file, or, in a hub's
//! cache, the names of the contents themselves, which are their hashes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use m3_core::model::verify::{Expected, Manifest};

use super::listing::is_hex;

/// What was found.
#[derive(Debug)]
pub struct Checked {
    pub files: usize,
    pub bytes: u64,
    /// Every difference, as a sentence.
    pub faults: Vec<String>,
}

impl Checked {
    /// An error that names every difference.
    pub fn good(self) -> anyhow::Result<Self> {
        if self.faults.is_empty() {
            return Ok(self);
        }
        let more = self.faults.len().saturating_sub(10);
        let shown = self.faults.iter().take(10).cloned().collect::<Vec<_>>().join("; ");
        let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
        bail!(
            "the model is not what was published: {shown}{rest}; check the disk and the revision, then download again"
        )
    }
}

/// Hashes every file that the list has a hash of; `progress` hears bytes read.
pub fn check(folder: &Path, list: Option<&Path>, progress: &(dyn Fn(u64) + Sync)) -> anyhow::Result<Checked> {
    let manifest = match list {
        Some(list) => {
            let text =
                std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
            Manifest::parse(&text)?
        }
        None => of_links(folder)?,
    };
    let bytes =
        manifest.files.keys().filter_map(|name| folder.join(name).metadata().ok()).map(|about| about.len());
    let (files, bytes) = (manifest.files.len(), bytes.sum());
    let faults = match manifest.verify(folder, progress) {
        Ok(()) => Vec::new(),
        Err(m3_core::model::error::ModelError::Hashes { differences, .. }) => differences,
        Err(error) => return Err(error.into()),
    };
    Ok(Checked { files, bytes, faults })
}

/// In a cache a weight's content is called by its SHA-256.
fn of_links(folder: &Path) -> anyhow::Result<Manifest> {
    let mut files = BTreeMap::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let (Some(name), Some(hash)) = (entry.file_name().to_str().map(str::to_owned), target.file_name())
        else {
            continue;
        };
        let hash = hash.to_string_lossy().into_owned();
        if is_hex(&hash, 64) {
            files.insert(name, Expected { sha256: Some(hash), bytes: None });
        }
    }
    if files.is_empty() {
        bail!(
            "{} is not in a hub's cache, so there is nothing to compare with: give --manifest FILE, the hub's list or \
             lines as sha256sum writes them",
            folder.display()
        );
    }
    Ok(Manifest { files })
}
