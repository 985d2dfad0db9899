//! How many requests of a trace does the whole-stack simulation do in a second of one core?
//!
//! ```text
//! cargo bench -p sim --bench sim-run -- [--json] [--runs N] [--quick] [--case NAME]
//! ```
//!
//! The stack is that of the built-in configuration (`hdd-7200-sata`, 64 GiB, behind an `ssd-sata-mlc`, 8 GiB, as a
//! cache with default settings), or the disk alone; requests are 4 KiB unless said otherwise and come from memory.
//! Rates are the median of the runs with the slowest and the fastest; they count the time on the processor
//! (`/proc/thread-self/schedstat`), so that waiting behind other processes does not count; where the kernel does
//! not report it, the time on the clock. Devices are modelled, the rate is measured.
#![allow(clippy::print_stdout)]

#[path = "../../../benches/stopwatch.rs"]
mod stopwatch;

use std::process::ExitCode;

use base::{Bytes, Nanos};
use device::model::Spec;
use sim::run::{Made, Modelled, Outcome, Pace, Replay, Stack, run};
use stopwatch::Stopwatch;
use trace::{Op, Request, Requests, TraceError};

const SEED: u64 = 20_261_120;
/// Requests per CPU-second asked for.
const AIM: f64 = 0.5e6;

/// What comes.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    about: &'static str,
    cache: bool,
    pace: Pace,
    requests: usize,
    /// Pages in use; Zipf(1.0) among them, or all alike.
    pages: u64,
    zipf: bool,
    /// Of 100.
    reads: u64,
    size: Bytes,
    /// Between two of them in an open loop.
    gap: Nanos,
}

const CLOSED: Pace = Pace::Closed { depth: 32 };
const OPEN: Pace = Pace::Open { speed: 1.0 };
const PAGE: Bytes = Bytes::kib(4);

const CASES: [Case; 7] = [
    case(
        "hits",
        "reads, nearly all from the cache",
        true,
        CLOSED,
        1_000_000,
        50_000,
        true,
        100,
        PAGE,
        0,
    ),
    case(
        "hits-open",
        "the same in an open loop",
        true,
        OPEN,
        1_000_000,
        50_000,
        true,
        100,
        PAGE,
        500,
    ),
    case(
        "hits-64k",
        "the same in requests of 64 KiB",
        true,
        CLOSED,
        200_000,
        10_000,
        true,
        100,
        Bytes::kib(64),
        0,
    ),
    case(
        "mixed",
        "7 reads for 3 writes, much of it cached",
        true,
        CLOSED,
        500_000,
        200_000,
        true,
        70,
        PAGE,
        0,
    ),
    case(
        "misses",
        "reads all over the disk",
        true,
        CLOSED,
        300_000,
        16 << 20,
        false,
        100,
        PAGE,
        0,
    ),
    case(
        "writes",
        "writes, some pages again and again",
        true,
        CLOSED,
        500_000,
        500_000,
        true,
        0,
        PAGE,
        0,
    ),
    case(
        "disk",
        "reads all over the disk, no cache",
        false,
        CLOSED,
        300_000,
        16 << 20,
        false,
        100,
        PAGE,
        0,
    ),
];

#[allow(clippy::too_many_arguments)] // A row of the table above.
const fn case(
    name: &'static str,
    about: &'static str,
    cache: bool,
    pace: Pace,
    requests: usize,
    pages: u64,
    zipf: bool,
    reads: u64,
    size: Bytes,
    gap_us: u64,
) -> Case {
    Case {
        name,
        about,
        cache,
        pace,
        requests,
        pages,
        zipf,
        reads,
        size,
        gap: Nanos::micros(gap_us),
    }
}

fn requests(case: &Case) -> Vec<Request> {
    let mut rng = env::Rng::from_seed(SEED);
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=if case.zipf { case.pages } else { 0 })
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let places = Bytes::gib(64).0 / case.size.0;
    let mut request = |n: usize| {
        let place = match case.zipf {
            true => {
                let at = rng.unit() * sum;
                let rank = cumulative.partition_point(|&up_to| up_to < at) as u64;
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % places
            }
            false => rng.below(places),
        };
        Request {
            at: case.gap * n as u64,
            offset: case.size * place,
            size: case.size,
            device: 0,
            op: if rng.below(100) < case.reads {
                Op::Read
            } else {
                Op::Write
            },
        }
    };
    (0..case.requests).map(&mut request).collect()
}

/// Requests out of memory.
struct Given<'a>(&'a [Request]);

