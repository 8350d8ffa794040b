//! Debian packages, made by `dpkg-deb` from a staged tree.

use super::{Package, VERSION};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes the package; returns its path.
pub(super) fn pack(package: &Package, out: &Path) -> Result<PathBuf> {
    let folder = package.root.join("DEBIAN");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("control"), control(package, size(&package.root)?)?)?;
    if !package.settings.is_empty() {
        std::fs::write(folder.join("conffiles"), package.settings.join("\n") + "\n")?;
    }
    let path = out.join(file_name(&package.name)?);
    let status = Command::new("dpkg-deb")
        .args(["--build", "--root-owner-group"])
        .arg(&package.root)
        .arg(&path)
        // Times in the archive: the same files give the same package.
        .env("SOURCE_DATE_EPOCH", "0")
        .status()
        .context("cannot start dpkg-deb, which makes Debian packages")?;
    ensure!(status.success(), "dpkg-deb failed for {}: {status}", package.name);
    std::fs::remove_dir_all(folder)?;
    Ok(path)
}

/// As `apt` and the Dockerfile look for it.
pub(super) fn file_name(package: &str) -> Result<String> {
    Ok(format!("{package}_{VERSION}_{}.deb", architecture()?))
}

fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("Debian's name of the architecture {other} is not known here"),
    }
}

fn control(package: &Package, kibibytes: u64) -> Result<String> {
    Ok(format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: the authors of m3 <m3@localhost>\nSection: net\n\
         Priority: optional\nInstalled-Size: {kibibytes}\nDepends: {}\nDescription: {}\n",
        package.name,
        architecture()?,
        package.depends.join(", "),
        package.summary
    ))
}

/// KiB of all files.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() {
            size(&entry.path())? * 1024
        } else {
            entry.metadata()?.len().div_ceil(1024) * 1024
        };
    }
    Ok(bytes / 1024)
}
