//! The text readers on real traces: what they read is what was measured of them before, by other means.
//!
//! The traces lie outside the project (`TANADA_SHARED`, else `../shared` beside the workspace).

use std::path::Path;

use base::{Bytes, Nanos};
use serde_json::Value;
use trace::write::{Form, TraceWriter, copy};
use trace::{Format, Op, ReadOptions, Request, Requests, Trace, open};

/// Counts of a trace, as they are gathered batch by batch.
#[derive(Default)]
struct Counts {
    requests: u64,
    reads: u64,
    bytes: u64,
    read_bytes: u64,
    end: Bytes,
    span: Nanos,
    devices: base::Set<u32>,
}

impl Counts {
    fn of(trace: &mut Trace) -> Counts {
        let (mut counts, mut batch) = (Counts::default(), Vec::new());
        while trace.next_batch(&mut batch).expect("sound records") {
            batch.iter().for_each(|request| counts.add(request));
        }
        counts
    }

    fn add(&mut self, request: &Request) {
        assert!(request.at >= self.span, "in order of time");
        self.requests += 1;
        self.bytes += request.size.0;
        if request.op == Op::Read {
            self.reads += 1;
            self.read_bytes += request.size.0;
        }
        self.end = self.end.max(request.offset + request.size);
        self.span = request.at;
        self.devices.insert(request.device);
    }
}

/// What was measured of the file, by its name.
fn measured(traces: &Path, file: &str) -> Value {
    let lines = std::fs::read_to_string(traces.join("stats.jsonl")).expect("the measurements");
    let value = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let mut values = lines.lines().map(value);
    values
        .find(|value| value["file"] == *file)
        .unwrap_or_else(|| panic!("{file} was not measured"))
}

/// The same number, as far as its digits go.
fn close(ours: f64, theirs: &Value, digits: i32, what: &str) {
    let theirs = theirs.as_f64().expect("a number");
    let most = 0.500_001 * 10f64.powi(-digits);
    assert!((ours - theirs).abs() <= most, "{what}: {ours} for {theirs}");
}

#[test]
fn every_ascii_trace_is_recognised_and_counts_as_measured() {
    let Some(traces) = testkit::traces::shared("") else {
        return;
    };
    for path in [
        "llm/opt7b-offload-34s.ascii.zst",
        "msps/MSN-FS-143s.ascii.zst",
        "msr/prxy_0-reads-13h.ascii.zst",
        "msr/unidentified-18min.ascii.zst",
        "umass/financial1-10k.ascii.zst",
        "umass/websearch1-60s.ascii.zst",
    ] {
        let mut trace = open(&traces.join(path), &ReadOptions::default()).expect(path);
        assert_eq!(trace.format(), Format::Ascii, "{path}");
        let counts = Counts::of(&mut trace);
        let file = path.split('/').next_back().expect("a name");
        let known = measured(&traces, file);
        assert_eq!(Some(counts.requests), known["requests"].as_u64(), "{path}");
        assert_eq!(
            Some(counts.devices.len() as u64),
            known["devices"].as_u64(),
            "{path}"
        );
        close(counts.span.secs_f64(), &known["span_s"], 3, path);
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
        close(
            share(counts.reads, counts.requests),
            &known["read_pct"],
            2,
            path,
        );
        close(
            share(counts.read_bytes, counts.bytes),
            &known["read_bytes_pct"],
            2,
            path,
        );
        assert_eq!(
            Some(counts.bytes / counts.requests),
            known["mean_size"].as_u64(),
            "{path}"
        );
        close(
            counts.end.0 as f64 / (1u64 << 30) as f64,
            &known["max_offset_gib"],
            3,
            path,
        );
        assert_eq!(trace.malformed().count, 0, "{path}");
        let (read, whole) = trace.progress();
        assert_eq!(read, whole, "{path}");
    }
}

#[test]
fn the_traces_of_the_arc_paper_hold_the_references_its_collection_counts() {
    let Some(traces) = testkit::traces::shared("") else {
        return;
    };
    for (path, requests, pages) in [
        ("arc/OLTP.lis.zst", 914_145, 914_145),
        ("arc/P3.lis.zst", 238_578, 3_912_296),
    ] {
        let mut trace = open(&traces.join(path), &ReadOptions::default()).expect(path);
        assert_eq!(trace.format(), Format::Lis);
        let counts = Counts::of(&mut trace);
        assert_eq!(
            (counts.requests, counts.bytes / 512),
            (requests, pages),
            "{path}"
        );
        assert_eq!(counts.span, Nanos::millis(requests - 1));
    }
}

#[test]
fn a_real_trace_goes_through_every_form_and_comes_back_the_same() {
    let Some(traces) = testkit::traces::shared("") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut from = traces.join("umass/financial1-10k.ascii.zst");
    lab::parquet::provide();
    for name in ["a.csv", "b.parquet", "c.csv.zst", "d.csv"] {
        let to = folder.path().join(name);
        let mut trace = open(&from, &ReadOptions::default()).expect(name);
        let writer = TraceWriter::create(&to, Form::of_name(&to), false).expect(name);
        copy(&mut trace, writer, |_, _| ()).expect(name);
        from = to;
    }
    let [first, last] = ["a.csv", "d.csv"].map(|name| {
        let path = folder.path().join(name);
        std::fs::read_to_string(path).expect("written")
    });
    assert!(first == last);
    assert_eq!(first.lines().count(), 10_001);
    // `26214000 0 303574 7 0` in the original: 26.214 ms, a write, sectors of 512 bytes.
    assert_eq!(first.lines().nth(3), Some("26214,W,155429888,3584,0"));
}
