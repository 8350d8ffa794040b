//! A model folder, opened: config, tensors over mapped files, and what is worth telling about them.
//!
//! Opening refuses everything that could go wrong later: after it, every tensor of the config is there with the right
//! shape and dtype. Headers are the truth, the index is only cross-checked. Policy for bytes that no tensor covers,
//! before, between or after tensors: refused. Nothing is copied; a tensor is a view of the mapped file.

mod fault;
mod header;
mod index;
mod locate;
mod scan;
mod shards;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use fault::Fault;

use crate::config::{GenerationConfig, Loaded, ModelConfig};
use crate::error::ModelError;
use crate::names::TensorSpec;
use crate::naming::{Naming, is_draft};
use index::Index;
use locate::{Located, Match};
use shards::Shards;

/// An opened model folder. Views borrow from it; it can be shared between threads.
pub struct Checkpoint {
    path: PathBuf,
    config: ModelConfig,
    config_json: Vec<u8>,
    generation: GenerationConfig,
    shards: Shards,
    tensors: Vec<Located>,
    by_name: HashMap<String, usize>,
    load_order: Vec<usize>,
    report: Report,
}

/// One whole tensor of the model, in place in a mapped file. Row-major, last dim contiguous.
#[derive(Clone, Copy, Debug)]
pub struct TensorData<'a> {
    /// Canonical name, full shape, and the format as stored.
    pub spec: &'a TensorSpec,
    /// Values; aligned to their size.
    pub data: &'a [u8],
    /// UE8M0 bytes, `scale_stride` a row; `None` without scales.
    pub scale: Option<&'a [u8]>,
    /// Scale entries from one row to the next, 0 without scales.
    pub scale_stride: u64,
}

/// What opening found, for the log and for `m3 inspect`.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub naming: Naming,
    /// The model takes text only: no vision part in the config, or no vision tensors in the files.
    pub text_only: bool,
    /// File name and length of each shard.
    pub files: Vec<(String, u64)>,
    /// Tensors in the headers, scales and extra ones counted.
    pub num_stored_tensors: usize,
    /// Sum over the headers' tensors, in bytes.
    pub tensor_bytes: u64,
    /// What the index claims that sum to be; published ones are known to be wrong.
    pub index_total_bytes: Option<u64>,
    /// Stored tensors that the model does not use, draft modules not counted.
    pub extra_tensors: Vec<String>,
    /// Tensors of draft modules (`mtp.*`), not used.
    pub num_draft_tensors: usize,
    /// Draft modules the config claims; released files claim some and hold none.
    pub num_claimed_mtp_modules: usize,
    /// Stored tensors that the index does not list.
    pub unindexed_tensors: Vec<String>,
    pub unknown_config_keys: Vec<String>,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Checkpoint").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Opens a folder with `config.json` and `*.safetensors` files. Every fault found is in one error.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let config_json = read(&path.join("config.json"))?;
        let loaded = ModelConfig::from_json(&config_json)?;
        let generation = match read(&path.join("generation_config.json")) {
            Ok(bytes) => GenerationConfig::from_json(&bytes)?,
            Err(ModelError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                GenerationConfig::default()
            }
            Err(error) => return Err(error),
        };
        let index = Index::read(path)?;
        let shards = Shards::open(path)?;
        let mut matched = locate::locate(&loaded.config, &shards, index.as_ref());
        if let Some(fault) = unused_fault(&shards, &matched) {
            matched.faults.insert(0, fault);
        }
        matched.faults.extend(index.iter().flat_map(|index| index.check(&shards)));
        if matched.faults.is_empty() {
            matched.faults = scan::nan_scales(&shards, &matched.tensors);
        }
        if !matched.faults.is_empty() {
            return Err(ModelError::Checkpoint { path: path.to_owned(), faults: matched.faults });
        }
        let report = report(&loaded, &shards, &matched, index.as_ref());
        let mut config = loaded.config;
        let config_json = if config.vision.is_some() && !matched.has_vision {
            config.vision = None;
            without_vision(&config_json)?
        } else {
            config_json
        };
        let tensors = matched.tensors;
        let by_name = tensors.iter().enumerate().map(|(at, one)| (one.spec.name.clone(), at)).collect();
        let load_order = load_order(&tensors);
        let path = path.to_owned();
        Ok(Checkpoint { path, config, config_json, generation, shards, tensors, by_name, load_order, report })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The config as it is served: without a vision part when its tensors are not there.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Bytes of a `config.json` that reads as [`Checkpoint::config`]; what a backend is opened with.
    pub fn config_json(&self) -> &[u8] {
        &self.config_json
    }

    /// The folder's `generation_config.json`; all unset when there is none.
    pub fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// A tensor by its canonical name.
    pub fn tensor(&self, name: &str) -> Result<TensorData<'_>, ModelError> {
        match self.by_name.get(name) {
            Some(at) => Ok(self.data(&self.tensors[*at])),
            None => Err(ModelError::UnknownTensor(name.to_owned())),
        }
    }

    /// The tensor table in layer order.
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.tensors.iter().map(|located| &located.spec)
    }

    /// Every tensor once, in the order in which the files hold them, so that disks read ahead.
    /// [`TensorData::bytes`] of each sums to [`Checkpoint::load_bytes`].
    pub fn load_order(&self) -> impl ExactSizeIterator<Item = TensorData<'_>> {
        self.load_order.iter().map(|at| self.data(&self.tensors[*at]))
    }

    /// Bytes of all tensors of the model, scales included.
    pub fn load_bytes(&self) -> u64 {
        self.specs().map(|spec| spec.value_bytes() + spec.scale_bytes()).sum()
    }

    fn data<'a>(&'a self, located: &'a Located) -> TensorData<'a> {
        let bytes = |run: &locate::Run| self.shards.list[run.shard].bytes(run.start, run.end);
        TensorData {
            spec: &located.spec,
            data: bytes(&located.values),
            scale: located.scales.as_ref().map(bytes),
            scale_stride: located.spec.scale_columns(),
        }
    }
}

