//! Public fault M8: a mirror that does not hold the revision it names, told by hashes.

mod synthetic;

use std::sync::atomic::{AtomicU64, Ordering};

use m3_model::checkpoint::Checkpoint;
use m3_model::error::ModelError;
use m3_model::verify::Manifest;
use serde_json::json;
use synthetic::{Folder, SHARDS, tensors, tiny_config};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn folder() -> Folder {
    let config = tiny_config(true);
    Folder::new(&config, &tensors(&config))
}

fn differences(manifest: &Manifest, folder: &Folder) -> Vec<String> {
    match manifest.verify(folder.path(), &|_| {}) {
        Err(ModelError::Hashes { differences, .. }) => differences,
        other => panic!("expected differences, got {other:?}"),
    }
}

#[test]
fn m8_another_revision_is_told_apart_though_it_opens() {
    let folder = folder();
    let manifest = Manifest::of_folder(folder.path(), &|_| {}).expect("hashes");
    let read = AtomicU64::new(0);
    let count = |bytes| {
        read.fetch_add(bytes, Ordering::Relaxed);
    };
    manifest.verify(folder.path(), &count).expect("nothing changed");
    let listed: u64 = manifest.files.values().filter_map(|file| file.bytes).sum();
    assert_eq!(read.into_inner(), listed);
    let mut weights = folder.read(SHARDS[0]);
    *weights.last_mut().expect("bytes") ^= 1;
    folder.write(SHARDS[0], &weights);
    Checkpoint::open(folder.path()).expect("one flipped bit of a weight is a sound file");
    let found = differences(&manifest, &folder);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(&format!("{} has SHA-256 ", SHARDS[0])), "{found:?}");
}

#[test]
fn missing_other_sized_and_unlisted_files_are_named() {
    let folder = folder();
    let manifest = Manifest::of_folder(folder.path(), &|_| {}).expect("hashes");
    folder.write("config.json", b"{}");
    folder.write("extra.safetensors", b"");
    std::fs::remove_file(folder.path().join(SHARDS[1])).expect("a file");
    let found = differences(&manifest, &folder);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], "extra.safetensors is not in the list");
    assert!(found[1].starts_with("config.json has 2 bytes, the list says "), "{found:?}");
    assert_eq!(found[2], format!("{} is missing", SHARDS[1]));
}

#[test]
fn both_kinds_of_list_are_read() {
    let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
    folder.write("a", b"abc");
    folder.write("b", b"");
    let lines = Manifest::parse(&format!("{ABC}  a\n\n{} *b\n", EMPTY.to_uppercase())).expect("lines");
    lines.verify(folder.path(), &|_| {}).expect("known hashes");
    assert_eq!(Manifest::parse(&lines.to_text()).expect("its own text"), lines);
    let hub = json!([
        {"type": "file", "path": "a", "size": 3, "oid": "x", "lfs": {"oid": ABC, "size": 3, "pointerSize": 1}},
        {"type": "file", "path": "b", "size": 0, "oid": "y"},
        {"type": "directory", "path": "figures", "size": 0, "oid": "z"},
    ]);
    let hub = Manifest::parse(&hub.to_string()).expect("the hub's list");
    hub.verify(folder.path(), &|_| {}).expect("known hashes");
    folder.write("a", b"abd");
    folder.write("b", b"1");
    assert_eq!(differences(&hub, &folder).len(), 2);
    assert_eq!(differences(&lines, &folder).len(), 2);
}

#[test]
fn lists_that_are_none_are_refused() {
    for (text, expected) in [
        ("", "it names no file"),
        ("[]", "it names no file"),
        ("[{", "is not JSON"),
        ("abc  a", "line 1 is not"),
        (&format!("{ABC}  a\n{ABC}"), "line 2 is not"),
        (&format!("{ABC}  ../a"), "is not a path inside the model folder"),
        (&format!("{ABC}  /etc/passwd"), "is not a path inside the model folder"),
        (r#"[{"path": "a", "lfs": {"oid": "12"}}]"#, "is not a SHA-256"),
    ] {
        let message = Manifest::parse(text).expect_err("refused").to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}
