//! The command line: one table of flags, a parser over it, and typed options.
//!
//! Both SGLang's and vLLM's names are accepted, so that a recipe written for either starts this server. A known flag
//! that would do nothing is refused unless the table calls it harmless: a setting that is silently ignored is worse
//! than an error. No environment variables are read here.

mod help;
mod numbers;
mod options;
mod parse;
mod table;

pub use help::help;
pub use numbers::{parse_bytes, parse_count};
pub use options::{BackendOptions, EngineOptions, HttpOptions, ModelOptions, Options};
pub use parse::{Parsed, parse};
pub use table::{Command, Effect, FLAGS, Flag, Kind};

/// Why a command line was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgError {
    /// The first word is no subcommand.
    #[error("\"{given}\" is no command of m3; try {nearest}")]
    UnknownCommand {
        /// As typed.
        given: String,
        /// The nearest command, or the list of all.
        nearest: String,
    },
    /// No row of the table has this name.
    #[error("unknown flag {given}; the nearest is {nearest}")]
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
    #[error("{given} has no effect yet: {reason}")]
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
    #[error("{flag} is \"{value}\"; expected {expected}")]
    BadValue {
        /// Canonical name with dashes.
        flag: String,
        /// As typed.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// More words than the command takes.
    #[error("\"{0}\" is one word too many; flags start with --")]
    ExtraWord(String),
    /// A value behind a flag that is a switch.
    #[error(
        "{flag} is a switch and takes no value: leave \"{value}\" out, or write {flag}=true or {flag}=false"
    )]
    SwitchValue {
        /// As typed.
        flag: String,
        /// The word behind it.
        value: String,
    },
    /// Two flags that cannot both be meant.
    #[error("{first} and {second} cannot both be given: {reason}")]
    Conflict {
        /// One of them, with its value where that matters.
        first: String,
        /// The other.
        second: String,
        /// Why not.
        reason: &'static str,
    },
}

#[cfg(test)]
mod tests;
