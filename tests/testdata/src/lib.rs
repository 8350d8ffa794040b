//! Where the files that tests need lie: the golden data of the repository, and the shared folder beside it for what is
//! not part of the repository. What is missing is said aloud. Nothing is read here, so any crate may use this.

pub mod counted;

use std::io::Write;
use std::path::{Path, PathBuf};

/// The workspace that this was built in.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The `data` folder beside the repository, or under `M3_SHARED`; it need not exist.
pub fn shared_folder() -> PathBuf {
    std::env::var_os("M3_SHARED").map_or_else(|| workspace().join("../shared"), PathBuf::from).join("data")
}

/// A file or folder of the golden data: the committed copy (where this was built, else under the current folder: the
/// binary may have been carried to a machine with a device), else the shared original; `None` when none is there.
pub fn find_golden(relative: &str) -> Option<PathBuf> {
    [workspace().join("tests/data/golden"), "tests/data/golden".into(), shared_folder().join("golden")]
        .into_iter()
        .map(|folder| folder.join(relative))
        .find(|path| path.exists())
}

/// As [`find_golden`]; what is missing is said aloud.
pub fn golden(relative: &str) -> Option<PathBuf> {
    let found = find_golden(relative);
    if found.is_none() {
        skip(&format!("golden data {relative} is neither in tests/data/golden nor in {}", shown()));
    }
    found
}

/// The shared `data` folder when `file` lies in it; otherwise that is said aloud.
pub fn shared(file: &str) -> Option<PathBuf> {
    let data = shared_folder();
    if data.join(file).exists() {
        return Some(data);
    }
    skip(&format!("{file} is not in {}; M3_SHARED names another place", shown()));
    None
}

/// Says that a test does nothing, past the test harness's capture.
pub fn skip(why: &str) {
    let line = format!("\n*** SKIPPED: {why} ***\n");
    // A test may still pass where nobody listens.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn shown() -> String {
    shared_folder().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_files_are_found_and_others_are_not() {
        let found = find_golden("golden/vl/images.json").expect("it is part of the repository");
        assert!(found.ends_with("tests/data/golden/golden/vl/images.json"), "{}", found.display());
        assert_eq!(golden("golden/of/nobody"), None);
        assert_eq!(shared("a file that is nowhere"), None);
    }
}
