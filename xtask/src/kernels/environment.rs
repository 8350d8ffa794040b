//! The pinned Python environment that compiles kernels, made once under `target/kernels/venv`.

use super::folder;
use crate::process::{run, works};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// Oldest first: the one that the lock file was made with, then newer ones that have wheels too.
const INTERPRETERS: [&str; 4] = ["python3.11", "python3.12", "python3.13", "python3"];
const IS_NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

/// An interpreter of Python 3.11 or newer, for the manifest alone.
pub(super) fn any_python() -> Result<String> {
    match INTERPRETERS.iter().find(|name| works(name, &["-c", IS_NEW_ENOUGH])) {
        Some(name) => Ok((*name).to_owned()),
        None => bail!(
            "no Python 3.11 or newer: kernels are compiled by Triton, which is a Python package; tried {}",
            INTERPRETERS.join(", ")
        ),
    }
}

/// The environment's interpreter; made again when `kernels/requirements.txt` changed.
pub(super) fn ready(root: &Path) -> Result<String> {
    let requirements = root.join("kernels/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let venv = folder(root).join("venv");
    let marker = venv.join("requirements.txt");
    let python = utf8(&venv.join("bin/python"))?;
    if std::fs::read_to_string(&marker).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    let base = any_python()?;
    if !works(&base, &["-c", "import venv, ensurepip"]) {
        bail!("{base} has no venv or ensurepip module; on Debian and Ubuntu: apt-get install {base}-venv");
    }
    println!("making the kernels' Python environment (once, about 410 MB to download)");
    run(root, &base, &["-m", "venv", "--clear", &utf8(&venv)?])?;
    install(root, &python, &utf8(&requirements)?)?;
    std::fs::write(marker, wanted)?;
    Ok(python)
}

fn install(root: &Path, python: &str, requirements: &str) -> Result<()> {
    let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"];
    let output = Command::new(python)
        .args(arguments)
        .args(["--only-binary=:all:", "-r", requirements])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{python}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{}\npip said:\n{}", reason(&said), last_lines(&said, 12))
}

/// What went wrong, in our words.
fn reason(said: &str) -> &'static str {
    if said.contains("DO NOT MATCH THE HASHES") {
        return "a package has another hash than kernels/requirements.txt pins: the download is damaged or not the one \
                that was tested, so nothing was installed";
    }
    // Without a single retry, pip does not even say that it could not connect: the index just offers nothing.
    let offline = [
        "NewConnectionError",
        "NameResolutionError",
        "Temporary failure in name resolution",
        "ConnectTimeout",
        "ProxyError",
        "(from versions: none)",
    ];
    if offline.iter().any(|sign| said.contains(sign)) {
        return "the package index cannot be reached or offers nothing: the first build of kernels needs a network (or pip configured \
                with a mirror or --find-links); later ones do not";
    }
    if said.contains("No matching distribution") {
        return "the package index has no wheel for this Python or machine; kernels are compiled on Linux x86_64 or \
                aarch64 with Python 3.11 to 3.13";
    }
    "the kernels' Python environment could not be installed"
}

fn last_lines(text: &str, count: usize) -> String {
    // A package has a hundred allowed hashes; the one that came is said once.
    let told = |line: &&str| !line.trim_start().starts_with("Expected");
    let lines: Vec<&str> = text.trim_end().lines().filter(told).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn utf8(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{last_lines, reason};

    #[test]
    fn pips_words_become_ours() {
        for (said, part) in [
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "another hash"),
            (
                "pip._vendor.urllib3.exceptions.NewConnectionError: no route\nERROR: No matching distribution",
                "cannot be reached",
            ),
            (
                "ERROR: Could not find a version (from versions: none)\nERROR: No matching distribution",
                "cannot be reached",
            ),
            (
                "ERROR: Could not find a version (from versions: 3.6.0)\nERROR: No matching distribution found",
                "no wheel",
            ),
            ("ERROR: disk full", "could not be installed"),
        ] {
            assert!(reason(said).contains(part), "{said}: {}", reason(said));
        }
    }

    #[test]
    fn only_the_end_of_a_long_complaint_is_shown() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("numpy\n  Expected sha256 1\n  Expected or 2\n  Got 3", 2), "numpy\n  Got 3");
    }
}
