//! Findings as text for people and as JSON for programs.

use serde_json::json;

use super::{Check, Level};

/// A line each, remedies and details below.
pub(super) fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for check in checks {
        if check.group != group {
            text.push_str(&format!("{}{}\n", if group.is_empty() { "" } else { "\n" }, check.group));
            group = check.group;
        }
        text.push_str(&format!("  {}  {:width$}  {}\n", mark(check.level), check.name, check.finding));
        let indent = " ".repeat(width + 12);
        let more = check.remedy.iter().map(|remedy| format!("do: {remedy}"));
        for line in more.chain(check.details.iter().cloned()) {
            text.push_str(&format!("{indent}{line}\n"));
        }
    }
    text.push_str(&format!("\n{}\n", verdict(checks)));
    text
}

/// One object: all findings and the counts.
pub(super) fn json(checks: &[Check]) -> String {
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "problems": count(checks, Level::Problem),
        "warnings": count(checks, Level::Warning),
        "checks": checks,
    });
    format!("{value:#}\n")
}

fn mark(level: Level) -> &'static str {
    match level {
        Level::Good => "ok     ",
        Level::Note => "note   ",
        Level::Warning => "warning",
        Level::Problem => "PROBLEM",
    }
}

fn count(checks: &[Check], level: Level) -> usize {
    checks.iter().filter(|check| check.level == level).count()
}

fn verdict(checks: &[Check]) -> String {
    let named = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (problems, warnings) = (count(checks, Level::Problem), count(checks, Level::Warning));
    let verdict = if problems == 0 { "m3 serve can start" } else { "m3 serve would not start" };
    format!("{verdict}: {}, {}", named(problems, "problem"), named(warnings, "warning"))
}