impl Requests for Given<'_> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        let (now, later) = self.0.split_at(self.0.len().min(4096));
        batch.extend_from_slice(now);
        self.0 = later;
        Ok(!batch.is_empty())
    }
}

fn stack(cache: bool) -> Stack {
    let hdd = Spec::find("hdd-7200-sata").expect("a model of the catalogue");
    let mut stack = Stack::bare("hdd0", &hdd, Bytes::gib(64));
    if cache {
        stack.devices.push(Modelled {
            name: "ssd0".to_owned(),
            spec: Spec::find("ssd-sata-mlc").expect("a model of the catalogue"),
            size: Bytes::gib(8),
        });
        stack.hybrids.push(Made {
            settings: hybrid::Settings {
                name: "vol0".to_owned(),
                ..hybrid::Settings::default()
            },
            slow: "hdd0".to_owned(),
            fast: "ssd0".to_owned(),
        });
        stack.volume = "vol0".to_owned();
    }
    stack
}

struct Row {
    case: Case,
    /// Requests per CPU-second.
    rates: Vec<f64>,
    outcome: Outcome,
}

impl Row {
    fn median(&self) -> f64 {
        self.rates[self.rates.len() / 2]
    }

    fn hit_share(&self) -> f64 {
        let cache = self.outcome.caches.first();
        cache.and_then(|cache| cache.hit_share).unwrap_or(0.0)
    }
}

fn measure(case: Case, runs: usize, part: usize) -> Row {
    let case = Case {
        requests: case.requests / part,
        ..case
    };
    let requests = requests(&case);
    let stack = stack(case.cache);
    let replay = Replay {
        pace: case.pace,
        ..Replay::default()
    };
    let mut rates = Vec::new();
    let mut last = None;
    for _ in 0..runs {
        let watch = Stopwatch::start();
        let outcome = run(&stack, &mut Given(&requests), &replay).expect("models do not fail");
        rates.push(requests.len() as f64 / watch.seconds());
        last = Some(outcome);
    }
    rates.sort_by(f64::total_cmp);
    Row {
        case,
        rates,
        outcome: last.expect("at least one run"),
    }
}

fn json(rows: &[Row]) -> String {
    let line = |row: &Row| {
        format!(
            "{{\"experiment\":\"bench-sim-run\",\"case\":\"{}\",\"method\":\"{}\",\"metric\":\"rate\",\
             \"unit\":\"requests/CPU-s\",\"ours\":{:.0},\"low\":{:.0},\"high\":{:.0},\"aim\":{AIM:.0},\
             \"hit_share\":{:.4},\"requests\":{},\"runs\":{},\"seed\":{SEED},\"devices\":\"real\"}}",
            row.case.name,
            if row.case.cache { "hdd+ssd" } else { "hdd" },
            row.median(),
            row.rates[0],
            row.rates[row.rates.len() - 1],
            row.hit_share(),
            row.case.requests,
            row.rates.len(),
        )
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    format!("[{}]", lines.join(",\n "))
}

fn main() -> ExitCode {
    let (mut as_json, mut runs, mut part, mut chosen) = (false, 5, 1, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => as_json = true,
            "--quick" => (runs, part) = (3, 5),
            "--bench" => {}
            "--case" => chosen = args.next(),
            "--runs" => match args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(n) => runs = n,
                None => {
                    eprintln!("--runs: a number of runs, such as --runs 5");
                    return ExitCode::from(2);
                }
            },
            other => {
                eprintln!(
                    "there is no option {other}; there are --json, --runs N, --quick, --case NAME"
                );
                return ExitCode::from(2);
            }
        }
    }
    let is_chosen = |case: &&Case| chosen.as_ref().is_none_or(|name| name == case.name);
    let mut rows = Vec::new();
    if !as_json {
        println!(
            "{:<10} {:>7} {:>26} {:>9}  what",
            "case", "hits", "k requests per CPU-second", "aim"
        );
    }
    for case in CASES.iter().filter(is_chosen) {
        let row = measure(*case, runs, part);
        if !as_json {
            println!(
                "{:<10} {:>5.1} % {:>26} {:>9}  {}",
                case.name,
                row.hit_share() * 100.0,
                format!(
                    "{:.0} ({:.0} - {:.0})",
                    row.median() / 1e3,
                    row.rates[0] / 1e3,
                    row.rates[row.rates.len() - 1] / 1e3
                ),
                AIM / 1e3,
                case.about
            );
        }
        rows.push(row);
    }
    if as_json {
        println!("{}", json(&rows));
    }
    ExitCode::SUCCESS
}
