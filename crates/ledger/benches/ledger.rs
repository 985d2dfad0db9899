//! How fast is the ledger? Replay, commits and bytes per record, on a memory device.
//!
//! `cargo bench -p ledger`. Everything here is real CPU time on the machine at hand; the device is
//! memory in this process, so the figures are the ledger's own cost without a medium.
//! `TANADA_BENCH_QUICK=1` shrinks the sizes.

#![allow(clippy::disallowed_methods)] // A benchmark reads the wall clock; that is what it is for.

use std::rc::Rc;
use std::time::Instant;

use base::{Bytes, Span};
use device::Memory;
use env::Runtime;
use ledger::{Batch, Identity, Ledger, Owner, Record};

const RUNS: usize = 5;
const VALUE: usize = 11;

/// A dense table of 11-byte values, as a cache's map is.
struct Table {
    values: Vec<[u8; VALUE]>,
}

impl Table {
    fn of(entries: u64) -> Table {
        let value = |key: u64| {
            let mut value = [0; VALUE];
            value[..8].copy_from_slice(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            value
        };
        Table {
            values: (0..entries).map(value).collect(),
        }
    }
}

impl Owner for Table {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let from = cursor as usize;
        for (at, value) in self.values.iter().enumerate().skip(from).take(max) {
            out.put(at as u64, value);
        }
        let next = from + max;
        (next < self.values.len()).then_some(next as u64)
    }

    fn live(&self) -> Option<Bytes> {
        let widest = self.values.len() as u64;
        Some(Bytes(widest * Batch::record_bytes(widest, VALUE).0))
    }
}

/// Middle, least and most of the runs.
fn line(what: &str, unit: &str, mut runs: Vec<f64>) {
    runs.sort_by(f64::total_cmp);
    let (least, most) = (runs[0], runs[runs.len() - 1]);
    println!(
        "{what:<44} {:>12.3} {unit:<16} {least:.3} .. {most:.3} in {} runs, real",
        runs[runs.len() / 2],
        runs.len()
    );
}

async fn filled(entries: u64, per_batch: u64) -> (Rc<Memory>, Span, Ledger, Table) {
    let size = Ledger::region_for(entries, VALUE);
    let device = Memory::new("memory", size);
    let region = Span::bytes(0, size.0);
    let ledger = Ledger::format(device.clone(), region, Identity::default())
        .await
        .expect("the region is of the advised size");
    let mut table = Table::of(entries);
    let mut key = 0;
    while key < entries {
        let mut batch = ledger.batch();
        for _ in 0..per_batch.min(entries - key) {
            batch.put(key, &table.values[key as usize]);
            key += 1;
        }
        let prepared = ledger.prepare(batch, &mut table);
        ledger.commit(prepared).await.expect("memory does not fail");
    }
    (device, region, ledger, table)
}

fn replay(entries: u64, per_batch: u64) {
    Runtime::simulated(1).block_on(async move {
        let (device, region, ledger, _table) = filled(entries, per_batch).await;
        let figures = ledger.figures();
        drop(ledger);
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let mut table = vec![[0u8; VALUE]; entries as usize];
            let start = Instant::now();
            let (_, report) = Ledger::open(device.clone(), region, |record| {
                if let Record::Put { key, value } = record {
                    table[key as usize].copy_from_slice(value);
                }
            })
            .await
            .expect("the log is sound");
            runs.push(start.elapsed().as_secs_f64());
            assert_eq!(report.records, figures.records + figures.swept);
        }
        let what = format!(
            "replay {:.0} M entries, {per_batch} per batch",
            entries as f64 / 1e6
        );
        line(&what, "s", runs);
        println!(
            "{:<44} {:>12.3} bytes",
            "  log per record of 11 bytes, all counted",
            figures.log_used as f64 / (figures.records + figures.swept) as f64
        );
    });
}

fn commits(entries: u64, count: u64, per_batch: u64, waiting: u64) {
    let mut per_second = Vec::new();
    let mut last = None;
    for run in 0..RUNS {
        let (rate, figures) = Runtime::simulated(run as u64).block_on(async move {
            let (_device, _region, ledger, mut table) = filled(entries, 10_000).await;
            let before = ledger.figures();
            let mut rng = env::rng("bench");
            let start = Instant::now();
            for _ in 0..count / waiting {
                let mut group = Vec::new();
                for _ in 0..waiting {
                    let mut batch = ledger.batch();
                    for _ in 0..per_batch {
                        let key = rng.below(entries);
                        batch.put(key, &table.values[key as usize]);
                    }
                    let prepared = ledger.prepare(batch, &mut table);
                    let ledger = ledger.clone();
                    group.push(env::spawn(async move { ledger.commit(prepared).await }));
                }
                for commit in group {
                    commit.await.expect("memory does not fail");
                }
            }
            let seconds = start.elapsed().as_secs_f64();
            let after = ledger.figures();
            let done = ledger::Counters {
                records: after.records - before.records,
                swept: after.swept - before.swept,
                device_writes: after.device_writes - before.device_writes,
                bytes_written: after.bytes_written - before.bytes_written,
                ..after
            };
            ((count / waiting * waiting) as f64 / seconds, done)
        });
        per_second.push(rate / 1e3);
        last = Some(figures);
    }
    let what = format!("commits of {per_batch} records, {waiting} at once");
    line(&what, "k commits/s", per_second);
    if let Some(figures) = last {
        println!(
            "{:<44} {:>12.3} device writes per commit, {:.2} swept per new record, {:.1} bytes written per record",
            "",
            figures.device_writes as f64 / count as f64,
            figures.swept as f64 / figures.records as f64,
            figures.bytes_written as f64 / figures.records as f64,
        );
    }
}

fn main() {
    // `cargo test` runs benches too, once and small.
    let quick = std::env::var_os("TANADA_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench");
    let scale = if quick { 100 } else { 1 };
    println!("ledger on a memory device, 11-byte values");
    replay(10_000_000 / scale, 10_000);
    replay(10_000_000 / scale, 100);
    commits(1_000_000 / scale, 200_000 / scale, 1, 1);
    commits(1_000_000 / scale, 200_000 / scale, 10, 32);
    commits(1_000_000 / scale, 20_000 / scale, 1000, 1);
}