impl<'a> TensorData<'a> {
    pub fn shape(&self) -> &'a [u64] {
        &self.spec.shape
    }

    /// In elements; the first `shape().len()` are used.
    pub fn strides(&self) -> [u64; 5] {
        row_major_strides(&self.spec.shape)
    }

    /// Values and scales.
    pub fn bytes(&self) -> u64 {
        (self.data.len() + self.scale.map_or(0, <[u8]>::len)) as u64
    }
}

/// Strides of a dense row-major tensor in elements; entries past the dims are 0.
pub fn row_major_strides(shape: &[u64]) -> [u64; 5] {
    let mut strides = [0; 5];
    let mut stride = 1;
    for (dim, size) in shape.iter().enumerate().rev() {
        strides[dim] = stride;
        stride *= size;
    }
    strides
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|source| ModelError::Io { path: path.to_owned(), source })
}

fn load_order(tensors: &[Located]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|at| (tensors[*at].values.shard, tensors[*at].values.start));
    order
}

/// Backends read the config themselves and must not wait for tensors that will never come.
fn without_vision(config_json: &[u8]) -> Result<Vec<u8>, ModelError> {
    let json = |source| ModelError::Json { what: "config.json".to_owned(), source };
    let mut value: serde_json::Value = serde_json::from_slice(config_json).map_err(json)?;
    if let Some(object) = value.as_object_mut() {
        object.shift_remove("vision_config");
    }
    serde_json::to_vec(&value).map_err(json)
}

/// Stored tensors that the model does not use: draft modules', others.
fn unused(shards: &Shards, matched: &Match) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> =
        shards.places.keys().filter(|name| !matched.used.contains(*name)).cloned().collect();
    names.sort();
    names.into_iter().partition(|name| is_draft(name))
}

/// A tensor that is missed is often there under another name. Not said when vision tensors are missing: all of them
/// would count as unused.
fn unused_fault(shards: &Shards, matched: &Match) -> Option<Fault> {
    const SHOWN: usize = 8;
    let any = |kind: fn(&Fault) -> bool| matched.faults.iter().any(kind);
    if !any(|fault| matches!(fault, Fault::Missing { .. }))
        || any(|fault| matches!(fault, Fault::PartialVision { .. }))
    {
        return None;
    }
    let (_, mut first) = unused(shards, matched);
    let count = first.len();
    first.truncate(SHOWN);
    (count > 0).then_some(Fault::Unused { count, first })
}

fn report(loaded: &Loaded, shards: &Shards, matched: &Match, index: Option<&Index>) -> Report {
    let (draft, extra_tensors) = unused(shards, matched);
    let entries = || shards.list.iter().flat_map(|shard| &shard.entries);
    Report {
        naming: matched.naming,
        text_only: !matched.has_vision,
        files: shards.list.iter().map(|shard| (shard.file.clone(), shard.bytes)).collect(),
        num_stored_tensors: shards.places.len(),
        tensor_bytes: entries().map(|entry| entry.end - entry.start).sum(),
        index_total_bytes: index.and_then(Index::total_size),
        extra_tensors,
        num_draft_tensors: draft.len(),
        num_claimed_mtp_modules: loaded.num_mtp_modules,
        unindexed_tensors: index.map(|index| index.unlisted(shards)).unwrap_or_default(),
        unknown_config_keys: loaded.unknown_keys.clone(),
    }
}
