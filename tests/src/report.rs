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
}

impl Report {
    pub fn record(&mut self, check: &str, outcome: anyhow::Result<()>) {
        let verdict = match outcome {
            Ok(()) => Verdict::Pass,
            Err(error) => Verdict::Fail(format!("{error:#}")),
        };
        self.lines.push(Line { check: check.to_owned(), verdict });
    }

    /// Runs a check that needs a golden case, or says loudly that the case is not there.
    pub fn check(&mut self, check: &str, case: (&str, &str), work: impl FnOnce() -> anyhow::Result<()>) {
        if crate::golden::is_there(case.0, case.1) {
            self.record(check, work());
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

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match &line.verdict {
                Verdict::Pass => writeln!(formatter, "pass  {}", line.check)?,
                Verdict::Skip(reason) => writeln!(formatter, "skip  {}: {reason}", line.check)?,
                Verdict::Fail(reason) => writeln!(formatter, "FAIL  {}: {reason}", line.check)?,
            }
        }
        write!(formatter, "{} passed, {} failed", self.num_passed(), self.num_failed())
    }
}
