//! What was measured and predicted, as rows.
//!
//! ```text
//! served:      what the model says | what it took | what fio sees | the floor
//! results:     what the database did on each device
//! predictions, errors, left-out: see `predicted`
//! ```

use ::predict::data::{DataSet, Reduce, What};
use base::Bytes;
use report::{Devices, Row};

use super::found::{Floor, Found, Path4};
use super::{Extent, LISTING, predicted};
use crate::app::outcome::Outcome;
use crate::app::rocksdb;

/// How repeated runs become one figure here.
pub const REDUCE: Reduce = Reduce::Median;

/// A row about devices that a model slows down in real time, its spread over `values`.
pub fn row(table: &str, case: &str, method: &str, metric: &str, unit: &str, values: &[f64]) -> Row {
    let ours = (!values.is_empty()).then(|| REDUCE.of(values));
    Row::modelled(LISTING.name, table, case, method, metric, unit)
        .on(Devices::Emulated)
        .measured(ours)
        .over(values)
}

/// Every row of the experiment.
///
/// # Errors
/// A sentence if nothing can be predicted at all.
pub fn rows(found: &Found, extent: &Extent, slower: f64) -> Result<Vec<Row>, String> {
    let mut rows = served(found, slower);
    rows.extend(results(found, extent));
    rows.extend(predicted::rows(found)?);
    Ok(rows)
}

fn served(found: &Found, slower: f64) -> Vec<Row> {
    let note = format!(
        "device modelled, {slower} times slower than its sheet; one access at a time; NBD, FUSE and loop device real. model: what it \
         says; server: what it took, timers' lateness in it; floor: fio with the model switched off; fio: all together"
    );
    let mut rows = Vec::new();
    for (device, of) in &found.devices {
        for Floor { way, size, latency } in &of.floors {
            let same = |path: &&Path4| (&path.way, path.size) == (way, *size);
            let each = |figure: fn(&Path4) -> Option<f64>| -> Vec<f64> {
                of.paths.iter().filter(same).filter_map(figure).collect()
            };
            let kib = size.0 / 1024;
            let figure = format!("{way}-{kib}K-latency");
            let case = format!("{device} {way} {kib}K");
            let mut model = each(|path| path.modelled);
            model.truncate(1);
            for (method, values) in [
                ("model", model),
                ("server", each(|path| Some(path.kept))),
                ("floor", vec![*latency]),
                ("fio", of_device(&found.data, device, &figure)),
            ] {
                if !values.is_empty() {
                    rows.push(row("served", &case, method, "latency", "us", &values).noted(&note));
                }
            }
        }
    }
    rows
}

/// Every run of a device's own figure.
fn of_device(data: &DataSet, device: &str, name: &str) -> Vec<f64> {
    let rows = data.rows().iter();
    let of = rows.filter(|row| {
        row.device == device && matches!(&row.what, What::Device { regressor } if regressor == name)
    });
    of.map(|row| row.quantity.reckoned()).collect()
}

/// What one run gave, for one metric.
type Figure<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const MARIADB: [Figure<Outcome>; 6] = [
    ("read_latency", "us", |it| Some(it.reads?.mean_us)),
    ("write_latency", "us", |it| Some(it.updates?.mean_us)),
    ("throughput", "ops/s", |it| Some(it.throughput())),
    ("device_reads", "per op", |it| {
        Some(it.device?.reads as f64 / it.operations_all as f64)
    }),
    ("device_writes", "per op", |it| {
        Some(it.device?.writes as f64 / it.operations_all as f64)
    }),
    ("device_flushes", "per op", |it| {
        Some(it.device?.flushes as f64 / it.operations_all as f64)
    }),
];

const ROCKSDB: [Figure<rocksdb::Outcome>; 4] = [
    ("read_latency", "us", |it| {
        (it.metric == "read_latency").then_some(it.printed.mean_us)
    }),
    ("write_latency", "us", |it| {
        (it.metric == "write_latency").then_some(it.printed.mean_us)
    }),
    ("throughput", "ops/s", |it| Some(it.printed.throughput)),
    // Opening the database is in it.
    ("device_reads", "in all", |it| Some(it.device?.reads as f64)),
];

fn results(found: &Found, extent: &Extent) -> Vec<Row> {
    let (mariadb, rocksdb) = notes(found, extent);
    let mut rows = Vec::new();
    for (device, of) in &found.devices {
        for workload in &extent.plan.workloads {
            let name = workload.to_string();
            let runs = of.mariadb.iter().filter(|run| run.workload == name);
            let runs: Vec<&Outcome> = runs.collect();
            rows.extend(one_result(&name, device, &runs, &MARIADB, &mariadb));
        }
        for workload in rocksdb::Workload::ALL {
            let name = workload.name();
            let runs = of.rocksdb.iter().filter(|run| run.workload == name);
            let runs: Vec<&rocksdb::Outcome> = runs.collect();
            rows.extend(one_result(name, device, &runs, &ROCKSDB, &rocksdb));
        }
    }
    rows
}

fn one_result<T>(
    workload: &str,
    device: &str,
    runs: &[&T],
    figures: &[Figure<T>],
    note: &str,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (metric, unit, figure) in figures {
        let each: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
        if !each.is_empty() {
            rows.push(row("results", workload, device, metric, unit, &each).noted(note));
        }
    }
    rows
}

/// What a reader must know of MariaDB's figures, and of RocksDB's.
fn notes(found: &Found, extent: &Extent) -> (String, String) {
    let Extent { plan, rocksdb, .. } = extent;
    let mut runs = found.devices.iter().flat_map(|(_, of)| &of.mariadb);
    let database = runs.next().map_or("", |one| &one.database);
    let seconds = plan.counts.0 as f64 / 1e9;
    let both = |database: &str, data, memory, waits: &str, clients| {
        format!(
            "{database}, {data} of data, {memory}, past the page cache, {waits}; {clients} client(s), closed loop, {seconds} s each; \
             device modelled, database and CPU real; spread: over {} run(s)",
            plan.runs
        )
    };
    let pool = format!("buffer pool {}", plan.server.buffer_pool);
    let cache = format!("block cache {}", rocksdb.cache);
    (
        both(
            database,
            Bytes(plan.records.bytes()),
            pool,
            "durable commits",
            plan.clients,
        ),
        both(
            "RocksDB's db_bench",
            Bytes(rocksdb.records * rocksdb.record.0),
            cache,
            "each write synced",
            1,
        ),
    )
}
