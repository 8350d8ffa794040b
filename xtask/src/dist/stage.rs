//! Trees of files, laid out as on the machine that they are for.
//!
//! Program and plugins lie in one folder, because the program loads plugins from its own folder only; `/usr/bin/m3` leads there.

use super::{Package, VERSION};
use crate::{process, sbom};
use anyhow::{Context, Result};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Below the root of a package.
pub(super) const HOME: &str = "usr/lib/m3";
/// Below the root of a package, one folder for each package in it.
pub(super) const DOCUMENTS: &str = "usr/share/doc";
/// The list of everything that a package's program is made of, among its documents.
pub(super) const SBOM: &str = "sbom.cdx.json";

/// The server, the bundled model, the unit and the documents.
pub(super) fn server(root: &Path, built: &Path, stages: &Path) -> Result<Package> {
    let stage = stages.join("m3-server");
    let home = stage.join(HOME);
    binary(&built.join("m3"), &home.join("m3"), 0o755)?;
    std::fs::create_dir_all(stage.join("usr/bin"))?;
    symlink("../lib/m3/m3", stage.join("usr/bin/m3"))?;
    folder(&root.join("models/m3-nano"), &home.join("models/m3-nano"))?;
    file(&root.join("packaging/systemd/m3.service"), &stage.join("usr/lib/systemd/system/m3.service"))?;
    file(&root.join("packaging/systemd/m3.env"), &stage.join("etc/m3/m3.env"))?;
    let documents = documents(root, &stage, "m3-server", "m3-server")?;
    for name in ["README.md", "CHANGELOG.md", "LICENSE"] {
        file(&root.join(name), &documents.join(name))?;
    }
    for path in crate::tidy::files(&root.join("docs"), "md")? {
        let name = path.file_name().context("a file has a name")?;
        file(&path, &documents.join(name))?;
    }
    Ok(Package {
        name: "m3-server".to_owned(),
        summary: "serving engine for MiniMax-M3 with an OpenAI-compatible API".to_owned(),
        depends: libraries(&home.join("m3"))?,
        root: stage,
        settings: vec!["/etc/m3/m3.env"],
    })
}

/// One plugin.
pub(super) fn backend(root: &Path, built: &Path, stages: &Path, name: &str) -> Result<Package> {
    let package = format!("m3-backend-{name}");
    let stage = stages.join(&package);
    let file = format!("libm3_backend_{name}.so");
    let place = stage.join(HOME).join(&file);
    binary(&built.join(&file), &place, 0o644)?;
    documents(root, &stage, &package, &format!("backend-{name}-plugin"))?;
    let mut depends = vec![format!("m3-server (= {VERSION})")];
    depends.extend(libraries(&place)?);
    let summary = format!("{name} device plugin of m3-server");
    Ok(Package { name: package, summary, root: stage, depends, settings: Vec::new() })
}

/// What every package has to say of itself: its licence and what it is made of. Gives the folder.
fn documents(root: &Path, stage: &Path, package: &str, made_of: &str) -> Result<PathBuf> {
    let folder = stage.join(DOCUMENTS).join(package);
    file(&root.join("packaging/debian/copyright"), &folder.join("copyright"))?;
    let list = folder.join(SBOM);
    std::fs::write(&list, sbom::of(root, package, made_of)?)?;
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o644))?;
    Ok(folder)
}

fn file(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(parent)?;
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// Without symbols, which release builds lack anyway.
fn binary(from: &Path, to: &Path, mode: u32) -> Result<()> {
    file(from, to)?;
    let path = to.to_str().context("the stage's path is not UTF-8")?;
    process::run(Path::new("."), "strip", &["--strip-unneeded", path])?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn folder(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().context("an entry has a name")?;
        if path.is_dir() { folder(&path, &to.join(name))? } else { file(&path, &to.join(name))? }
    }
    Ok(())
}

/// Debian's packages of the libraries that a binary asks for. Drivers and NCCL are opened at run time and are not among them.
fn libraries(binary: &Path) -> Result<Vec<String>> {
    let bytes = std::fs::read(binary)?;
    let version =
        glibc(&bytes).with_context(|| format!("{} asks for no version of glibc", binary.display()))?;
    Ok(vec![format!("libc6 (>= {version})"), "libgcc-s1".to_owned()])
}

/// The newest version of glibc's symbols that is asked for, such as 2.34.
pub(super) fn glibc(bytes: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"GLIBC_2.";
    let mut newest: Option<u32> = None;
    for at in bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK).map(|(at, _)| at) {
        let rest = &bytes[at + MARK.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let minor = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok());
        newest = newest.max(minor);
    }
    newest.map(|minor| format!("2.{minor}"))
}
