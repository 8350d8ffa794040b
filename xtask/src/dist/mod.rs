//! `cargo xtask dist`: what is built as files to hand out. A `.tar.zst` and a Debian package for the server, and one of each
//! for every backend that is named; then the archives are unpacked beside each other and the Debian
//! packages installed into a fresh root, and they have to work there.
//!
//! The same sources give the same bytes: times, owners and order in the archives are fixed. Signing and publishing are no
//! part of this.

mod archive;
mod debian;
mod stage;
mod trial;

#[cfg(test)]
mod tests;

use crate::process::{cargo, target_folder};
use crate::{build, kernels};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// What is to be made.
pub(crate) struct Wanted {
    pub(crate) backends: Vec<String>,
    /// What `cargo build` has made already, for trying the packages quickly.
    pub(crate) debug: bool,
}

/// One thing to hand out: a tree of files as they lie on a machine.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) summary: String,
    /// With `usr/…` below.
    pub(crate) root: PathBuf,
    /// Names and versions of other packages, as Debian writes them.
    pub(crate) depends: Vec<String>,
    /// Files that an administrator edits.
    pub(crate) settings: Vec<&'static str>,
}

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds, packs and tries.
pub(crate) fn run(root: &Path, wanted: &Wanted) -> Result<()> {
    for backend in &wanted.backends {
        ensure!(
            build::BACKENDS.contains(&backend.as_str()) && backend != "cpu",
            "`{backend}` is no backend with a package of its own; there are {}",
            build::BACKENDS[1..].join(", ")
        );
    }
    compile(root, wanted)?;
    let out = target_folder(root).join("dist");
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(&out)?;
    let stages = tempfile::tempdir_in(&out)?;
    let built = target_folder(root).join(if wanted.debug { "debug" } else { "release" });
    let mut packages = vec![stage::server(root, &built, stages.path())?];
    for backend in &wanted.backends {
        packages.push(stage::backend(root, &built, stages.path(), backend)?);
    }
    let (mut debs, mut archives) = (Vec::new(), Vec::new());
    for package in &packages {
        let tar = archive::pack(package, &out)?;
        let deb = debian::pack(package, &out)?;
        for file in [&tar, &deb] {
            println!("{} ({:.1} MB)", file.display(), std::fs::metadata(file)?.len() as f64 / 1e6);
        }
        debs.push(deb);
        archives.push((package.name.clone(), tar));
    }
    trial::unpack(&archives, &wanted.backends)?;
    trial::run(&debs, &wanted.backends)
}

fn compile(root: &Path, wanted: &Wanted) -> Result<()> {
    if wanted.debug {
        // As tests build it: one package alone would be built with other features of what it depends on.
        return cargo(root, &["build", "--workspace"]);
    }
    cargo(root, &["build", "--release", "--package", "m3-server"])?;
    for backend in &wanted.backends {
        // A plugin whose kernels are missing would install well and serve nothing.
        if !kernels::TARGETS.contains(&backend.as_str()) && backend != "null" {
            println!("note: the {backend} plugin holds no kernels yet");
        }
        build::run(root, backend, true, false)?;
    }
    Ok(())
}
