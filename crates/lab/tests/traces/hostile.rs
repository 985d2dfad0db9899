//! Traces that lie, break off, or are none: what is wrong is said with the file, the place, the reason, and
//! what to do; or it is left out and counted.

use std::path::{Path, PathBuf};

use crate::check::{Outcome, check, read};
use crate::forge::{self, oracle_record, requests, sample, srt_record, vscsi_1, vscsi_2};
use crate::round_trip::{parquet, round_trip};
use env::Rng;
use trace::{Bad, Format, ReadOptions, Requests, open};

/// A folder of traces; gone when dropped.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

fn options(format: Format, bad: Bad) -> ReadOptions {
    ReadOptions {
        format: Some(format),
        bad,
        ..ReadOptions::default()
    }
}

/// The sentence with which a file is refused, its causes behind it.
fn refusal(path: &Path, options: &ReadOptions) -> String {
    let mut batch = Vec::new();
    let error = open(path, options).and_then(|mut trace| {
        while trace.next_batch(&mut batch)? {}
        Ok(())
    });
    let error = error.expect_err("refused");
    let mut sentence = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(deeper) = cause {
        sentence += &format!(": {deeper}");
        cause = deeper.source();
    }
    let name = path.display().to_string();
    assert!(sentence.contains(&name), "the file is named: {sentence}");
    sentence.replace(&name, "FILE")
}

fn count(format: Format, bytes: &[u8]) -> Outcome {
    let outcome = read(Some(format), Bad::Count, bytes, false);
    assert!(outcome.error.is_none(), "{format}: {:?}", outcome.error);
    outcome
}

#[test]
fn every_format_reads_its_honest_sample_named_or_recognised() {
    for &format in Format::all() {
        let bytes = sample(format);
        let named = count(format, &bytes);
        assert!(
            named.requests.len() >= 2 && named.malformed.count == 0,
            "{format}: {named:?}"
        );
        check(format, &bytes);
        let folder = Folder::new();
        let path = folder.file("trace", &bytes);
        let mut trace = open(&path, &ReadOptions::default()).expect("told");
        assert_eq!(trace.format(), format);
        let mut batch = Vec::new();
        assert!(trace.next_batch(&mut batch).expect("readable"));
        assert_eq!(batch, named.requests);
    }
}

/// Changes a few bytes: overwritten, cut out, doubled, made extreme, cut off.
fn mutated(rng: &mut Rng, honest: &[u8]) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        let len = (1 + rng.below(12) as usize).min(bytes.len() - at);
        match rng.below(6) {
            0 => bytes[at] = rng.bits() as u8,
            1 => bytes[at..at + len]
                .fill([0x00, 0xff, 0x7f, b'9', b'-', b','][rng.below(6) as usize]),
            2 => bytes.truncate(at),
            3 => {
                bytes.drain(at..at + len);
            }
            4 => bytes.extend_from_within(at..at + len),
            _ => {
                let copied = bytes[at..at + len].to_vec();
                let to = rng.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, copied);
            }
        }
    }
    bytes
}

/// What the fuzzers look for in longer runs; `TANADA_CASES` makes this one longer too.
#[test]
fn no_parser_stumbles_over_changed_bytes() {
    let cases = std::env::var("TANADA_CASES").map_or(Ok(250), |cases| cases.parse());
    let cases = cases.expect("TANADA_CASES is a number of cases");
    for &format in Format::all() {
        let honest = sample(format);
        for seed in 0..cases {
            let bytes = mutated(&mut Rng::from_seed(seed), &honest);
            // The seed stands in the report of a failure.
            let outcome = std::panic::catch_unwind(|| check(format, &bytes));
            assert!(outcome.is_ok(), "{format}, seed {seed}: {bytes:02x?}");
        }
    }
}

#[test]
fn requests_come_back_from_the_normal_form_as_they_were() {
    round_trip(&[]);
    for seed in 0..100 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = vec![0; rng.below(2_000) as usize];
        rng.fill(&mut bytes);
        round_trip(&bytes);
    }
}

#[test]
fn an_empty_file_holds_no_request() {
    let folder = Folder::new();
    let path = folder.file("empty", b"");
    for &format in Format::all() {
        for options in [options(format, Bad::Fatal), options(format, Bad::Count)] {
            assert_eq!(refusal(&path, &options), "the trace FILE holds no request");
        }
    }
    let nothing = refusal(&path, &ReadOptions::default());
    assert_eq!(nothing, "the trace FILE holds no request");
}

