//! Long randomized runs: the same tests, other seeds, for as long as asked.
//!
//! ```text
//! every test file that reads TANADA_SEEDS -> build once -> rounds of fresh seeds until time is up
//! ```
//!
//! The convention for a randomized test:
//!
//! - `TANADA_SEEDS=N`: how many seeds to run; without it a number that suits every day.
//! - `TANADA_SEED_FIRST=S`: the first of them (0 without it), so each round sees other seeds.
//! - `TANADA_SEED=S`: run this one alone. A failing test prints this with the command to type.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::shell::{answer, cargo, run};
use crate::tree::Tree;

/// A test target whose tests read `TANADA_SEEDS`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    package: String,
    /// `--test NAME`, `--lib`, or nothing for all of the package's tests.
    target: Vec<String>,
}

/// Runs rounds of `seeds` seeds over every randomized suite, and the fuzz targets, for `minutes`.
///
/// # Errors
/// At the first failing round; the test has printed how to replay it.
pub fn soak(minutes: u64, seeds: u64, first: u64) -> Result<()> {
    let tree = Tree::of_project()?;
    let suites = suites(&tree)?;
    if suites.is_empty() {
        bail!("no test reads TANADA_SEEDS: there is nothing to soak");
    }
    let fuzz = fuzz_targets(&tree);
    let end = now() + Duration::from_secs(minutes * 60);
    let mut next = first;
    let mut rounds = 0_u64;
    while rounds == 0 || now() < end {
        for suite in &suites {
            println!(
                "soak: {} {}: seeds {next}..{}",
                suite.package,
                suite.target.join(" "),
                next + seeds
            );
            run(cargo()
                .args(["test", "--release", "--quiet", "-p", &suite.package])
                .args(&suite.target)
                .env("TANADA_SEEDS", seeds.to_string())
                .env("TANADA_SEED_FIRST", next.to_string()))?;
        }
        for target in &fuzz {
            println!("soak: fuzz {target}: 60 s");
            // Fuzzing needs nightly, so rustup's own cargo chooses, not the one that started us.
            run(Command::new("cargo").current_dir(&tree.root).args([
                "+nightly",
                "fuzz",
                "run",
                target,
                "--",
                "-max_total_time=60",
            ]))?;
        }
        next += seeds;
        rounds += 1;
    }
    println!("soak: {rounds} rounds, seeds {first}..{next}, no failure");
    Ok(())
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
        let Some((dir, inside)) = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.split_once('/'))
        else {
            continue;
        };
        if !tree
            .text(file)
            .unwrap_or_default()
            .contains("\"TANADA_SEEDS\"")
        {
            continue;
        }
        let target = match inside.strip_prefix("tests/") {
            Some(test) => match test.strip_suffix(".rs") {
                Some(name) if !name.contains('/') => vec!["--test".to_owned(), name.to_owned()],
                // A helper that several test files share: run them all.
                _ => Vec::new(),
            },
            None => vec!["--lib".to_owned()],
        };
        let manifest = tree
            .text(&format!("crates/{dir}/Cargo.toml"))
            .unwrap_or_default();
        let manifest: toml::Table = toml::from_str(&manifest)?;
        let package = manifest["package"]["name"].as_str().unwrap_or_default();
        suites.push(Suite {
            package: package.to_owned(),
            target,
        });
    }
    suites.sort();
    suites.dedup();
    Ok(suites)
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
