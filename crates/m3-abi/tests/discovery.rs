//! `--backend auto|NAME|PATH` and `--backend-dir`.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use std::path::{Path, PathBuf};

use m3_abi::discover::{Choice, Discovery, Places, discover};
use m3_abi::load::Origin;
use m3_abi::{Backend, Driver, Error, LinkedBackend, OpenRequest, ProbeReport, ProbeRequest, Result};
use support::{c_plugin, rust_plugin};

struct Linked {
    name: &'static str,
    score: u32,
}

impl Driver for Linked {
    fn name(&self) -> &str {
        self.name
    }
    fn version(&self) -> &str {
        "1"
    }
    fn probe(&self, _request: &ProbeRequest) -> Result<ProbeReport> {
        Ok(ProbeReport { score: self.score, num_devices: 1, ..ProbeReport::default() })
    }
    fn comm_id(&self) -> Result<Vec<u8>> {
        Err(Error::Unsupported("not in this test".to_owned()))
    }
    fn open(&self, _request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Err(Error::Unsupported("not in this test".to_owned()))
    }
}

const CPU: LinkedBackend = m3_abi::linked_backend!("cpu", Linked { name: "cpu", score: 10 });
const EQUAL: LinkedBackend = m3_abi::linked_backend!("zzz", Linked { name: "zzz", score: 50 });
const MISNAMED: LinkedBackend = m3_abi::linked_backend!("right", Linked { name: "wrong", score: 99 });

fn look(choice: &str, linked: &[LinkedBackend], dir: Option<&Path>) -> Discovery {
    let places = Places { linked, beside: None, dir: dir.map(PathBuf::from) };
    discover(&Choice::parse(choice).unwrap(), &places, &ProbeRequest::default())
}

fn name(discovery: &Discovery) -> std::result::Result<String, String> {
    discovery.chosen().map(|(plugin, _)| format!("{} {}", plugin.name(), plugin.origin()))
}

#[test]
fn choices_are_auto_names_and_paths() {
    assert_eq!(Choice::parse("auto"), Ok(Choice::Auto));
    assert_eq!(Choice::parse("sm90"), Ok(Choice::Name("sm90".to_owned())));
    assert_eq!(Choice::parse("./x"), Ok(Choice::Path(PathBuf::from("./x"))));
    assert_eq!(Choice::parse("vendor.so"), Ok(Choice::Path(PathBuf::from("vendor.so"))));
    for text in ["", "SM90", "a b", ".."] {
        assert!(Choice::parse(text).is_err_and(|sentence| sentence.contains(&format!("{text:?}"))), "{text}");
    }
}

#[test]
fn auto_takes_the_best_score_and_says_why_the_others_were_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = Some(folder.path());
    let good = c_plugin(folder.path(), "good", "none");
    c_plugin(folder.path(), "refuser", "probe refuses");
    c_plugin(folder.path(), "old", "wrong major");
    std::fs::write(folder.path().join("libm3_backend_broken.so"), "not a library").unwrap();
    std::fs::write(folder.path().join("libother.so"), "never looked at").unwrap();
    std::fs::copy(&good, folder.path().join("libm3_backend_alias.so")).unwrap();
    let discovery = look("auto", &[CPU], dir);
    assert_eq!(name(&discovery).unwrap(), format!("good {}", good.display()));
    let lines: Vec<String> = discovery.candidates.iter().map(|candidate| candidate.to_string()).collect();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert_eq!(lines[0], "cpu (linked): score 10, 1 x ");
    let said = |name: &str, sentence: &str| {
        let line = lines.iter().find(|line| line.starts_with(&format!("{name} ("))).unwrap();
        assert!(line.contains(sentence), "{line}");
    };
    said("refuser", "no device: the script has no hardware");
    said("old", "major 2");
    said("broken", "cannot load");
    said("alias", "calls itself good, not alias");
    assert_eq!(discovery.refused().count(), 4);
}

#[test]
fn auto_prefers_linked_then_the_first_name_on_equal_scores() {
    let folder = tempfile::tempdir().unwrap();
    c_plugin(folder.path(), "bbb", "none");
    c_plugin(folder.path(), "aaa", "none");
    assert_eq!(name(&look("auto", &[CPU, EQUAL], Some(folder.path()))).unwrap(), "zzz linked");
    assert!(name(&look("auto", &[CPU], Some(folder.path()))).unwrap().starts_with("aaa "));
}

