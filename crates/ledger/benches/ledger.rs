//! How fast is the ledger? Replay, commits and bytes per record, on a memory device.
//!
//! `cargo bench -p ledger -- [--json]`. Everything here is real CPU time on the machine at hand; the device is
//! memory in this process, so the figures are the ledger's own cost without a medium.
//! `TANADA_BENCH_QUICK=1` shrinks the sizes.

#![allow(clippy::disallowed_methods)] // A benchmark reads the wall clock; that is what it is for.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::rc::Rc;
use std::time::Instant;

use base::{Bytes, Span};
use device::Memory;
use env::Runtime;
use figures::Results;
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
fn line(figures: &mut Results, what: &str, unit: &str, mut runs: Vec<f64>) {
    runs.sort_by(f64::total_cmp);
    let (least, most) = (runs[0], runs[runs.len() - 1]);
    figures.say(&format!(
        "{what:<44} {:>12.3} {unit:<16} {least:.3} .. {most:.3} in {} runs, real",
        runs[runs.len() / 2],
        runs.len()
    ));
    figures.add((what, "ledger", "speed", unit), &runs, "real");
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

fn replay(figures: &mut Results, entries: u64, per_batch: u64) {
    let (runs, per_record) = Runtime::simulated(1).block_on(async move {
        let (device, region, ledger, _table) = filled(entries, per_batch).await;
        let counted = ledger.figures();
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
            assert_eq!(report.records, counted.records + counted.swept);
        }
        let records = counted.records + counted.swept;
        (runs, counted.log_used as f64 / records as f64)
    });
    let what = format!(
        "replay {:.0} M entries, {per_batch} per batch",
        entries as f64 / 1e6
    );
    line(figures, &what, "s", runs);
    figures.say(&format!(
        "{:<44} {per_record:>12.3} bytes",
        "  log per record of 11 bytes, all counted"
    ));
    let of = (&*what, "ledger", "log per record of 11 bytes", "bytes");
    figures.add(of, &[per_record], "real");
}

fn commits(figures: &mut Results, entries: u64, count: u64, per_batch: u64, waiting: u64) {
    let mut per_second = Vec::new();
    let mut last = None;
    for run in 0..RUNS {
        let (rate, counted) = Runtime::simulated(run as u64).block_on(async move {
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
        last = Some(counted);
    }
    let what = format!("commits of {per_batch} records, {waiting} at once");
    line(figures, &what, "k commits/s", per_second);
    if let Some(last) = last {
        let writes = last.device_writes as f64 / count as f64;
        let swept = last.swept as f64 / last.records as f64;
        let bytes = last.bytes_written as f64 / last.records as f64;
        figures.say(&format!(
            "{:<44} {writes:>12.3} device writes per commit, {swept:.2} swept per new record, {bytes:.1} bytes written per record",
            ""
        ));
        for (metric, unit, figure) in [
            ("device writes per commit", "", writes),
            ("swept per new record", "", swept),
            ("written per record", "bytes", bytes),
        ] {
            figures.add((&what, "ledger", metric, unit), &[figure], "real");
        }
    }
}

fn main() {
    // `cargo test` runs benches too, once and small.
    let quick = std::env::var_os("TANADA_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench");
    let scale = if quick { 100 } else { 1 };
    let mut figures = Results::new("ledger");
    figures.say("ledger on a memory device, 11-byte values");
    replay(&mut figures, 10_000_000 / scale, 10_000);
    replay(&mut figures, 10_000_000 / scale, 100);
    commits(&mut figures, 1_000_000 / scale, 200_000 / scale, 1, 1);
    commits(&mut figures, 1_000_000 / scale, 200_000 / scale, 10, 32);
    commits(&mut figures, 1_000_000 / scale, 20_000 / scale, 1000, 1);
    figures.finish();
}