#[test]
fn what_is_no_file_or_must_not_be_read_says_what_the_system_says() {
    let folder = Folder::new();
    let default = ReadOptions::default();
    let absent = refusal(&folder.0.path().join("absent"), &default);
    assert_eq!(
        absent,
        "cannot read the trace FILE: No such file or directory (os error 2)"
    );
    let directory = refusal(folder.0.path(), &default);
    assert_eq!(
        directory,
        "cannot read the trace FILE: Is a directory (os error 21)"
    );
    let inside = refusal(&folder.file("trace", b"x").join("inside"), &default);
    assert_eq!(
        inside,
        "cannot read the trace FILE: Not a directory (os error 20)"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.file("secret", &sample(Format::Csv));
        let nobody = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&path, nobody).expect("ours");
        // root may read everything.
        if std::fs::read(&path).is_err() {
            let secret = refusal(&path, &default);
            assert_eq!(
                secret,
                "cannot read the trace FILE: Permission denied (os error 13)"
            );
        }
    }
}

#[test]
fn garbage_is_of_no_format() {
    let folder = Folder::new();
    let mut bytes = vec![0; 4096];
    Rng::from_seed(7).fill(&mut bytes);
    let sentence = refusal(&folder.file("noise", &bytes), &ReadOptions::default());
    assert!(
        sentence.starts_with(
            "cannot tell the format of FILE: it looks like none that is known; name it with --format, one of \
             csv, parquet, msr"
        ),
        "{sentence}"
    );
}

#[test]
fn garbage_taken_for_a_format_says_what_belongs_there() {
    let folder = Folder::new();
    let noise = folder.file(
        "noise",
        b"\x07garbage, not a trace\n\x00\x01\x02 and more of it, 4711 times over\n",
    );
    let says = [
        (Format::Csv, "columns where 5: t_us,op,offset,size,dev"),
        (Format::Parquet, "cannot be read as parquet: "),
        (Format::Msr, "columns where 7: Timestamp,Hostname"),
        (
            Format::Blktrace,
            "it does not begin with 0x65617400 in either byte order; look whether",
        ),
        (Format::Blkparse, "columns where 7 or more: device cpu"),
        (Format::Fio, "FILE cannot be read as fio"),
        (
            Format::Vscsi,
            "its first record says neither version 1 (in byte 15) nor version 2 (in byte 3)",
        ),
        (Format::Spc, "columns where 5 or more: ASU"),
        (Format::Ascii, "columns where 5: time device"),
        (
            Format::Srt,
            "it begins with '\\u{7}garbage, ', not with '$$TR_IOREC'; look whether it is another",
        ),
        (
            Format::Lis,
            "in the place of the first page is no whole number",
        ),
        (Format::OracleGeneral, "record 2 (byte 24): "),
        (Format::CacheCsv, ""),
        (Format::Alibaba, "columns where 5: device_id"),
        (Format::Tencent, "columns where 5: timestamp"),
    ];
    assert_eq!(says.len(), Format::all().len());
    for (format, says) in says {
        let sentence = refusal(&noise, &options(format, Bad::Fatal));
        assert!(sentence.contains(says), "{format}: {sentence}");
    }
}

#[test]
fn records_cut_off_at_the_end_are_named_and_what_stands_before_is_read() {
    let whole = [
        (Format::Vscsi, sample(Format::Vscsi), 5, 128),
        (Format::Vscsi, forge::vscsi(vscsi_2), 5, 160),
        (Format::Blktrace, forge::blktrace(0, false), 8, 400 - 48),
        (Format::Blktrace, forge::blktrace(1, true), 8, 400 - 48),
        (
            Format::Srt,
            sample(Format::Srt),
            3,
            sample(Format::Srt).len() - 52,
        ),
        (Format::OracleGeneral, sample(Format::OracleGeneral), 3, 48),
    ];
    let folder = Folder::new();
    for (format, bytes, record, byte) in whole {
        let all = count(format, &bytes).requests;
        for cut in [1, 3, 23] {
            let cut = &bytes[..bytes.len() - cut];
            let path = folder.file("cut", cut);
            let sentence = refusal(&path, &options(format, Bad::Fatal));
            let expected = format!(
                "FILE, record {record} (byte {byte}): the file ends within this record; \
                 to leave such records out and count them, ask with --bad count"
            );
            assert_eq!(sentence, expected, "{format}");
            let counted = count(format, cut);
            assert_eq!(counted.malformed.count, 1);
            assert_eq!(counted.requests, all[..all.len() - 1]);
        }
    }
}

