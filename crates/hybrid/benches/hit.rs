//! What does the hybrid disk cost beside its devices: per hit, per cached block, per write, per miss?
//!
//! ```text
//! cargo bench -p hybrid --bench hit -- [--json] [--runs N] [--quick] [--only cache | models]
//!
//! hit       random 4 KiB reads of a full cache; the fast device answers at once and copies nothing
//! memory    what the map and the policy hold, and what the process grew by
//! write     random 4 KiB writes of a cache, with and without a restart log; both devices answer at once
//! recovery  reading the map of a full cache back
//! writes    random 4 KiB writes with a flush every 32 or 128: requests the fast device got
//! miss      random 4 KiB reads, none cached, beside the same reads of the slow device alone
//! cleaner   random 4 KiB writes destaged in address order, beside the same writes as they came
//! ```
//!
//! Hits, writes and recovery count processor time of this thread, on this machine. Writes, misses and the cleaner
//! run on modelled devices in virtual time; their runs differ by seed. Figures are the median of the runs
//! with the lowest and the highest.
#![allow(clippy::print_stdout)]

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use base::{Buf, Bytes, PAGE, Sector, Span, View, crc::crc32c};
use device::model::{ModelDisk, Spec, Store};
use device::{Class, Device, DeviceError, DeviceExt, Info, Memory, Op, Pending, WriteFlags, ready};
use env::sync::join_all;
use env::{Mapping, Rng, Runtime};
use hybrid::{Admission, Hybrid, RESTART_LOG, RestartPlace, Settings, Ties, WriteMode};
use policy::cache::Kind;
use rustix::time::{ClockId, clock_gettime};

const SEED: u64 = 20_261_120;
/// Every data byte in this benchmark.
const FILL: u8 = 0x5a;
const SLOW: &str = "hdd-7200-sata";
const FAST: &str = "ssd-sata-mlc";
/// The cache that hits, memory and recovery are measured on.
const BLOCKS: u64 = 1 << 20;

// --- devices that hold nothing --------------------------------------------------------------------

/// Answers at once. Data are [`FILL`] all over and kept nowhere; everything else (labels, the ledger) is
/// kept in memory.
struct Hollow {
    info: Info,
    kept: Rc<Memory>,
    /// From this byte on there are only data.
    data_from: Cell<u64>,
    writes: Cell<u64>,
}

impl Hollow {
    fn new(name: &str, size: Bytes) -> Rc<Hollow> {
        let kept = Memory::new(name, size);
        Rc::new(Hollow {
            info: Info {
                volatile_cache: true,
                ..kept.info()
            },
            kept,
            data_from: Cell::new(u64::MAX),
            writes: Cell::new(0),
        })
    }

    /// One that holds nothing but data.
    fn data_only(name: &str, size: Bytes) -> Rc<Hollow> {
        let hollow = Hollow::new(name, size);
        hollow.data_from.set(0);
        hollow
    }
}

impl Device for Hollow {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn read(&self, at: Sector, mut buf: Buf, class: Class) -> Pending<'_, Buf> {
        if at.byte() < self.data_from.get() {
            return self.kept.read(at, buf, class);
        }
        // A buffer that was here before holds the data already: no copy.
        if buf.first() != Some(&FILL) || buf.last() != Some(&FILL) {
            buf.fill(FILL);
        }
        ready(Ok(buf))
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.writes.set(self.writes.get() + 1);
        if data.first() == Some(&FILL) && data.last() == Some(&FILL) {
            self.data_from.set(self.data_from.get().min(at.byte()));
            return ready(Ok(()));
        }
        self.kept.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn discard(&self, _: Span) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.kept.write_zeroes(span, flags)
    }
}

// --- figures --------------------------------------------------------------------------------------

/// Nanoseconds this thread has computed.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes of memory this process has in use.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// What is wanted of a figure.
#[derive(Clone, Copy)]
enum Aim {
    AtMost(f64),
    None,
}

