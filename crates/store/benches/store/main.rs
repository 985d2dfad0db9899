//! What does the store cost beside what it stands on?
//!
//! ```text
//! cargo bench -p store --bench store -- [--dir DIR] [--json] [--runs N] [--quick]
//!
//! large     1 MiB reads, and writes with a flush at the end: the bare file (O_DIRECT), the same file through the page
//!           cache, the store on it, the store behind its queue, behind one that cuts all requests in pieces of 256 KiB
//!           and begins with one at a time, and the store's server over TCP
//! small     create, write 4 KiB, make durable: the store, its server over TCP, plain files with fsync of file and folder,
//!           and of the file alone, redb
//! fetch     read 4 KiB of one of the small objects: the store, its server over TCP, plain files past the page cache and in it
//! ```
//!
//! Over TCP the server has a thread and a runtime of its own and a client one connection at 127.0.0.1, with the node key
//! and in the clear; with *polls* both look for work for 100 us before they sleep. Eight at once is what `tanada object` does.
//!
//! All on real files of one folder: the working directory unless an argument names another. Each run takes one method
//! after the other, so what the machine does besides meets all alike. Figures are the median of the runs with the
//! lowest and the highest; a ratio is one of figures of the same run. Seconds are by the clock.
#![allow(clippy::print_stdout)]
// A benchmark is about real time and has threads of its own.
#![allow(clippy::disallowed_methods)]

mod files;
mod wire;

use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Device, DeviceExt, FileOptions};
use env::fs::Direct;
use env::sync::join_all;
use env::{Polling, Runtime};
use policy::share::{BytesPerSec, Costs};
use store::net::client::Client;
use store::qos::queue::{Queue, QueueOptions};
use store::{Change, ObjectCalls, Settings, Store};

const MIB: u64 = 1 << 20;
/// Bytes of a small object.
const SMALL: usize = 4096;
const TABLE: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("objects");

/// How much of everything.
#[derive(Clone, Copy)]
struct Size {
    /// Pieces of 1 MiB.
    large: u64,
    /// Small objects.
    small: u64,
}

struct Row {
    case: String,
    method: &'static str,
    unit: &'static str,
    runs: Vec<f64>,
    /// Of the first method of the same run.
    ratios: Vec<f64>,
}

fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (
        sorted[sorted.len() / 2],
        sorted[0],
        sorted[sorted.len() - 1],
    )
}

impl Row {
    fn line(&self) -> String {
        let (median, low, high) = spread(&self.runs);
        let (ratio, least, most) = spread(&self.ratios);
        format!(
            "{:<22} {:<17} {median:>9.1} ({low:.1} - {high:.1}) {:<9} {ratio:>7.3} ({least:.3} - {most:.3})",
            self.case, self.method, self.unit
        )
    }

    fn json(&self) -> String {
        let (median, low, high) = spread(&self.runs);
        let (ratio, least, most) = spread(&self.ratios);
        format!(
            "{{\"experiment\":\"bench-store\",\"case\":\"{}\",\"method\":\"{}\",\"metric\":\"throughput\",\
             \"unit\":\"{}\",\"ours\":{median:.3},\"low\":{low:.3},\"high\":{high:.3},\"ratio\":{ratio:.4},\
             \"ratio_low\":{least:.4},\"ratio_high\":{most:.4},\"runs\":{},\"devices\":\"real\",\"wide\":true}}",
            self.case,
            self.method,
            self.unit,
            self.runs.len()
        )
    }
}

fn add(
    rows: &mut Vec<Row>,
    case: &str,
    method: &'static str,
    unit: &'static str,
    values: (f64, f64),
) {
    let (value, beside) = values;
    let known = rows
        .iter_mut()
        .find(|row| row.case == case && row.method == method);
    let row = match known {
        Some(row) => row,
        None => {
            rows.push(Row {
                case: case.to_owned(),
                method,
                unit,
                runs: Vec::new(),
                ratios: Vec::new(),
            });
            rows.last_mut().expect("just pushed")
        }
    };
    row.runs.push(value);
    row.ratios.push(value / beside);
}

/// How many pieces per second `work` does, `depth` at once, and then `end`.
async fn rate<F: Future<Output = ()>>(
    pieces: u64,
    depth: u64,
    work: impl Fn(u64) -> F,
    end: impl Future<Output = ()>,
) -> f64 {
    let start = Instant::now();
    let workers = (0..depth).map(|worker| {
        let work = &work;
        async move {
            let mut at = worker;
            while at < pieces {
                work(at).await;
                at += depth;
            }
        }
    });
    join_all(workers).await;
    end.await;
    pieces as f64 / start.elapsed().as_secs_f64()
}

