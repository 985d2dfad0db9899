//! Runs an experiment and writes down what was judged: `experiments/results/NAME.json`, and the pages made of it.
//!
//! ```text
//! tanada-lab experiment run NAME --json --resume FILE -> rows with a verdict + date, commit, machine -> record -> pages
//! ```
//!
//! An interrupted run goes on where it was when the same command is typed again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::record::{commit, loads, machine};
use crate::shell::{answer, show};
use crate::tidy::experiments::{self, RESULTS};
use crate::tidy::tree::{Tree, project_root};

/// What makes a run less than a whole one.
const PARTS: [&str; 3] = ["--quick", "--cases", "--methods"];

/// Runs the experiment `name` and writes its record and the pages anew.
///
/// # Errors
/// If it cannot be run, or a file not be written.
pub fn record(name: &str, args: &[String]) -> Result<()> {
    if let Some(part) = part_of(args) {
        anyhow::bail!(
            "cannot record `{name}` with `{part}`: a record is of a whole run; leave it out"
        );
    }
    let root = project_root();
    let commit = commit();
    anyhow::ensure!(
        !commit.as_ref().is_some_and(|it| it.ends_with('+')),
        "cannot record `{name}`: files differ from the commit that the record would name; commit them first"
    );
    // Another program's runs are not these.
    let of = commit.as_deref().unwrap_or("unknown");
    let journal = root
        .join("target")
        .join(format!("experiment-{name}-{of}.journal"));
    let mut command = runs(name, args, &root);
    if name == "truth" {
        build_daemon(&root)?;
    }
    let resumes = name != "predict";
    if resumes {
        command.arg("--resume").arg(&journal);
    }
    let load = loads(&fs::read_to_string("/proc/loadavg").unwrap_or_default());
    let shown = show(&command);
    let out = command
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(out.status.success(), "`{shown}` failed ({})", out.status);
    let rows: Value = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("`{shown}` printed no JSON"))?;
    let typed: Vec<&str> = ["tanada", "experiment", "run", name]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    let record = json!({
        "experiment": name,
        "command": typed.join(" "),
        "date": answer("date", &["-u", "+%F"]).map(|it| it.trim().to_owned()),
        "commit": commit,
        "machine": machine(&root.display().to_string()),
        "load": load,
        "rows": judged(&rows),
    });
    save(&root, name, &record)?;
    if resumes {
        // The next run is another one.
        fs::remove_file(&journal).ok();
    }
    experiments::write(&Tree::of_project()?)
}

/// The option among `args` that makes the run less than a whole one.
fn part_of(args: &[String]) -> Option<&str> {
    let option = |arg: &String| {
        PARTS
            .iter()
            .find(|part| arg.split('=').next() == Some(*part))
    };
    args.iter().find_map(option).copied()
}

/// What runs the experiment `name`.
fn runs(name: &str, args: &[String], root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command
        .args([
            "run",
            "--release",
            "-q",
            "-p",
            "lab",
            "--",
            "experiment",
            "run",
            name,
            "--json",
        ])
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

/// Writes the record.
fn save(root: &Path, name: &str, record: &Value) -> Result<()> {
    let folder = root.join(RESULTS);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Builds the daemon beside the laboratory: it is what is measured.
fn build_daemon(root: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "-q", "-p", "tanada"]);
    command.current_dir(root).stdin(Stdio::null());
    let shown = show(&command);
    let done = command.status();
    let done = done.with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(done.success(), "`{shown}` failed ({done})");
    Ok(())
}

/// The rows that have a verdict.
fn judged(rows: &Value) -> Vec<&Value> {
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    rows.iter()
        .filter(|row| row["verdict"].is_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_experiment_is_seen_however_it_is_asked_for() {
        let part = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            part_of(&args).map(str::to_owned)
        };
        assert_eq!(part(&["--slower", "100", "--seed=2"]), None);
        for args in [&["--slower=4", "--cases=SCM1"][..], &["--cases", "SCM1"]] {
            assert_eq!(part(args).as_deref(), Some("--cases"));
        }
        assert_eq!(part(&["--quick"]).as_deref(), Some("--quick"));
    }

    #[test]
    fn only_what_was_judged_is_written_down() {
        let rows = json!([{"case": "a", "verdict": null}, {"case": "b", "verdict": "holds"}]);
        let judged = judged(&rows);
        assert_eq!(judged.len(), 1);
        assert_eq!(judged[0]["case"], "b");
    }
}
