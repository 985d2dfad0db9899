//! Traces in Parquet through the public reader and writer, as the laboratory provides them.

use std::path::Path;

use base::{Bytes, Nanos};
use trace::write::{Form, TraceWriter, copy};
use trace::{Format, Op, ReadOptions, Request, Requests, Trace, open};

/// More requests than one batch holds, of every kind and of two devices.
fn sample() -> Vec<Request> {
    let request = |n: u64| {
        let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][(n % 4) as usize];
        let flush = op == Op::Flush;
        Request {
            at: Nanos::micros(n * 7),
            offset: Bytes(if flush { 0 } else { (n % 1_000) * 4096 }),
            size: Bytes(if flush { 0 } else { 512 + n % 9 * 512 }),
            device: (n % 2) as u32,
            op,
        }
    };
    (0..20_000).map(request).collect()
}

/// The requests of the file, which is of `format`.
fn requests(path: &Path, format: Format) -> Vec<Request> {
    let mut trace: Trace = open(path, &ReadOptions::default()).expect("opened");
    assert_eq!(trace.format(), format);
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).expect("read") {
        all.extend_from_slice(&batch);
    }
    all
}

#[test]
fn from_csv_to_parquet_and_back_not_a_byte_changes() {
    lab::parquet::provide();
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["a.csv", "b.parquet", "c.csv"].map(|name| folder.path().join(name));
    let mut first = TraceWriter::create(&paths[0], Form::Csv, false).expect("begun");
    first.remark("generated: by a test, seed 1");
    first.write(&sample()).expect("written");
    first.finish().expect("finished");
    for pair in paths.windows(2) {
        let mut from = open(&pair[0], &ReadOptions::default()).expect("opened");
        let to = TraceWriter::create(&pair[1], Form::of_name(&pair[1]), false).expect("begun");
        let written = copy(&mut from, to, |_, _| ()).expect("copied");
        assert_eq!(written.requests, sample().len() as u64);
        assert_eq!(written.bytes, pair[1].metadata().expect("there").len());
    }
    assert!(requests(&paths[1], Format::Parquet) == sample());
    let [first, _, last] = paths.map(|path| std::fs::read(path).expect("there"));
    assert!(first == last && first.len() > 100_000);
}