#[test]
fn a_damage_amid_records_costs_those_it_hits() {
    for (big, event) in [(false, 2), (true, 3)] {
        let mut bytes = forge::blktrace(0, big);
        let honest = count(Format::Blktrace, &bytes).requests.len();
        // The first record has 16 bytes behind it.
        let at = 64 + 48 * (event - 1);
        bytes[at + 1] ^= 0xff;
        let counted = count(Format::Blktrace, &bytes);
        assert_eq!(counted.malformed.count, 1);
        let bad = &counted.malformed.first[0];
        assert_eq!(
            (bad.place.to_string(), bad.byte),
            (format!("record {}", event + 1), at as u64)
        );
        assert!(
            bad.reason
                .to_string()
                .contains("a record of blktrace with 0x65617407"),
            "{bad}"
        );
        let lost = usize::from(event == 3);
        assert_eq!(counted.requests.len(), honest - lost);
    }
    let mut bytes = sample(Format::Srt);
    let second = bytes.len() - 52 - 56;
    bytes[second + 3] = 7;
    let counted = count(Format::Srt, &bytes);
    assert_eq!((counted.requests.len(), counted.malformed.count), (2, 1));
    assert_eq!(
        counted.malformed.first[0].reason.to_string(),
        "a record said to be 7 bytes long; they take 52 to 65536, a multiple of 4"
    );
    let mut bytes = sample(Format::Vscsi);
    bytes[32 + 15] = 9;
    let counted = count(Format::Vscsi, &bytes);
    assert_eq!(counted.malformed.count, 1);
    assert_eq!(
        counted.malformed.first[0].reason.to_string(),
        "a record of version 9 in a trace of version 1"
    );
}

/// A trace of `format` whose second request lies at byte 2^63.
fn far(format: Format) -> Option<Vec<u8>> {
    const SECTOR: u64 = 1 << 54;
    const BYTE: u64 = 1 << 63;
    let text = match format {
        Format::Csv => format!("t_us,op,offset,size,dev\n0,R,0,512,0\n1,R,{BYTE},512,0\n"),
        Format::Msr => format!(
            "128166372003061629,a,0,Read,0,512,1\n128166372003061630,a,0,Read,{BYTE},512,1\n"
        ),
        Format::Blkparse => {
            format!("8,0 0 1 0.0 1 Q R 0 + 8 [a]\n8,0 0 2 0.1 1 Q R {SECTOR} + 8 [a]\n")
        }
        Format::Fio => {
            format!("fio version 3 iolog\n0 f add\n0 f open\n1 f read 0 512\n2 f read {BYTE} 512\n")
        }
        Format::Spc => format!("0,0,512,R,0.0\n0,{SECTOR},512,R,0.1\n"),
        Format::Ascii => format!("0.0 0 0 8 1\n0.1 0 {SECTOR} 8 1\n"),
        Format::Lis => format!("0 1 0 0\n{SECTOR} 1 0 1\n"),
        Format::Alibaba => format!("1,R,0,512,1577808144360767\n1,R,{BYTE},512,1577808144360768\n"),
        Format::Tencent => format!("1538323200,0,8,0,1\n1538323200,{SECTOR},8,0,1\n"),
        Format::Vscsi => {
            return Some(
                [
                    vscsi_1(0, 0x28, 512, 0, 0),
                    vscsi_1(1, 0x28, 512, SECTOR, 1),
                ]
                .concat(),
            );
        }
        Format::Blktrace => {
            let mut events = forge::events(0);
            events[3].sector = SECTOR;
            let numbered = (1..).zip(events);
            return Some(
                numbered
                    .flat_map(|(n, event)| event.record(n, true))
                    .collect(),
            );
        }
        Format::Parquet => {
            let mut requests = requests();
            requests[1].offset = base::Bytes(BYTE);
            return Some(parquet(&requests));
        }
        // 32 bits of blocks reach nowhere near, and the number of an object is no place.
        Format::Srt | Format::OracleGeneral | Format::CacheCsv => return None,
    };
    Some(text.into_bytes())
}

