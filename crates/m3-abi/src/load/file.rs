//! Looks at a plugin file before the system's loader does, which hangs on a pipe and dies on a file that is cut.
//!
//! `dlopen` maps the segments that the program headers promise without asking how long the file is: touching a page
//! behind the end is SIGBUS for the whole program. Everything else that may be wrong with a library is the loader's
//! to say.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Sizes and offsets of the 64-bit ELF header and its program headers, in bytes.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const LOADED: u32 = 1;

/// Refuses what is no file, and a library that is shorter than its segments. A file that cannot be read, or is of
/// another format, is left to the loader.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    let has = metadata.len();
    match File::open(path).ok().and_then(|file| segments_end(file, has)) {
        Some(needs) if needs > has => {
            Err(format!("it is truncated: the file has {has} bytes, its segments end at {needs}"))
        }
        _ => Ok(()),
    }
}

/// End of the last segment, or of the program headers themselves when they are cut; `None` for what is not a 64-bit
/// little-endian ELF file with a whole header.
fn segments_end(mut file: File, file_bytes: u64) -> Option<u64> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    if header[..6] != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let [entry_bytes, count] = [54, 56].map(|at| u16::from_le_bytes([header[at], header[at + 1]]) as usize);
    if entry_bytes != PROGRAM_HEADER_BYTES {
        return None;
    }
    let table_end = table.saturating_add((count * entry_bytes) as u64);
    if table_end > file_bytes {
        return Some(table_end);
    }
    let mut entries = vec![0; count * entry_bytes];
    file.seek(SeekFrom::Start(table)).ok()?;
    file.read_exact(&mut entries).ok()?;
    let ends = entries.chunks_exact(entry_bytes).filter_map(|entry| {
        let wide = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let kind = u32::from_le_bytes(entry[..4].try_into().ok()?);
        (kind == LOADED).then_some(wide(8)?.saturating_add(wide(32)?))
    });
    ends.max()
}
