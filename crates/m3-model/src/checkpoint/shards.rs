//! The safetensors files of a folder: headers checked first, then each file mapped once, read-only.

#![allow(unsafe_code, reason = "mapping a file is unsafe by nature; this file holds the only two uses")]

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::fault::Fault;
use super::header::{self, Entry};
use crate::error::ModelError;

/// One file whose header agrees with its length.
pub(super) struct Shard {
    /// File name without its folder.
    pub(super) file: String,
    pub(super) entries: Vec<Entry>,
    pub(super) bytes: u64,
    map: Mmap,
}

impl Shard {
    /// Bytes of the file from `start` to `end`.
    pub(super) fn bytes(&self, start: u64, end: u64) -> &[u8] {
        &self.map[start as usize..end as usize]
    }
}

/// Position of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: usize,
    pub(super) entry: usize,
}

/// All files of a folder and where each stored tensor is.
pub(super) struct Shards {
    pub(super) list: Vec<Shard>,
    pub(super) places: HashMap<String, Place>,
}

impl Shards {
    /// Opens every `*.safetensors` file directly in `folder`; all faults of all headers come back together.
    pub(super) fn open(folder: &Path) -> Result<Self, ModelError> {
        let (mut faults, mut list) = (Vec::new(), Vec::new());
        for path in files(folder)? {
            match open(&path)? {
                Ok(shard) => list.push(shard),
                Err(found) => faults.extend(found),
            }
        }
        if list.is_empty() && faults.is_empty() {
            faults.push(Fault::NoFiles);
        }
        let places = places(&list, &mut faults);
        if faults.is_empty() {
            Ok(Shards { list, places })
        } else {
            Err(ModelError::Checkpoint { path: folder.to_owned(), faults })
        }
    }

    pub(super) fn entry(&self, place: Place) -> &Entry {
        &self.list[place.shard].entries[place.entry]
    }

    pub(super) fn file(&self, place: Place) -> &str {
        &self.list[place.shard].file
    }
}

fn places(list: &[Shard], faults: &mut Vec<Fault>) -> HashMap<String, Place> {
    let mut places: HashMap<String, Place> = HashMap::new();
    for (shard, file) in list.iter().enumerate() {
        for (entry, tensor) in file.entries.iter().enumerate() {
            if let Some(first) = places.insert(tensor.name.clone(), Place { shard, entry }) {
                let (tensor, first) = (tensor.name.clone(), list[first.shard].file.clone());
                faults.push(Fault::Duplicate { tensor, first, second: file.file.clone() });
            }
        }
    }
    places
}

/// Sorted by name, so that errors and loading order do not depend on the file system. Hidden files (some systems drop
/// `._name` companions beside every file) are not the model's.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let io = |source| ModelError::Io { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for item in std::fs::read_dir(folder).map_err(io)? {
        let path = item.map_err(io)?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn open(path: &Path) -> Result<Result<Shard, Vec<Fault>>, ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Opening a pipe waits for somebody who writes.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Ok(Err(vec![Fault::NoFile { file }]));
    }
    let mut handle = File::open(path).map_err(io)?;
    let entries = match header::read(&file, &mut handle).map_err(io)? {
        Ok(entries) => entries,
        Err(faults) => return Ok(Err(faults)),
    };
    // SAFETY: read-only private use of a regular file whose length was just checked; as every engine that maps
    // weights, we rely on nobody cutting the file while it is served.
    let map = unsafe { Mmap::map(&handle) }.map_err(io)?;
    let bytes = map.len() as u64;
    let expected = entries.last().map_or(bytes, |entry| entry.end);
    if bytes < expected {
        // Cut between the check and the mapping.
        return Ok(Err(vec![Fault::Truncated { file, expected, file_bytes: bytes }]));
    }
    Ok(Ok(Shard { file, entries, bytes, map }))
}
