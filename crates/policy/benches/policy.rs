//! How many requests does each policy decide in a second? Real time, one core.
//!
//! ```text
//! cargo bench -p tanada-policy --bench policy -- [--json] [--runs N] [--quick] [--policy NAME]
//! ```
//!
//! A Zipf(1.0) trace of 5 M requests over 1 M keys (shuffled by a hash, so neighbours in rank are no
//! neighbours in memory), a cache of a tenth of the keys, index and keys included. Every run starts
//! with an empty cache. Rates are the median of the runs, with the slowest and the fastest.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use policy::cache::{Arc, Cache, Clock, Fifo, Kind, Lru, Replacement, S3Fifo, Sieve, WTinyLfu};

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
fn run(policy: impl Replacement, trace: &[u64]) -> (f64, usize) {
    let mut cache = Cache::new(policy);
    #[allow(clippy::disallowed_methods)] // A benchmark is about real time.
    let start = std::time::Instant::now();
    let mut misses = 0;
    for &key in trace {
        misses += usize::from(!cache.access(key));
    }
    (start.elapsed().as_secs_f64(), misses)
}

/// Monomorphic on purpose: the rate of the policy, not of a virtual call.
fn run_kind(kind: Kind, trace: &[u64]) -> (f64, usize) {
    match kind {
        Kind::Lru => run(Lru::new(CAPACITY), trace),
        Kind::Fifo => run(Fifo::new(CAPACITY), trace),
        Kind::Clock => run(Clock::new(CAPACITY), trace),
        Kind::Sieve => run(Sieve::new(CAPACITY), trace),
        Kind::S3Fifo => run(S3Fifo::new(CAPACITY), trace),
        Kind::Arc => run(Arc::new(CAPACITY), trace),
        Kind::WTinyLfu => run(WTinyLfu::new(CAPACITY), trace),
    }
}

struct Row {
    kind: Kind,
    /// Million requests per second: median, slowest, fastest run.
    rate: f64,
    low: f64,
    high: f64,
    miss_ratio: f64,
}

fn measure(kinds: &[Kind], trace: &[u64], runs: usize) -> Vec<Row> {
    let mut rates = vec![Vec::new(); kinds.len()];
    let mut misses = vec![0; kinds.len()];
    // Policies take turns, so that a busy moment of the machine does not fall on one of them.
    for _ in 0..runs {
        for (at, &kind) in kinds.iter().enumerate() {
            let (seconds, missed) = run_kind(kind, trace);
            rates[at].push(trace.len() as f64 / seconds / 1e6);
            misses[at] = missed;
        }
    }
    kinds
        .iter()
        .zip(rates)
        .zip(misses)
        .map(|((&kind, mut rates), missed)| {
            rates.sort_by(f64::total_cmp);
            Row {
                kind,
                rate: rates[rates.len() / 2],
                low: rates[0],
                high: rates[rates.len() - 1],
                miss_ratio: missed as f64 / trace.len() as f64,
            }
        })
        .collect()
}

fn json(rows: &[Row], requests: usize, runs: usize) -> String {
    let row = |row: &Row| {
        let aim = aim(row.kind).map_or("null".to_owned(), |aim| format!("{aim:.1}"));
        format!(
            "{{\"experiment\":\"bench-policy\",\"case\":\"zipf-1.0\",\"method\":\"{}\",\
             \"metric\":\"rate\",\"unit\":\"Mrequests/s\",\"ours\":{:.2},\"low\":{:.2},\
             \"high\":{:.2},\"aim\":{aim},\"miss_ratio\":{:.4},\"requests\":{requests},\
             \"runs\":{runs},\"seed\":{SEED},\"modelled\":false}}",
            row.kind, row.rate, row.low, row.high, row.miss_ratio
        )
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("[{}]", rows.join(",\n "))
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
         real time, median of {runs} runs (slowest - fastest)"
    );
    for row in &rows {
        let aim = aim(row.kind).map_or(String::new(), |aim| {
            format!("   aim {aim:.0}: {:.2} x", row.rate / aim)
        });
        println!(
            "{:<10} {:>6.1} M requests/s ({:.1} - {:.1})   misses {:.2} %{aim}",
            row.kind,
            row.rate,
            row.low,
            row.high,
            100.0 * row.miss_ratio
        );
    }
    ExitCode::SUCCESS
}
