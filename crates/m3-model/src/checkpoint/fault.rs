//! What can be wrong with a checkpoint's files, one variant per kind, each naming the file and the tensor.

/// A fault that refuses a checkpoint. Sizes are bytes unless they are shapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    #[error("the folder holds no *.safetensors file")]
    NoFiles,
    #[error("{file} is a pipe, a folder or a device, no file")]
    NoFile { file: String },
    #[error("{file} is {file_bytes} bytes, too short for a safetensors header")]
    TooShort { file: String, file_bytes: u64 },
    #[error("{file} is truncated: its header alone says {header_bytes} bytes, the file has {file_bytes}")]
    HeaderTruncated { file: String, header_bytes: u64, file_bytes: u64 },
    #[error("{file} has a header of {header_bytes} bytes; the format allows {most}")]
    HeaderTooLong { file: String, header_bytes: u64, most: u64 },
    #[error("{file} has a broken header: {reason}")]
    Header { file: String, reason: String },
    #[error("{file} is truncated: its header describes {expected} bytes, the file has {file_bytes}")]
    Truncated { file: String, expected: u64, file_bytes: u64 },
    #[error("{file} has {} bytes after its last tensor: the header describes {expected}, the file has {file_bytes}", file_bytes - expected)]
    Trailing { file: String, expected: u64, file_bytes: u64 },
    #[error("{file}: tensor {tensor} starts at {start}, the one before it ends at {previous_end}: a hole")]
    Hole { file: String, tensor: String, start: u64, previous_end: u64 },
    #[error("{file}: tensor {tensor} starts at {start}, inside {previous}, which ends at {previous_end}")]
    Overlap { file: String, tensor: String, start: u64, previous: String, previous_end: u64 },
    #[error("{file}: tensor {tensor} spans {bytes} bytes, but {dtype} {shape:?} takes {}", expected.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string()))]
    Size { file: String, tensor: String, bytes: u64, dtype: String, shape: Vec<u64>, expected: Option<u64> },
    #[error("{file}: tensor {tensor} has the unknown dtype {dtype}")]
    UnknownDtype { file: String, tensor: String, dtype: String },
    #[error("tensor {tensor} is twice in {file}")]
    DuplicateInFile { file: String, tensor: String },
    #[error("tensor {tensor} is in {first} and in {second}")]
    Duplicate { tensor: String, first: String, second: String },
    #[error("tensor {tensor} {shape:?} is missing{}", indexed.as_ref().map(|file| format!(" (the index expects it in {file})")).unwrap_or_default())]
    Missing { tensor: String, shape: Vec<u64>, indexed: Option<String> },
    /// Only said beside a missing tensor, which may be there under another name.
    #[error("{count} stored {}: {}", if *count == 1 { "tensor is in no place of this config" } else { "tensors are in no place of this config" }, some(*count, first))]
    Unused { count: usize, first: Vec<String> },
    #[error("{file}: tensor {tensor} has no scales ({tensor}_scale_inv or {tensor}_scale)")]
    MissingScale { file: String, tensor: String },
    #[error("tensor {tensor} has its scales twice, as {first} and as {second}")]
    DuplicateScale { tensor: String, first: String, second: String },
    #[error("{file}: tensor {tensor} has shape {found:?}, the config needs {expected:?}")]
    Shape { file: String, tensor: String, expected: Vec<u64>, found: Vec<u64> },
    #[error("{file}: tensor {tensor} is {found}, the config needs {expected}")]
    Dtype { file: String, tensor: String, found: String, expected: String },
    #[error(
        "{file}: tensor {tensor} starts at byte {start}, not a multiple of its {align}-byte values; save it again"
    )]
    Misaligned { file: String, tensor: String, start: u64, align: u64 },
    #[error("{file}: scale {tensor} is 255 (NaN) at row {row}, group {group}")]
    NanScale { file: String, tensor: String, row: u64, group: u64 },
    #[error(
        "{found} of {expected} vision tensors are there; all or none are needed; the first missing one is {first_missing}"
    )]
    PartialVision { found: usize, expected: usize, first_missing: String },
    #[error("{index} lists the file {file}, which is not there")]
    IndexedFile { index: String, file: String },
    #[error("{index} says that tensor {tensor} is in {file}, it is {}", found_in.as_ref().map_or_else(|| "nowhere".to_owned(), |other| format!("in {other}")))]
    IndexedTensor { index: String, tensor: String, file: String, found_in: Option<String> },
}

fn some(count: usize, first: &[String]) -> String {
    let more = count - first.len();
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}
