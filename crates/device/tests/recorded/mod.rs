//! Digests of seeded runs beside the recorded ones: what only moves code changes none of them.
//!
//! A change of behaviour records them anew with `TANADA_RECORD=1`, and its commit says so.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// How many seeds a suite records.
pub const SEEDS: u64 = 64;

/// The digests of one run, by what they are of.
pub type Digests = Vec<(&'static str, u64)>;

/// Compares what `run` gives for each seed with what `file` has; `command` runs this test.
pub fn compare(file: &Path, command: &str, run: impl Fn(u64) -> Digests) {
    let again = format!("TANADA_RECORD=1 {command}");
    let mut text = format!(
        "# What {SEEDS} seeds did. A change that only moves code changes nothing here.\n\
         # After a change of behaviour: {again}\n"
    );
    for seed in 0..SEEDS {
        let _ = write!(text, "seed {seed}");
        for (what, digest) in run(seed) {
            let _ = write!(text, " {what} {digest:016x}");
        }
        text.push('\n');
    }
    if std::env::var_os("TANADA_RECORD").is_some() {
        fs::write(file, text).expect("the record can be written");
        return;
    }
    let recorded = fs::read_to_string(file).unwrap_or_default();
    let differ: Vec<(&str, Option<&str>)> = text
        .lines()
        .enumerate()
        .map(|(i, line)| (line, recorded.lines().nth(i)))
        .filter(|(line, recorded)| Some(*line) != *recorded)
        .collect();
    if let Some((now, before)) = differ.first() {
        panic!(
            "{} of {SEEDS} seeds ran otherwise than {} has it, the first now: {now}; recorded: {}\n\
             if behaviour was to change, record it anew: {again}",
            differ.len(),
            file.display(),
            before.unwrap_or("nothing")
        );
    }
}
