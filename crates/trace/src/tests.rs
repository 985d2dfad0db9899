//! How a trace is opened, unpacked, merged, put in order, clipped and refused.

use std::io::{Cursor, Read, Write};

use base::{Bytes, Nanos};

use super::*;

/// Reads all of `text`.
pub(super) fn read_as(
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<(Vec<Request>, Trace), TraceError> {
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let mut trace = Trace::from_reader("sample", reader, options)?;
    let all = drain(&mut trace)?;
    Ok((all, trace))
}

pub(super) fn drain(trace: &mut Trace) -> Result<Vec<Request>, TraceError> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        assert!(!batch.is_empty() && batch.len() <= BATCH);
        all.extend_from_slice(&batch);
    }
    assert!(batch.is_empty());
    Ok(all)
}

pub(super) fn named(format: Format) -> ReadOptions {
    ReadOptions {
        format: Some(format),
        ..ReadOptions::default()
    }
}

pub(super) fn counted(format: Format) -> ReadOptions {
    ReadOptions {
        bad: Bad::Count,
        ..named(format)
    }
}

/// A request: nanoseconds, operation, offset, size, device.
pub(super) fn req(at: u64, op: Op, offset: u64, size: u64, device: u32) -> Request {
    Request {
        at: Nanos(at),
        offset: Bytes(offset),
        size: Bytes(size),
        device,
        op,
    }
}

/// The sentence with which `bytes` are refused.
pub(super) fn refusal(bytes: &[u8], options: &ReadOptions) -> String {
    match read_as(bytes, options) {
        Ok((all, _)) => panic!("{} requests were read", all.len()),
        Err(error) => error.to_string(),
    }
}

const SMALL: &str = "t_us,op,offset,size,dev\n\
                     5,R,4096,512,0\n\
                     7,W,0,4096,3\n\
                     7,F,9,9,3\n\
                     12,D,1048576,65536,0\n";

fn small() -> Vec<Request> {
    vec![
        req(0, Op::Read, 4096, 512, 0),
        req(2_000, Op::Write, 0, 4096, 3),
        req(2_000, Op::Flush, 0, 0, 3),
        req(7_000, Op::Discard, 1 << 20, 65536, 0),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("a Vec takes all");
    packer.finish().expect("a Vec takes all")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 1).expect("a Vec takes all")
}

#[test]
fn a_trace_is_read_plain_gzipped_and_by_zstd_whatever_its_name() {
    let gzip_of_two = [gzip(&SMALL.as_bytes()[..30]), gzip(&SMALL.as_bytes()[30..])].concat();
    for bytes in [
        SMALL.as_bytes().to_vec(),
        gzip(SMALL.as_bytes()),
        gzip_of_two,
        zstd(SMALL.as_bytes()),
    ] {
        let (all, trace) = read_as(&bytes, &ReadOptions::default()).expect("read");
        assert_eq!(all, small());
        assert_eq!(trace.format(), Format::Csv);
        assert_eq!(trace.progress().0, bytes.len() as u64);
    }
}

#[test]
fn packed_data_cut_off_or_damaged_name_the_file() {
    let long = SMALL.repeat(1000);
    for (packing, whole) in [
        ("gzip", gzip(long.as_bytes())),
        ("zstd", zstd(long.as_bytes())),
    ] {
        let cut = refusal(&whole[..whole.len() - 9], &counted(Format::Csv));
        assert!(
            cut.starts_with(&format!(
                "cannot unpack the trace sample: its {packing} data are cut off or damaged after"
            )),
            "{cut}"
        );
    }
    let mut hurt = gzip(long.as_bytes());
    let middle = hurt.len() / 2;
    hurt[middle] ^= 0xff;
    assert!(refusal(&hurt, &counted(Format::Csv)).contains("damaged"));
}

#[test]
fn an_empty_file_holds_no_request() {
    let empty = refusal(b"", &ReadOptions::default());
    assert_eq!(empty, "the trace sample holds no request");
    assert_eq!(refusal(&gzip(b""), &ReadOptions::default()), empty);
    assert_eq!(
        refusal(b"t_us,op,offset,size,dev\n", &named(Format::Csv)),
        empty
    );
    assert_eq!(
        refusal(b"nonsense\n", &counted(Format::Csv)),
        "the trace sample holds no request; 1 malformed records were left out, the first: sample, \
         line 1 (byte 0): 1 columns where 5: t_us,op,offset,size,dev belong"
    );
}

