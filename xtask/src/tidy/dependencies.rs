//! The dependency rules of ARCHITECTURE.md: which crate may name which, and what the engine must not know.

use super::Finding;
use anyhow::{Context, Result};
use std::path::Path;

/// What each crate may name among the workspace's own crates outside its tests.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("m3-abi", &[]),
    ("m3-model", &["m3-abi"]),
    ("m3-core", &["m3-abi", "m3-model"]),
    ("m3-gpu", &["m3-abi"]),
    ("m3-media", &[]),
    ("m3-server", &["m3-abi", "m3-core", "m3-media", "backend-cpu"]),
    ("backend-cpu", &["m3-abi", "m3-model"]),
    ("backend-null", &["m3-abi"]),
    ("backend-sm90", &["m3-abi", "m3-model", "m3-gpu"]),
    ("backend-sm100", &["m3-abi", "m3-model", "m3-gpu"]),
    ("backend-gfx942", &["m3-abi", "m3-model", "m3-gpu"]),
    ("backend-gfx950", &["m3-abi", "m3-model", "m3-gpu"]),
];

/// Parts of m3-core that know neither text nor JSON.
const ENGINE: [&str; 8] =
    ["engine.rs", "engine", "ranks.rs", "request.rs", "event.rs", "scheduler", "cache", "clock.rs"];
const NOT_IN_ENGINE: [&str; 4] = ["crate::text", "super::text", "serde", "minijinja"];

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    for (name, allowed) in MAY_NAME {
        let manifest = format!("crates/{name}/Cargo.toml");
        let text = std::fs::read_to_string(root.join(&manifest))
            .with_context(|| format!("cannot read {manifest}"))?;
        crate_names(&manifest, &text, allowed, findings);
        if *name == "m3-abi" {
            abi_dependencies(&manifest, &text, findings);
        }
    }
    for part in ENGINE {
        let path = root.join("crates/m3-core/src").join(part);
        let files = if path.is_dir() { super::files(&path, "rs")? } else { vec![path] };
        for file in files.iter().filter(|file| file.exists()) {
            let relative = file.strip_prefix(root)?.to_string_lossy().into_owned();
            engine_text(&relative, &std::fs::read_to_string(file)?, findings);
        }
    }
    Ok(())
}

/// Names under `[dependencies]` of a manifest, target and build sections included, tests left out.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.contains("dependencies") && !section.contains("dev-dependencies");
            return None;
        }
        let name = line.split(['.', '=', ' ']).next()?;
        (inside && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

fn crate_names(manifest: &str, text: &str, allowed: &[&str], findings: &mut Vec<Finding>) {
    let ours = |name: &&str| name.starts_with("m3-") || name.starts_with("backend-");
    for name in dependencies(text).filter(ours).filter(|name| !allowed.contains(name)) {
        findings.push(format!("{manifest}: must not name `{name}`; it may name {allowed:?}"));
    }
}

fn abi_dependencies(manifest: &str, text: &str, findings: &mut Vec<Finding>) {
    for name in dependencies(text).filter(|name| *name != "libloading") {
        findings.push(format!("{manifest}: the plugin line depends on libloading alone, not on `{name}`"));
    }
}

fn engine_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for word in NOT_IN_ENGINE.iter().filter(|word| line.contains(*word)) {
            findings.push(format!(
                "{path}:{}: the engine knows neither text nor JSON, yet names `{word}`",
                number + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_that_names_the_scheduler_is_found() {
        let mut findings = Vec::new();
        let manifest = "[dependencies]\nm3-abi.workspace = true\nm3-core.workspace = true\n\n[dev-dependencies]\nm3-tests = \"1\"\n";
        crate_names("crates/backend-x/Cargo.toml", manifest, &["m3-abi"], &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("`m3-core`"), "{findings:?}");
    }

    #[test]
    fn engine_that_names_json_is_found() {
        let mut findings = Vec::new();
        engine_text("engine.rs", "//! serde is not here.\nuse serde_json::Value;\n", &mut findings);
        assert_eq!(findings.len(), 1);
    }
}
