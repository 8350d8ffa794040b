//! `cargo xtask sbom`: every crate that goes into the programs, with version, licence and checksum, as CycloneDX JSON.
//!
//! Made from `cargo metadata` and `Cargo.lock`, without a network; the same tree gives the same bytes. Crates that only
//! tests and build steps use are marked as such by their scope.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

pub(crate) fn run(root: &Path, out: Option<&Path>) -> Result<()> {
    let metadata = metadata(root)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let document = document(&metadata, &checksums(&lock))?;
    let text = format!("{}\n", serde_json::to_string_pretty(&document)?);
    match out {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root)
        .output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// SHA-256 of each published crate, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
        line.map(|value| value.trim().trim_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?))
        })
        .collect()
}

fn document(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let shipped = shipped(metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let mut components: Vec<Value> = Vec::new();
    for package in packages {
        let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let (name, version, id) = (text("name"), text("version"), text("id"));
        let scope = if shipped.contains(&id) { "required" } else { "excluded" };
        let mut component = json!({
            "type": "library", "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
            "scope": scope, "licenses": [{"expression": text("license")}],
        });
        if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
            component["purl"] = format!("pkg:cargo/{name}@{version}").into();
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        components.push(component);
    }
    components.sort_by_key(|component| component["bom-ref"].as_str().unwrap_or_default().to_owned());
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "m3", "version": env!("CARGO_PKG_VERSION")}},
        "components": components,
    }))
}

/// What the programs and plugins are made of: everything that the workspace reaches without dev and build dependencies.
fn shipped(metadata: &Value) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves")?;
    let by_id: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let members = metadata["workspace_default_members"].as_array().context("cargo metadata lists members")?;
    let mut open: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id.to_owned()) {
            continue;
        }
        for dependency in by_id.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            let normal = kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
            if let (true, Some(id)) = (normal, dependency["pkg"].as_str()) {
                open.push(id);
            }
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_crate_has_a_licence_and_every_foreign_one_a_checksum() {
        let root = crate::root();
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).expect("a lock");
        let document = document(&metadata(&root).expect("metadata"), &checksums(&lock)).expect("a document");
        let components = document["components"].as_array().expect("components");
        let find = |name: &str| components.iter().find(|one| one["name"] == name).expect("it is there");
        assert_eq!(
            (&find("m3-server")["scope"], find("m3-server").get("hashes")),
            (&json!("required"), None)
        );
        assert_eq!(find("proptest")["scope"], "excluded");
        for component in components {
            assert_ne!(component["licenses"][0]["expression"], "", "{component}");
            let foreign = component["purl"].is_string();
            assert_eq!(foreign, component["hashes"].is_array(), "{component}");
        }
        assert!(components.iter().filter(|one| one["purl"].is_string()).count() > 100);
    }
}
