//! How many records of a trace are read in a second of one core? Measured, not modelled.
//!
//! ```text
//! cargo bench -p trace --bench trace -- [--json] [--runs N] [--quick]
//! ```
//!
//! Two traces of 2 M requests in memory, plain: the normal form and MSR CSV. Ours is the whole way from
//! bytes to batches in order of time; its peer in the same run is the `csv` crate, its records reused, with
//! numbers parsed by the standard library into the same requests, no order checked. Both take turns. Rates
//! are the median of the runs, with the slowest and the fastest, and count the time on the processor.
#![allow(clippy::print_stdout)]

#[path = "../../../benches/stopwatch.rs"]
mod stopwatch;

use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::Arc;

use base::{Bytes, Nanos};
use stopwatch::Stopwatch;
use trace::write::push_csv;
use trace::{BATCH, HEADER, Op, ReadOptions, Request, Requests, Trace};

const SEED: u64 = 20_261_120;

/// Requests as a busy volume has them: a fifth writes, half of them going on where the last ended.
fn requests(count: usize) -> Vec<Request> {
    let mut state = SEED;
    let mut draw = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut at, mut end) = (0, 0);
    let next = |_| {
        at += draw(2_000) * 1_000;
        let offset = match draw(2) {
            0 => end,
            _ => draw(1 << 29) * 512,
        };
        let size = 512 << draw(8);
        end = offset + size;
        Request {
            at: Nanos(at),
            offset: Bytes(offset),
            size: Bytes(size),
            device: 0,
            op: if draw(5) == 0 { Op::Write } else { Op::Read },
        }
    };
    (0..count).map(next).collect()
}

fn normal_form(requests: &[Request]) -> Vec<u8> {
    let mut bytes = format!("{HEADER}\n").into_bytes();
    push_csv(requests, &mut bytes);
    bytes
}

fn msr(requests: &[Request]) -> Vec<u8> {
    use std::fmt::Write;
    let mut text = String::new();
    for one in requests {
        let stamp = 128_166_372_003_061_629 + one.at.0 / 100;
        let (op, offset, size) = (op_name(one.op), one.offset.0, one.size.0);
        let response = 300 + offset % 90_000;
        writeln!(text, "{stamp},src1,0,{op},{offset},{size},{response}")
            .expect("a String takes all");
    }
    text.into_bytes()
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Write => "Write",
        _ => "Read",
    }
}

/// The same bytes for every run.
struct Shared {
    bytes: Arc<Vec<u8>>,
    at: usize,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = (&self.bytes[self.at..]).read(buffer)?;
        self.at += n;
        Ok(n)
    }
}

/// What a reader saw: how many requests, and a sum over all of them so that none is left out.
type CountAndSum = (usize, u64);

fn add(seen: &mut CountAndSum, batch: &[Request]) {
    seen.0 += batch.len();
    for one in batch {
        let parts = one.at.0 ^ one.offset.0 ^ one.size.0 ^ u64::from(one.device);
        seen.1 = seen.1.wrapping_add(parts ^ one.op as u64);
    }
}

fn ours(bytes: &Arc<Vec<u8>>) -> CountAndSum {
    let reader = Shared {
        bytes: bytes.clone(),
        at: 0,
    };
    let options = ReadOptions::default();
    let mut trace = Trace::from_reader("bench", Box::new(reader), &options).expect("a trace");
    let (mut seen, mut batch) = ((0, 0), Vec::new());
    while trace.next_batch(&mut batch).expect("sound records") {
        add(&mut seen, &batch);
    }
    seen
}

/// Reads records with the `csv` crate; `parse` makes a request of one.
fn peer(
    bytes: &[u8],
    headers: bool,
    parse: fn(&csv::ByteRecord) -> Option<Request>,
) -> CountAndSum {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(headers)
        .buffer_capacity(256 << 10)
        .from_reader(bytes);
    let (mut seen, mut batch) = ((0, 0), Vec::with_capacity(BATCH));
    let mut record = csv::ByteRecord::new();
    let mut first = None;
    while reader.read_byte_record(&mut record).expect("sound records") {
        let mut request = parse(&record).expect("a request");
        request.at -= *first.get_or_insert(request.at);
        batch.push(request);
        if batch.len() == BATCH {
            add(&mut seen, &batch);
            batch.clear();
        }
    }
    add(&mut seen, &batch);
    seen
}

fn number(record: &csv::ByteRecord, column: usize) -> Option<u64> {
    std::str::from_utf8(record.get(column)?).ok()?.parse().ok()
}

