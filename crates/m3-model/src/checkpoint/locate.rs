//! Finds every tensor of the model in the stored ones and checks dtype, shape and alignment.

use std::collections::HashSet;

use ::safetensors::Dtype;

use super::fault::Fault;
use super::index::Index;
use super::shards::{Place, Shards};
use crate::config::ModelConfig;
use crate::formats::Format;
use crate::names::{Role, TensorSpec, expected_tensors};
use crate::naming::{Naming, Source, scale_names, source};

/// A run of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) shard: usize,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A tensor of the model and where its bytes are; the spec's format is the file's.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) spec: TensorSpec,
    pub(super) values: Run,
    pub(super) scales: Option<Run>,
    /// Name of the stored scales.
    pub(super) scale_name: String,
}

/// The result of matching a config against the stored tensors.
pub(super) struct Match {
    pub(super) naming: Naming,
    /// In table order.
    pub(super) tensors: Vec<Located>,
    /// Whether the config's vision part has its tensors.
    pub(super) has_vision: bool,
    /// Stored names that belong to the model.
    pub(super) used: HashSet<String>,
    pub(super) faults: Vec<Fault>,
}

/// Matches everything and collects every fault.
pub(super) fn locate(config: &ModelConfig, shards: &Shards, index: Option<&Index>) -> Match {
    let mut specs = expected_tensors(config);
    let experts = config.text.num_experts;
    let naming = detect(&specs, shards, experts);
    let mut faults = Vec::new();
    let has_vision = vision(&specs, shards, naming, experts, &mut faults);
    if !has_vision {
        specs.retain(|spec| spec.role != Role::Vision);
    }
    let mut finder = Finder { shards, index, used: HashSet::new(), noted: HashSet::new(), faults };
    let tensors = specs.into_iter().filter_map(|spec| {
        let source = source(&spec, naming, experts);
        finder.find(spec, &source)
    });
    let tensors = tensors.collect();
    Match { naming, tensors, has_vision, used: finder.used, faults: finder.faults }
}

/// The scheme under which most tensors are there; the released one when none fits better.
fn detect(specs: &[TensorSpec], shards: &Shards, experts: usize) -> Naming {
    let hits = |naming: &Naming| {
        specs.iter().filter(|spec| shards.places.contains_key(&source(spec, *naming, experts).name)).count()
    };
    let best = Naming::ALL.iter().map(|naming| (hits(naming), *naming)).rev().max_by_key(|(hits, _)| *hits);
    best.map_or(Naming::Released, |(_, naming)| naming)
}

/// Whether vision tensors are there: all, or none. Some is a fault (and counts as none from here on).
fn vision(
    specs: &[TensorSpec],
    shards: &Shards,
    naming: Naming,
    experts: usize,
    faults: &mut Vec<Fault>,
) -> bool {
    let names: Vec<String> = specs
        .iter()
        .filter(|spec| spec.role == Role::Vision)
        .map(|spec| source(spec, naming, experts).name)
        .collect();
    let missing: Vec<&String> = names.iter().filter(|name| !shards.places.contains_key(*name)).collect();
    if let (Some(first), true) = (missing.first(), missing.len() < names.len()) {
        faults.push(Fault::PartialVision {
            found: names.len() - missing.len(),
            expected: names.len(),
            first_missing: (*first).clone(),
        });
    }
    !names.is_empty() && missing.is_empty()
}

struct Finder<'a> {
    shards: &'a Shards,
    index: Option<&'a Index>,
    used: HashSet<String>,
    noted: HashSet<Fault>,
    faults: Vec<Fault>,
}

