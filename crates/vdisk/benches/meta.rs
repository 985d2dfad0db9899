//! How many transactions does each meta store do in a second?
//!
//! ```text
//! cargo bench -p vdisk --bench meta -- [--seconds N] [--runs N] [--etcd URL,...] [--json]
//!
//! put of 256 bytes, one after another | from 64 tasks at once, each on its own key
//! ```
//!
//! The file is in the working directory. etcd is measured where its URLs are given. Real time, by
//! the runtime's clock; the median of the runs with the lowest and the highest.
#![allow(clippy::print_stdout)]

#[path = "../../../benches/figures.rs"]
mod figures;

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use env::{RealConfig, Runtime};
use figures::Results;
use vdisk::meta::{Etcd, EtcdConfig, MemoryMetaStore, MetaStore, Op, Outcome, Redb};

/// Transactions per second of `tasks` at once.
async fn rate(meta: Rc<dyn MetaStore>, tasks: usize, span: Nanos) -> f64 {
    let done = Rc::new(Cell::new(0u64));
    let begun = env::now();
    let running = (0..tasks).map(|task| {
        let (meta, done) = (Rc::clone(&meta), Rc::clone(&done));
        env::spawn(async move {
            while env::now().since(begun) < span {
                let put = Op::Put {
                    key: format!("bench/{task}"),
                    value: vec![task as u8; 256],
                    lease: None,
                };
                let outcome = meta.txn(vec![], vec![put]).await;
                assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
                done.set(done.get() + 1);
            }
        })
    });
    let running: Vec<_> = running.collect();
    env::sync::join_all(running).await;
    done.get() as f64 / env::now().since(begun).secs_f64()
}

/// For how long each is measured, and how often.
#[derive(Clone, Copy)]
struct Runs {
    span: Nanos,
    count: usize,
}

/// The rates of one task, and of 64.
async fn both(meta: Rc<dyn MetaStore>, runs: Runs) -> [Vec<f64>; 2] {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..runs.count {
        rates[0].push(rate(Rc::clone(&meta), 1, runs.span).await);
        rates[1].push(rate(Rc::clone(&meta), 64, runs.span).await);
    }
    rates
}

fn report(figures: &mut Results, name: &str, rates: [Vec<f64>; 2]) {
    for (case, mut rates) in ["one by one", "from 64 tasks"].into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        figures.say(&format!(
            "{name:<8} {case:<14} {:>10.0} ({:.0} to {:.0}) transactions/s",
            rates[rates.len() / 2],
            rates[0],
            rates[rates.len() - 1]
        ));
        figures.add((case, name, "rate", "transactions/s"), &rates, "real");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1).cloned()
    };
    let seconds = value("--seconds").map_or(3, |text| text.parse().expect("a number of seconds"));
    let count = value("--runs").map_or(3, |text| text.parse().expect("a number of runs"));
    let runs = Runs {
        span: Nanos::secs(seconds),
        count,
    };
    let mut figures = Results::new("meta");
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let rates =
        runtime.block_on(async move { both(MemoryMetaStore::new("twin").client(), runs).await });
    report(&mut figures, "memory", rates);
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let file = Redb::open(&directory.path().join("meta.redb")).expect("a file");
    let handle = file.handle();
    let rates = runtime.block_on(async move { both(handle.client(), runs).await });
    report(&mut figures, "file", rates);
    if let Some(urls) = value("--etcd") {
        let config = EtcdConfig {
            endpoints: urls.split(',').map(str::to_owned).collect(),
            ..EtcdConfig::default()
        };
        let etcd = Etcd::new(&config).expect("endpoints");
        let handle = etcd.handle();
        let rates = runtime.block_on(async move { both(handle.client(), runs).await });
        report(&mut figures, "etcd", rates);
    }
    figures.finish();
}
