//! `.tar.zst` of a package: what lies in the program's folder, and the documents in `doc` beside it, under one folder named
//! after the version, so that the server's and the backends' archives unpack into the same place and run from there.

use super::stage::{DOCUMENTS, HOME};
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
        .arg(format!("--transform=flags=r;s,^{HOME},m3-{VERSION},"))
        .arg(format!("--transform=flags=r;s,^{DOCUMENTS},m3-{VERSION}/doc,"))
        .arg("--directory")
        .arg(&package.root)
        .args([HOME, DOCUMENTS])
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

/// Unpacks an archive into `folder`, as whoever downloads it does.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let mut tar = Command::new("tar")
        .arg("--extract")
        .arg("--directory")
        .arg(folder)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start tar")?;
    let bytes = std::fs::File::open(archive).with_context(|| archive.display().to_string())?;
    // Dropped before the wait, or tar would wait for more.
    let mut input = tar.stdin.take().context("tar has an input")?;
    zstd::stream::copy_decode(bytes, &mut input)?;
    drop(input);
    let status = tar.wait()?;
    ensure!(status.success(), "tar failed: {status}");
    Ok(())
}
