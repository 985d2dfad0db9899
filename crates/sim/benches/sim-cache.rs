//! How many requests does the cache simulation decide in a second of one core? Measured, not modelled.
//!
//! ```text
//! cargo bench -p sim --bench sim-cache -- [--json] [--runs N] [--quick]
//! ```
//!
//! A Zipf(1.0) trace of 5 M requests over 1 M objects (shuffled by a hash), one in four a write, a cache of a tenth
//! of the objects; each figure is end to end from the loaded trace, all set-up included: every policy, Belady's MIN
//! with and without working out the future, the exact LRU curve, a curve from 1 % of the objects with its draw, and
//! SHARDS over the stream; and the shadow that watches a running volume, of a cache of 4 GiB at 50,000 requests a second. Loading is measured apart. Rates are the median of the runs, with the
//! slowest and the fastest, and count the time on the processor (`/proc/thread-self/schedstat`), so
//! that waiting behind other processes does not count; where the kernel does not report it, the time on the clock.
#![allow(clippy::print_stdout)]

#[path = "../../../benches/stopwatch.rs"]
mod stopwatch;

use std::process::ExitCode;

use base::{Bytes, Instant, Nanos, Span};
use policy::cache::Kind;
use sim::advise::shadow::{Shadow, ShadowOptions};
use sim::cache::{
    Bound, Builder, Compact, Future, Mode, Ops, Part, Sample, Shards, Unit, exact_lru, simulate,
};
use stopwatch::Stopwatch;
use trace::tap::Observer;
use trace::{Op, Request};

const KEYS: usize = 1_000_000;
const SEED: u64 = 20_261_120;
/// Asked for, in million requests per second.
const LRU_AIM: f64 = 20.0;

/// `requests` pages, the one of rank r with a chance proportional to 1 / r.
fn zipf(requests: usize) -> Vec<Request> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut state = SEED;
    let draw = |n| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = cumulative.partition_point(|&up_to| up_to < at) as u64;
        Request {
            at: Nanos(n as u64 * 1000),
            offset: Bytes((rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) << 12),
            size: Bytes(4096),
            device: 0,
            op: if state >> 62 == 0 {
                Op::Write
            } else {
                Op::Read
            },
        }
    };
    (0..requests).map(draw).collect()
}

fn load(requests: &[Request]) -> Compact {
    let mut builder = Builder::new(Unit::PAGE, Ops::All);
    for request in requests {
        builder.push(request).expect("every request is possible");
    }
    builder.finish().expect("there are requests")
}

/// What is measured, by name; each answers with something that depends on all its work.
type Work<'a> = (&'static str, Option<f64>, Box<dyn Fn() -> f64 + 'a>);

fn works<'a>(requests: &'a [Request], trace: &'a Compact, future: &'a Future) -> Vec<Work<'a>> {
    let room = u64::from(trace.footprint()) / 10;
    let mut works: Vec<Work> = vec![(
        "load",
        None,
        Box::new(|| f64::from(load(requests).footprint())),
    )];
    for kind in Kind::ALL {
        let aim = (kind == Kind::Lru).then_some(LRU_AIM);
        let work = move || simulate(trace, kind, room, Mode::default()).miss_ratio();
        works.push((kind.name(), aim, Box::new(work)));
    }
    let belady = move |future: &Future| future.misses(trace, room, Bound::Demand).miss_ratio();
    works.push(("belady", None, Box::new(move || belady(&Future::of(trace)))));
    works.push(("belady-again", None, Box::new(move || belady(future))));
    works.push((
        "lru-curve-exact",
        None,
        Box::new(move || exact_lru(trace).at(room as f64).miss_ratio),
    ));
    works.push((
        "lru-curve-1%",
        None,
        Box::new(move || {
            let part = Part::draw(trace, 0.01, SEED);
            part.lru(trace).at(room as f64).miss_ratio
        }),
    ));
    works.push((
        "shards-1%",
        None,
        Box::new(move || {
            let mut shards = Shards::new(Sample::Rate(0.01), SEED);
            trace.each(|access| {
                shards.see(u64::from(access.block), access.bytes);
            });
            shards.curve().at(room as f64).miss_ratio
        }),
    ));
    works.push((SHADOW, None, Box::new(move || shadow(requests))));
    works
}