fn parse_normal(record: &csv::ByteRecord) -> Option<Request> {
    Some(Request {
        at: Nanos(number(record, 0)? * 1_000),
        offset: Bytes(number(record, 2)?),
        size: Bytes(number(record, 3)?),
        device: number(record, 4)? as u32,
        op: match record.get(1)? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return None,
        },
    })
}

fn parse_msr(record: &csv::ByteRecord) -> Option<Request> {
    Some(Request {
        at: Nanos(number(record, 0)? * 100),
        offset: Bytes(number(record, 4)?),
        size: Bytes(number(record, 5)?),
        device: number(record, 2)? as u32,
        op: match record.get(3)? {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            _ => return None,
        },
    })
}

/// Million records per second: median, slowest and fastest run.
struct Rate {
    median: f64,
    low: f64,
    high: f64,
}

impl Rate {
    fn of(mut rates: Vec<f64>) -> Rate {
        rates.sort_by(f64::total_cmp);
        Rate {
            median: rates[rates.len() / 2],
            low: rates[0],
            high: rates[rates.len() - 1],
        }
    }
}

struct Row {
    form: &'static str,
    aim: f64,
    bytes_each: f64,
    ours: Rate,
    peer: Rate,
}

fn measure(form: &'static str, aim: f64, bytes: Vec<u8>, count: usize, runs: usize) -> Row {
    let bytes = Arc::new(bytes);
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        let start = Stopwatch::start();
        let mine = ours(&bytes);
        rates[0].push(count as f64 / start.seconds() / 1e6);
        let start = Stopwatch::start();
        let theirs = match form {
            "csv" => peer(&bytes, true, parse_normal),
            _ => peer(&bytes, false, parse_msr),
        };
        rates[1].push(count as f64 / start.seconds() / 1e6);
        assert_eq!(mine, theirs, "both read the same requests");
        assert_eq!(mine.0, count);
    }
    let [ours, peer] = rates.map(Rate::of);
    Row {
        form,
        aim,
        bytes_each: bytes.len() as f64 / count as f64,
        ours,
        peer,
    }
}

fn main() -> ExitCode {
    let (mut as_json, mut runs, mut count) = (false, 7, 2_000_000);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => as_json = true,
            "--quick" => (runs, count) = (3, 500_000),
            "--runs" => match args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(n) => runs = n,
                None => {
                    eprintln!("--runs wants a number of runs, 1 or more");
                    return ExitCode::from(2);
                }
            },
            "--bench" => {} // Cargo says so.
            other => {
                eprintln!("unknown argument '{other}'; there are --json, --quick, --runs N");
                return ExitCode::from(2);
            }
        }
    }
    let requests = requests(count);
    let rows = [
        measure("csv", 10.0, normal_form(&requests), count, runs),
        measure("msr", 3.0, msr(&requests), count, runs),
    ];
    if as_json {
        let lines: Vec<String> = rows
            .iter()
            .flat_map(|row| [("tanada", &row.ours), ("csv-crate", &row.peer)].map(|one| (row, one)))
            .map(|(row, (method, rate))| {
                format!(
                    "{{\"experiment\":\"bench-trace\",\"case\":\"{}\",\"method\":\"{method}\",\
                     \"metric\":\"rate\",\"unit\":\"Mrecords/s\",\"ours\":{:.2},\"low\":{:.2},\
                     \"high\":{:.2},\"aim\":{:.1},\"records\":{count},\"runs\":{runs},\
                     \"seed\":{SEED},\"devices\":\"real\"}}",
                    row.form, rate.median, rate.low, rate.high, row.aim
                )
            })
            .collect();
        println!("[{}]", lines.join(",\n "));
        return ExitCode::SUCCESS;
    }
    println!(
        "{count} records in memory, seed {SEED}; processor time of one core, median of {runs} runs \
         (slowest - fastest), M records/s"
    );
    for row in &rows {
        println!(
            "{:<4} {:.0} bytes each   ours {:.1} ({:.1} - {:.1}), aim {:.0}: {:.2} x   csv crate {:.1} \
             ({:.1} - {:.1}): ours {:.2} x",
            row.form,
            row.bytes_each,
            row.ours.median,
            row.ours.low,
            row.ours.high,
            row.aim,
            row.ours.median / row.aim,
            row.peer.median,
            row.peer.low,
            row.peer.high,
            row.ours.median / row.peer.median
        );
    }
    ExitCode::SUCCESS
}
