//! Compares a model folder with a published list of file hashes, for `--verify`.
//!
//! Mirrors do not always hold the revision they name, and a file can rot without changing its length; headers and
//! shapes cannot tell. Reading hundreds of gigabytes takes minutes, so this runs only when asked. No network: the
//! list is a file, from the hub or made once from a folder that is trusted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};
use std::sync::Mutex;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::ModelError;

const READ_BYTES: usize = 1 << 20;

/// What a list says about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Lower-case hex.
    pub sha256: Option<String>,
    pub bytes: Option<u64>,
}

/// File names and what they should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub files: BTreeMap<String, Expected>,
}

impl Manifest {
    /// Reads either `sha256sum` lines (`<hex>  <name>`) or the hub's JSON list of a revision's files
    /// (`path`, `size`, `lfs.oid`). Small files without a SHA-256 in the hub's list are compared by size.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let files = if text.trim_start().starts_with('[') { parse_hub(text)? } else { parse_lines(text)? };
        if files.is_empty() {
            return Err(ModelError::Manifest("it names no file".to_owned()));
        }
        match files.keys().find(|name| !is_plain(name)) {
            Some(name) => {
                Err(ModelError::Manifest(format!("{name:?} is not a path inside the model folder")))
            }
            None => Ok(Manifest { files }),
        }
    }

    /// Hashes the folder's own files: `config.json`, `generation_config.json` and all weights.
    pub fn of_folder(folder: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<Self, ModelError> {
        let names = model_files(folder)?;
        let hashes = in_parallel(&names, |name| hash(&folder.join(name), progress))?;
        let expected = |(sha256, bytes)| Expected { sha256: Some(sha256), bytes: Some(bytes) };
        Ok(Manifest { files: names.into_iter().zip(hashes.into_iter().map(expected)).collect() })
    }

    /// `sha256sum` lines.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, expected) in &self.files {
            if let Some(sha256) = &expected.sha256 {
                let _ = writeln!(text, "{sha256}  {name}");
            }
        }
        text
    }

    /// Refuses with every difference: missing files, other sizes, other hashes, weights that the list does not name.
    /// `progress` is called from several threads with the bytes read since its last call.
    pub fn verify(&self, folder: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<(), ModelError> {
        let mut differences: Vec<String> = model_files(folder)?
            .into_iter()
            .filter(|name| name.ends_with(".safetensors") && !self.files.contains_key(name))
            .map(|name| format!("{name} is not in the list"))
            .collect();
        let files: Vec<_> = self.files.iter().collect();
        let found = in_parallel(&files, |(name, expected)| compare(folder, name, expected, progress))?;
        differences.extend(found.into_iter().flatten());
        if differences.is_empty() {
            return Ok(());
        }
        Err(ModelError::Hashes { path: folder.to_owned(), differences })
    }
}

fn parse_lines(text: &str) -> Result<BTreeMap<String, Expected>, ModelError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let (hex, name) = line.split_once(' ').unwrap_or((line, ""));
            let name = name.trim_start_matches([' ', '*']).trim_end();
            if !is_sha256(hex) || name.is_empty() {
                return Err(ModelError::Manifest(format!("line {} is not `<sha256>  <file>`", at + 1)));
            }
            Ok((name.to_owned(), Expected { sha256: Some(hex.to_ascii_lowercase()), bytes: None }))
        })
        .collect()
}

#[derive(Deserialize)]
struct HubFile {
    path: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    size: Option<u64>,
    lfs: Option<HubLfs>,
}

#[derive(Deserialize)]
struct HubLfs {
    #[serde(alias = "sha256")]
    oid: String,
    size: Option<u64>,
}

fn parse_hub(text: &str) -> Result<BTreeMap<String, Expected>, ModelError> {
    let files: Vec<HubFile> = serde_json::from_str(text)
        .map_err(|source| ModelError::Json { what: "the hub's list of files".to_owned(), source })?;
    let files = files.into_iter().filter(|file| file.kind.as_deref() != Some("directory"));
    files
        .map(|file| {
            let bytes = file.lfs.as_ref().and_then(|lfs| lfs.size).or(file.size);
            let sha256 = file.lfs.map(|lfs| lfs.oid.trim_start_matches("sha256:").to_ascii_lowercase());
            if let Some(hex) = sha256.as_ref().filter(|hex| !is_sha256(hex)) {
                return Err(ModelError::Manifest(format!("{}: {hex:?} is not a SHA-256", file.path)));
            }
            Ok((file.path, Expected { sha256, bytes }))
        })
        .collect()
}

fn is_sha256(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A list must not make us read outside the folder.
fn is_plain(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) && !name.is_empty()
}

fn model_files(folder: &Path) -> Result<Vec<String>, ModelError> {
    let io = |source| ModelError::Io { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for item in std::fs::read_dir(folder).map_err(io)? {
        let name = item.map_err(io)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") || matches!(name.as_str(), "config.json" | "generation_config.json")
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The sentence about a file that differs, `None` when it does not.
fn compare(
    folder: &Path,
    name: &str,
    expected: &Expected,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<String>, ModelError> {
    let path = folder.join(name);
    let bytes = match std::fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Some(format!("{name} is missing")));
        }
        Err(source) => return Err(ModelError::Io { path, source }),
    };
    if let Some(size) = expected.bytes.filter(|size| *size != bytes) {
        return Ok(Some(format!("{name} has {bytes} bytes, the list says {size}")));
    }
    let Some(sha256) = &expected.sha256 else { return Ok(None) };
    let (found, _) = hash(&path, progress)?;
    Ok((found != *sha256).then(|| format!("{name} has SHA-256 {found}, the list says {sha256}")))
}

/// Lower-case hex and length of a file.
fn hash(path: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<(String, u64), ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let (mut hasher, mut buffer, mut total) = (Sha256::new(), vec![0; READ_BYTES], 0);
    loop {
        let read = file.read(&mut buffer).map_err(io)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        progress(read as u64);
        total += read as u64;
    }
    let hex = hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    Ok((hex, total))
}

/// `work` over all items on as many threads as there are cores; results in the items' order, the first error wins.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, ModelError> + Sync,
) -> Result<Vec<R>, ModelError> {
    let queue = Mutex::new(items.iter().enumerate());
    let take = || queue.lock().expect("no worker panics while it takes an item").next();
    let run = || {
        let mut done = Vec::new();
        while let Some((at, item)) = take() {
            done.push((at, work(item)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut done = run();
        for worker in workers {
            done.extend(worker.join().expect("hashing does not panic"));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