#[test]
fn auto_never_takes_a_backend_that_serves_by_name_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(rust_plugin("toy"), folder.path().join("libm3_backend_toy.so")).unwrap();
    let discovery = look("auto", &[], Some(folder.path()));
    assert!(discovery.candidates[0].outcome.is_ok());
    assert!(name(&discovery).unwrap_err().contains("by name"), "{:?}", name(&discovery));
    assert!(name(&look("toy", &[], Some(folder.path()))).unwrap().starts_with("toy "));
}

#[test]
fn nothing_anywhere_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let said = name(&look("auto", &[], Some(folder.path()))).unwrap_err();
    assert!(
        said.contains("libm3_backend_*.so") && said.contains(&folder.path().display().to_string()),
        "{said}"
    );
    let said = name(&look("sm90", &[CPU], Some(folder.path()))).unwrap_err();
    assert!(said.contains("no backend is named sm90: linked in are cpu"), "{said}");
    assert!(said.contains("libm3_backend_sm90.so"), "{said}");
}

#[test]
fn a_name_means_the_linked_one_first_and_a_path_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = c_plugin(folder.path(), "cpu", "none");
    let by_name = look("cpu", &[CPU], Some(folder.path()));
    assert_eq!(name(&by_name).unwrap(), "cpu linked");
    let by_path = look(&file.display().to_string(), &[CPU], None);
    assert_eq!(by_path.candidates[0].origin, Origin::File(file.clone()));
    assert_eq!(name(&by_path).unwrap(), format!("cpu {}", file.display()));
}

#[test]
fn beside_the_executable_comes_before_the_given_folder() {
    let (beside, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = c_plugin(beside.path(), "c", "none");
    c_plugin(dir.path(), "c", "none");
    let places =
        Places { linked: &[], beside: Some(beside.path().to_owned()), dir: Some(dir.path().to_owned()) };
    for choice in [Choice::Name("c".to_owned()), Choice::Auto] {
        let discovery = discover(&choice, &places, &ProbeRequest::default());
        assert_eq!(name(&discovery).unwrap(), format!("c {}", first.display()));
    }
}

#[test]
fn a_named_backend_that_refuses_is_not_replaced() {
    let (beside, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    c_plugin(beside.path(), "c", "probe refuses");
    c_plugin(dir.path(), "c", "none");
    let places =
        Places { linked: &[CPU], beside: Some(beside.path().to_owned()), dir: Some(dir.path().to_owned()) };
    let discovery = discover(&Choice::Name("c".to_owned()), &places, &ProbeRequest::default());
    assert!(name(&discovery).unwrap_err().contains("the script has no hardware"));
}

#[cfg(unix)]
#[test]
fn a_named_backend_behind_a_broken_link_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("libm3_backend_linked.so");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let said = name(&look("linked", &[], Some(folder.path()))).unwrap_err();
    assert!(said.contains(&format!("cannot load {}", link.display())), "{said}");
}

#[cfg(unix)]
#[test]
fn a_link_of_another_name_does_not_hide_the_backend_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = c_plugin(folder.path(), "c", "none");
    std::os::unix::fs::symlink(&file, folder.path().join("libm3_backend_alias.so")).unwrap();
    let discovery = look("auto", &[], Some(folder.path()));
    assert_eq!(name(&discovery).unwrap(), format!("c {}", file.display()));
    assert_eq!(discovery.refused().count(), 1, "the link is still told about");
}

#[test]
fn a_file_reached_twice_is_probed_once() {
    let folder = tempfile::tempdir().unwrap();
    c_plugin(folder.path(), "c", "none");
    let again = Some(folder.path().join("."));
    let places = Places { linked: &[], beside: Some(folder.path().to_owned()), dir: again };
    assert_eq!(discover(&Choice::Auto, &places, &ProbeRequest::default()).candidates.len(), 1);
}

#[test]
fn a_linked_backend_registered_under_another_name_is_refused() {
    let said = name(&look("right", &[MISNAMED], None)).unwrap_err();
    assert!(said.contains("registered as right calls itself wrong"), "{said}");
}

#[test]
fn a_folder_that_cannot_be_listed_is_no_error() {
    assert_eq!(name(&look("auto", &[CPU], Some(Path::new("/nonexistent/backends")))).unwrap(), "cpu linked");
}