struct Row {
    case: String,
    method: String,
    metric: &'static str,
    unit: &'static str,
    runs: Vec<f64>,
    aim: Aim,
    modelled: bool,
}

impl Row {
    fn median(&self) -> f64 {
        self.runs[self.runs.len() / 2]
    }

    fn json(&self) -> String {
        let (aim, verdict) = match self.aim {
            Aim::AtMost(aim) => (aim.to_string(), format!("\"{}\"", self.verdict())),
            Aim::None => ("null".to_owned(), "null".to_owned()),
        };
        format!(
            "{{\"experiment\":\"bench-hit\",\"case\":\"{}\",\"method\":\"{}\",\"metric\":\"{}\",\
             \"unit\":\"{}\",\"ours\":{:.4},\"low\":{:.4},\"high\":{:.4},\"aim_at_most\":{aim},\
             \"verdict\":{verdict},\"runs\":{},\"seed\":{SEED},\"devices\":\"{}\"}}",
            self.case,
            self.method,
            self.metric,
            self.unit,
            self.median(),
            self.runs[0],
            self.runs[self.runs.len() - 1],
            self.runs.len(),
            if self.modelled { "modelled" } else { "real" }
        )
    }

    fn verdict(&self) -> &'static str {
        match self.aim {
            Aim::AtMost(aim) if self.median() > aim => "short",
            Aim::AtMost(_) => "ok",
            Aim::None => "",
        }
    }

    fn line(&self) -> String {
        let aim = match self.aim {
            Aim::AtMost(aim) => format!("   aim <= {aim}: {}", self.verdict()),
            Aim::None => String::new(),
        };
        format!(
            "{:<9} {:<24} {:<26} {:>9.3} ({:.3} - {:.3}) {}{}{aim}",
            self.case,
            self.method,
            self.metric,
            self.median(),
            self.runs[0],
            self.runs[self.runs.len() - 1],
            self.unit,
            if self.modelled { ", modelled" } else { "" },
        )
    }
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Adds one run's value to the row of this name.
    fn add(
        &mut self,
        (case, method, metric): (&str, &str, &'static str),
        (value, unit): (f64, &'static str),
        aim: Aim,
        modelled: bool,
    ) {
        let found = self
            .rows
            .iter_mut()
            .find(|row| row.case == case && row.method == method && row.metric == metric);
        match found {
            Some(row) => row.runs.push(value),
            None => self.rows.push(Row {
                case: case.to_owned(),
                method: method.to_owned(),
                metric,
                unit,
                runs: vec![value],
                aim,
                modelled,
            }),
        }
    }

    fn sorted(mut self) -> Vec<Row> {
        for row in &mut self.rows {
            row.runs.sort_by(f64::total_cmp);
        }
        self.rows
    }
}

// --- hits, memory, recovery -----------------------------------------------------------------------

/// What one full cache showed.
struct Full {
    hit_ns: f64,
    bare_ns: f64,
    crc_ns: f64,
    bytes_per_block: f64,
    resident_per_block: Option<f64>,
    recovery_seconds_per_million: f64,
}

/// A cache size in bytes with room for `blocks` pages and the map.
fn fast_size(blocks: u64) -> Bytes {
    Bytes(blocks * PAGE as u64 * 21 / 20 + (64 << 20))
}

fn full_settings(kind: Kind, blocks: u64) -> Settings {
    Settings {
        policy: kind,
        sequential_bypass: None,
        // The cleaner is not what is measured here.
        dirty_low: 94,
        dirty_high: 95,
        fast_bytes: Some(Bytes(blocks * PAGE as u64)),
        ..Settings::default()
    }
}

fn full_cache(kind: Kind, blocks: u64, hits: u64, seed: u64) -> Full {
    Runtime::simulated(seed).block_on(async move {
        let slow = Hollow::data_only("slow", Bytes(4 * blocks * PAGE as u64));
        let fast = Hollow::new("fast", fast_size(blocks));
        let settings = full_settings(kind, blocks);
        let before = resident();
        let made = Hybrid::create(
            settings.clone(),
            slow.clone(),
            fast.clone(),
            Ties::default(),
        );
        let disk = made.await.expect("two blank devices make a disk");
        // All but what stays free for writes, in pieces of 256 KiB scattered over the slow device.
        let pieces = blocks / 64 * 97 / 100;
        let piece = View::copy_of(&vec![FILL; 64 * PAGE]);
        for number in 0..pieces {
            let at = Sector::containing(number * 4 * piece.len() as u64);
            disk.write_at(at, piece.clone())
                .await
                .expect("it is written");
            if number % 256 == 255 {
                disk.flush().await.expect("it is flushed");
            }
        }
        disk.flush().await.expect("it is flushed");
        let cached = disk.status().occupancy.cached_bytes / PAGE as u64;
        assert_eq!(cached, pieces * 64, "everything written is cached");
        let grown = resident().zip(before).map(|(after, before)| after - before);
        let kept = fast.kept.held().0 + slow.kept.held().0;

        let mut rng = Rng::from_seed(seed);
        let pages: Vec<Sector> = (0..hits)
            .map(|_| {
                let page = rng.below(pieces) * 256 + rng.below(64);
                Sector::containing(page * PAGE as u64)
            })
            .collect();
        let (hit_ns, _) = read_all(&disk, &pages).await;
        let status = disk.status();
        assert_eq!(
            status.requests.random_reads.requests_slow, 0,
            "every read was a hit"
        );
        assert_eq!(status.requests.reads().requests_fast, hits);
        let (bare_ns, buf) =
            read_all(&*fast, &vec![Sector::containing(1 << 30); pages.len()]).await;
        let start = cpu_ns();
        let mut sum = 0;
        for _ in 0..hits {
            sum ^= crc32c(std::hint::black_box(&buf));
        }
        std::hint::black_box(sum);
        let crc_ns = (cpu_ns() - start) as f64 / hits as f64;

        disk.close().await.expect("it is closed");
        drop(disk);
        let start = cpu_ns();
        let disk = Hybrid::open(settings, slow, fast, Ties::default()).await;
        let took = (cpu_ns() - start) as f64 / 1e9;
        let disk = disk.expect("it comes back");
        assert_eq!(disk.status().recovered.pages, cached, "every page is back");
        Full {
            hit_ns,
            bare_ns,
            crc_ns,
            bytes_per_block: status.memory_bytes as f64 / cached as f64,
            resident_per_block: grown
                .map(|grown| grown.saturating_sub(kept) as f64 / cached as f64),
            recovery_seconds_per_million: took / (cached as f64 / 1e6),
        }
    })
}

/// Processor time per read, and the buffer that was read into all the time.
async fn read_all(disk: &dyn Device, places: &[Sector]) -> (f64, Buf) {
    let mut buf = Buf::for_read(PAGE);
    buf.fill(FILL);
    let start = cpu_ns();
    for at in places {
        buf = disk
            .read(*at, buf, Class::Foreground)
            .await
            .expect("it is read");
    }
    ((cpu_ns() - start) as f64 / places.len() as f64, buf)
}

/// Processor time per cached write, with a restart log or without one.
fn cached_write(logged: bool, count: u64, seed: u64) -> f64 {
    const PAGES: u64 = 50_000;
    Runtime::simulated(seed).block_on(async move {
        let slow = Hollow::data_only("slow", Bytes(4 * PAGES * PAGE as u64));
        let fast = Hollow::new("fast", fast_size(4 * PAGES));
        let ties = Ties {
            restart: logged.then(|| RestartPlace {
                memory: Rc::new(Mapping::simulated(RESTART_LOG)),
                boot: 1,
            }),
            ..Ties::default()
        };
        let settings = full_settings(Kind::S3Fifo, 4 * PAGES);
        let made = Hybrid::create(settings, slow, fast, ties);
        let disk = made.await.expect("two blank devices make a disk");
        let mut rng = Rng::from_seed(seed);
        let page = View::copy_of(&[FILL; PAGE]);
        let start = cpu_ns();
        for number in 1..=count {
            let at = Sector::containing(rng.below(PAGES) * PAGE as u64);
            let written = disk.write_at(at, page.clone()).await;
            written.expect("it is written");
            if number % 4096 == 0 {
                disk.flush().await.expect("it is flushed");
            }
        }
        (cpu_ns() - start) as f64 / count as f64
    })
}

fn measure_full(table: &mut Table, runs: u64, blocks: u64, hits: u64) {
    for run in 0..runs {
        let count = hits / 8;
        let [bare, logged] = [false, true].map(|logged| cached_write(logged, count, SEED + run));
        for (metric, ns, aim) in [
            ("engine", bare, Aim::None),
            ("restart log alone", logged - bare, Aim::AtMost(0.1)),
        ] {
            let value = (ns / 1000.0, "us of CPU per write");
            table.add(("write", "s3-fifo", metric), value, aim, false);
        }
        for kind in [Kind::Lru, Kind::S3Fifo] {
            let name = kind.to_string();
            let full = full_cache(kind, blocks, hits, SEED + run);
            let us = |ns: f64| (ns / 1000.0, "us of CPU per hit");
            let engine = full.hit_ns - full.crc_ns;
            for (metric, ns, aim) in [
                ("engine", engine, Aim::AtMost(0.6)),
                ("engine and checksum", full.hit_ns, Aim::None),
                ("checksum alone", full.crc_ns, Aim::None),
                ("device call alone", full.bare_ns, Aim::None),
            ] {
                table.add(("hit", &name, metric), us(ns), aim, false);
            }
            let bytes = |bytes: f64| (bytes, "bytes per cached block");
            table.add(
                ("memory", &name, "map and policy"),
                bytes(full.bytes_per_block),
                Aim::AtMost(24.0),
                false,
            );
            // The first cache only: later ones use the memory it gave back.
            if let Some(resident) = full.resident_per_block.filter(|_| table.rows.len() < 6) {
                table.add(
                    ("memory", &name, "process growth"),
                    bytes(resident),
                    Aim::None,
                    false,
                );
            }
            table.add(
                ("recovery", &name, "open"),
                (full.recovery_seconds_per_million, "CPU seconds per M pages"),
                Aim::None,
                false,
            );
        }
    }
}

// --- on modelled devices --------------------------------------------------------------------------

fn model(name: &str, kind: &str, store: Store, seed: u64) -> Rc<ModelDisk> {
    let spec = Spec::find(kind).expect("the catalogue has it");
    ModelDisk::new(name, &spec, None, store, seed).expect("a model has its own size")
}

fn size_of(kind: &str) -> Bytes {
    Spec::find(kind).expect("the catalogue has it").size
}

/// Device writes per user write: while they come, and with those of destaging added.
fn batched_writes(batch: u64, count: u64, seed: u64) -> (f64, f64) {
    Runtime::simulated(seed).block_on(async move {
        let hollow = Hollow::new("fast", size_of(FAST));
        let fast = model("fast", FAST, Store::Device(hollow.clone()), seed);
        let slow_store = Hollow::data_only("slow", size_of(SLOW));
        let slow = model("slow", SLOW, Store::Device(slow_store), seed);
        let settings = Settings {
            fast_bytes: Some(Bytes::gib(4)),
            ..Settings::default()
        };
        let disk = Hybrid::create(settings, slow, fast, Ties::default())
            .await
            .expect("two blank devices make a disk");
        let before = hollow.writes.get();
        let mut rng = Rng::from_seed(seed);
        let page = View::copy_of(&[FILL; PAGE]);
        let pages = disk.info().size.0 / PAGE as u64;
        for _ in 0..count / batch {
            let writes: Vec<_> = (0..batch)
                .map(|_| {
                    let at = Sector::containing(rng.below(pages) * PAGE as u64);
                    disk.write_at(at, page.clone())
                })
                .collect();
            let done: Result<Vec<()>, DeviceError> = join_all(writes).await.into_iter().collect();
            done.expect("they are written");
            disk.flush().await.expect("it is flushed");
        }
        let written = (count / batch * batch) as f64;
        let during = (hollow.writes.get() - before) as f64 / written;
        disk.set_write_mode(WriteMode::Through)
            .await
            .expect("it is cleaned");
        disk.flush().await.expect("it is flushed");
        (during, (hollow.writes.get() - before) as f64 / written)
    })
}

/// Sends one request for each place, `depth` at a time; virtual seconds for all of them.
async fn at_depth(disk: Rc<dyn Device>, op: Op, places: &[Sector], depth: usize) -> f64 {
    let next = Cell::new(0);
    let page = View::copy_of(&[FILL; PAGE]);
    let start = env::now();
    let workers = (0..depth).map(|_| async {
        while let Some(at) = places.get(next.get()) {
            next.set(next.get() + 1);
            match op {
                Op::Write => disk
                    .write_at(*at, page.clone())
                    .await
                    .expect("it is written"),
                _ => drop(
                    disk.read_at(*at, Bytes(PAGE as u64))
                        .await
                        .expect("it is read"),
                ),
            }
        }
    });
    join_all(workers).await;
    if op == Op::Write {
        disk.flush().await.expect("it is flushed");
    }
    env::now().since(start).secs_f64()
}

/// Distinct pages of the slow device's first `over` bytes, in random order.
fn places(count: usize, over: Bytes, seed: u64) -> Vec<Sector> {
    let pages = over.0 / PAGE as u64;
    let part = pages / count as u64;
    let mut rng = Rng::from_seed(seed);
    let mut places: Vec<Sector> = (0..count as u64)
        .map(|number| Sector::containing((number * part + rng.below(part)) * PAGE as u64))
        .collect();
    for at in (1..places.len()).rev() {
        places.swap(at, rng.below(at as u64 + 1) as usize);
    }
    places
}

async fn modelled_pair(settings: Settings, seed: u64) -> Hybrid {
    let fast_store = Hollow::new("fast", size_of(FAST));
    let slow_store = Hollow::data_only("slow", size_of(SLOW));
    let slow = model("slow", SLOW, Store::Device(slow_store), seed);
    let fast = model("fast", FAST, Store::Device(fast_store), seed);
    Hybrid::create(settings, slow, fast, Ties::default())
        .await
        .expect("two blank devices make a disk")
}

/// Response time of reads that miss, over that of the same reads of the slow device alone.
fn miss(admission: Admission, depth: usize, count: usize, seed: u64) -> f64 {
    let wanted = Rc::new(places(count, size_of(SLOW), seed));
    let on_bare = Rc::clone(&wanted);
    let bare = Runtime::simulated(seed).block_on(async move {
        let slow = model("slow", SLOW, Store::None, seed);
        at_depth(slow, Op::Read, &on_bare, depth).await
    });
    let ours = Runtime::simulated(seed).block_on(async move {
        let settings = Settings {
            admission,
            fast_bytes: Some(Bytes::gib(1)),
            ..Settings::default()
        };
        let disk = modelled_pair(settings, seed).await;
        let took = at_depth(Rc::new(disk.clone()), Op::Read, &wanted, depth).await;
        let status = disk.status();
        let hits = status.requests.reads().requests_fast;
        assert_eq!(hits, 0, "every read was a miss");
        took
    });
    ours / bare
}

/// Random writes a second: as they come to the bare slow device at depth 16, and destaged by the
/// cleaner.
fn cleaner(count: usize, over: Bytes, seed: u64) -> (f64, f64) {
    let wanted = Rc::new(places(count, over, seed));
    let on_bare = Rc::clone(&wanted);
    let bare = Runtime::simulated(seed).block_on(async move {
        let store = Hollow::data_only("slow", size_of(SLOW));
        let slow = model("slow", SLOW, Store::Device(store), seed);
        at_depth(slow, Op::Write, &on_bare, 16).await
    });
    let ours = Runtime::simulated(seed).block_on(async move {
        let settings = Settings {
            fast_bytes: Some(Bytes::gib(1)),
            dirty_low: 94,
            dirty_high: 95,
            ..Settings::default()
        };
        let disk = modelled_pair(settings, seed).await;
        at_depth(Rc::new(disk.clone()), Op::Write, &wanted, 16).await;
        let dirty = disk.status().occupancy.dirty_bytes / PAGE as u64;
        assert!(
            dirty * 100 >= wanted.len() as u64 * 99,
            "{dirty} pages wait"
        );
        let start = env::now();
        disk.set_write_mode(WriteMode::Through)
            .await
            .expect("it is cleaned");
        env::now().since(start).secs_f64() * wanted.len() as f64 / dirty as f64
    });
    (count as f64 / bare, count as f64 / ours)
}

fn measure_models(table: &mut Table, runs: u64, count: usize) {
    for seed in (0..runs).map(|run| SEED + run) {
        for batch in [32, 128] {
            let (during, all) = batched_writes(batch, 4 * count as u64, seed);
            let method = format!("flush every {batch}");
            let unit = "per user write";
            let aim = Aim::AtMost(1.1);
            table.add(
                ("writes", &method, "device writes"),
                (during, unit),
                aim,
                true,
            );
            let metric = "device writes, all destaged";
            table.add(("writes", &method, metric), (all, unit), Aim::None, true);
        }
        for admission in [Admission::SecondAccess, Admission::Always] {
            for depth in [1, 16] {
                let ratio = miss(admission, depth, count, seed);
                let method = format!("{admission}, depth {depth}");
                let value = (ratio, "times the bare device's");
                table.add(
                    ("miss", &method, "response time"),
                    value,
                    Aim::AtMost(1.05),
                    true,
                );
            }
        }
        for over in [Bytes::gib(4), size_of(SLOW)] {
            let (bare, ours) = cleaner(4 * count, over, seed);
            let method = format!("pages over {over}");
            let rows = [("as they come, depth 16", bare), ("destaged", ours)];
            for (metric, rate) in rows {
                let value = (rate, "4 KiB writes per second");
                table.add(("cleaner", &method, metric), value, Aim::None, true);
            }
            let value = (ours / bare, "times as they come");
            table.add(("cleaner", &method, "gain"), value, Aim::None, true);
        }
    }
}

fn main() -> ExitCode {
    let (mut as_json, mut runs, mut blocks) = (false, 5, BLOCKS);
    let (mut cache, mut models) = (true, true);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => as_json = true,
            "--quick" => (runs, blocks) = (3, BLOCKS / 8),
            "--runs" => match args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(n) => runs = n,
                None => {
                    eprintln!("--runs wants a number of runs, 1 or more");
                    return ExitCode::from(2);
                }
            },
            "--only" => match args.next().as_deref() {
                Some("cache") => models = false,
                Some("models") => cache = false,
                _ => {
                    eprintln!("--only wants cache (hit, memory, recovery) or models (the others)");
                    return ExitCode::from(2);
                }
            },
            "--bench" => {} // Cargo says so.
            other => {
                eprintln!(
                    "unknown argument '{other}'; there are --json, --quick, --runs N, --only HALF"
                );
                return ExitCode::from(2);
            }
        }
    }
    let mut table = Table::default();
    if cache {
        measure_full(&mut table, runs, blocks, 4 * blocks);
    }
    if models {
        measure_models(&mut table, runs, 5000);
    }
    let rows = table.sorted();
    if as_json {
        let lines: Vec<String> = rows.iter().map(Row::json).collect();
        println!("[{}]", lines.join(",\n "));
        return ExitCode::SUCCESS;
    }
    println!(
        "{blocks} blocks of 4 KiB; modelled: {FAST} before {SLOW}; median of {runs} runs (lowest - highest), \
         seed {SEED}"
    );
    for row in &rows {
        println!("{}", row.line());
    }
    ExitCode::SUCCESS
}
