//! Counting devices through doubles of the vendors' driver libraries.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use std::path::Path;
use std::process::Command;

use m3_abi::{Driver, Error, ProbeRequest};
use m3_gpu::absent::Absent;
use m3_gpu::driver::{Vendor, count_in};

fn double(folder: &Path, name: &str, flags: &[&str]) -> String {
    let path = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/driver.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-w"]).args(flags).arg(source).arg("-o").arg(&path);
    assert!(command.status().unwrap().success());
    path.display().to_string()
}

#[track_caller]
fn check(flags: &[&str], expected: Result<u32, &str>) {
    for vendor in [Vendor::Cuda, Vendor::Hip] {
        let folder = tempfile::tempdir().unwrap();
        let library = double(folder.path(), "libdouble.so", flags);
        match (count_in(vendor, &["libm3-is-nowhere.so", &library]), expected) {
            (Ok(devices), Ok(expected)) => assert_eq!(devices, expected),
            (Err(absence), Err(expected)) => assert!(absence.to_string().contains(expected), "{absence}"),
            (outcome, _) => panic!("{flags:?}: {outcome:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn devices_are_counted_by_the_first_library_that_loads() {
    check(&["-DINIT=0", "-DCOUNT=0", "-DDEVICES=8"], Ok(8));
}

#[test]
fn every_way_to_have_no_device_has_its_sentence() {
    check(&["-DINIT=0", "-DCOUNT=0", "-DDEVICES=0"], Err("counts 0 devices"));
    check(&["-DINIT=100", "-DCOUNT=0", "-DDEVICES=1"], Err("answered error 100"));
    check(&["-DINIT=0", "-DCOUNT=3", "-DDEVICES=1"], Err("answered error 3"));
    check(&["-DNO_INIT", "-DCOUNT=0", "-DDEVICES=1"], Err("has no function"));
    let absence = count_in(Vendor::Cuda, &["libm3-is-nowhere.so"]).unwrap_err().to_string();
    assert!(absence.contains("none of libm3-is-nowhere.so could be loaded"), "{absence}");
}

#[test]
fn a_backend_without_kernels_names_the_command_that_builds_them() {
    let backend = Absent { name: "sm90", version: "1", vendor: Vendor::Cuda };
    let Err(Error::Unsupported(refusal)) = backend.probe(&ProbeRequest::default()) else {
        panic!("was not refused")
    };
    assert!(refusal.ends_with("kernels missing: run cargo xtask build --backend sm90"), "{refusal}");
}
