//! Reads and checks the header of one safetensors file against the file's length, before anything is mapped.
//!
//! The registry crate's reader says *that* a header is wrong; an operator needs to know which tensor of which file,
//! and a name that is there twice must not be lost in a map. Layout: `u64` little-endian header length, JSON header,
//! tensor bytes. Tensor ranges must cover the bytes exactly: no hole, no overlap, nothing after the last one.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;

use ::safetensors::Dtype;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::fault::Fault;

const PREFIX_BYTES: u64 = 8;
/// The format's own limit.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A tensor as its file describes it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Absolute byte offsets in the file.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The entries of `file` in byte order. `Err` holds everything that is wrong with the header, or the read error.
pub(super) fn read(name: &str, file: &mut File) -> std::io::Result<Result<Vec<Entry>, Vec<Fault>>> {
    let file_bytes = file.metadata()?.len();
    let owned = || name.to_owned();
    if file_bytes < PREFIX_BYTES {
        return Ok(Err(vec![Fault::TooShort { file: owned(), file_bytes }]));
    }
    let mut prefix = [0; PREFIX_BYTES as usize];
    file.read_exact(&mut prefix)?;
    let header_bytes = u64::from_le_bytes(prefix);
    if header_bytes > MOST_HEADER_BYTES {
        let most = MOST_HEADER_BYTES;
        return Ok(Err(vec![Fault::HeaderTooLong { file: owned(), header_bytes, most }]));
    }
    if header_bytes > file_bytes - PREFIX_BYTES {
        return Ok(Err(vec![Fault::HeaderTruncated { file: owned(), header_bytes, file_bytes }]));
    }
    let mut header = vec![0; header_bytes as usize];
    file.read_exact(&mut header)?;
    let raw: RawHeader = match serde_json::from_slice(&header) {
        Ok(raw) => raw,
        Err(error) => return Ok(Err(vec![Fault::Header { file: owned(), reason: error.to_string() }])),
    };
    Ok(check(name, raw, PREFIX_BYTES + header_bytes, file_bytes))
}

fn check(file: &str, raw: RawHeader, data_start: u64, file_bytes: u64) -> Result<Vec<Entry>, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut entries = Vec::with_capacity(raw.0.len());
    let mut names = HashSet::new();
    for (tensor, raw) in raw.0 {
        if !names.insert(tensor.clone()) {
            faults.push(Fault::DuplicateInFile { file: file.to_owned(), tensor });
            continue;
        }
        match entry(file, tensor, raw, data_start) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    entries.sort_by_key(|entry| (entry.start, entry.end));
    faults.extend(gaps(file, &entries, data_start));
    let expected = entries.iter().map(|entry| entry.end).max().unwrap_or(data_start);
    let file = file.to_owned();
    match expected.cmp(&file_bytes) {
        std::cmp::Ordering::Greater => faults.push(Fault::Truncated { file, expected, file_bytes }),
        std::cmp::Ordering::Less => faults.push(Fault::Trailing { file, expected, file_bytes }),
        std::cmp::Ordering::Equal => {}
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

fn entry(file: &str, tensor: String, raw: RawEntry, data_start: u64) -> Result<Entry, Fault> {
    let Ok(dtype) = serde_json::from_value::<Dtype>(raw.dtype.as_str().into()) else {
        return Err(Fault::UnknownDtype { file: file.to_owned(), tensor, dtype: raw.dtype });
    };
    let bits = raw
        .shape
        .iter()
        .try_fold(1u64, |product, size| product.checked_mul(*size))
        .and_then(|values| values.checked_mul(dtype.bitsize() as u64));
    let [start, end] = raw.data_offsets;
    let absolute = (data_start.checked_add(start), data_start.checked_add(end));
    match (bits, absolute) {
        (Some(bits), (Some(first), Some(last)))
            if bits.is_multiple_of(8) && start <= end && end - start == bits / 8 =>
        {
            Ok(Entry { name: tensor, dtype, shape: raw.shape, start: first, end: last })
        }
        _ => Err(Fault::Size {
            file: file.to_owned(),
            tensor,
            bytes: end.saturating_sub(start),
            dtype: raw.dtype,
            shape: raw.shape,
            expected: bits.map(|bits| bits.div_ceil(8)),
        }),
    }
}

fn gaps(file: &str, entries: &[Entry], data_start: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut previous_end, mut previous) = (data_start, "the header");
    for entry in entries {
        let (file, tensor, start) = (file.to_owned(), entry.name.clone(), entry.start);
        if start > previous_end {
            faults.push(Fault::Hole { file, tensor, start, previous_end });
        } else if start < previous_end {
            faults.push(Fault::Overlap { file, tensor, start, previous: previous.to_owned(), previous_end });
        }
        if entry.end >= previous_end {
            (previous_end, previous) = (entry.end, &entry.name);
        }
    }
    faults
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    /// Relative to the end of the header.
    data_offsets: [u64; 2],
}

/// Entries in file order, duplicates kept.
struct RawHeader(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((key, map.next_value()?));
            }
        }
        Ok(RawHeader(entries))
    }
}
