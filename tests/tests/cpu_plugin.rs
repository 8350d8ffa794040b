//! The CPU backend as a file: loaded with `dlopen`, held against the same goldens.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use m3_abi::types::{DTYPE_BF16, DTYPE_F32};
use m3_tests::report::Report;
use m3_tests::suites::{goldens, media};
use m3_tests::world::Setup;
use std::path::PathBuf;
use std::process::Command;

/// Built here, so that the file is never older than the code under test.
fn plugin() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "backend-cpu-plugin"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the plugin does not build");
    // This test lies in TARGET/debug/deps; the plugin in TARGET/debug.
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("libm3_backend_cpu.so")
}

#[test]
fn goldens_through_the_plugin_line() {
    let plugin = m3_abi::load::Plugin::open(&plugin()).unwrap();
    for setup in
        [Setup::with_dtype(DTYPE_F32), Setup::with_dtype(DTYPE_BF16), Setup::with_ranks(DTYPE_F32, 2, 1)]
    {
        let mut report = Report::default();
        goldens::run(&plugin, &setup, &mut report, &mut |_| {});
        media::run(&plugin, &setup, &mut report, &mut |_| {});
        report.assert_passed();
    }
}
