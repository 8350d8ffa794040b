//! `cargo xtask tidy`: what the compiler cannot hold. Sizes, names, file heads, forbidden leftovers, dependency rules.

mod dependencies;
mod documents;
mod source;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A place that breaks a rule, as `path:line: sentence`.
type Finding = String;

/// Exceptions, one a line: path and the reason. A waived file may break size rules only.
const SIZE_WAIVERS: &[(&str, &str)] = &[];

pub(crate) fn run(root: &Path) -> Result<()> {
    let findings = findings(root)?;
    if findings.is_empty() {
        println!("tidy: nothing to mend");
        return Ok(());
    }
    bail!("tidy found {}:\n{}", findings.len(), findings.join("\n"))
}

fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files(root, "rs")? {
        let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        let text = std::fs::read_to_string(&path)?;
        let waived = SIZE_WAIVERS.iter().any(|(waived, _)| *waived == relative);
        source::check(&relative, &text, waived, &mut findings);
    }
    dependencies::check(root, &mut findings)?;
    documents::check(root, &mut findings);
    Ok(findings)
}

/// Files with this extension, build output and hidden folders aside, in a fixed order.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn workspace_is_tidy() {
        super::run(&crate::root()).unwrap();
    }
}
