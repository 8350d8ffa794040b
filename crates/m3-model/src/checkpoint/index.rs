//! Cross-checks `model.safetensors.index.json` against the headers, which are the truth.
//!
//! The index is a promise about which file holds what: a broken promise means an incomplete download. Its
//! `total_size` is only reported, published indexes are known to be wrong there.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Deserialize;

use super::fault::Fault;
use super::shards::Shards;
use crate::error::ModelError;

const FILE: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    metadata: serde_json::Value,
    weight_map: HashMap<String, String>,
}

impl Index {
    /// `None` when the folder has no index.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, ModelError> {
        let path = folder.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| ModelError::Json { what: FILE.to_owned(), source }),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ModelError::Io { path, source }),
        }
    }

    /// The file that should hold `tensor`.
    pub(super) fn file(&self, tensor: &str) -> Option<&String> {
        self.weight_map.get(tensor)
    }

    /// What the index claims as the sum of all tensors, in bytes.
    pub(super) fn total_size(&self) -> Option<u64> {
        self.metadata.get("total_size")?.as_u64()
    }

    /// Files and tensors that are promised and not there, each file once.
    pub(super) fn check(&self, shards: &Shards) -> Vec<Fault> {
        let files: BTreeSet<&str> = shards.list.iter().map(|shard| shard.file.as_str()).collect();
        let promised: BTreeSet<&str> = self.weight_map.values().map(String::as_str).collect();
        let index = || FILE.to_owned();
        let mut faults: Vec<Fault> = promised
            .difference(&files)
            .map(|file| Fault::IndexedFile { index: index(), file: (*file).to_owned() })
            .collect();
        let mut tensors: Vec<_> = self.weight_map.iter().collect();
        tensors.sort();
        for (tensor, file) in tensors.into_iter().filter(|(_, file)| files.contains(file.as_str())) {
            let found_in = shards.places.get(tensor).map(|place| shards.file(*place).to_owned());
            if found_in.as_ref() != Some(file) {
                let (tensor, file) = (tensor.clone(), file.clone());
                faults.push(Fault::IndexedTensor { index: index(), tensor, file, found_in });
            }
        }
        faults
    }

    /// Stored tensors that the index does not list.
    pub(super) fn unlisted(&self, shards: &Shards) -> Vec<String> {
        let mut names: Vec<String> =
            shards.places.keys().filter(|name| !self.weight_map.contains_key(*name)).cloned().collect();
        names.sort();
        names
    }
}
