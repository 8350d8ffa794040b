//! A pack survives its file, and a broken or foreign one is refused with the reason.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use super::*;

fn dims(hidden: i64, head_dim: i64) -> Dims {
    [("hidden".to_owned(), hidden), ("head_dim".to_owned(), head_dim)].into()
}

fn shape(name: &str, hidden: i64, head_dim: i64) -> Shape {
    Shape { name: name.to_owned(), set: "test".to_owned(), dims: dims(hidden, head_dim) }
}

fn header(code: &[u8]) -> Header {
    Header {
        target: "sm90".to_owned(),
        architecture: "sm_90a".to_owned(),
        toolchain: [("triton".to_owned(), "3.9.0".to_owned())].into(),
        licences: vec!["Apache-2.0".to_owned()],
        compiled_dims: vec!["head_dim".to_owned()],
        shapes: vec![shape("small", 64, 32), shape("big", 6144, 128)],
        kernels: vec![Kernel {
            name: "k".to_owned(),
            contract: "k(n: i32)".to_owned(),
            layout: "i".to_owned(),
        }],
        functions: vec![Function {
            kernel: 0,
            variant: 0,
            shapes: vec![0],
            offset: 0,
            bytes: code.len() as u64,
            symbol: "k".to_owned(),
            threads: 128,
            shared: 0,
            trailing_pointers: 2,
            dependent: false,
            maps: Vec::new(),
        }],
        code_bytes: code.len() as u64,
        code_sha256: sha256(code),
    }
}

#[test]
fn pack_reads_back_what_was_written() {
    let code = b"code of a kernel".repeat(100);
    let file = write(&header(&code), &code).unwrap();
    assert!(file.len() < code.len());
    let pack = Pack::read(&file, "sm90").unwrap();
    assert_eq!(pack.header, header(&code));
    assert_eq!(pack.code().unwrap(), code);
    let said = pack.describe();
    for part in
        [&pack.hash()[..16], "sm_90a", "1 kernels in 1 functions", "small, big", "triton 3.9.0", "Apache-2.0"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn missing_pack_says_how_to_get_one() {
    let refusal = Pack::read(&[], "sm90").unwrap_err().to_string();
    assert_eq!(refusal, "kernels missing: run cargo xtask build --backend sm90");
}

#[test]
fn every_cut_of_a_pack_is_refused() {
    let file = write(&header(b"code"), b"code").unwrap();
    for length in 1..file.len() {
        let read = Pack::read(&file[..length], "sm90").and_then(|pack| pack.code());
        assert!(matches!(read, Err(PackError::Broken(_))), "{length} bytes: {read:?}");
    }
}

#[test]
fn another_target_is_named() {
    let file = write(&header(b"code"), b"code").unwrap();
    let refusal = Pack::read(&file, "sm100").unwrap_err().to_string();
    assert_eq!(refusal, "kernel pack is for sm90; this plugin is sm100");
}

#[test]
fn changed_code_has_another_hash() {
    let mut wrong = header(b"code");
    wrong.code_sha256 = sha256(b"other");
    let file = write(&wrong, b"code").unwrap();
    let refusal = Pack::read(&file, "sm90").unwrap().code().unwrap_err().to_string();
    assert!(refusal.contains("another hash"), "{refusal}");
}

#[test]
fn function_behind_the_end_is_refused() {
    let mut wrong = header(b"code");
    for (offset, bytes) in [(0, 5), (4, 1), (u64::MAX, 2)] {
        (wrong.functions[0].offset, wrong.functions[0].bytes) = (offset, bytes);
        let refusal = write(&wrong, b"code").unwrap_err().to_string();
        assert!(refusal.contains("behind the end"), "{refusal}");
    }
}

#[test]
fn shape_is_covered_by_its_compiled_dims_only() {
    let file = write(&header(b"code"), b"code").unwrap();
    let pack = Pack::read(&file, "sm90").unwrap();
    assert_eq!(pack.covers(&dims(64, 32)), Ok(0));
    assert_eq!(pack.covers(&dims(1024, 128)), Ok(1), "hidden is a run-time value");
    let refusal = pack.covers(&dims(64, 96)).unwrap_err().to_string();
    assert_eq!(refusal, "no kernels were compiled for head_dim 96; there are small, big (nearest: small)");
    let refusal = pack.covers(&Dims::new()).unwrap_err().to_string();
    assert!(refusal.contains("head_dim none"), "{refusal}");
}