#[test]
fn a_bad_line_ends_the_reading_or_is_counted() {
    let text = SMALL.replace("7,W,0", "7,W,zero");
    assert_eq!(
        refusal(text.as_bytes(), &ReadOptions::default()),
        "sample, line 3 (byte 39): 'zero' in the place of the offset is no whole number from 0 to \
         2^64 - 1; to leave such records out and count them, ask with --bad count"
    );
    let (all, trace) = read_as(text.as_bytes(), &counted(Format::Csv)).expect("counted");
    let mut expected = small();
    expected.remove(1);
    assert_eq!(all, expected);
    assert_eq!(trace.malformed().count, 1);
    assert_eq!(trace.malformed().first[0].place, Place::Line(3));
}

#[test]
fn only_the_first_few_bad_records_are_kept() {
    let text = format!("{SMALL}{}", "x\n".repeat(50));
    let (_, trace) = read_as(text.as_bytes(), &counted(Format::Csv)).expect("counted");
    assert_eq!(trace.malformed().count, 50);
    assert_eq!(trace.malformed().first.len(), Malformed::KEPT);
}

#[test]
fn a_place_no_device_reaches_is_refused() {
    for (offset, size) in [(1u64 << 63, 1), (u64::MAX, 512), ((1 << 63) - 511, 512)] {
        let line = format!("{SMALL}20,R,{offset},{size},0\n");
        let refusal = refusal(line.as_bytes(), &ReadOptions::default());
        assert!(
            refusal.starts_with(&format!(
                "sample, line 6 (byte 83): a request of {size} bytes at byte {offset} ends beyond 2^63"
            )),
            "{refusal}"
        );
    }
    let last = format!("{SMALL}20,R,{},512,0\n", (1u64 << 63) - 512);
    assert_eq!(
        read_as(last.as_bytes(), &ReadOptions::default())
            .expect("reached")
            .0
            .len(),
        5
    );
}

#[test]
fn a_request_of_nothing_is_refused_unless_it_is_a_flush() {
    let text = format!("{SMALL}20,W,512,0,0\n");
    assert!(
        refusal(text.as_bytes(), &ReadOptions::default())
            .contains("line 6 (byte 83): a request of 0 bytes")
    );
}

#[test]
fn the_normal_form_does_not_run_backwards() {
    let text = format!("{SMALL}11,R,0,512,0\n13,R,0,512,0\n");
    let sentence = refusal(text.as_bytes(), &ReadOptions::default());
    assert!(
        sentence.starts_with(
            "sample, line 6 (byte 83): time runs backwards by 1.00 us, from 12000 ns to 11000 ns; at most 0 ns"
        ),
        "{sentence}"
    );
    let (all, trace) = read_as(text.as_bytes(), &counted(Format::Csv)).expect("counted");
    assert_eq!((all.len(), trace.malformed().count), (5, 1));
    let lenient = ReadOptions {
        reorder: Some(Nanos::micros(1)),
        ..ReadOptions::default()
    };
    let (all, trace) = read_as(text.as_bytes(), &lenient).expect("put right");
    assert_eq!(all[3].at, Nanos::micros(6));
    let disorder = trace.disorder();
    assert_eq!((disorder.count, disorder.most), (1, Nanos::micros(1)));
}

#[test]
fn a_span_of_time_and_devices_can_be_asked_for() {
    let options = ReadOptions {
        from: Some(Nanos(2_000)),
        to: Some(Nanos(7_000)),
        ..ReadOptions::default()
    };
    let (all, _) = read_as(SMALL.as_bytes(), &options).expect("clipped");
    assert_eq!(
        all,
        [req(0, Op::Write, 0, 4096, 3), req(0, Op::Flush, 0, 0, 3)]
    );
    let options = ReadOptions {
        devices: Some(vec![0]),
        ..ReadOptions::default()
    };
    let (all, _) = read_as(SMALL.as_bytes(), &options).expect("chosen");
    assert_eq!(all.len(), 2);
    let options = ReadOptions {
        devices: Some(vec![3, 8]),
        from: Some(Nanos::secs(1)),
        ..ReadOptions::default()
    };
    assert_eq!(
        refusal(SMALL.as_bytes(), &options),
        "the trace sample holds no request in what was asked for (from 1.00 s, devices [3, 8]): of its 4, \
         2 are on other devices, and the others end 0 ns after the first"
    );
    let options = ReadOptions {
        from: Some(Nanos(9)),
        to: Some(Nanos(9)),
        ..ReadOptions::default()
    };
    assert!(refusal(SMALL.as_bytes(), &options).contains("the start has to come before the end"));
}

