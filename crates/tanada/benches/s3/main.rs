//! What does the S3 gateway cost beside the store it stands on, and beside versitygw?
//!
//! ```text
//! cargo bench -p tanada --bench s3 -- [--dir DIR] [--json] [--runs N] [--quick] [--only CASE]
//!
//! whole   one GET of 1 GiB; the store's own client, which reads as many bytes of the same store, eight pieces of 1 MiB at
//!         a time, over the loopback, too
//! small   PUT and GET of 4 KiB over 1 and 16 connections
//! large   GET of 8 MiB over 1 and 16 connections, each object once
//! list    100,000 keys, 1,000 a page, in folders of 1,000
//! ```
//!
//! Beside stands versitygw over a folder of the same file system. It makes nothing durable: what it has answered lies in the
//! page cache. In the second case it writes to a folder with the attribute `S` (`chattr +S`) as well, where the file system
//! makes each write durable before it returns, as the gateway does. What it reads of large objects comes from the disk
//! (their pages are dropped before) as the gateway's does, and once more from the page cache, which the gateway goes around.
//!
//! One client for both: signed URLs (Signature Version 4) over plain sockets, a thread for each connection, on the same
//! machine. Each run takes one method after the other, every second run in the other order. Figures are the median of the
//! runs with the lowest and the highest; a ratio is one of figures of the same run. Seconds are by the clock, CPU is that of
//! the server's whole process (`/proc/PID/stat`); work that the kernel does later for either is in neither.
#![allow(clippy::print_stdout)]
// A benchmark is about real time and has threads of its own.
#![allow(clippy::disallowed_methods)]

#[path = "../accept/daemon.rs"]
mod daemon;
#[path = "../../../../benches/figures.rs"]
mod figures;
#[path = "../accept/signed.rs"]
mod signed;

mod cases;
mod load;
mod rounds;
mod servers;
mod versitygw;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use cases::{Case, Size};
use figures::Results;
use rounds::Rounds;
use servers::Servers;

/// What the command line asks for.
struct Options {
    dir: PathBuf,
    runs: usize,
    quick: bool,
    only: Option<Case>,
}

impl Options {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            dir: PathBuf::from("."),
            runs: 5,
            quick: false,
            only: None,
        };
        let mut runs = None;
        while let Some(word) = words.next() {
            match &*word {
                // Of `cargo bench`, and of the figures.
                "--json" | "--bench" => {}
                "--quick" => options.quick = true,
                "--runs" => {
                    let number = words.next().and_then(|it| it.parse().ok());
                    runs = Some(number.filter(|it| *it > 0).ok_or("--runs takes a number")?);
                }
                "--dir" => options.dir = words.next().ok_or("--dir takes a folder")?.into(),
                "--only" => {
                    let name = words.next().unwrap_or_default();
                    let case = Case::ALL.into_iter().find(|it| it.name() == name);
                    options.only = Some(case.ok_or("--only takes whole, small, large or list")?);
                }
                other => {
                    return Err(format!(
                        "unknown argument '{other}'; there are --dir DIR, --json, --quick, --runs N, --only CASE"
                    ));
                }
            }
        }
        options.runs = runs.unwrap_or(if options.quick { 3 } else { 5 });
        Ok(options)
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let size = Size::of(options.quick);
    let cases: Vec<Case> = match options.only {
        Some(case) => vec![case],
        None => Case::ALL.into(),
    };
    let dir = tempfile::Builder::new()
        .prefix("tanada-bench-")
        .tempdir_in(&options.dir)?;
    let servers = Servers::start(&dir.path().canonicalize()?)?;
    let mut results = Results::new("s3");
    for case in &cases {
        cases::fill(*case, &servers, &size)?;
    }
    let mut rounds = Rounds::default();
    for nth in 0..options.runs {
        for case in &cases {
            cases::round(*case, &servers, &size, nth, &mut rounds)?;
        }
    }
    rounds.show(&mut results);
    results.finish();
    Ok(())
}

fn main() -> ExitCode {
    let options = match Options::of(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("bench s3: {why}");
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench s3: {error}");
            ExitCode::FAILURE
        }
    }
}
