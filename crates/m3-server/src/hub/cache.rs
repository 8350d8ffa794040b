//! The cache on disk, laid out as the hub's own programs lay it out, so that both find each other's downloads:
//! `models--OWNER--NAME/{blobs, refs, snapshots/COMMIT}`, where a snapshot's files are links to blobs.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::listing::{Remote, is_hex};

/// The cached revisions of one model.
pub struct Cache(PathBuf);

/// Where files of a download go.
pub(super) enum Place {
    /// Contents by hash, and a folder of links to them.
    Blobs { blobs: PathBuf, snapshot: PathBuf },
    /// The files themselves.
    Plain(PathBuf),
}

/// Where the hub's own programs keep it, from their variables.
pub fn default_cache(variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let home = || variable("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    let base = || match (variable("HF_HOME"), variable("XDG_CACHE_HOME")) {
        (Some(base), _) => PathBuf::from(base),
        (None, Some(base)) => PathBuf::from(base).join("huggingface"),
        (None, None) => home().join(".cache/huggingface"),
    };
    variable("HF_HUB_CACHE").map_or_else(|| base().join("hub"), PathBuf::from)
}

impl Cache {
    pub fn new(root: &Path, name: &str) -> Self {
        Cache(root.join(format!("models--{}", name.replace('/', "--"))))
    }

    /// The folder of a revision, when it is there and whole.
    pub fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let reference = std::fs::read_to_string(self.0.join("refs").join(revision)).ok();
        let commit = reference.as_deref().map_or(revision, str::trim);
        let named = commit.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let folder = self.0.join("snapshots").join(commit);
        (named && folder.join("config.json").is_file()).then_some(folder)
    }

    pub(super) fn place(&self, commit: &str) -> anyhow::Result<Place> {
        let (blobs, snapshot) = (self.0.join("blobs"), self.0.join("snapshots").join(commit));
        for dir in [&blobs, &snapshot] {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Place::Blobs { blobs, snapshot })
    }

    /// Notes which commit a revision is.
    pub(super) fn refer(&self, revision: &str, commit: &str) -> anyhow::Result<()> {
        if revision == commit && is_hex(commit, 40) {
            return Ok(());
        }
        let file = self.0.join("refs").join(revision);
        let dir = file.parent().context("a reference has a folder")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        std::fs::write(&file, commit).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Place {
    pub(super) fn root(&self) -> &Path {
        match self {
            Place::Blobs { blobs, .. } => blobs,
            Place::Plain(dir) => dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(dir),
        }
    }

    /// Where a file's content will be.
    pub(super) fn content(&self, file: &Remote) -> PathBuf {
        match self {
            Place::Blobs { blobs, .. } => blobs.join(&file.blob),
            Place::Plain(dir) => dir.join(&file.path),
        }
    }

    /// Where it grows until it is whole.
    pub(super) fn growing(&self, file: &Remote) -> PathBuf {
        let mut name = self.content(file).into_os_string();
        name.push(".incomplete");
        PathBuf::from(name)
    }

    /// Whether a file needs nothing more.
    pub(super) fn is_whole(&self, file: &Remote) -> bool {
        self.content(file).metadata().is_ok_and(|about| about.len() == file.size)
    }

    /// Bytes of a file that are there.
    pub(super) fn have(&self, file: &Remote) -> u64 {
        if self.is_whole(file) {
            return file.size;
        }
        self.growing(file).metadata().map_or(0, |about| about.len().min(file.size))
    }

    /// Once every content is there: the folder to read from.
    pub(super) fn finish(self, files: &[&Remote]) -> anyhow::Result<PathBuf> {
        let Place::Blobs { blobs, snapshot } = self else { return Ok(self.root().to_owned()) };
        for file in files {
            let link = snapshot.join(&file.path);
            let depth = file.path.matches('/').count() + 3;
            let up: PathBuf = std::iter::repeat_n("..", depth - 1).collect();
            let dir = link.parent().context("a link has a folder")?;
            std::fs::create_dir_all(dir)?;
            let target = up.join("blobs").join(&file.blob);
            if std::fs::read_link(&link).is_ok_and(|there| there == target) {
                continue;
            }
            if link.symlink_metadata().is_ok() {
                std::fs::remove_file(&link)?;
            }
            std::os::unix::fs::symlink(&target, &link)
                .with_context(|| format!("cannot link {} to {}", link.display(), blobs.display()))?;
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_hub_s_own_programs_look() {
        let at = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> =
                set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            default_cache(|name| set.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(at(&[("HOME", "/h")]), Path::new("/h/.cache/huggingface/hub"));
        assert_eq!(at(&[("HOME", "/h"), ("HF_HOME", "/x")]), Path::new("/x/hub"));
        assert_eq!(at(&[("HF_HOME", "/x"), ("HF_HUB_CACHE", "/y")]), Path::new("/y"));
    }
}