#[test]
fn a_request_at_two_to_the_sixty_third_is_refused_or_counted() {
    let folder = Folder::new();
    for &format in Format::all() {
        let Some(bytes) = far(format) else { continue };
        let sentence = refusal(&folder.file("far", &bytes), &options(format, Bad::Fatal));
        let says = "ends beyond 2^63, farther than any device reaches; to leave such records out and count them, \
                    ask with --bad count";
        assert!(sentence.contains(says), "{format}: {sentence}");
        let counted = count(format, &bytes);
        assert_eq!(counted.malformed.count, 1, "{format}");
        assert!(!counted.requests.is_empty(), "{format}");
    }
    let object = [
        oracle_record(0, 1 << 63, 512, -1),
        oracle_record(0, u64::MAX, 512, -1),
    ]
    .concat();
    assert_eq!(count(Format::OracleGeneral, &object).requests.len(), 2);
}

/// A trace of `format` whose second request comes an hour before its first; and what one is called.
fn backwards(format: Format) -> Option<(Vec<u8>, &'static str)> {
    let text = match format {
        Format::Csv => "t_us,op,offset,size,dev\n3600000000,R,0,512,0\n0,R,8192,512,0\n",
        Format::Msr => "128166408003061629,a,0,Read,0,512,1\n128166372003061629,a,0,Read,0,512,1\n",
        Format::Blkparse => "8,0 0 1 3600.0 1 Q R 0 + 8 [a]\n8,0 0 2 0.1 1 Q R 8 + 8 [a]\n",
        Format::Fio => {
            "fio version 3 iolog\n0 f add\n0 f open\n3600000000 f read 0 512\n1 f read 8192 512\n"
        }
        Format::Spc => "0,0,512,R,3600.0\n0,8,512,R,0.1\n",
        Format::Ascii => "3600000.0 0 0 8 1\n0.1 0 8 8 1\n",
        Format::Alibaba => "1,R,0,512,1577811744360767\n1,R,0,512,1577808144360767\n",
        Format::Tencent => "1538326800,0,8,0,1\n1538323200,8,8,0,1\n",
        Format::CacheCsv => "time,obj,size\n3600,1,512\n0,2,512\n",
        Format::Vscsi => {
            let hour = 3_600_000_000;
            let bytes = [vscsi_1(0, 0x28, 512, 0, hour), vscsi_1(1, 0x28, 512, 8, 0)].concat();
            return Some((bytes, "record 2 (byte 32)"));
        }
        Format::Blktrace => {
            let mut events = forge::events(0)[1..4].to_vec();
            events[0].at += 3_600_000_000_000;
            let numbered = (1..).zip(events);
            let bytes = numbered
                .flat_map(|(n, event)| event.record(n, false))
                .collect();
            return Some((bytes, "record 3 (byte 96)"));
        }
        Format::Parquet => {
            let mut requests = requests();
            requests.swap(0, 7);
            requests.truncate(2);
            return Some((parquet(&requests), "record 2 (byte 4)"));
        }
        Format::Srt => {
            let mut bytes = b"$$TR_IOREC-1.3\n\x0c".to_vec();
            bytes.extend(srt_record(4, (3600, 0), 512, 0, 0, true));
            bytes.extend(srt_record(4, (0, 0), 512, 8, 0, true));
            return Some((bytes, "record 2 (byte 72)"));
        }
        Format::OracleGeneral => {
            let bytes = [
                oracle_record(3600, 1, 512, -1),
                oracle_record(0, 2, 512, -1),
            ]
            .concat();
            return Some((bytes, "record 2 (byte 24)"));
        }
        // Its lines have no time.
        Format::Lis => return None,
    };
    Some((text.as_bytes().to_vec(), "line "))
}

