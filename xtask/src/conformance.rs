//! `cargo xtask conformance --backend NAME|PATH`: the acceptance of a backend, ours or a vendor's.

use crate::process::target_folder;
use anyhow::{Context, Result, bail, ensure};
use m3_abi::Driver;
use m3_abi::load::Plugin;
use std::path::{Path, PathBuf};

pub(crate) fn run(root: &Path, backend: &str, only: &[String]) -> Result<()> {
    if backend == "reference" {
        return judge(&m3_model::reference::ReferenceDriver::default(), only);
    }
    let path = file(root, backend)?;
    judge(&Plugin::open(&path).with_context(|| format!("loading {}", path.display()))?, only)
}

/// A path as it is; a name is built first, so that the file is never older than its source.
fn file(root: &Path, backend: &str) -> Result<PathBuf> {
    match m3_abi::discover::Choice::parse(backend) {
        Ok(m3_abi::discover::Choice::Path(path)) => Ok(path),
        Ok(m3_abi::discover::Choice::Name(name)) => {
            crate::build::run(root, &name, true, false)?;
            Ok(target_folder(root).join("release").join(m3_abi::discover::file_name(&name)))
        }
        Ok(m3_abi::discover::Choice::Auto) => bail!("conformance needs a backend's name or path, not `auto`"),
        Err(refusal) => bail!(refusal),
    }
}

fn judge(driver: &dyn Driver, only: &[String]) -> Result<()> {
    println!("backend {} {}", driver.name(), driver.version());
    let report = m3_tests::conformance(driver, only, &mut |check| println!("...   {check}"))?;
    println!("\n{report}");
    ensure!(report.num_failed() == 0, "{} checks failed", report.num_failed());
    ensure!(report.num_passed() > 0, "no check ran");
    Ok(())
}
