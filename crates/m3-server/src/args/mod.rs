//! The command line: one table of flags, a parser over it, and typed options.
//!
//! Both SGLang's and vLLM's names are accepted, so that a recipe written for either starts this server. A known flag
//! that would do nothing is refused unless the table calls it harmless: a setting that is silently ignored is worse
//! than an error. The only environment variables are those with keys,
//! which a command line would show to everyone, and those that the hubs' own programs read.

mod help;
mod numbers;
mod options;
mod parse;
mod table;

pub use help::help;
pub use numbers::{parse_bytes, parse_count};
pub(crate) use options::number;
pub use options::{
    AccessOptions, BackendOptions, CorsOptions, EngineOptions, GuardOptions, HealthOptions, HttpOptions,
    MediaOptions, ModelOptions, Options, Rate, TlsOptions,
};
pub use parse::{Parsed, parse};
pub use table::{Command, Effect, FLAGS, Flag, Kind};

use crate::error::cut;

/// Why a command line was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgError {
    /// The first word is no subcommand.
    #[error("\"{}\" is no command of m3; try {nearest}", short(.given))]
    UnknownCommand {
        /// As typed.
        given: String,
        /// The nearest command, or the list of all.
        nearest: String,
    },
    /// No row of the table has this name.
    #[error("unknown flag {}; the nearest is {nearest}", short(.given))]
    UnknownFlag {
        /// As typed.
        given: String,
        /// With its aliases.
        nearest: String,
    },
    /// Known, but not for this command.
    #[error("{given} is not a flag of \"m3 {command}\"")]
    NotHere {
        /// As typed.
        given: String,
        /// The command.
        command: &'static str,
    },
    /// Known, and this build can do nothing with it.
    #[error("{} has no effect yet: {reason}", short(.given))]
    NoEffect {
        /// As typed, with its value.
        given: String,
        /// The table's sentence.
        reason: String,
    },
    /// A flag that takes a value came last or before another flag.
    #[error("{given} needs a value")]
    MissingValue {
        /// As typed.
        given: String,
    },
    /// A value that does not parse or is out of range.
    #[error("{flag} is \"{}\"; expected {}", short(.value), cut(.expected, LONGEST_SENTENCE))]
    BadValue {
        /// Canonical name with dashes.
        flag: String,
        /// As typed.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// More words than the command takes.
    #[error("\"{}\" is one word too many; flags start with --", short(.0))]
    ExtraWord(String),
    /// A value behind a flag that is a switch.
    #[error(
        "{flag} is a switch and takes no value: leave \"{}\" out, or write {flag}=true or {flag}=false",
        short(.value)
    )]
    SwitchValue {
        /// As typed.
        flag: String,
        /// The word behind it.
        value: String,
    },
    /// Two flags that cannot both be meant.
    #[error("{} and {} cannot both be given: {reason}", short(.first), short(.second))]
    Conflict {
        /// One of them, with its value where that matters.
        first: String,
        /// The other.
        second: String,
        /// Why not.
        reason: &'static str,
    },
}

/// Most characters of what was typed in one sentence.
const LONGEST_VALUE: usize = 100;
/// Most characters of what would be right; it may hold a parser's own words.
const LONGEST_SENTENCE: usize = 300;

fn short(typed: &str) -> String {
    cut(typed, LONGEST_VALUE)
}

#[cfg(test)]
mod tests;
