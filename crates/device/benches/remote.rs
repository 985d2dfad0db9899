//! What does it cost to have a device on another thread? Processor time a request of 4 KiB at depth 1 and 32, of both
//! threads together, with a gate and without.
//!
//! ```text
//! cargo bench -p device --bench remote -- [--json]
//! ```
//!
//! The device is memory, so that what is measured is the way there and back. Real time, two threads; runs of the two take
//! turns. A thread that finds nothing sleeps: at depth 1 both fall asleep for each request.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::rc::Rc;

use base::{Bytes, Sector};
use device::remote::{Opened, link};
use device::{Device, DeviceExt, Memory, ready};
use env::sync::join_all;
use env::{RealConfig, Runtime, spawn};
use figures::Results;
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 7;
const SIZE: Bytes = Bytes::mib(64);

fn seconds(id: ClockId) -> f64 {
    let time = clock_gettime(id);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time and time of one run, a request, in microseconds.
async fn run(disk: Rc<dyn Device>, depth: u64, requests: u64) -> (f64, f64) {
    let (cpu, wall) = (
        seconds(ClockId::ProcessCPUTime),
        seconds(ClockId::Monotonic),
    );
    let clients = (0..depth).map(|client| {
        let disk = Rc::clone(&disk);
        spawn(async move {
            let mut rng = env::Rng::from_seed(client);
            for _ in 0..requests / depth {
                let at = Sector(rng.below(SIZE.0 / 4096) * 8);
                disk.read_at(at, Bytes(4096)).await.expect("memory reads");
                // As a real device would, memory lets others go on.
                env::yield_now().await;
            }
        })
    });
    join_all(clients.collect::<Vec<_>>()).await;
    let each = |id, from| (seconds(id) - from) * 1e6 / requests as f64;
    (
        each(ClockId::ProcessCPUTime, cpu),
        each(ClockId::Monotonic, wall),
    )
}

fn runtime() -> Runtime {
    Runtime::real(RealConfig::default()).expect("a runtime")
}

fn main() {
    let mut figures = Results::new("remote");
    let (gate, owner) = link(128);
    let thread = std::thread::Builder::new().spawn(move || {
        runtime().block_on(async move {
            let disk = Memory::new("memory", SIZE);
            owner
                .serve(move |_| ready(Ok(Opened::of(disk.clone()))))
                .await;
        });
    });
    let rows = runtime().block_on(async move {
        let here: Rc<dyn Device> = Memory::new("memory", SIZE);
        let there: Rc<dyn Device> = gate.join().open("memory").await.expect("it is there");
        let mut rows = Vec::new();
        for (depth, requests) in [(1, 100_000), (32, 1_000_000)] {
            let mut runs = [const { Vec::new() }; 2];
            for _ in 0..RUNS {
                for (disk, runs) in [&here, &there].into_iter().zip(&mut runs) {
                    runs.push(run(Rc::clone(disk), depth, requests).await);
                }
            }
            rows.push((depth, runs));
        }
        rows
    });
    for (depth, runs) in rows {
        let case = format!("4 KiB reads of memory, depth {depth}");
        for (method, runs) in ["same thread", "other thread"].into_iter().zip(runs) {
            let runs: Vec<(f64, f64)> = runs;
            let metrics = [
                (
                    "processor time a request",
                    runs.iter().map(|run| run.0).collect::<Vec<f64>>(),
                ),
                ("time a request", runs.iter().map(|run| run.1).collect()),
            ];
            for (metric, mut runs) in metrics {
                figures.add((&case, method, metric, "us"), &runs, "real");
                runs.sort_by(f64::total_cmp);
                let (low, middle, high) = (runs[0], runs[RUNS / 2], runs[RUNS - 1]);
                figures.say(&format!(
                    "{case:<34} {method:<12} {metric:<24} {low:>7.3} {middle:>7.3} {high:>7.3} us"
                ));
            }
        }
    }
    thread
        .expect("a thread")
        .join()
        .expect("the owner's thread ends");
    figures.finish();
}
