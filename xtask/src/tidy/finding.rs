//! What a rule answers: what is broken, or how much of something there is.

use std::fmt;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub what: String,
}

/// How much of something there is at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The rule's name.
    pub rule: &'static str,
    /// What is measured: the name of its entry in the baseline.
    pub key: String,
    /// How much there is.
    pub now: usize,
    /// How much there may be.
    pub limit: usize,
    /// The file to look at, relative to the workspace.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What there is too much of, and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": [{}] {}", self.rule, self.what)
    }
}
