//! Do reservations over a cluster keep what they promise, with real daemons in real time?
//!
//! ```text
//! etcd <- three nodes, each a store on a modelled disk of 60 MB/s <- NBD clients, `tanada reservation`
//! case -> rows: what was measured, what the bar is, whether it holds
//! ```
//!
//! Modelled: the disks. Real: time, processes, sockets, etcd.
//!
//! `cargo xtask accept [CASE...] [--json]`; without a case all of them.

// An acceptance run reads the clock; that is what it is for.
#![allow(clippy::disallowed_methods)]

#[path = "../../../../benches/figures.rs"]
mod figures;

mod book;
mod change;
mod crash;
mod daemon;
mod hybrid;
mod limits;
mod load;
mod nodes;
mod windows;

use std::error::Error;
use std::process::ExitCode;

use figures::Results;

/// What a case does with a fresh cluster.
type Case = fn(&mut Report) -> Result<(), Box<dyn Error>>;

const CASES: [(&str, &str, Case); 11] = [
    (
        "cluster",
        "a volume keeps its windows beside 16 greedy clients",
        windows::cluster,
    ),
    ("loss", "the same, and a node is killed", windows::loss),
    (
        "hybrid",
        "cold reads of a hybrid keep their rate",
        hybrid::hybrid,
    ),
    (
        "amend",
        "renewals under load break no window",
        change::amend,
    ),
    (
        "cut",
        "the last byte comes within a second of the end",
        change::cut,
    ),
    (
        "crash",
        "a killed coordinator leaves no part without a record",
        crash::crash,
    ),
    (
        "quota",
        "64 at once never get more than the quota",
        limits::quota,
    ),
    ("caps", "caps of exports are kept", limits::caps),
    (
        "scope",
        "a capability shows nothing of virtual disks",
        limits::scope,
    ),
    ("offer", "what is offered is granted", limits::offer),
    ("book", "three parts with full calendars", book::book),
];

/// Rows of all cases.
pub struct Report {
    figures: Results,
    failed: usize,
}

impl Report {
    /// What was measured of a case, and whether that is within its bar.
    pub fn row(
        &mut self,
        (case, metric, unit): (&str, &str, &str),
        runs: &[f64],
        bar: &str,
        holds: bool,
    ) {
        self.figure((case, metric, unit), runs);
        let verdict = if holds { "holds" } else { "FALLS SHORT" };
        self.say(&format!("{:<9}bar {bar}: {verdict}", ""));
        self.failed += usize::from(!holds);
    }

    /// What a row stands beside; there is no bar for it.
    pub fn figure(&mut self, (case, metric, unit): (&str, &str, &str), runs: &[f64]) {
        let figure: Vec<String> = runs.iter().map(|it| format!("{it:.3}")).collect();
        self.figures.say(&format!(
            "{case:<9}{metric:<44}{:>22} {unit}",
            figure.join(" ")
        ));
        self.figures
            .add((case, "tanada", metric, unit), runs, "emulated");
    }

    /// A line for people.
    pub fn say(&self, line: &str) {
        self.figures.say(line);
    }
}

fn main() -> ExitCode {
    let words = std::env::args().skip(1).filter(|it| !it.starts_with('-'));
    let wanted: Vec<String> = words.collect();
    let unknown = wanted
        .iter()
        .find(|it| CASES.iter().all(|(name, ..)| name != it));
    if let Some(unknown) = unknown {
        let known: Vec<&str> = CASES.iter().map(|(name, ..)| *name).collect();
        eprintln!(
            "accept: there is no case {unknown}; the cases are {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    let mut report = Report {
        figures: Results::new("accept"),
        failed: 0,
    };
    for (name, about, case) in CASES {
        if !wanted.is_empty() && wanted.iter().all(|it| it != name) {
            continue;
        }
        report.say(&format!("{name}: {about}"));
        if let Err(error) = case(&mut report) {
            eprintln!("accept: {name}: {error}");
            report.failed += 1;
        }
    }
    let failed = report.failed;
    report.figures.finish();
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