impl Finder<'_> {
    /// `None` when something is wrong; the fault is noted. A fused tensor is checked once per part, reported once.
    fn find(&mut self, mut spec: TensorSpec, source: &Source) -> Option<Located> {
        let Some(place) = self.shards.places.get(&source.name).copied() else {
            let (tensor, shape) = (source.name.clone(), source.shape.clone());
            let indexed = self.index.and_then(|index| index.file(&source.name)).cloned();
            self.note(Fault::Missing { tensor, shape, indexed });
            return None;
        };
        self.used.insert(source.name.clone());
        spec.format = self.format(&spec, place)?;
        let rows: u64 = spec.shape[..spec.shape.len() - 1].iter().product();
        let columns = spec.shape[spec.shape.len() - 1] * spec.format.value_bytes() as u64;
        let values = self.run(place, &source.shape, source.first_row, rows * columns, columns)?;
        let (scales, scale_name) = match spec.format {
            Format::Mxfp8 => self.scales(&spec, source, place).map(|(run, name)| (Some(run), name))?,
            _ => (None, String::new()),
        };
        Some(Located { spec, values, scales, scale_name })
    }

    fn note(&mut self, fault: Fault) {
        if self.noted.insert(fault.clone()) {
            self.faults.push(fault);
        }
    }

    /// The stored format, when it may hold this tensor.
    fn format(&mut self, spec: &TensorSpec, place: Place) -> Option<Format> {
        let entry = self.shards.entry(place);
        let stored = match entry.dtype {
            Dtype::F32 => Some(Format::F32),
            Dtype::BF16 => Some(Format::Bf16),
            Dtype::F8_E4M3 => Some(Format::Mxfp8),
            _ => None,
        };
        if let Some(stored) = stored.filter(|stored| spec.accepts(*stored)) {
            return Some(stored);
        }
        let expected = match spec.format {
            Format::F32 => "F32 or BF16",
            Format::Bf16 => "BF16",
            Format::Mxfp8 => "F8_E4M3 (quantization_config says mxfp8)",
        };
        self.note(Fault::Dtype {
            file: self.shards.file(place).to_owned(),
            tensor: entry.name.clone(),
            found: entry.dtype.to_string(),
            expected: expected.to_owned(),
        });
        None
    }

    /// `len` bytes of rows of `row_bytes` from `first_row`, after the shape and the alignment are right.
    fn run(&mut self, place: Place, shape: &[u64], first_row: u64, len: u64, row_bytes: u64) -> Option<Run> {
        let entry = self.shards.entry(place);
        let (file, tensor) = (self.shards.file(place).to_owned(), entry.name.clone());
        if entry.shape != shape {
            let (expected, found) = (shape.to_vec(), entry.shape.clone());
            self.note(Fault::Shape { file, tensor, expected, found });
            return None;
        }
        let start = entry.start + first_row * row_bytes;
        let align = (entry.dtype.bitsize() / 8).max(1) as u64;
        if !start.is_multiple_of(align) {
            self.note(Fault::Misaligned { file, tensor, start, align });
            return None;
        }
        Some(Run { shard: place.shard, start, end: start + len })
    }

    fn scales(&mut self, spec: &TensorSpec, source: &Source, values: Place) -> Option<(Run, String)> {
        let [first, second] = scale_names(&source.name);
        let found: Vec<String> =
            [first, second].into_iter().filter(|name| self.shards.places.contains_key(name)).collect();
        self.used.extend(found.iter().cloned());
        let tensor = source.name.clone();
        let name = match found.as_slice() {
            [] => {
                let file = self.shards.file(values).to_owned();
                self.note(Fault::MissingScale { file, tensor });
                return None;
            }
            [name] => name.clone(),
            [first, second, ..] => {
                let (first, second) = (first.clone(), second.clone());
                self.note(Fault::DuplicateScale { tensor, first, second });
                return None;
            }
        };
        let place = self.shards.places[&name];
        let entry = self.shards.entry(place);
        if !matches!(entry.dtype, Dtype::U8 | Dtype::F8_E8M0) {
            let (found, expected) = (entry.dtype.to_string(), "U8 or F8_E8M0".to_owned());
            let file = self.shards.file(place).to_owned();
            self.note(Fault::Dtype { file, tensor: name, found, expected });
            return None;
        }
        let columns = spec.scale_columns();
        let mut shape = source.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = columns;
        }
        let run = self.run(place, &shape, source.first_row, spec.scale_bytes(), columns)?;
        Some((run, name))
    }
}
