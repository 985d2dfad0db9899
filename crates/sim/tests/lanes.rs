//! What do lanes cost in misses? Public traces through the engine, with one lane and with several.
//!
//! A lane has a part of the cache for good, whatever of the trace comes to it. Virtual time: the next request is sent when the
//! last one was answered. All data are zeroes, so the slow device keeps none.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, PAGE, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};
use env::Runtime;
use hybrid::{Lanes, Settings, Ties};
use trace::{Op, ReadOptions, Request, Requests, open};

const MIB: u64 = 1 << 20;
/// Of longer traces so many requests.
const REQUESTS_MAX: usize = 100_000;

/// A disk of zeroes.
struct Zeroes(Bytes);

impl Zeroes {
    fn answer<T: 'static>(value: T) -> Pending<'static, T> {
        Box::pin(async move {
            env::sleep(Nanos::micros(100)).await;
            Ok(value)
        })
    }
}

impl Device for Zeroes {
    fn info(&self) -> Info {
        Info {
            size: self.0,
            ..Memory::new("zeroes", Bytes::mib(1)).info()
        }
    }
    fn read(&self, _at: Sector, mut buf: Buf, _class: Class) -> Pending<'_, Buf> {
        buf.zero();
        Zeroes::answer(buf)
    }
    fn write(&self, _at: Sector, _data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        Zeroes::answer(())
    }
    fn flush(&self) -> Pending<'_, ()> {
        Zeroes::answer(())
    }
    fn discard(&self, _span: Span) -> Pending<'_, ()> {
        Zeroes::answer(())
    }
    fn write_zeroes(&self, _span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        Zeroes::answer(())
    }
}

/// A trace on one volume: its devices one after the other, each from a whole MiB on.
struct Load {
    requests: Vec<(Op, Span)>,
    size: Bytes,
    /// Pages it touches.
    footprint: u64,
}

fn load(name: &str) -> Option<Load> {
    let path = testkit::traces::shared(name)?;
    let mut trace = open(&path, &ReadOptions::default()).expect("the shared trace opens");
    let (mut all, mut batch): (Vec<Request>, Vec<Request>) = (Vec::new(), Vec::new());
    while all.len() < REQUESTS_MAX && trace.next_batch(&mut batch).expect("sound records") {
        all.extend(batch.iter().filter(|request| request.size.0 > 0).cloned());
    }
    all.truncate(REQUESTS_MAX);
    let mut ends = std::collections::BTreeMap::new();
    for request in &all {
        let end = ends.entry(request.device).or_insert(0);
        *end = (request.offset + request.size).0.max(*end);
    }
    let mut size = 0;
    let starts: std::collections::BTreeMap<u32, u64> = ends
        .iter()
        .map(|(device, end)| {
            let start = size;
            size += end.next_multiple_of(MIB);
            (*device, start)
        })
        .collect();
    let mut pages = BTreeSet::new();
    let requests: Vec<(Op, Span)> = all
        .iter()
        .map(|request| {
            let from = (starts[&request.device] + request.offset.0) / 512 * 512;
            let len = request.size.0.next_multiple_of(512).min(4 * MIB);
            pages.extend(from / PAGE as u64..(from + len).div_ceil(PAGE as u64));
            (request.op, Span::bytes(from, len))
        })
        .collect();
    Some(Load {
        requests,
        size: Bytes(size + MIB),
        footprint: pages.len() as u64,
    })
}

/// The share of reads that the fast device could not answer alone, in percent.
fn misses(load: &Rc<Load>, lanes: u32, cache_pages: u64) -> f64 {
    let load = Rc::clone(load);
    Runtime::simulated(1).block_on(async move {
        let slow = Rc::new(Zeroes(load.size.max(Bytes::mib(16) * u64::from(lanes))));
        let cache = Bytes(cache_pages * PAGE as u64);
        let fast = Memory::new("ssd0", cache * 2 + Bytes::gib(1));
        fast.set_latency(Nanos::micros(10));
        let settings = Settings {
            fast_bytes: Some(cache),
            ..Settings::default()
        };
        let disk = Lanes::create(lanes, settings, slow, fast, |_| Ties::default());
        let disk = disk.await.expect("the devices fit");
        for (op, span) in &load.requests {
            let len = span.len.usize();
            match op {
                Op::Read => {
                    let read = disk.read(span.start, Buf::for_read(len), Class::Foreground);
                    drop(read.await.expect("it reads"));
                }
                Op::Write => {
                    let data = Buf::zeroed(len).freeze();
                    let wrote = disk.write(span.start, data, WriteFlags::default());
                    wrote.await.expect("it writes");
                }
                _ => {}
            }
        }
        let reads = disk.status().requests.reads();
        let missed = reads.requests_slow + reads.requests_both;
        missed as f64 / (missed + reads.requests_fast).max(1) as f64 * 100.0
    })
}

