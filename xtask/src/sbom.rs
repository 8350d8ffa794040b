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
    let (metadata, checksums) = inputs(root)?;
    let members = metadata["workspace_default_members"].as_array().context("cargo metadata lists members")?;
    let members: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
    let document = document(&metadata, &checksums, "m3", &members)?;
    let text = format!("{}\n", serde_json::to_string_pretty(&document)?);
    match out {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// What one crate of the workspace is made of and nothing else, for the package that holds it.
pub(crate) fn of(root: &Path, package: &str, made_of: &str) -> Result<String> {
    let (metadata, checksums) = inputs(root)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let found = packages.iter().find(|one| one["name"] == made_of && one["source"].is_null());
    let id = found.and_then(|one| one["id"].as_str());
    let id = id.with_context(|| format!("no crate of the workspace is called {made_of}"))?;
    let mut document = document(&metadata, &checksums, package, &[id])?;
    if let Some(components) = document["components"].as_array_mut() {
        components.retain(|component| component["scope"] == "required");
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

fn inputs(root: &Path) -> Result<(Value, Checksums)> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    Ok((metadata(root)?, checksums(&lock)))
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
type Checksums = BTreeMap<(String, String), String>;

fn checksums(lock: &str) -> Checksums {
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

/// All crates of the workspace, those that `roots` are made of marked as required.
fn document(metadata: &Value, checksums: &Checksums, name: &str, roots: &[&str]) -> Result<Value> {
    let shipped = shipped(metadata, roots)?;
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
        "metadata": {"component": {"type": "application", "name": name, "version": env!("CARGO_PKG_VERSION")}},
        "components": components,
    }))
}

/// What programs and plugins are made of: everything that these crates reach without dev and build dependencies.
fn shipped(metadata: &Value, roots: &[&str]) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves")?;
    let by_id: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let mut open: Vec<&str> = roots.to_vec();
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
        let (metadata, checksums) = inputs(&crate::root()).expect("metadata and a lock");
        let members = metadata["workspace_default_members"].as_array().expect("members");
        let members: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
        let document = document(&metadata, &checksums, "m3", &members).expect("a document");
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

    #[test]
    fn a_package_lists_what_is_in_it_and_nothing_else() {
        let names = |package: &str, made_of: &str| -> BTreeSet<String> {
            let text = of(&crate::root(), package, made_of).expect("a document");
            let document: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(document["metadata"]["component"]["name"], package);
            let components = document["components"].as_array().expect("components");
            assert!(components.iter().all(|one| one["scope"] == "required"));
            components.iter().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
        };
        let (server, plugin) =
            (names("m3-server", "m3-server"), names("m3-backend-null", "backend-null-plugin"));
        assert!(
            server.contains("axum") && server.contains("backend-cpu") && !server.contains("backend-null")
        );
        assert!(plugin.contains("backend-null") && plugin.contains("m3-abi") && !plugin.contains("axum"));
        assert!(!server.contains("proptest") && !server.contains("xtask"));
        assert!(of(&crate::root(), "x", "no-such-crate").is_err());
    }
}
