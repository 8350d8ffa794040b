//! What a conformance run found, one line a check, and the table that people read.

#![allow(clippy::print_stdout, reason = "a skipped check must be seen")]

use std::fmt;

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail(String),
    Skip(String),
}

#[derive(Clone, Debug)]
pub struct Line {
    pub check: String,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub lines: Vec<Line>,
    /// Only checks whose name holds one of these run; empty = all.
    pub only: Vec<String>,
}

impl Report {
    /// Runs a check and says at once how it went, so that nothing is lost when a later one kills the process.
    pub fn record(&mut self, check: &str, work: impl FnOnce() -> anyhow::Result<()>) {
        if !self.only.is_empty() && !self.only.iter().any(|part| check.contains(part)) {
            return;
        }
        let started = std::time::Instant::now();
        let verdict = match work() {
            Ok(()) => Verdict::Pass,
            Err(error) => Verdict::Fail(format!("{error:#}")),
        };
        let line = Line { check: check.to_owned(), verdict };
        println!("{line} ({:.1} s)", started.elapsed().as_secs_f64());
        self.lines.push(line);
    }

    /// Runs a check that needs a golden case, or says loudly that the case is not there.
    pub fn check(&mut self, check: &str, case: (&str, &str), work: impl FnOnce() -> anyhow::Result<()>) {
        if crate::golden::is_there(case.0, case.1) {
            self.record(check, work);
        } else {
            println!("SKIPPED {check}: golden {}/{} is not there", case.0, case.1);
            self.skip(check, "the golden data is not there");
        }
    }

    pub fn skip(&mut self, check: &str, reason: &str) {
        self.lines.push(Line { check: check.to_owned(), verdict: Verdict::Skip(reason.to_owned()) });
    }

    pub fn num_failed(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.verdict, Verdict::Fail(_))).count()
    }

    pub fn num_passed(&self) -> usize {
        self.lines.iter().filter(|line| line.verdict == Verdict::Pass).count()
    }

    /// For tests: panics with the table when a check failed or none ran.
    ///
    /// # Panics
    /// As said.
    pub fn assert_passed(&self) {
        assert!(self.num_failed() == 0 && self.num_passed() > 0, "{self}");
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Pass => write!(formatter, "pass  {}", self.check),
            Verdict::Skip(reason) => write!(formatter, "skip  {}: {reason}", self.check),
            Verdict::Fail(reason) => write!(formatter, "FAIL  {}: {reason}", self.check),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(formatter, "{line}")?;
        }
        write!(formatter, "{} passed, {} failed", self.num_passed(), self.num_failed())
    }
}
