//! Lengths of the documents: a text that nobody finishes helps nobody.

use super::Finding;
use std::path::Path;

const MOST_LINES: &[(&str, usize)] = &[
    ("README.md", 150),
    ("ARCHITECTURE.md", 300),
    ("CONTRIBUTING.md", 200),
    ("docs/backend-guide.md", 400),
    ("docs/abi.md", 150),
    ("docs/serving.md", 300),
    ("docs/clients.md", 150),
    ("docs/operations.md", 200),
    ("docs/security.md", 200),
    ("docs/glossary.md", 100),
    ("include/m3_backend.h", 800),
];

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) {
    for (path, most) in MOST_LINES {
        match std::fs::read_to_string(root.join(path)) {
            Err(error) => findings.push(format!("{path}: cannot be read: {error}")),
            Ok(text) if text.lines().count() > *most => {
                findings.push(format!("{path}: {} lines; at most {most}", text.lines().count()));
            }
            Ok(_) => {}
        }
    }
}