const SHADOW: &str = "shadow";
const SHADOW_IOPS: u64 = 50_000;

/// The shadow of a cache of 4 GiB, asked 50,000 times a second.
fn shadow(requests: &[Request]) -> f64 {
    let options = ShadowOptions {
        cache: Bytes::gib(4),
        policy: Kind::S3Fifo,
        mode: Mode::default(),
        bypass: Some(Bytes::mib(1)),
        seed: SEED,
    };
    let mut shadow = Shadow::new(options, Instant(0));
    let mut now = Instant(0);
    for request in requests {
        now = now + Nanos(1_000_000_000 / SHADOW_IOPS);
        let span = Span::bytes(request.offset.0, request.size.0);
        shadow.request(now, request.op, span);
    }
    shadow.findings(now).present().hit_ratio
}

fn main() -> ExitCode {
    let (mut as_json, mut runs, mut requests) = (false, 5, 5_000_000);
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
            "--bench" => {} // Cargo says so.
            other => {
                eprintln!("unknown argument '{other}'; there are --json, --quick, --runs N");
                return ExitCode::from(2);
            }
        }
    }
    let requests = zipf(requests);
    let trace = load(&requests);
    let future = Future::of(&trace);
    let works = works(&requests, &trace, &future);
    let mut rates = vec![Vec::new(); works.len()];
    let mut answers = vec![0.0; works.len()];
    // They take turns, so that a busy moment of the machine does not fall on one of them.
    for _ in 0..runs {
        for (at, (_, _, work)) in works.iter().enumerate() {
            let start = Stopwatch::start();
            answers[at] = work();
            rates[at].push(requests.len() as f64 / start.seconds() / 1e6);
        }
    }
    let exact = exact_lru(&trace);
    let error = exact.mean_difference(&Part::draw(&trace, 0.01, SEED).lru(&trace));
    let mut lines = Vec::new();
    if !as_json {
        println!(
            "{} requests, Zipf(1.0) over {} objects, room for a tenth, seed {SEED}; {} in memory; \
             processor time, median of {runs} runs (slowest - fastest)",
            requests.len(),
            trace.footprint(),
            trace.memory()
        );
        println!("curve from 1 %: mean error {error:.4}");
    }
    for (((name, aim, _), mut rates), answer) in works.iter().zip(rates).zip(answers) {
        rates.sort_by(f64::total_cmp);
        let (low, median, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        if as_json {
            let aim = aim.map_or("null".to_owned(), |aim| aim.to_string());
            lines.push(format!(
                "{{\"experiment\":\"bench-sim-cache\",\"case\":\"zipf-1.0\",\"method\":\"{name}\",\
                 \"metric\":\"rate\",\"unit\":\"Mrequests/s\",\"ours\":{median:.2},\"low\":{low:.2},\
                 \"high\":{high:.2},\"aim\":{aim},\"answer\":{answer},\"curve_error\":{error:.5},\
                 \"requests\":{},\"runs\":{runs},\"seed\":{SEED},\"devices\":\"real\"}}",
                requests.len()
            ));
        } else {
            let aim = aim.map_or(String::new(), |aim| {
                format!("   aim {aim:.0}: {:.2} x", median / aim)
            });
            let each = match *name == SHADOW {
                true => format!(
                    "   {:.1} ns each: {:.3} % of a core at {SHADOW_IOPS} requests/s",
                    1e3 / median,
                    100.0 * SHADOW_IOPS as f64 / (1e6 * median)
                ),
                false => String::new(),
            };
            println!("{name:<16} {median:>6.1} ({low:.1} - {high:.1}) M requests/s{aim}{each}");
        }
    }
    if as_json {
        println!("[{}]", lines.join(",\n "));
    }
    ExitCode::SUCCESS
}
