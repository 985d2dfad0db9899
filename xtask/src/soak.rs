//! Long randomized runs: the same tests, other seeds, for as long as asked.
//!
//! ```text
//! every test file that reads TANADA_SEEDS -> build once -> growing rounds until time is up
//! ```
//!
//! The convention for a randomized test:
//!
//! - `TANADA_SEEDS=N`: run seeds 0 to N - 1; without it as many as suit every day.
//! - `TANADA_SEED=S`: run this one alone. A failing test prints this with the command to type.
//! - `TANADA_ROUNDS=N`: for what takes real time, as killing real daemons: so many rounds of one seed, one for each 100 seeds of the others.
//!
//! So rounds grow: each runs about twice the seeds of the one before, or as many as still fit.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::shell::{answer, cargo, run};
use crate::tidy::tree::Tree;

/// A test target whose tests read `TANADA_SEEDS` or `TANADA_ROUNDS`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    package: String,
    /// `--test NAME`, `--lib`, or nothing for all of the package's tests.
    target: Vec<String>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    Seeds,
    /// Real ones, of one seed.
    Rounds,
}

/// Seeds of other suites that take as long as a real round, by and large.
const SEEDS_PER_ROUND: u64 = 100;

/// Runs every randomized suite with `seeds` seeds, then more, and the fuzz targets, for `minutes`; of one `package` alone if
/// there is one, without fuzzing.
///
/// # Errors
/// At the first failing round; the test has printed how to replay it.
pub fn soak(minutes: u64, seeds: u64, package: Option<&str>) -> Result<()> {
    let tree = Tree::of_project()?;
    let mut suites = suites(&tree)?;
    suites.retain(|suite| package.is_none_or(|one| suite.package == one));
    if suites.is_empty() {
        let of = package.map_or(String::new(), |one| format!(" of {one}"));
        bail!("no test{of} reads TANADA_SEEDS or TANADA_ROUNDS: there is nothing to soak");
    }
    let fuzz_targets = match package {
        Some(_) => Vec::new(),
        None => fuzz_targets(&tree),
    };
    for suite in &suites {
        // Building is not what a round's time is spent on.
        run(suite.command().arg("--no-run"))?;
    }
    let end = now() + Duration::from_secs(minutes * 60);
    let mut count = seeds;
    loop {
        for target in &fuzz_targets {
            println!("soak: fuzz {target}: 60 s");
            fuzz(&tree, target)?;
        }
        let start = now();
        for suite in &suites {
            let (package, target) = (&suite.package, suite.target.join(" "));
            match suite.counts {
                Counts::Seeds => {
                    println!("soak: {package} {target}: {count} seeds");
                    run(suite.command().env("TANADA_SEEDS", count.to_string()))?;
                }
                Counts::Rounds => {
                    // Another seed each time.
                    let (rounds, seed) = (
                        count.div_ceil(SEEDS_PER_ROUND).to_string(),
                        count.to_string(),
                    );
                    println!("soak: {package} {target}: {rounds} rounds of seed {seed}");
                    run(suite
                        .command()
                        .env("TANADA_ROUNDS", rounds)
                        .env("TANADA_SEED", seed))?;
                }
            }
        }
        let took = (now() - start).as_secs_f64().max(1.0);
        let left = end.saturating_duration_since(now()).as_secs_f64();
        let next = (count as f64 * (left / took).min(2.0)) as u64;
        if next <= count {
            break;
        }
        count = next;
    }
    println!("soak: {count} seeds of every suite, no failure");
    Ok(())
}

/// Kills the real daemon `rounds` times with `kill -9` under fio, of the development profile.
///
/// # Errors
/// If anything that was flushed is not there; the test has printed how to replay it.
pub fn kills(rounds: u64) -> Result<()> {
    let mut command = cargo();
    command
        .args(["test", "--workspace", "--test", "e2e_disk", "fio_kills::"])
        .args(["--", "--nocapture"])
        .env("TANADA_ROUNDS", rounds.to_string())
        .env("TANADA_REQUIRE_TOOLS", "1");
    run(&mut command)?;
    println!("soak: {rounds} kills, nothing lost");
    Ok(())
}

