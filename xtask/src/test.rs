//! Every test of the workspace, and one line at the end that says how it went.
//!
//! ```text
//! setup -> build -> unit tests, documentation tests }
//!                -> integration tests              } at the same time -> each binary's result -> "N passed, N failed"
//! ```
//!
//! Integration tests wait for programs, devices and clocks; unit tests compute. Beside each other they take little
//! longer than the longer of the two. Where `args` choose targets or tests, one run of cargo does it all.
//!
//! Tests that need programs this machine lacks say so and pass; where setup succeeded they may not
//! (`TANADA_REQUIRE_TOOLS=1`). `TANADA_SHARED` names the directory with public traces; by default
//! `../shared`, where it exists.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Command;

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

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(tallies: I) -> Tally {
        tallies.fold(Tally::default(), |all, one| Tally {
            passed: all.passed + one.passed,
            failed: all.failed + one.failed,
            binaries: all.binaries + one.binaries,
        })
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

    let environment = Environment {
        complete,
        shared: shared(),
    };
    let lanes = lanes(args);
    if lanes.len() > 1 {
        let mut build = environment.cargo_test(&[args, &["--no-run".to_owned()]].concat());
        eprintln!("{}", show(&build));
        if !build.status().context("cannot start cargo")?.success() {
            println!("`{}` failed: see above", show(&build));
            return Ok(Tally {
                failed: 1,
                ..Tally::default()
            });
        }
    }
    let tallies: Result<Vec<Tally>> = std::thread::scope(|scope| {
        let running: Vec<_> = lanes
            .iter()
            .map(|runs| scope.spawn(|| environment.lane(runs)))
            .collect();
        let joined = running.into_iter().map(|lane| lane.join());
        joined
            .map(|tally| tally.expect("a lane does not panic"))
            .collect()
    });
    Ok(tallies?.into_iter().sum())
}

/// What tests find around them.
struct Environment {
    /// Do all programs work that tests use?
    complete: bool,
    /// Where the public traces are.
    shared: Option<PathBuf>,
}

impl Environment {
    fn cargo_test(&self, args: &[String]) -> Command {
        let mut command = cargo();
        command.arg("test");
        if !names_a_package(args) {
            command.arg("--workspace");
        }
        command.arg("--no-fail-fast").args(args);
        if self.complete {
            command.env("TANADA_REQUIRE_TOOLS", "1");
        }
        if let Some(shared) = &self.shared {
            command.env("TANADA_SHARED", shared);
        }
        command
    }

    /// Runs one after the other. The output of each test binary is printed when it has ended, so that those of two lanes
    /// do not mix.
    fn lane(&self, runs: &[Vec<String>]) -> Result<Tally> {
        let mut tally = Tally::default();
        for args in runs {
            let mut command = self.cargo_test(args);
            let shown = show(&command);
            eprintln!("{shown}");
            let (reader, writer) = std::io::pipe()?;
            // Coloured lines are not recognized.
            command.env("CARGO_TERM_COLOR", "never");
            command.stdout(writer.try_clone()?).stderr(writer);
            let child = command.spawn();
            // With it goes our end of the pipe, which would never close.
            drop(command);
            let mut child = child.with_context(|| format!("cannot start `{shown}`"))?;
            let before = tally.failed;
            by_binary(BufReader::new(reader), &mut tally, &mut print)?;
            let status = child.wait()?;
            if !status.success() && tally.failed == before {
                // A build that broke, or a binary that died before it could report.
                tally.failed += 1;
                let why = "though no test reported a failure: see above";
                print(format!("`{shown}` ended with {status} {why}\n").as_bytes());
            }
        }
        Ok(tally)
    }
}

/// A reader of the output that went away ends nothing: the tests go on, and the exit status tells.
fn print(part: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(part).and_then(|()| stdout.flush());
}

/// Counts what cargo and the test binaries say, and prints it in parts: one for each binary. What a slow test says of
/// itself is printed at once.
fn by_binary(
    mut reader: impl BufRead,
    tally: &mut Tally,
    print: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut part = Vec::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let text = String::from_utf8_lossy(&line);
        tally.count(&text);
        let ends = text.starts_with("test result: ") || text.contains("has been running for over");
        part.extend_from_slice(&line);
        line.clear();
        if ends {
            print(&part);
            part.clear();
        }
    }
    print(&part);
    Ok(())
}

/// What is run at the same time, and in each lane one after the other: arguments of `cargo test`.
fn lanes(args: &[String]) -> Vec<Vec<Vec<String>>> {
    const CHOICES: [&str; 13] = [
        "--",
        "--lib",
        "--bin",
        "--bins",
        "--test",
        "--tests",
        "--example",
        "--examples",
        "--bench",
        "--benches",
        "--all-targets",
        "--doc",
        "--no-run",
    ];
    let chooses = |arg: &String| {
        let name = arg.split('=').next().unwrap_or_default();
        !arg.starts_with('-') || CHOICES.contains(&name)
    };
    // A package alone may have no integration tests, which cargo refuses.
    if names_a_package(args) || args.iter().any(chooses) {
        return vec![vec![args.to_vec()]];
    }
    let of = |targets: &[&str]| {
        let targets = targets.iter().map(|it| (*it).to_owned());
        args.iter().cloned().chain(targets).collect::<Vec<_>>()
    };
    vec![
        vec![of(&["--lib", "--bins"]), of(&["--doc"])],
        vec![of(&["--test", "*"])],
    ]
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
    fn tests_that_are_chosen_run_in_one_lane() {
        let count = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            lanes(&args).len()
        };
        assert_eq!(
            (count(""), count("--locked"), count("--release")),
            (2, 2, 2)
        );
        for chosen in [
            "-p env",
            "--lib",
            "--test=meta",
            "torture",
            "--locked -- --nocapture",
        ] {
            assert_eq!(count(chosen), 1, "{chosen}");
        }
    }

    #[test]
    fn what_one_binary_prints_stays_together() {
        let said = "     Running a\ntest result: ok. 1 passed; 0 failed; 0 ignored\n     Running b\n\
                    test x has been running for over 60 seconds\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored\nno end";
        let mut tally = Tally::default();
        let mut parts = Vec::new();
        by_binary(said.as_bytes(), &mut tally, &mut |part| {
            parts.push(String::from_utf8_lossy(part).into_owned());
        })
        .unwrap();
        assert_eq!(tally.to_string(), "3 passed, 1 failed");
        assert_eq!(parts.concat(), format!("{said}\n"));
        assert_eq!(parts.len(), 4, "{parts:?}");
        assert!(parts[1].starts_with("     Running b") && parts[2].starts_with("test result"));
    }

    #[test]
    fn a_package_named_behind_the_dashes_is_the_tests_own() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names_a_package(&args("-p env")));
        assert!(names_a_package(&args("--package=env")));
        assert!(!names_a_package(&args("-- -p")));
    }
}
