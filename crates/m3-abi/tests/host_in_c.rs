//! A host in C in front of plugins in C and in Rust: same version, newer, and breaking one rule each.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{c_plugin, compile, rust_plugin};

struct Hosts {
    folder: tempfile::TempDir,
    host: PathBuf,
}

impl Hosts {
    fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("host");
        compile("host.c", &host, &["-ldl"]);
        Hosts { folder, host }
    }

    fn run(&self, plugin: &Path, mode: &str) -> String {
        let result = Command::new(&self.host).arg(plugin).arg(mode).output().unwrap();
        let said = String::from_utf8_lossy(&result.stdout).into_owned();
        assert!(result.status.success(), "{mode}: {} {said}", result.status);
        said.trim().to_owned()
    }
}

#[test]
fn same_version_and_newer_hosts_are_served_by_both_languages() {
    let hosts = Hosts::build();
    let (c, toy) = (c_plugin(hosts.folder.path(), "c", "none"), rust_plugin("toy"));
    let newer = c_plugin(hosts.folder.path(), "newer", "newer");
    for mode in ["same", "newer"] {
        assert_eq!(hosts.run(&c, mode), "7 8", "{mode}");
        assert_eq!(hosts.run(&newer, mode), "7 8", "{mode}");
        assert_eq!(hosts.run(&toy, mode), "7 4", "{mode}");
    }
}

#[test]
fn other_majors_are_refused_by_both_languages() {
    let hosts = Hosts::build();
    assert!(hosts.run(&c_plugin(hosts.folder.path(), "c", "none"), "wrong major").contains("speaks major 1"));
    let said = hosts.run(&rust_plugin("toy"), "wrong major");
    assert_eq!(said, "query 1: this backend speaks major 1 of the interface, the host speaks major 2");
}

#[test]
fn broken_rules_come_back_as_sentences_with_both_numbers() {
    let hosts = Hosts::build();
    let toy = rust_plugin("toy");
    for (mode, sentence) in [
        ("null host", "query 1: m3_host is null"),
        ("small host", "query 1: m3_host says size 16; major 1 has at least 24 bytes"),
        ("small open", "open 1: m3_open_args says size 64; major 1 has at least 128 bytes"),
        ("null open", "open 1: m3_open_args is null"),
        ("null config", "open 1: config is null but says 18 elements"),
        ("six dimensions", "load 1: m3_tensor says 6 dimensions; at most 5 exist"),
        ("null instance", "load 1: the instance is null"),
        ("small ready", "ready 1: m3_ready says size 16; major 1 has at least 40 bytes"),
        ("small step", "submit 1: m3_step_args says size 100; major 1 has at least 280 bytes"),
        ("null seqs", "submit 1: seqs is null but says 1 elements"),
        ("small stride", "submit 1: seqs says stride 8; m3_seq has at least 40 bytes in major 1"),
        (
            "endless seqs",
            "submit 1: seqs says 18446744073709551615 elements of 40 bytes, more than memory can hold",
        ),
        ("null ticket", "submit 1: the place for the ticket is null"),
        ("null tokens", "wait 1: tokens is null but has room for 1 values"),
        ("no err", "refused without a sentence"),
    ] {
        assert!(hosts.run(&toy, mode).starts_with(sentence), "{mode}: {}", hosts.run(&toy, mode));
    }
}
