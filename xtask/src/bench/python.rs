//! What does it cost to call the simulator from Python, beside the command line?
//!
//! ```text
//! wheel (maturin, release) -> a folder -> python -c 'tanada.simulate(...)' --+
//! tanada, tanada-lab (release)         -> tanada sim cache                  -+-> seconds, CPU, the same result
//! ```
//!
//! Both read one trace of 10 M requests from its file, run one policy at one size, and end: the start of the interpreter and
//! of the program count. They take turns, every second round in the other order; a ratio is of one round. CPU is user and
//! system time of the process from the kernel's account of ended children.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};

use crate::shell::{built_program, cargo, run as run_command, show};
use crate::tidy::tree::project_root;

/// What is run; the size is of the different blocks.
const POLICIES: [&str; 2] = ["lru", "s3-fifo"];
const SIZE: &str = "1%";
/// From Python, at most so much more.
const AIM_AT_MOST: f64 = 1.2;
const SEED: &str = "20261128";

/// The two, as the rows call them.
const PYTHON: &str = "tanada.simulate";
const COMMAND: &str = "tanada sim cache";

/// What `cargo xtask bench python` takes.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench python", no_binary_name = true)]
struct Options {
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests of the trace
    #[arg(long, default_value_t = 10_000_000)]
    requests: u64,
    /// Three rounds of a million requests
    #[arg(long)]
    quick: bool,
    /// Where the trace and the wheel go
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One array of rows on standard output instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the comparison.
///
/// # Errors
/// If something cannot be built or run, the two differ, or an option is not understood.
pub fn run(args: &[String]) -> Result<()> {
    let mut options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            return Ok(());
        }
        Err(error) => bail!("{error}"),
    };
    if options.quick {
        (options.rounds, options.requests) = (3, 1_000_000);
    }
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    let dir = match &options.dir {
        Some(dir) => dir.clone(),
        None => project_root().join("target"),
    };
    let dir = tempfile::Builder::new()
        .prefix("bench-python-")
        .tempdir_in(&dir)
        .with_context(|| format!("cannot make a folder in {}", dir.display()))?;
    let both = Both::build(dir.path(), options.requests)?;
    let mut samples = vec![Vec::new(); POLICIES.len()];
    for round in 0..options.rounds {
        for (policy, samples) in POLICIES.iter().zip(&mut samples) {
            samples.push(both.round(policy, round)?);
        }
    }
    let case = format!("{} M requests", options.requests as f64 / 1e6);
    let rows: Vec<Value> = POLICIES
        .iter()
        .zip(&samples)
        .flat_map(|(policy, samples)| rows(&format!("{case}, {policy} at {SIZE}"), samples))
        .collect();
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&rows)?),
        false => rows.iter().for_each(print),
    }
    Ok(())
}

/// Seconds of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spent {
    wall: f64,
    cpu: f64,
}

/// One round of one policy: from Python, on the command line.
type Sample = [Spent; 2];

/// What is compared, and where.
struct Both {
    tanada: PathBuf,
    python: PathBuf,
    installed: PathBuf,
    trace: PathBuf,
}

impl Both {
    fn build(dir: &Path, requests: u64) -> Result<Both> {
        let python = project_root().join("target/python/bin/python");
        ensure!(
            python.is_file(),
            "there is no {}; run `cargo xtask setup`",
            python.display()
        );
        eprintln!("bench python: building tanada, tanada-lab and the wheel in release mode");
        let programs = ["-p", "tanada", "-p", "lab"];
        run_command(
            cargo()
                .args(["build", "--release", "--quiet"])
                .args(programs),
        )?;
        let (wheels, installed) = (dir.join("wheels"), dir.join("installed"));
        let mut maturin = module(
            &python,
            &["maturin", "build", "--release", "--locked", "--quiet"],
        );
        maturin.args([
            "--manifest-path",
            "crates/client-py/Cargo.toml",
            "--interpreter",
        ]);
        quiet(maturin.arg(&python).arg("--out").arg(&wheels))?;
        let wheel = fs::read_dir(&wheels)?
            .next()
            .context("no wheel was built")??;
        let pip = [
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--target",
        ];
        quiet(module(&python, &pip).arg(&installed).arg(wheel.path()))?;
        let both = Both {
            tanada: built_program()?,
            python,
            installed,
            trace: dir.join("trace.csv"),
        };
        let count = requests.to_string();
        let mut generate = Command::new(&both.tanada);
        generate.args([
            "trace", "generate", "mixed", "--size", "64GiB", "--seed", SEED,
        ]);
        quiet(generate.args(["--requests", &count, "-o"]).arg(&both.trace))?;
        Ok(both)
    }

