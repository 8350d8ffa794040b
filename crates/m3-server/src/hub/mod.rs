//! Models from a hub: found by name and revision, downloaded into the cache that other programs use too, resumed where
//! a download was cut, and checked against the hub's own hashes. With `HF_HUB_OFFLINE=1` nothing is asked of anyone.
//!
//! Only data is taken: weights as safetensors, JSON, the template and texts. Files that can hold code (pickles among
//! them) are never downloaded.

mod cache;
mod check;
mod listing;
mod transfer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

pub use cache::{Cache, default_cache};
pub use check::{Checked, check};
use listing::Remote;
pub use listing::Site;

/// Files downloaded at once.
const AT_ONCE: usize = 4;
/// Without an answer, or without a byte of a file, for so long, a transfer is begun anew from where it stands.
const SILENCE: Duration = Duration::from_secs(60);

/// Where models come from and go to.
#[derive(Clone, Debug)]
pub struct HubOptions {
    pub site: Site,
    /// Branch, tag or commit.
    pub revision: String,
    pub cache: PathBuf,
    /// A plain folder to put files into, instead of the cache.
    pub local_dir: Option<PathBuf>,
    pub offline: bool,
    /// Hash what is there before it is used.
    pub verify: bool,
    pub token: Option<Token>,
}

/// What private models are asked for with; never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// Whether a text names a model of a hub: `OWNER/NAME`, and no folder.
pub fn is_name(text: &str) -> bool {
    let good = |part: &str| {
        let letters = part.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        !part.is_empty() && letters && !part.starts_with('.') && !part.contains("..")
    };
    text.split_once('/').is_some_and(|(owner, name)| good(owner) && good(name))
}

/// The folder of a model, downloaded as far as it is not there; `progress` hears bytes done and in all.
pub fn fetch(
    options: &HubOptions,
    name: &str,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> anyhow::Result<PathBuf> {
    let cache = Cache::new(&options.cache, name);
    if options.offline {
        return offline(options, &cache, name);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = runtime.block_on(online(options, &cache, name, progress))?;
    if options.verify {
        check::check(&folder, None, &|_| {})?.good()?;
    }
    Ok(folder)
}

fn offline(options: &HubOptions, cache: &Cache, name: &str) -> anyhow::Result<PathBuf> {
    let found = cache.snapshot(&options.revision);
    let found = options.local_dir.clone().filter(|dir| dir.join("config.json").is_file()).or(found);
    let folder = found.with_context(|| {
        format!(
            "HF_HUB_OFFLINE is set and {name} at revision {} is not in {}; download it first: m3 download {name}",
            options.revision,
            options.cache.display()
        )
    })?;
    if options.verify {
        check::check(&folder, None, &|_| {})?.good()?;
    }
    Ok(folder)
}

async fn online(
    options: &HubOptions,
    cache: &Cache,
    name: &str,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> anyhow::Result<PathBuf> {
    crate::tls::provide();
    let client = reqwest::Client::builder()
        .user_agent(concat!("m3/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(20))
        .read_timeout(SILENCE)
        .build()?;
    let listing = options.site.list(&client, name, options).await?;
    let wanted: Vec<&Remote> = listing.files.iter().filter(|file| listing::is_data(&file.path)).collect();
    ensure!(
        wanted.iter().any(|file| file.path == "config.json"),
        "{name} at revision {} has no config.json: it is no model this engine can read",
        options.revision
    );
    let place = match &options.local_dir {
        Some(dir) => cache::Place::Plain(dir.clone()),
        None => cache.place(&listing.commit)?,
    };
    let total: u64 = wanted.iter().map(|file| file.size).sum();
    let missing: u64 = wanted.iter().map(|file| file.size.saturating_sub(place.have(file))).sum();
    has_room(place.root(), missing)?;
    tracing::info!("{name} at {}: {} files, {} MiB to download", listing.commit, wanted.len(), missing >> 20);
    let work =
        transfer::Work { client: &client, site: &options.site, name, options, commit: &listing.commit };
    transfer::all(&work, &place, &wanted, AT_ONCE, &|done| progress(done.min(total), total)).await?;
    let folder = place.finish(&wanted)?;
    if options.local_dir.is_none() {
        cache.refer(&options.revision, &listing.commit)?;
    }
    Ok(folder)
}

/// A download that fills the disk would fail after hours and take others with it.
fn has_room(dir: &Path, missing: u64) -> anyhow::Result<()> {
    match crate::watch::free_bytes(dir) {
        None => bail!("{} cannot be written to", dir.display()),
        Some(free) if free < missing => bail!(
            "{missing} bytes are to be downloaded and the disk of {} has {free} bytes free; name another place with \
             --download-dir",
            dir.display()
        ),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hubs_are_told_from_folders() {
        for name in ["MiniMaxAI/MiniMax-M3", "MiniMaxAI/MiniMax-M3-MXFP8", "a/b.c_d"] {
            assert!(is_name(name), "{name}");
        }
        for path in
            ["", "model", "/a/b", "./a", "../a", "a/b/c", "a/", "/b", "a/..", "~/x", "a b/c", "a/.hidden"]
        {
            assert!(!is_name(path), "{path}");
        }
    }
}
