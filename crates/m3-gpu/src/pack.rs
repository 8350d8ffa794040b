//! `kernels.pack`: every compiled function of one target in one file, and what a launcher must know about each.
//!
//! Layout: 8 bytes of magic, the header's length as little-endian `u32`, the header (JSON), then all code as one zstd
//! frame. The header alone answers `probe`; code is unpacked only when kernels are loaded. Written by
//! `cargo xtask build`, never at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// First bytes of a pack; the digit changes with the format.
pub const MAGIC: [u8; 8] = *b"M3KPACK1";

/// Named sizes of a rank's part of a model: `hidden`, `head_dim`, ... as `kernels/manifest.toml` lists them.
pub type Dims = BTreeMap<String, i64>;

/// Everything but the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// As `--backend` takes it, e.g. `sm90`.
    pub target: String,
    /// As the vendor names it, e.g. `sm_90a`.
    pub architecture: String,
    /// Package and version of every compiler that had a hand in it.
    pub toolchain: BTreeMap<String, String>,
    /// Of everything that is in the code, in words.
    pub licences: Vec<String>,
    /// Dims that some kernel was compiled for; all others are run-time values.
    pub compiled_dims: Vec<String>,
    pub shapes: Vec<Shape>,
    pub kernels: Vec<Kernel>,
    pub functions: Vec<Function>,
    /// Unpacked.
    pub code_bytes: u64,
    /// SHA-256 of the unpacked code, in hexadecimal.
    pub code_sha256: String,
}

/// A shape that the pack was compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub name: String,
    pub set: String,
    pub dims: Dims,
}

/// A row of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub name: String,
    /// Arguments and variants in words; equal to the stub's, or the stub must not launch it.
    pub contract: String,
    /// A letter per argument, as [`crate::arguments::ArgumentList::layout`] has them.
    pub layout: String,
}

/// One compiled function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Index into [`Header::kernels`].
    pub kernel: u32,
    /// Index into the kernel's variants.
    pub variant: u32,
    /// Indices into [`Header::shapes`].
    pub shapes: Vec<u32>,
    /// Place of the cubin in the unpacked code. Functions with equal bytes share it.
    pub offset: u64,
    pub bytes: u64,
    pub symbol: String,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Null pointers that the compiler wants behind the arguments.
    pub trailing_pointers: u32,
    /// Launched so that it may start before its predecessor ends.
    pub dependent: bool,
    /// Box and swizzle of each matrix argument, in order.
    pub maps: Vec<MapShape>,
}

/// What the copy engine moves at once for one matrix argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapShape {
    /// Rows and columns.
    #[serde(rename = "box")]
    pub extent: [u32; 2],
    pub swizzle: u32,
}

/// Why a pack cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    #[error("kernels missing: run cargo xtask build --backend {target}")]
    Missing { target: String },
    #[error("kernel pack is broken: {0}")]
    Broken(String),
    #[error("kernel pack is for {found}; this plugin is {wanted}")]
    Target { found: String, wanted: String },
    #[error("kernel pack does not fit this plugin: {0}; run cargo xtask build --backend {target} again", target = .1)]
    Foreign(String, String),
    #[error("no kernels were compiled for {asked}; there are {known}")]
    Shape { asked: String, known: String },
}

/// A pack whose header was read.
#[derive(Clone, Debug)]
pub struct Pack<'a> {
    pub header: Header,
    packed: &'a [u8],
    hash: String,
}

