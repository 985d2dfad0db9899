//! How many requests does each policy decide in a second of one core? Measured, not modelled.
//!
//! ```text
//! cargo bench -p policy --bench policy -- [--json] [--runs N] [--quick] [--policy NAME]
//! ```
//!
//! A Zipf(1.0) trace of 5 M requests over 1 M keys (shuffled by a hash, so neighbours in rank are no
//! neighbours in memory), a cache of a tenth of the keys, index and keys included: with the roomy index
//! of the simulator (8 bytes a frame) and with the compact one of engines (4). Every run starts
//! with an empty cache. Rates are the median of the runs, with the slowest and the fastest, and count
//! the time on the processor (`/proc/thread-self/schedstat`), so that waiting behind other processes
//! does not count; where the kernel does not report it, the time on the clock.
#![allow(clippy::print_stdout)]

#[path = "../../../benches/stopwatch.rs"]
mod stopwatch;

use std::process::ExitCode;

use policy::cache::{Arc, Cache, Clock, Fifo, Kind, Lru, Replacement, S3Fifo, Sieve, WTinyLfu};
use stopwatch::Stopwatch;

const KEYS: usize = 1_000_000;
const CAPACITY: u32 = 100_000;
const SEED: u64 = 20_261_120;

/// Rates asked for, in million requests per second.
fn aim(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Lru => Some(20.0),
        Kind::S3Fifo => Some(12.0),
        _ => None,
    }
}

/// `requests` keys, drawn so that the key of rank r comes with a chance proportional to 1 / r.
fn zipf(requests: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut state = SEED;
    let draw = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = cumulative.partition_point(|&up_to| up_to < at) as u64;
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
    };
    (0..requests).map(draw).collect()
}

/// Seconds and misses of one run.
fn run(policy: impl Replacement, compact: bool, trace: &[u64]) -> (f64, usize) {
    let mut cache = if compact {
        Cache::compact(policy)
    } else {
        Cache::new(policy)
    };
    let start = Stopwatch::start();
    let misses = trace.iter().filter(|&&key| !cache.access(key)).count();
    (start.seconds(), misses)
}

/// Monomorphic on purpose: the rate of the policy, not of a virtual call.
fn run_kind(kind: Kind, compact: bool, trace: &[u64]) -> (f64, usize) {
    match kind {
        Kind::Lru => run(Lru::new(CAPACITY), compact, trace),
        Kind::Fifo => run(Fifo::new(CAPACITY), compact, trace),
        Kind::Clock => run(Clock::new(CAPACITY), compact, trace),
        Kind::Sieve => run(Sieve::new(CAPACITY), compact, trace),
        Kind::S3Fifo => run(S3Fifo::new(CAPACITY), compact, trace),
        Kind::Arc => run(Arc::new(CAPACITY), compact, trace),
        Kind::WTinyLfu => run(WTinyLfu::new(CAPACITY), compact, trace),
    }
}

/// Million requests per second: median, slowest and fastest run.
#[derive(Clone, Copy)]
struct Rate {
    median: f64,
    low: f64,
    high: f64,
}

impl Rate {
    fn of(mut rates: Vec<f64>) -> Rate {
        rates.sort_by(f64::total_cmp);
        Rate {
            median: rates[rates.len() / 2],
            low: rates[0],
            high: rates[rates.len() - 1],
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>5.1} ({:.1} - {:.1})",
            self.median, self.low, self.high
        )
    }
}

struct Row {
    kind: Kind,
    roomy: Rate,
    compact: Rate,
    miss_ratio: f64,
}

fn measure(kinds: &[Kind], trace: &[u64], runs: usize) -> Vec<Row> {
    let mut rates = vec![[Vec::new(), Vec::new()]; kinds.len()];
    let mut misses = vec![0; kinds.len()];
    // Policies take turns, so that a busy moment of the machine does not fall on one of them.
    for _ in 0..runs {
        for (at, &kind) in kinds.iter().enumerate() {
            for compact in [false, true] {
                let (seconds, missed) = run_kind(kind, compact, trace);
                rates[at][usize::from(compact)].push(trace.len() as f64 / seconds / 1e6);
                misses[at] = missed;
            }
        }
    }
    let row = |((&kind, [roomy, compact]), missed): ((&Kind, [Vec<f64>; 2]), usize)| Row {
        kind,
        roomy: Rate::of(roomy),
        compact: Rate::of(compact),
        miss_ratio: missed as f64 / trace.len() as f64,
    };
    kinds.iter().zip(rates).zip(misses).map(row).collect()
}

fn json(rows: &[Row], requests: usize, runs: usize) -> String {
    let mut lines = Vec::new();
    for row in rows {
        let roomy_aim = aim(row.kind).map_or("null".to_owned(), |aim| format!("{aim:.1}"));
        let pair = [
            ("rate", row.roomy, roomy_aim),
            ("rate-compact", row.compact, "null".into()),
        ];
        for (metric, rate, aim) in pair {
            lines.push(format!(
                "{{\"experiment\":\"bench-policy\",\"case\":\"zipf-1.0\",\"method\":\"{}\",\
                 \"metric\":\"{metric}\",\"unit\":\"Mrequests/s\",\"ours\":{:.2},\"low\":{:.2},\
                 \"high\":{:.2},\"aim\":{aim},\"miss_ratio\":{:.4},\"requests\":{requests},\
                 \"runs\":{runs},\"seed\":{SEED},\"devices\":\"real\"}}",
                row.kind, rate.median, rate.low, rate.high, row.miss_ratio
            ));
        }
    }
    format!("[{}]", lines.join(",\n "))
}

fn main() -> ExitCode {
    let (mut as_json, mut runs, mut requests) = (false, 5, 5_000_000);
    let mut kinds = Kind::ALL.to_vec();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => as_json = true,
            "--quick" => (runs, requests) = (3, 1_000_000),
            "--runs" => match args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(n) => runs = n,
                None => {
                    eprintln!("--runs wants a number of runs, 1 or more");
                    return ExitCode::from(2);
                }
            },
            "--policy" => match args.next().unwrap_or_default().parse() {
                Ok(kind) => kinds = vec![kind],
                Err(err) => {
                    eprintln!("--policy: {err}");
                    return ExitCode::from(2);
                }
            },
            "--bench" => {} // Cargo says so.
            other => {
                eprintln!(
                    "unknown argument '{other}'; there are --json, --quick, --runs N, --policy NAME"
                );
                return ExitCode::from(2);
            }
        }
    }
    let trace = zipf(requests);
    let rows = measure(&kinds, &trace, runs);
    if as_json {
        println!("{}", json(&rows, requests, runs));
        return ExitCode::SUCCESS;
    }
    println!(
        "{requests} requests, Zipf(1.0) over {KEYS} keys, {CAPACITY} frames, seed {SEED}; \
         processor time, median of {runs} runs (slowest - fastest)"
    );
    println!(
        "{:<10} {:>20}   {:>20}   M requests/s",
        "", "roomy index", "compact index"
    );
    for row in &rows {
        let aim = aim(row.kind).map_or(String::new(), |aim| {
            format!(
                "   aim {aim:.0}: {:.2} x, {:.2} x",
                row.roomy.median / aim,
                row.compact.median / aim
            )
        });
        println!(
            "{:<10} {:>20}   {:>20}   misses {:.2} %{aim}",
            row.kind,
            row.roomy.to_string(),
            row.compact.to_string(),
            100.0 * row.miss_ratio
        );
    }
    ExitCode::SUCCESS
}
