//! Bytes from a hub into files: resumed where they were cut, hashed while they come, and named only when they are
//! right.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::HubOptions;
use super::cache::Place;
use super::listing::{Remote, Site, authorized};

/// Tries of one file without a byte gained.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// What every transfer of one download needs.
pub(super) struct Work<'a> {
    pub(super) client: &'a reqwest::Client,
    pub(super) site: &'a Site,
    pub(super) name: &'a str,
    pub(super) options: &'a HubOptions,
    pub(super) commit: &'a str,
}

/// Why a try ended.
enum Cut {
    /// May be better next time.
    Again(anyhow::Error),
    Never(anyhow::Error),
}

/// Every file that is not there yet, some at once; `progress` hears how many bytes are there.
pub(super) async fn all(
    work: &Work<'_>,
    place: &Place,
    files: &[&Remote],
    at_once: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<()> {
    let done = AtomicU64::new(files.iter().map(|file| place.have(file)).sum());
    progress(done.load(Ordering::Relaxed));
    let gained = |bytes: i64| {
        let before = done.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
        progress(before.wrapping_add(bytes.cast_unsigned()));
    };
    let missing = files.iter().copied().filter(|file| !place.is_whole(file));
    let each = futures_util::stream::iter(missing.map(|file| one(work, place, file, &gained)));
    each.buffer_unordered(at_once).try_collect::<Vec<()>>().await.map(drop)
}

async fn one(
    work: &Work<'_>,
    place: &Place,
    file: &Remote,
    gained: &(dyn Fn(i64) + Sync),
) -> anyhow::Result<()> {
    let (growing, whole) = (place.growing(file), place.content(file));
    if let Some(dir) = growing.parent() {
        tokio::fs::create_dir_all(dir).await.with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let (mut tries, mut pause) = (0, FIRST_PAUSE);
    loop {
        let before = size_of(&growing).await;
        match grow(work, file, &growing, gained).await {
            Ok(()) => break,
            Err(Cut::Never(error)) => return Err(error),
            Err(Cut::Again(error)) => {
                let more = size_of(&growing).await > before;
                (tries, pause) = if more { (0, FIRST_PAUSE) } else { (tries + 1, pause * 2) };
                if tries >= TRIES {
                    return Err(
                        error.context(format!("{} could not be downloaded in {TRIES} tries", file.path))
                    );
                }
                tracing::warn!("{}: {error:#}; going on from where it was cut", file.path);
                tokio::time::sleep(pause).await;
            }
        }
    }
    tokio::fs::rename(&growing, &whole).await.with_context(|| format!("cannot name {}", whole.display()))
}

/// Appends what is missing and checks the whole.
async fn grow(
    work: &Work<'_>,
    file: &Remote,
    growing: &Path,
    gained: &(dyn Fn(i64) + Sync),
) -> Result<(), Cut> {
    let (mut hash, have) = hashed(growing, file).map_err(Cut::Never)?;
    if have < file.size || file.size == 0 {
        receive(work, file, growing, (&mut hash, have), gained).await?;
    }
    let found = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match &file.sha256 {
        Some(expected) if *expected != found => {
            // Nothing of it can be trusted.
            let _ = tokio::fs::remove_file(growing).await;
            gained(-i64::try_from(file.size).unwrap_or(0));
            let sentence = format!("{} has SHA-256 {found}, the hub says {expected}", file.path);
            Err(Cut::Again(anyhow::Error::msg(sentence)))
        }
        _ => Ok(()),
    }
}

/// What is there already, and its hash so far. More than there should be is thrown away.
fn hashed(growing: &Path, file: &Remote) -> anyhow::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    let mut there = match std::fs::File::open(growing) {
        Ok(there) => there,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((hash, 0)),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", growing.display())),
    };
    if there.metadata()?.len() > file.size {
        std::fs::remove_file(growing)?;
        return Ok((hash, 0));
    }
    let (mut buffer, mut have) = (vec![0; 1 << 20], 0);
    loop {
        let read = there.read(&mut buffer).with_context(|| format!("cannot read {}", growing.display()))?;
        if read == 0 {
            return Ok((hash, have));
        }
        hash.update(&buffer[..read]);
        have += read as u64;
    }
}

async fn receive(
    work: &Work<'_>,
    file: &Remote,
    growing: &Path,
    (hash, have): (&mut Sha256, u64),
    gained: &(dyn Fn(i64) + Sync),
) -> Result<(), Cut> {
    let again = |error: reqwest::Error| Cut::Again(error.without_url().into());
    let address = work.site.address(work.name, work.commit, &file.path);
    let mut request = authorized(work.client.get(address), work.options);
    if have > 0 {
        request = request.header("range", format!("bytes={have}-"));
    }
    let response = request.send().await.map_err(again)?;
    let mut from = have;
    match (response.status().as_u16(), have) {
        (206, 1..) | (200, 0) => {}
        // A hub that cannot resume sends everything again.
        (200, _) => {
            (*hash, from) = (Sha256::new(), 0);
            gained(-i64::try_from(have).unwrap_or(0));
        }
        (status @ (408 | 429 | 500..), _) => {
            return Err(Cut::Again(anyhow::anyhow!("the hub answers {status} when asked for {}", file.path)));
        }
        (status, _) => {
            return Err(Cut::Never(anyhow::anyhow!("the hub answers {status} when asked for {}", file.path)));
        }
    }
    let mut there = open(growing, from).await.map_err(Cut::Never)?;
    let mut bytes = response.bytes_stream();
    let mut broken = None;
    while let Some(part) = bytes.next().await {
        let part = match part {
            Ok(part) => part,
            Err(error) => {
                broken = Some(again(error));
                break;
            }
        };
        from += part.len() as u64;
        if from > file.size {
            return Err(Cut::Never(too_long(file)));
        }
        hash.update(&part);
        there.write_all(&part).await.with_context(|| full(growing)).map_err(Cut::Never)?;
        gained(i64::try_from(part.len()).unwrap_or(0));
    }
    // Also of what broke off: the next try goes on from it.
    there.flush().await.with_context(|| full(growing)).map_err(Cut::Never)?;
    there.sync_all().await.with_context(|| full(growing)).map_err(Cut::Never)?;
    match broken {
        Some(cut) => Err(cut),
        None => short(file, from).map_err(Cut::Again),
    }
}

fn full(growing: &Path) -> String {
    format!("cannot write {}; is the disk full?", growing.display())
}

fn too_long(file: &Remote) -> anyhow::Error {
    anyhow::anyhow!("the hub sends more of {} than the {} bytes it has", file.path, file.size)
}

fn short(file: &Remote, have: u64) -> anyhow::Result<()> {
    ensure!(have == file.size, "{} ended after {have} of {} bytes", file.path, file.size);
    Ok(())
}

async fn open(growing: &Path, from: u64) -> anyhow::Result<tokio::fs::File> {
    let there = tokio::fs::OpenOptions::new().create(true).append(true).open(growing).await;
    let there = there.with_context(|| format!("cannot write {}", growing.display()))?;
    there.set_len(from).await.with_context(|| format!("cannot write {}", growing.display()))?;
    Ok(there)
}

async fn size_of(path: &Path) -> u64 {
    tokio::fs::metadata(path).await.map_or(0, |about| about.len())
}