impl<'a> Pack<'a> {
    /// Reads a pack for `target`. No bytes at all stand for a plugin that was built without kernels.
    pub fn read(file: &'a [u8], target: &str) -> Result<Self, PackError> {
        if file.is_empty() {
            return Err(PackError::Missing { target: target.to_owned() });
        }
        let broken = |what: &str| PackError::Broken(what.to_owned());
        let rest = file.strip_prefix(&MAGIC).ok_or_else(|| broken("it does not start with M3KPACK1"))?;
        let (length, rest) =
            rest.split_first_chunk::<4>().ok_or_else(|| broken("it ends in its first line"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (header, packed) =
            rest.split_at_checked(length).ok_or_else(|| broken("it ends in its header"))?;
        let header: Header = serde_json::from_slice(header)
            .map_err(|error| PackError::Broken(format!("its header does not parse: {error}")))?;
        if header.target != target {
            return Err(PackError::Target { found: header.target, wanted: target.to_owned() });
        }
        header.check().map_err(PackError::Broken)?;
        Ok(Pack { header, packed, hash: hexadecimal(&Sha256::digest(file)) })
    }

    /// SHA-256 of the whole file, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The shape that a model with these dims runs on, or a refusal that names the dims that differ from the nearest.
    /// Only dims that kernels were compiled for count.
    pub fn covers(&self, dims: &Dims) -> Result<usize, PackError> {
        let differing = |shape: &Shape| -> Vec<String> {
            let differs = |name: &&String| shape.dims.get(*name) != dims.get(*name);
            self.header.compiled_dims.iter().filter(differs).cloned().collect()
        };
        let nearest = self.header.shapes.iter().enumerate().map(|(index, shape)| (differing(shape), index));
        let known = || {
            let names: Vec<&str> = self.header.shapes.iter().map(|shape| shape.name.as_str()).collect();
            names.join(", ")
        };
        match nearest.min_by_key(|(differing, _)| differing.len()) {
            Some((differing, index)) if differing.is_empty() => Ok(index),
            Some((differing, index)) => {
                let value = |name: &String| dims.get(name).map_or("none".to_owned(), i64::to_string);
                let asked: Vec<String> =
                    differing.iter().map(|name| format!("{name} {}", value(name))).collect();
                let nearest = &self.header.shapes[index].name;
                Err(PackError::Shape {
                    asked: asked.join(", "),
                    known: format!("{} (nearest: {nearest})", known()),
                })
            }
            None => Err(PackError::Shape { asked: "any shape".to_owned(), known: "none".to_owned() }),
        }
    }

    /// All code, unpacked and compared with its hash.
    pub fn code(&self) -> Result<Vec<u8>, PackError> {
        let most = usize::try_from(self.header.code_bytes)
            .map_err(|_| PackError::Broken("its code does not fit into memory".to_owned()))?;
        let code = zstd::bulk::decompress(self.packed, most)
            .map_err(|error| PackError::Broken(format!("its code does not unpack: {error}")))?;
        if hexadecimal(&Sha256::digest(&code)) != self.header.code_sha256 {
            return Err(PackError::Broken("its code has another hash than its header says".to_owned()));
        }
        Ok(code)
    }

    /// One line for `m3 backends`: hash, architecture, contents, toolchain, licences.
    pub fn describe(&self) -> String {
        let header = &self.header;
        let tools: Vec<String> =
            header.toolchain.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "kernel pack {}: {}, {} kernels in {} functions, {}; made by {}; licences {}",
            &self.hash[..16],
            header.architecture,
            header.kernels.len(),
            header.functions.len(),
            header.shapes.iter().map(|shape| shape.name.as_str()).collect::<Vec<_>>().join(", "),
            tools.join(", "),
            header.licences.join(", "),
        )
    }
}

impl Header {
    /// Every index and range of it, so that nobody has to ask again.
    fn check(&self) -> Result<(), String> {
        for function in &self.functions {
            let symbol = &function.symbol;
            if function.kernel as usize >= self.kernels.len() {
                return Err(format!("{symbol} names kernel {}", function.kernel));
            }
            if function.shapes.iter().any(|shape| *shape as usize >= self.shapes.len()) {
                return Err(format!("{symbol} names a shape that is not there"));
            }
            let end = function.offset.checked_add(function.bytes);
            if end.is_none_or(|end| end > self.code_bytes) {
                return Err(format!("{symbol} lies behind the end of the code"));
            }
        }
        Ok(())
    }
}

/// Puts a pack together; `code` is what the functions' offsets point into.
pub fn write(header: &Header, code: &[u8]) -> Result<Vec<u8>, PackError> {
    header.check().map_err(PackError::Broken)?;
    let broken = |error: &dyn std::fmt::Display| PackError::Broken(error.to_string());
    let text = serde_json::to_vec(header).map_err(|error| broken(&error))?;
    let length = u32::try_from(text.len()).map_err(|error| broken(&error))?;
    let packed = zstd::bulk::compress(code, 19).map_err(|error| broken(&error))?;
    Ok([MAGIC.as_slice(), &length.to_le_bytes(), &text, &packed].concat())
}

/// SHA-256 of these bytes, as packs write it.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
