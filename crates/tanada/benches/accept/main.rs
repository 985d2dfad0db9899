//! Do reservations over a cluster keep what they promise, with real daemons in real time?
//!
//! ```text
//! etcd <- three nodes, each a store on a modelled disk of 60 MB/s <- NBD clients, stores' clients, HTTP
//! case -> rows: what was measured, what the bar is, whether it holds
//! ```
//!
//! Modelled: the disks, where a row is `emulated`. Real: time, processes, sockets, etcd.
//!
//! `cargo xtask accept [CASE...] [--full] [--runs N] [--json]`; without a case all of them.

// An acceptance run reads the clock; that is what it is for.
#![allow(clippy::disallowed_methods)]

#[path = "../../../../benches/figures.rs"]
mod figures;

mod book;
mod caps;
mod change;
mod crash;
mod cut;
mod daemon;
mod etcd;
mod http;
mod hybrid;
mod limits;
mod load;
mod net;
mod nodes;
mod offer;
mod report;
mod s3;
mod scope;
mod signed;
mod tls;
mod windows;

use std::error::Error;
use std::process::ExitCode;

use report::Report;

/// What is measured under one name.
struct Case {
    name: &'static str,
    about: &'static str,
    /// `emulated` where a model is the disk, else `real`.
    devices: &'static str,
    /// Does it count windows? Then `--runs` repeats it.
    windows: bool,
    run: fn(&mut Report) -> Result<(), Box<dyn Error>>,
}

const CASES: [Case; 16] = [
    Case {
        name: "cluster",
        about: "a volume keeps its windows beside 16 greedy clients",
        devices: "emulated",
        windows: true,
        run: windows::cluster,
    },
    Case {
        name: "loss",
        about: "the same, and a node is killed",
        devices: "emulated",
        windows: true,
        run: windows::loss,
    },
    Case {
        name: "hybrid",
        about: "cold reads of a hybrid keep their rate",
        devices: "emulated",
        windows: true,
        run: hybrid::hybrid,
    },
    Case {
        name: "fair",
        about: "one client of an account beside 16 of another",
        devices: "emulated",
        windows: true,
        run: windows::fair,
    },
    Case {
        name: "amend",
        about: "renewals under load break no window",
        devices: "emulated",
        windows: true,
        run: change::amend,
    },
    Case {
        name: "cut",
        about: "the last byte comes within a second of the end",
        devices: "emulated",
        windows: false,
        run: cut::cut,
    },
    Case {
        name: "crash",
        about: "a killed coordinator leaves no part without a record",
        devices: "real",
        windows: false,
        run: crash::crash,
    },
    Case {
        name: "quota",
        about: "64 at once never get more than the quota",
        devices: "real",
        windows: false,
        run: limits::quota,
    },
    Case {
        name: "tls",
        about: "a revoked node is cut off",
        devices: "real",
        windows: false,
        run: tls::tls,
    },
    Case {
        name: "net",
        about: "a booking of a link keeps its windows beside 16 greedy clients",
        devices: "real",
        windows: true,
        run: net::net,
    },
    Case {
        name: "caps",
        about: "caps of exports are kept",
        devices: "real",
        windows: true,
        run: caps::caps,
    },
    Case {
        name: "scope",
        about: "a capability shows nothing of virtual disks",
        devices: "emulated",
        windows: false,
        run: scope::scope,
    },
    Case {
        name: "offer",
        about: "what is offered is granted, and is the best there is",
        devices: "emulated",
        windows: false,
        run: offer::offer,
    },
    Case {
        name: "book",
        about: "three parts with full calendars",
        devices: "real",
        windows: false,
        run: book::book,
    },
    Case {
        name: "s3-booked",
        about: "an access key under a reservation keeps its windows beside 16 greedy ones",
        devices: "emulated",
        windows: true,
        run: s3::booked,
    },
    Case {
        name: "s3-crash",
        about: "a gateway that is killed amid puts loses and tears nothing",
        devices: "real",
        windows: false,
        run: s3::crash,
    },
];

/// What is asked for here and is carried out elsewhere, or not at all.
const ELSEWHERE: [(&str, &str); 4] = [
    (
        "rights",
        "each route by each caller is `cargo test -p tanada rights`",
    ),
    (
        "slurm",
        "jobs under Slurm are `cargo test -p tanada --test slurm`",
    ),
    (
        "s3",
        "Ceph's tests against a gateway are run by hand: docs/s3.md",
    ),
    ("python", "there is no library for Python yet"),
];

/// What was asked for on the command line.
struct Wanted {
    cases: Vec<String>,
    full: bool,
    runs: usize,
}

impl Wanted {
    /// # Errors
    /// A word that is no case, or a number that is none, in words for people.
    fn of(words: impl Iterator<Item = String>) -> Result<Wanted, String> {
        let (mut cases, mut full, mut runs) = (Vec::new(), false, 1);
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            match &*word {
                "--full" => full = true,
                "--runs" => {
                    let number = words.next().and_then(|it| it.parse().ok());
                    runs = number.filter(|it| *it > 0).ok_or("--runs takes a number")?;
                }
                // Of `cargo bench`, and of the figures.
                "--json" | "--bench" => {}
                name if CASES.iter().any(|it| it.name == name) => cases.push(word),
                name => return Err(unknown(name)),
            }
        }
        Ok(Wanted { cases, full, runs })
    }
}

/// Where a case is that is not here.
fn unknown(name: &str) -> String {
    if let Some((_, how)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return format!("{name} is no case here: {how}");
    }
    let known: Vec<&str> = CASES.iter().map(|it| it.name).collect();
    let known = known.join(", ");
    format!("there is no case {name}; the cases are {known}, the options --full, --runs N, --json")
}

fn main() -> ExitCode {
    let wanted = match Wanted::of(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("accept: {why}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::new(wanted.full);
    for case in CASES {
        if !wanted.cases.is_empty() && wanted.cases.iter().all(|it| it != case.name) {
            continue;
        }
        report.begin(case.name, case.devices);
        report.say(&format!("{}: {}", case.name, case.about));
        for _ in 0..if case.windows { wanted.runs } else { 1 } {
            if let Err(error) = (case.run)(&mut report) {
                report.broke(&error);
            }
        }
    }
    let failed = report.finish();
    for what in &failed {
        eprintln!("accept: falls short: {what}");
    }
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
