//! One finding.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    /// Nothing is wrong; something is absent or worth knowing.
    Note,
    /// It will serve, but worse than it could, or may fail later.
    Warning,
    /// It will not serve.
    Problem,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// `program`, `devices`, `backends`, `host` or `network`.
    pub group: &'static str,
    pub name: String,
    pub level: Level,
    /// A sentence, or a fact.
    pub finding: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// More facts, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl Check {
    fn new(group: &'static str, name: &str, level: Level, finding: String) -> Self {
        Check { group, name: name.to_owned(), level, finding, remedy: None, details: Vec::new() }
    }

    pub(super) fn good(group: &'static str, name: &str, finding: String) -> Self {
        Self::new(group, name, Level::Good, finding)
    }

    pub(super) fn note(group: &'static str, name: &str, finding: String) -> Self {
        Self::new(group, name, Level::Note, finding)
    }

    pub(super) fn warning(group: &'static str, name: &str, finding: String, remedy: &str) -> Self {
        Check { remedy: Some(remedy.to_owned()), ..Self::new(group, name, Level::Warning, finding) }
    }

    pub(super) fn problem(group: &'static str, name: &str, finding: String, remedy: &str) -> Self {
        Check { remedy: Some(remedy.to_owned()), ..Self::new(group, name, Level::Problem, finding) }
    }

    pub(super) fn with(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }
}

/// Bytes for people, in powers of 1024.
pub(super) fn gib(bytes: u64) -> String {
    if bytes < 1 << 30 {
        return format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    }
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