    fn round(&self, policy: &str, round: usize) -> Result<Sample> {
        let mut python = Command::new(&self.python);
        python
            .env("PYTHONPATH", &self.installed)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["-c", SIMULATE])
            .arg(&self.trace)
            .args([policy, SIZE]);
        let mut command = Command::new(&self.tanada);
        command.args(["sim", "cache"]).arg(&self.trace);
        command.args(["--policy", policy, "--size", SIZE, "--jobs", "1", "--json"]);
        let (from_python, on_command) = match round % 2 {
            0 => (measured(&mut python)?, measured(&mut command)?),
            _ => {
                let on_command = measured(&mut command)?;
                (measured(&mut python)?, on_command)
            }
        };
        let (here, there) = (misses(&from_python.1)?, misses(&on_command.1)?);
        ensure!(
            here == there,
            "{policy}: {here} misses from Python, {there} on the command line"
        );
        Ok([from_python.0, on_command.0])
    }
}

/// What people write.
const SIMULATE: &str = "import json, sys, tanada; \
                        print(json.dumps([tanada.simulate(*sys.argv[1:]).to_dict()]))";

fn module(python: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.current_dir(project_root()).arg("-m").args(words);
    command
}

/// Our own output is for results.
fn quiet(command: &mut Command) -> Result<()> {
    let command = command.stdin(Stdio::null());
    run_command(command.stdout(Stdio::from(std::io::stderr())))
}

/// Runs it; what it took, and what it printed.
fn measured(command: &mut Command) -> Result<(Spent, String)> {
    let command = command.stdin(Stdio::null());
    // A benchmark is about real time.
    #[allow(clippy::disallowed_methods)]
    let begun = Instant::now();
    let before = children_seconds()?;
    let out = command.output();
    let out = out.with_context(|| format!("cannot start `{}`", show(command)))?;
    let spent = Spent {
        wall: begun.elapsed().as_secs_f64(),
        cpu: children_seconds()? - before,
    };
    ensure!(
        out.status.success(),
        "`{}` failed ({}): {}",
        show(command),
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Ok((spent, String::from_utf8_lossy(&out.stdout).into_owned()))
}

/// Seconds of a processor that ended children of this process have had.
fn children_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let ticks = children_ticks(&text).context("cannot understand /proc/self/stat")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time of waited-for children: the 16th and 17th field, the 14th and 15th behind the name.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The misses of the one row that a simulation prints.
fn misses(text: &str) -> Result<u64> {
    let printed: Value = serde_json::from_str(text).context("a simulation printed no JSON")?;
    let misses = &printed[0]["misses"];
    misses
        .as_u64()
        .with_context(|| format!("a simulation printed no `misses`: {printed}"))
}

/// The figures of a case.
fn rows(case: &str, samples: &[Sample]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (metric, of) in [
        ("time", (|it: Spent| it.wall) as fn(Spent) -> f64),
        ("CPU", |it| it.cpu),
    ] {
        for (nth, method) in [PYTHON, COMMAND].into_iter().enumerate() {
            let runs = samples.iter().map(|it| of(it[nth])).collect();
            rows.push(row((case, method, metric, "s"), runs));
        }
        let ratios = samples.iter().map(|it| of(it[0]) / of(it[1])).collect();
        let mut ratio = row((case, "ratio", metric, "times"), ratios);
        ratio["aim_at_most"] = json!(AIM_AT_MOST);
        rows.push(ratio);
    }
    rows
}

fn row((case, method, metric, unit): (&str, &str, &str, &str), mut runs: Vec<f64>) -> Value {
    runs.sort_by(f64::total_cmp);
    json!({
        "experiment": "bench-python", "case": case, "method": method, "metric": metric, "unit": unit,
        "ours": runs[runs.len() / 2], "low": runs[0], "high": runs[runs.len() - 1],
        "runs": runs.len(), "devices": "real",
    })
}

fn print(row: &Value) {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| row[key].as_f64().unwrap_or_default();
    println!(
        "{:<36} {:<18} {:<6} {:>8.3} ({:.3} - {:.3}) {}",
        text("case"),
        text("method"),
        text("metric"),
        number("ours"),
        number("low"),
        number("high"),
        text("unit")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_is_read_behind_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4 9 8 0 0 11 12 130 14 20 0 1 0 5";
        assert_eq!(children_ticks(stat), Some(144));
        assert_eq!(children_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_ratio_is_of_one_round_and_has_its_aim() {
        let spent = |wall, cpu| Spent { wall, cpu };
        let samples = [
            [spent(3.0, 2.0), spent(2.0, 1.0)],
            [spent(2.0, 1.0), spent(2.0, 1.0)],
            [spent(9.0, 3.0), spent(3.0, 1.0)],
        ];
        let rows = rows("a", &samples);
        let ratios = rows.iter().filter(|it| it["method"] == "ratio");
        let ratios: Vec<f64> = ratios.filter_map(|it| it["ours"].as_f64()).collect();
        assert_eq!(ratios, [1.5, 2.0]);
        assert!(
            rows.iter()
                .all(|it| it["aim_at_most"].is_null() || it["aim_at_most"] == 1.2)
        );
    }

    #[test]
    fn what_is_no_row_of_a_simulation_is_an_error() {
        assert_eq!(misses("[{\"misses\": 7}]").ok(), Some(7));
        assert!(misses("{}").is_err() && misses("no").is_err());
    }
}
