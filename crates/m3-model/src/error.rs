//! Everything that can be wrong with a model folder or a parallel plan, said before serving.
//!
//! Faults are collected, not returned one by one: an operator fixes a folder once. Messages are lower-case
//! sentences that name the value and the limit. Nothing here is raised while requests run.

use std::path::PathBuf;

use crate::checkpoint::Fault;

/// How many collected faults a message spells out before it only counts.
const SHOWN: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{what} is not JSON: {source}")]
    Json { what: String, source: serde_json::Error },
    /// All problems of a `config.json` at once.
    #[error("{} in config.json cannot be served: {}", count(problems.len(), "field"), listed(problems))]
    Config { problems: Vec<ConfigProblem> },
    #[error("{what}: {}", listed(problems))]
    Settings { what: &'static str, problems: Vec<ConfigProblem> },
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// All faults of a checkpoint's files at once.
    #[error("checkpoint {} refused, {}: {}", path.display(), count(faults.len(), "fault"), listed(faults))]
    Checkpoint { path: PathBuf, faults: Vec<Fault> },
    #[error("this checkpoint has no tensor {0}")]
    UnknownTensor(String),
    #[error("tp {tp} with ep {ep} is impossible: {}", listed(reasons))]
    Shard { tp: usize, ep: usize, reasons: Vec<String> },
    #[error("rank {rank} does not exist: tp is {tp}")]
    Rank { rank: usize, tp: usize },
    #[error("list of file hashes: {0}")]
    Manifest(String),
    #[error("checkpoint {} differs from its list of hashes: {}", path.display(), listed(differences))]
    Hashes { path: PathBuf, differences: Vec<String> },
}

/// One field that cannot be served. Printed as `key: value (supported: …)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Full path, e.g. `text_config.hidden_act`.
    pub key: String,
    /// The value as JSON, or `missing`.
    pub value: String,
    pub supported: String,
}

impl std::fmt::Display for ConfigProblem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {} (supported: {})", self.key, self.value, self.supported)
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    let mut text = items.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if items.len() > SHOWN {
        text.push_str(&format!("; and {} more", items.len() - SHOWN));
    }
    text
}