fn open(path: &Path) -> Rc<dyn Device> {
    let options = FileOptions {
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    device::File::open("bench", path, options).expect("the file was just made")
}

fn piece(at: u64) -> View {
    let mut buf = Buf::zeroed(MIB as usize);
    for (place, byte) in buf.iter_mut().enumerate() {
        *byte = (place as u64 ^ at) as u8;
    }
    buf.freeze()
}

/// A file with blocks of its own for all of `size`.
fn full_file(path: &Path, size: u64) {
    let mut file = fs::File::create(path).expect("the folder takes files");
    let zeroes = vec![0; MIB as usize];
    for _ in 0..size / MIB {
        file.write_all(&zeroes).expect("there is room");
    }
    file.sync_all().expect("the disk is well");
}

/// (write, made durable, and read) in MiB/s on the bare device.
async fn bare(device: Rc<dyn Device>, pieces: u64, depth: u64) -> (f64, f64) {
    let data = piece(1);
    let write = |at: u64| {
        let (device, data) = (Rc::clone(&device), data.clone());
        async move {
            let written = device.write_at(Sector(at * MIB / 512), data).await;
            written.expect("a write");
        }
    };
    let flush = async { device.flush().await.expect("a flush") };
    let written = rate(pieces, depth, write, flush).await;
    let read = |at: u64| {
        let device = Rc::clone(&device);
        async move {
            let read = device.read_at(Sector(at * MIB / 512), Bytes(MIB)).await;
            drop(read.expect("a read"));
        }
    };
    (written, rate(pieces, depth, read, async {}).await)
}

/// The same of objects of 64 MiB.
async fn stored(device: Rc<dyn Device>, pieces: u64, depth: u64) -> (f64, f64) {
    let store = Store::format(device, forced()).await.expect("a store");
    let rates = objects(&store, pieces, depth).await;
    store.close().await.expect("a close");
    rates
}

/// For a file that holds another store already.
fn forced() -> Settings {
    Settings {
        force: true,
        ..Settings::default()
    }
}

/// The same, here or somewhere else.
async fn objects<O>(store: &O, pieces: u64, depth: u64) -> (f64, f64)
where
    O: ObjectCalls<Error: std::error::Error> + Clone,
{
    let data = piece(2);
    let name = |at: u64| format!("object {}", at / 64);
    let write = |at: u64| {
        let (store, data) = (store.clone(), data.clone());
        async move {
            let change = Change::default().creating();
            let written = store.write(&name(at), at % 64 * MIB, data, change).await;
            written.expect("a write");
        }
    };
    let flush = async { store.flush().await.expect("a flush") };
    let written = rate(pieces, depth, write, flush).await;
    let read = |at: u64| {
        let store = store.clone();
        async move {
            let (name, from) = (name(at), at % 64 * MIB);
            let read = store.read(&name, from, MIB).await;
            assert_eq!(read.expect("a read").len() as u64, MIB);
        }
    };
    (written, rate(pieces, depth, read, async {}).await)
}

fn large(dir: &Path, rows: &mut Vec<Row>, pieces: u64) {
    let path = dir.join("large");
    // Room for both and for the store's ledger.
    full_file(&path, (pieces + 256) * MIB);
    for depth in [1, 4, 8] {
        let run = |which: usize, mb: f64| {
            let path = path.clone();
            runtime().block_on(async move {
                let device = open(&path);
                match which {
                    0 => bare(device, pieces, depth).await,
                    1 => stored(device, pieces, depth).await,
                    _ => {
                        let costs = Costs::flat(BytesPerSec((mb * MIB as f64) as u64));
                        let mut options = QueueOptions::new(costs);
                        if which == 3 {
                            options.share.tags.piece_time = Nanos(0);
                        }
                        stored(Queue::new(device, options), pieces, depth).await
                    }
                }
            })
        };
        let first = run(0, 0.0);
        let over_wire = wire::with_client(
            &path,
            first.0 as u64,
            Polling::Off,
            async move |client: Client| objects(&client, pieces, depth).await,
        );
        for (method, (write, read)) in [
            ("bare", first),
            ("store", run(1, 0.0)),
            ("store, queue", run(2, first.0)),
            ("short pieces", run(3, first.0)),
            ("file, cached", files::large(&path, pieces, depth)),
            ("store, TCP", over_wire),
        ] {
            let unit = "MiB/s";
            add(
                rows,
                &format!("write 1 MiB x {depth}"),
                method,
                unit,
                (write, first.0),
            );
            add(
                rows,
                &format!("read 1 MiB x {depth}"),
                method,
                unit,
                (read, first.1),
            );
        }
    }
    fs::remove_file(&path).expect("ours");
}

/// Objects of 4 KiB per second by `clients` at once: made, each durable before the next, and read.
async fn small<O>(store: &O, count: u64, clients: u64) -> (f64, f64)
where
    O: ObjectCalls<Error: std::error::Error> + Clone,
{
    let data = View::copy_of(&[7; SMALL]);
    let write = |at: u64| {
        let (store, data) = (store.clone(), data.clone());
        async move {
            let name = format!("small {at}");
            let written = store.write(&name, 0, data, Change::FUA.creating()).await;
            written.expect("a write");
        }
    };
    let written = rate(count, clients, write, async {}).await;
    let read = |at: u64| {
        let store = store.clone();
        async move {
            let read = store.read(&format!("small {at}"), 0, SMALL as u64).await;
            assert_eq!(read.expect("a read").len(), SMALL);
        }
    };
    (written, rate(count, clients, read, async {}).await)
}

fn small_store(dir: &Path, count: u64, clients: u64) -> (f64, f64) {
    let path = dir.join("small");
    full_file(&path, 256 * MIB);
    let rates = {
        let path = path.clone();
        runtime().block_on(async move {
            let store = Store::format(open(&path), forced()).await.expect("a store");
            let rates = small(&store, count, clients).await;
            store.close().await.expect("a close");
            rates
        })
    };
    fs::remove_file(&path).expect("ours");
    rates
}

fn small_wire(dir: &Path, count: u64, clients: u64, polling: Polling) -> (f64, f64) {
    let path = dir.join("small");
    full_file(&path, 256 * MIB);
    let rates = wire::with_client(&path, 1000, polling, async move |client: Client| {
        small(&client, count, clients).await
    });
    fs::remove_file(&path).expect("ours");
    rates
}

/// All of the small ones, each beside plain files.
fn all_small(dir: &Path, rows: &mut Vec<Row>, count: u64) {
    for clients in [1, 16] {
        let (first, cached, direct) = files::small(dir, count, clients, true);
        let (alone, ..) = files::small(dir, count, clients, false);
        let (made, read) = small_store(dir, count, clients);
        let (wire_made, wire_read) = small_wire(dir, count, clients, Polling::Off);
        let (poll_made, poll_read) = small_wire(dir, count, clients, wire::POLL);
        let unit = "objects/s";
        for (method, rate) in [
            ("files, fsync", first),
            ("file alone", alone),
            ("redb", small_redb(dir, count, clients)),
            ("store", made),
            ("store, TCP", wire_made),
            ("store, TCP, polls", poll_made),
        ] {
            let case = format!("create 4 KiB x {clients}");
            add(rows, &case, method, unit, (rate, first));
        }
        for (method, rate) in [
            ("files, direct", direct),
            ("files, cached", cached),
            ("store", read),
            ("store, TCP", wire_read),
            ("store, TCP, polls", poll_read),
        ] {
            let case = format!("read 4 KiB x {clients}");
            add(rows, &case, method, unit, (rate, direct));
        }
    }
}

fn small_redb(dir: &Path, count: u64, clients: u64) -> f64 {
    let path = dir.join("redb");
    let database = redb::Database::create(&path).expect("a database");
    let rate = files::threads(count, clients, |at| {
        let change = database.begin_write().expect("a transaction");
        {
            let mut table = change.open_table(TABLE).expect("a table");
            let name = format!("small {at}");
            table.insert(&*name, &[7; 4096][..]).expect("an insert");
        }
        change.commit().expect("a commit");
    });
    drop(database);
    fs::remove_file(&path).expect("ours");
    rate
}

fn runtime() -> Runtime {
    Runtime::real(env::RealConfig::default()).expect("a runtime")
}

fn main() -> ExitCode {
    let (mut dir, mut as_json, mut runs) = (PathBuf::from("."), false, 5);
    let mut size = Size {
        large: 1024,
        small: 2000,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => as_json = true,
            "--quick" => {
                runs = 3;
                size = Size {
                    large: 256,
                    small: 400,
                };
            }
            "--runs" => match args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(n) => runs = n,
                None => {
                    eprintln!("--runs wants a number of runs, 1 or more");
                    return ExitCode::from(2);
                }
            },
            "--dir" => match args.next() {
                Some(path) => dir = PathBuf::from(path),
                None => {
                    eprintln!("--dir wants a folder on the disk to measure");
                    return ExitCode::from(2);
                }
            },
            "--bench" => {} // Cargo says so.
            other => {
                eprintln!(
                    "unknown argument '{other}'; there are --dir DIR, --json, --quick, --runs N"
                );
                return ExitCode::from(2);
            }
        }
    }
    let dir = match tempfile::Builder::new()
        .prefix("tanada-bench-")
        .tempdir_in(&dir)
    {
        Ok(dir) => dir,
        Err(error) => {
            eprintln!(
                "cannot make a folder in {}: {error}; give another with --dir",
                dir.display()
            );
            return ExitCode::FAILURE;
        }
    };
    let mut rows = Vec::new();
    for _ in 0..runs {
        large(dir.path(), &mut rows, size.large);
        all_small(dir.path(), &mut rows, size.small);
    }
    rows.sort_by(|a, b| a.case.cmp(&b.case));
    if as_json {
        let lines: Vec<String> = rows.iter().map(Row::json).collect();
        println!("[{}]", lines.join(",\n "));
        return ExitCode::SUCCESS;
    }
    println!(
        "a real disk, {}; median of {runs} runs (lowest - highest), then the ratio to the first of the case",
        runtime().driver_name()
    );
    for row in &rows {
        println!("{}", row.line());
    }
    ExitCode::SUCCESS
}
