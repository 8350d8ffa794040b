//! Files below the one folder that the operator allows. Each part of the path is opened relative to the one before and
//! without following links, so neither `..` nor a link that appears meanwhile leads out.

use super::Wanted;
use crate::error::{Error, Result};
use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Checked once at start, so that a mistyped folder is the operator's error and not each client's.
pub(super) fn check_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    if !folder.is_absolute() {
        return Err(Error::Internal(format!("the folder of allowed media {shown} is not an absolute path")));
    }
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Error::Internal(format!("the folder of allowed media {shown} is not a folder"))),
        Err(error) => {
            Err(Error::Internal(format!("cannot open the folder of allowed media {shown}: {error}")))
        }
    }
}

/// The bytes of `path`, which a client named.
pub(super) async fn read(folder: Option<&Path>, path: &str, wanted: Wanted, limit: u64) -> Result<Bytes> {
    let Some(folder) = folder else {
        return Err(Error::Refused(
            "this server reads no local files; the operator can set --allowed-local-media-path".into(),
        ));
    };
    let (folder, path) = (folder.to_owned(), path.to_owned());
    tokio::task::spawn_blocking(move || read_below(folder, &path, wanted, limit))
        .await
        .map_err(|_| Error::Internal("reading a local file failed".into()))?
}

fn read_below(folder: PathBuf, path: &str, wanted: Wanted, limit: u64) -> Result<Bytes> {
    let outside = || Error::Refused("the file is not below the folder of allowed media".into());
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(Error::Refused("the path of a local file must not contain . or ..".into()));
    }
    let root: Vec<&str> =
        folder.to_str().ok_or_else(outside)?.split('/').filter(|part| !part.is_empty()).collect();
    let below = parts.strip_prefix(root.as_slice()).ok_or_else(outside)?;
    let (name, folders) = below.split_last().ok_or_else(outside)?;
    let file = open_below(&folder, folders, name).map_err(|error| match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
            Error::Refused("the path of a local file must not contain links".into())
        }
        _ => Error::Refused("the local file does not exist or cannot be read".into()),
    })?;
    let status = fstat(&file).map_err(|_| Error::Internal("cannot read a local file's status".into()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Error::Refused("the local file is not a regular file".into()));
    }
    read_up_to(file.into(), status.st_size.max(0) as u64, wanted, limit)
}

/// `NONBLOCK`, so that opening a named pipe does not wait for a writer.
fn open_below(folder: &Path, folders: &[&str], name: &str) -> rustix::io::Result<OwnedFd> {
    let step = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(folder, step, Mode::empty())?;
    for part in folders {
        at = openat(&at, *part, step | OFlags::NOFOLLOW, Mode::empty())?;
    }
    openat(&at, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn read_up_to(file: File, size: u64, wanted: Wanted, limit: u64) -> Result<Bytes> {
    let too_large = |size| Error::too_large(format!("the {} in bytes", wanted.word()), size, limit);
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    // One byte more than allowed tells a file that grew meanwhile.
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|_| Error::Refused("the local file does not exist or cannot be read".into()))?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes.into())
}