#[test]
fn several_files_are_one_trace_in_order_of_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = Vec::new();
    let mut expected = Vec::new();
    for file in 0..3u64 {
        let mut text = format!("{HEADER}\n");
        for i in 0..20_000u64 {
            let micros = 100 + i * 3 + file;
            text.push_str(&format!("{micros},R,{},512,{file}\n", i * 512));
            expected.push(req(
                (micros - 100) * 1000,
                Op::Read,
                i * 512,
                512,
                file as u32,
            ));
        }
        let path = folder.path().join(format!("{file}.csv"));
        std::fs::write(&path, text).expect("written");
        paths.push(path);
    }
    expected.sort_by_key(|request| request.at);
    let mut trace = open_many(&paths, &ReadOptions::default()).expect("opened");
    assert_eq!(drain(&mut trace).expect("read"), expected);
    let (read, whole) = trace.progress();
    assert_eq!(read, whole);
    assert!(whole > 1_000_000);
}

/// Hands out a byte at a time, as a slow pipe does.
struct Dripping(Cursor<Vec<u8>>);

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn what_comes_in_drops_is_read_the_same() {
    let reader = Box::new(Dripping(Cursor::new(SMALL.as_bytes().to_vec())));
    let mut trace = Trace::from_reader("sample", reader, &ReadOptions::default()).expect("opened");
    assert_eq!(drain(&mut trace).expect("read"), small());
}

#[test]
fn lines_may_end_as_on_windows_be_blank_or_lack_their_end() {
    let text = format!("\u{feff}{}\n  \n13,R,0,512,0", SMALL.trim_end()).replace('\n', "\r\n");
    let (all, _) = read_as(text.as_bytes(), &named(Format::Csv)).expect("read");
    assert_eq!(all.len(), 5);
    assert_eq!(all[..4], small());
}

#[test]
fn a_line_without_end_is_reported_once_and_left_behind() {
    let text = format!("{SMALL}{}\n13,R,0,512,0\n", "9".repeat(2 * BLOCK + 77));
    let (all, trace) = read_as(text.as_bytes(), &counted(Format::Csv)).expect("counted");
    assert_eq!(all.len(), 5);
    assert_eq!(trace.malformed().count, 1);
    let bad = &trace.malformed().first[0];
    assert_eq!((bad.place, bad.byte), (Place::Line(6), 83));
}

#[test]
fn the_header_of_the_normal_form_alone_says_what_a_file_is() {
    let any = ReadOptions::default();
    for text in [
        format!("{HEADER}\n"),
        HEADER.to_owned(),
        format!("\u{feff}{HEADER}\r\n"),
        format!("{HEADER}\n# nothing was asked\n"),
    ] {
        let why = refusal(text.as_bytes(), &any);
        assert_eq!(why, "the trace sample holds no request", "{text:?}");
    }
    for bad in ["0,X,0,4096,0\n", "0,R,0,4096", "?\n?\n9,R,0,512,0\n"] {
        let why = refusal(format!("{HEADER}\n{bad}").as_bytes(), &any);
        assert!(
            why.starts_with("sample, line 2 (byte 24): "),
            "{bad:?}: {why}"
        );
    }
    let marked = format!("\u{feff}{SMALL}");
    let (all, trace) = read_as(marked.as_bytes(), &any).expect("read");
    assert_eq!((all, trace.format()), (small(), Format::Csv));
    // A header that goes on is another's.
    let why = refusal(format!("{HEADER}ice\n").as_bytes(), &any);
    assert!(why.starts_with("cannot tell the format"), "{why}");
}

#[test]
fn a_mark_of_the_encoding_hides_no_format() {
    let text = "\u{feff}fio version 3 iolog\n0 f add\n1 f read 0 512\n";
    let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
    assert_eq!((all.len(), trace.format()), (1, Format::Fio));
}

#[test]
fn a_file_of_no_known_format_is_refused_with_all_names() {
    let sentence = refusal(b"\x00\x01\x02 what is this\n\n", &ReadOptions::default());
    assert_eq!(
        sentence,
        "cannot tell the format of sample: it looks like none that is known; name it with --format, one of \
         csv, parquet, msr, blktrace, blkparse, fio, vscsi, spc, ascii, srt, lis, oracle-general, cache-csv, \
         alibaba, tencent"
    );
}

#[test]
fn a_missing_file_is_named() {
    let path = std::path::Path::new("no/such/trace.csv");
    let error = open(path, &ReadOptions::default()).err().expect("refused");
    assert_eq!(error.to_string(), "cannot read the trace no/such/trace.csv");
}