impl Suite {
    fn command(&self) -> Command {
        let mut command = cargo();
        command
            .args(["test", "--release", "--quiet", "-p", &self.package])
            .args(&self.target);
        command
    }
}

fn fuzz(tree: &Tree, target: &str) -> Result<()> {
    // What a run finds worth keeping goes to corpus/, which is not part of the project.
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(tree.root.join(&corpus))?;
    // Fuzzing needs nightly, so rustup's own cargo chooses, not the one that started us.
    let mut command = Command::new("cargo");
    command
        .current_dir(&tree.root)
        .args(["+nightly", "fuzz", "run", target, &corpus]);
    let start = format!("fuzz/seeds/{target}");
    if tree.has(&start) {
        command.arg(start);
    }
    run(command.args(["--", "-max_total_time=60"]))
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long people wait is measured on the wall"
)]
fn now() -> Instant {
    Instant::now()
}

fn suites(tree: &Tree) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for file in tree.with_extension("rs") {
        let Some((dir, inside)) = crate_of(file) else {
            continue;
        };
        let text = tree.text(file).unwrap_or_default();
        let counts = match () {
            () if text.contains("\"TANADA_SEEDS\"") => Counts::Seeds,
            () if text.contains("\"TANADA_ROUNDS\"") => Counts::Rounds,
            () => continue,
        };
        let is_target = |path: &str| tree.has(&format!("{dir}/{path}"));
        let target = target_of(inside, is_target);
        let manifest = tree.text(&format!("{dir}/Cargo.toml")).unwrap_or_default();
        let manifest: toml::Table = toml::from_str(&manifest)?;
        let package = manifest["package"]["name"].as_str().unwrap_or_default();
        suites.push(Suite {
            package: package.to_owned(),
            target,
            counts,
        });
    }
    suites.sort();
    suites.dedup();
    Ok(suites)
}

/// Which of a crate's test targets has the file `inside` it; nothing if several have.
fn target_of(inside: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let Some(test) = inside.strip_prefix("tests/") else {
        return vec!["--lib".to_owned()];
    };
    let name = match test.split_once('/') {
        None => test.strip_suffix(".rs"),
        Some((name, _)) if is_there(&format!("tests/{name}/main.rs")) => Some(name),
        // What several test files share.
        Some(_) => None,
    };
    name.map_or_else(Vec::new, |name| vec!["--test".to_owned(), name.to_owned()])
}

/// The directory of a file's crate, and where the file is in it.
fn crate_of(file: &str) -> Option<(&str, &str)> {
    let below = if file.starts_with("crates/") {
        "crates/".len()
    } else if file.starts_with("simtest/") {
        0
    } else {
        return None;
    };
    let end = below + file[below..].find('/')?;
    Some((&file[..end], &file[end + 1..]))
}

/// The fuzz targets, where cargo-fuzz is installed; says so where it is not.
fn fuzz_targets(tree: &Tree) -> Vec<String> {
    let targets: Vec<String> = tree
        .with_extension("rs")
        .filter(|file| file.starts_with("fuzz/fuzz_targets/"))
        .filter_map(|file| Path::new(file).file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    if !targets.is_empty() && answer("cargo-fuzz", &["--version"]).is_none() {
        println!(
            "soak: fuzz: skipped, cargo-fuzz is not installed (cargo install --locked cargo-fuzz)"
        );
        return Vec::new();
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_crates_and_of_the_whole_system_are_found() {
        assert_eq!(
            crate_of("crates/a/src/b/c.rs"),
            Some(("crates/a", "src/b/c.rs"))
        );
        assert_eq!(
            crate_of("simtest/tests/a.rs"),
            Some(("simtest", "tests/a.rs"))
        );
        assert_eq!(crate_of("xtask/src/soak.rs"), None);
    }

    #[test]
    fn a_file_is_run_with_the_target_that_has_it() {
        let target = |inside: &str| target_of(inside, |path| path == "tests/whole/main.rs");
        assert_eq!(target("src/a.rs"), ["--lib"]);
        assert_eq!(target("tests/a.rs"), ["--test", "a"]);
        assert_eq!(target("tests/whole/b.rs"), ["--test", "whole"]);
        assert!(target("tests/common/c.rs").is_empty());
    }
}
