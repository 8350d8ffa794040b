//! What can be held of the packaging without building it: that files that are named exist, that probes ask for routes that
//! are served, that times agree, and that flags are this program's.

use super::{debian, stage};
use serde_json::Value;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(crate::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    let text = read(path);
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|each| serde::Deserialize::deserialize(each).unwrap())
        .collect()
}

fn manifest(name: &str) -> Value {
    let mut all = yaml(&format!("packaging/kubernetes/{name}"));
    assert_eq!(all.len(), 1, "{name}");
    let one = all.remove(0);
    assert!(one["apiVersion"].is_string() && one["kind"].is_string(), "{name}");
    one
}

#[test]
fn images_copy_what_is_there_or_what_dist_makes() {
    let text = read("packaging/docker/Dockerfile");
    let mut stages: Vec<&str> = Vec::new();
    let mut copies = 0;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["FROM", from, "AS", name] => {
                assert!(
                    stages.is_empty() == from.contains(':'),
                    "{line}: every other stage builds on the first"
                );
                assert!(stages.is_empty() || stages.contains(from), "{line}");
                stages.push(name);
            }
            ["COPY", sources @ .., _] => {
                for source in sources {
                    copies += 1;
                    match source.strip_prefix("target/dist/") {
                        Some(made) => assert!(is_made(made), "{line}: dist makes no such package"),
                        None => assert!(crate::root().join(source).exists(), "{line}"),
                    }
                }
            }
            _ => {}
        }
    }
    assert!(copies >= 6, "{copies}");
    let kernels: Vec<&str> =
        crate::build::BACKENDS.into_iter().filter(|name| !["cpu", "null"].contains(name)).collect();
    for backend in kernels {
        assert!(stages.contains(&backend), "no stage for {backend}");
    }
}

/// `m3-server_*.deb` stands for what `debian::file_name` gives.
fn is_made(pattern: &str) -> bool {
    let Some((name, "*.deb")) = pattern.split_once('_') else { return false };
    let backend = name.strip_prefix("m3-backend-");
    let known = name == "m3-server" || backend.is_some_and(|name| crate::build::BACKENDS.contains(&name));
    known && debian::file_name(name).unwrap().starts_with(&format!("{name}_"))
}

#[test]
fn every_manifest_is_listed_and_every_listed_one_is_there() {
    let listed = manifest("kustomization.yaml")["resources"].clone();
    let mut listed: Vec<String> = serde_json::from_value(listed).unwrap();
    listed.push("kustomization.yaml".to_owned());
    listed.sort();
    let folder = crate::root().join("packaging/kubernetes");
    let found = crate::tidy::files(&folder, "yaml").unwrap();
    let found: Vec<String> =
        found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn probes_ask_for_routes_and_the_drain_has_its_time() {
    let deployment = manifest("deployment.yaml");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let routes = read("crates/m3-server/src/routes/table.rs");
    for (probe, asked) in
        [("startupProbe", "/startup"), ("livenessProbe", "/live"), ("readinessProbe", "/ready")]
    {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap_or_else(|| panic!("no {probe}"));
        assert_eq!(path, asked, "{probe}");
        assert!(routes.contains(&format!("row(\"get\", \"{path}\",")), "{probe} asks for {path}");
        assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"], "{probe}");
    }
    let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str().unwrap().to_owned();
    assert!(routes.contains(&format!("\"{}\"", annotation("prometheus.io/path"))));
    let port = container["ports"][0]["containerPort"].to_string();
    assert_eq!(annotation("prometheus.io/port"), port);
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let value = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag).unwrap_or_else(|| panic!("no {flag}"));
        arguments[at + 1].clone()
    };
    assert_eq!(value("--port"), port);
    let drain: u64 = value("--shutdown-timeout").parse().unwrap();
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > drain + pause + 5, "{grace} s are no time for {pause} s and {drain} s");
    let flags = read("crates/m3-server/src/args/table.rs");
    for flag in arguments.iter().filter_map(|word| word.strip_prefix("--")) {
        assert!(flags.contains(&format!("row(\"{flag}\",")), "--{flag} is no flag");
    }
}

#[test]
fn manifests_name_each_other_rightly_and_give_no_rights() {
    let deployment = manifest("deployment.yaml");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&manifest("service.yaml")["spec"]["selector"], labels);
    for name in ["disruption.yaml", "scrape.yaml"] {
        assert_eq!(&manifest(name)["spec"]["selector"]["matchLabels"], labels, "{name}");
    }
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    let volumes = pod["volumes"].as_array().unwrap();
    for mount in container["volumeMounts"].as_array().unwrap() {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
    }
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
}

#[test]
fn the_unit_is_sandboxed_and_starts_what_is_installed() {
    let unit = read("packaging/systemd/m3.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    assert_eq!(value("ExecStart"), "/usr/bin/m3 serve $M3_ARGS");
    for (key, expected) in [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("CapabilityBoundingSet", ""),
        ("PrivateTmp", "yes"),
        ("DevicePolicy", "closed"),
        ("KillSignal", "SIGTERM"),
        ("CacheDirectory", "m3"),
        ("Environment", "HF_HOME=/var/cache/m3/huggingface"),
    ] {
        assert_eq!(value(key), expected, "{key}");
    }
    // The child that decodes videos is locked in by these, which systemd's own group leaves out.
    let calls: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    let calls = calls.join(" ");
    for call in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
        assert!(calls.split(' ').any(|allowed| allowed == call), "{call} is refused: {calls}");
    }
    let stop: u64 = value("TimeoutStopSec").parse().unwrap();
    assert!(stop > 300, "running requests have 300 s");
    assert!(Path::new("/").join(value("EnvironmentFile").trim_start_matches('-')).starts_with("/etc/m3"));
}

#[test]
fn the_newest_version_of_the_c_library_is_found() {
    assert_eq!(stage::glibc(b"..GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.4\0").as_deref(), Some("2.34"));
    assert_eq!(stage::glibc(b"GLIBC_2."), None);
}