/// Traces with addresses.
const TRACES: [&str; 9] = [
    "cloudphysics/cloudPhysicsIO.vscsi.zst",
    "arc/OLTP.lis.zst",
    "arc/P3.lis.zst",
    "msps/MSN-FS-143s.ascii.zst",
    "hplabs/ajw.1week.srt.zst",
    "msr/prxy_0-reads-13h.ascii.zst",
    "msr/unidentified-18min.ascii.zst",
    "umass/financial1-10k.ascii.zst",
    "umass/websearch1-60s.ascii.zst",
];
/// What a lane has at least, in pages: what the engine asks for.
const LANE_PAGES_MIN: u64 = 4096;
/// By how many points of a hundred several lanes may miss more than one.
const POINTS_MAX: f64 = 0.5;

/// A trace with a cache of a part of the pages it touches.
struct Row {
    trace: &'static str,
    percent: u64,
    /// More points than [`POINTS_MAX`] that are known, where there are.
    known: f64,
}

const fn row(trace: &'static str, percent: u64) -> Row {
    Row {
        trace,
        percent,
        known: 0.0,
    }
}

/// Compared in every test run; with `TANADA_ALL_TRACES` there is a table of all traces.
const WATCHED: [Row; 6] = [
    row(TRACES[0], 10),
    // Where one lane just holds what is written again and again, a part of it does not: decision 13 says why.
    Row {
        known: 2.2,
        ..row(TRACES[0], 25)
    },
    row(TRACES[0], 50),
    row(TRACES[2], 25),
    row(TRACES[2], 50),
    row(TRACES[5], 50),
];

#[test]
fn lanes_miss_little_more_than_one() {
    if std::env::var_os("TANADA_ALL_TRACES").is_some() {
        TRACES
            .iter()
            .filter_map(|name| Some((name, load(name)?)))
            .for_each(|(name, load)| print_rows(name, load));
        return;
    }
    let mut compared = BTreeSet::new();
    for Row {
        trace,
        percent,
        known,
    } in WATCHED
    {
        let Some(load) = load(trace) else { return };
        let load = Rc::new(load);
        let pages = load.footprint * percent / 100;
        let one = misses(&load, 1, pages);
        assert!(one > 0.0 && one < 100.0);
        for lanes in [2, 4, 8] {
            if pages / lanes < LANE_PAGES_MIN {
                continue;
            }
            let several = misses(&load, lanes as u32, pages);
            println!("{trace}, {pages} pages: {one:.2} % miss, with {lanes} lanes {several:.2} %");
            let most = one + POINTS_MAX + known;
            assert!(
                several <= most,
                "{trace}, {pages} pages, {lanes} lanes: {several:.2} % for {one:.2} %"
            );
            compared.insert(lanes);
        }
    }
    assert_eq!(compared.into_iter().collect::<Vec<_>>(), [2, 4, 8]);
}

/// What one, two, four and eight lanes miss of a trace, with caches of several sizes.
fn print_rows(name: &str, load: Load) {
    let load = Rc::new(load);
    for percent in [10, 25, 50] {
        let pages = load.footprint * percent / 100;
        let row = [1, 2, 4, 8].map(|lanes| {
            match lanes == 1 || pages / u64::from(lanes) >= LANE_PAGES_MIN {
                true => format!("{:6.2}", misses(&load, lanes, pages)),
                false => "     -".to_owned(),
            }
        });
        let (touched, size) = (load.footprint, load.size);
        println!(
            "| {name} | {touched} in {size} | {percent} % = {pages} | {} |",
            row.join(" | ")
        );
    }
}
