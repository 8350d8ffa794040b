//! `cargo xtask bench`.
use std::path::Path;
pub(crate) fn run(_root: &Path, what: &str) -> anyhow::Result<()> {
    anyhow::bail!("no benchmark is called `{what}`")
}
