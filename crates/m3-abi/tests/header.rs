//! The header, the Rust structs and the lock agree, in C and in C++.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use std::process::Command;

use m3_abi::layout;

fn printed(compiler: &str, extension: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join(format!("layout.{extension}")), folder.path().join("layout"));
    std::fs::write(&source, layout::c_program()).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Wpadded", "-Werror"]).args(flags);
    command.arg("-I").arg(support::include_dir()).arg(&source).arg("-o").arg(&program);
    let result = command.output().unwrap();
    assert!(result.status.success(), "{compiler}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}

#[test]
fn header_in_c_and_cpp_is_what_rust_has() {
    assert_eq!(printed("cc", "c", &["-std=c99"]), layout::listing());
    assert_eq!(printed("c++", "cpp", &["-std=c++11", "-Wno-invalid-offsetof"]), layout::listing());
}

#[test]
fn no_struct_has_implicit_padding() {
    assert_eq!(layout::padded(), Vec::<&str>::new());
}

#[test]
fn every_define_of_the_header_is_compared() {
    let header = std::fs::read_to_string(support::include_dir().join("m3_backend.h")).unwrap();
    for line in
        header.lines().filter(|line| line.starts_with("#define M3_") && line.split_whitespace().count() > 2)
    {
        let name = line.split_whitespace().nth(1).unwrap();
        assert!(
            layout::CONSTANTS.iter().any(|constant| constant.0 == name),
            "{name} is not in layout::CONSTANTS"
        );
    }
    let structs = header.lines().filter(|line| line.starts_with("typedef struct m3_")).count();
    assert_eq!(structs, layout::layouts().len());
    assert!(header.lines().count() <= 500);
}

#[test]
fn committed_lock_is_current() {
    let lock = std::fs::read_to_string(support::include_dir().join("m3_backend.lock")).unwrap();
    assert_eq!(lock, layout::listing(), "run `cargo xtask abi --bless` when the change only appends");
}
