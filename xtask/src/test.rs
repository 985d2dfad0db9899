//! Every test of the workspace, and one line at the end that says how it went.
//!
//! ```text
//! setup -> cargo test --workspace --no-fail-fast -> each binary's result -> "N passed, N failed"
//! ```
//!
//! Tests that need programs this machine lacks say so and pass; where setup succeeded they may not
//! (`TANADA_REQUIRE_TOOLS=1`). `TANADA_SHARED` names the directory with public traces; by default
//! `../shared`, where it exists.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::setup;
use crate::shell::{cargo, show};
use crate::tidy::tree::project_root;

/// What all test binaries reported together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Test binaries that reported.
    pub binaries: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl Tally {
    /// Counts one line of a test binary's output, if it is a result line.
    pub fn count(&mut self, line: &str) {
        let Some(result) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        self.binaries += 1;
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

/// Sets up (unless told not to) and runs the tests. The caller prints the tally, as its last line.
///
/// `args` goes to `cargo test`; without a package among them, all packages are tested.
///
/// # Errors
/// If cargo cannot be started. Tests that fail are counted, not an error here.
pub fn run(set_up: bool, args: &[String]) -> Result<Tally> {
    let tools = if set_up {
        setup::install()
    } else {
        setup::lacking()
    };
    let complete = match tools {
        Ok(lacking) => lacking.is_empty(),
        Err(error) => {
            eprintln!("setup: {error:#}");
            false
        }
    };
    if !complete {
        eprintln!(
            "setup is incomplete: tests of programs that do not work skip themselves and say so"
        );
    }

    let mut command = cargo();
    command.arg("test");
    if !names_a_package(args) {
        command.arg("--workspace");
    }
    command.arg("--no-fail-fast").args(args);
    if complete {
        command.env("TANADA_REQUIRE_TOOLS", "1");
    }
    if let Some(shared) = shared() {
        command.env("TANADA_SHARED", shared);
    }
    let shown = show(&command);
    eprintln!("{shown}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;

    let mut tally = Tally::default();
    let mut reader = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut stdout = std::io::stdout().lock();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        stdout.write_all(&line)?;
        tally.count(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        // A build that broke, or a binary that died before it could report.
        tally.failed = 1;
        writeln!(
            stdout,
            "`{shown}` ended with {status} though no test reported a failure: see above"
        )?;
    }
    stdout.flush()?;
    Ok(tally)
}

/// The directory with public traces, absolute, where there is one.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let named = std::env::var_os("TANADA_SHARED").map(PathBuf::from);
    let path = named.unwrap_or_else(|| project_root().join("../shared"));
    path.canonicalize().ok()
}

/// Do the arguments for cargo (those before `--`) name a package themselves?
fn names_a_package(args: &[String]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package") || arg == "--workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_all_binaries_add_up() {
        let mut tally = Tally::default();
        tally.count("running 3 tests");
        tally.count("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s");
        tally.count("test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        assert_eq!(
            tally,
            Tally {
                passed: 13,
                failed: 2,
                binaries: 2
            }
        );
    }

    #[test]
    fn a_package_named_behind_the_dashes_is_the_tests_own() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names_a_package(&args("-p tanada-env")));
        assert!(names_a_package(&args("--package=tanada-env")));
        assert!(!names_a_package(&args("-- -p")));
    }
}