#[test]
fn time_running_backwards_is_refused_or_counted() {
    let folder = Folder::new();
    for &format in Format::all() {
        let Some((bytes, place)) = backwards(format) else {
            continue;
        };
        let sentence = refusal(
            &folder.file("backwards", &bytes),
            &options(format, Bad::Fatal),
        );
        assert!(
            sentence.starts_with(&format!("FILE, {place}")),
            "{format}: {sentence}"
        );
        assert!(
            sentence.contains("time runs backwards by "),
            "{format}: {sentence}"
        );
        assert!(
            sentence.contains("sort the trace by time, or allow more with --reorder"),
            "{sentence}"
        );
        let counted = count(format, &bytes);
        assert_eq!(
            (counted.requests.len(), counted.malformed.count),
            (1, 1),
            "{format}"
        );
    }
}

#[test]
fn packed_data_cut_off_or_damaged_are_named_in_every_format() {
    let folder = Folder::new();
    for &format in Format::all() {
        let mut long = Vec::new();
        while long.len() < 200_000 {
            long.extend(sample(format));
        }
        let mut noise = vec![0; 100_000];
        Rng::from_seed(1).fill(&mut noise);
        long.extend(noise);
        let zstd = zstd::encode_all(&long[..], 1).expect("packed");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &long).expect("packed");
        let gzip = gzip.finish().expect("packed");
        for (packing, packed) in [("zstd", zstd), ("gzip", gzip)] {
            let half = &packed[..packed.len() / 2];
            let path = folder.file(&format!("trace.{packing}"), half);
            for bad in [Bad::Fatal, Bad::Count] {
                let sentence = refusal(&path, &options(format, bad));
                // Doubled samples may be malformed before the data break off.
                let says = format!(
                    "cannot unpack the trace FILE: its {packing} data are cut off or damaged after "
                );
                let malformed = sentence.contains("--bad count") && bad == Bad::Fatal;
                assert!(
                    malformed || sentence.starts_with(&says),
                    "{format}: {sentence}"
                );
            }
        }
    }
}

#[test]
fn a_parquet_file_damaged_in_its_pages_says_where() {
    let many: Vec<_> = (0..50_000)
        .map(|n| trace::Request {
            at: base::Nanos::micros(n),
            offset: base::Bytes((n * 7_919 % 1_000_003) << 12),
            ..requests()[0]
        })
        .collect();
    let mut bytes = parquet(&many);
    // The head of the first page.
    bytes[4..68].fill(0x55);
    let folder = Folder::new();
    for bad in [Bad::Fatal, Bad::Count] {
        let sentence = refusal(
            &folder.file("damaged", &bytes),
            &options(Format::Parquet, bad),
        );
        assert!(
            sentence.starts_with(
                "FILE cannot be read as parquet: damaged in row group 1: in the column "
            ),
            "{sentence}"
        );
    }
}

/// The seeds the fuzzers start from: the honest samples. They are checked in under `fuzz/seeds`; with
/// `TANADA_WRITE_SEEDS=1` this test writes them anew.
#[test]
fn the_fuzzers_seeds_are_the_honest_samples() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds"));
    let writing = std::env::var_os("TANADA_WRITE_SEEDS").is_some_and(|value| value == "1");
    let mut seeds: Vec<(String, &str, Vec<u8>)> = Format::all()
        .iter()
        .map(|&format| (target(format), "honest", sample(format)))
        .collect();
    seeds.push((target(Format::Vscsi), "version_2", forge::vscsi(vscsi_2)));
    seeds.push((
        target(Format::Blktrace),
        "big_endian",
        forge::blktrace(1, true),
    ));
    seeds.push((
        "trace_round_trip".to_owned(),
        "honest",
        sample(Format::Blktrace),
    ));
    for (target, name, bytes) in seeds {
        let path = root.join(&target).join(name);
        if writing {
            std::fs::create_dir_all(root.join(&target)).expect("a directory");
            std::fs::write(&path, &bytes).expect("written");
        }
        let found = std::fs::read(&path).unwrap_or_default();
        // Another release of the library of Parquet may pack the same rows otherwise.
        let same = if target == "trace_parquet" {
            count(Format::Parquet, &found).requests == requests()
        } else {
            found == bytes
        };
        assert!(
            same,
            "{} is not the sample; run this test with TANADA_WRITE_SEEDS=1",
            path.display()
        );
    }
}

/// The fuzzer of a format.
fn target(format: Format) -> String {
    format!("trace_{}", format.name().replace('-', "_"))
}
