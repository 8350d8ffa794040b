//! `.tar.zst` of a package: what lies in the program's folder, under one folder named after the version, so that the
//! server's and the backends' archives unpack into the same place and run from there.

use super::stage::HOME;
use super::{Package, VERSION};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LEVEL: i32 = 15;

/// Writes the archive; returns its path.
pub(super) fn pack(package: &Package, out: &Path) -> Result<PathBuf> {
    let path = out.join(format!("{}-{VERSION}-{}.tar.zst", package.name, std::env::consts::ARCH));
    let mut tar = Command::new("tar")
        .args([
            "--create",
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=gnu",
        ])
        .arg(format!("--transform=flags=r;s,^\\.,m3-{VERSION},"))
        .arg("--directory")
        .arg(package.root.join(HOME))
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start tar")?;
    let mut bytes = tar.stdout.take().context("tar has an output")?;
    let file = std::fs::File::create(&path)?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.include_checksum(true)?;
    std::io::copy(&mut bytes, &mut encoder)?;
    encoder.finish()?;
    let status = tar.wait()?;
    ensure!(status.success(), "tar failed: {status}");
    Ok(path)
}
