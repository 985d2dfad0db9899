//! Binary traces through the public reader: real ones against figures measured by another program, blktrace's
//! against blkparse itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::forge::{Event, ISSUED, QUEUED, READ, WRITE, blktrace, events};
use trace::{Bad, Format, Op, ReadOptions, Request, Requests, Trace, open, open_many};

fn drain(mut trace: Trace) -> (Vec<Request>, Trace) {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).expect("readable") {
        all.extend_from_slice(&batch);
    }
    (all, trace)
}

/// The figure `name` of `file` in the list of what another program measured.
fn measured(file: &Path, name: &str) -> f64 {
    let list = file
        .parent()
        .and_then(Path::parent)
        .expect("in a folder of traces");
    let list = std::fs::read_to_string(list.join("stats.jsonl")).expect("a list of figures");
    let packed = file
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let found = list
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"))
        .find(|line| line["file"] == packed)
        .expect("measured");
    found[name].as_f64().expect("a number")
}

/// Asserts that a real trace has the figures measured, to their last digit.
fn assert_measured(name: &str, format: Format) {
    let Some(path) = testkit::traces::shared(name) else {
        return;
    };
    let (all, trace) = drain(open(&path, &ReadOptions::default()).expect("opened"));
    assert_eq!(trace.format(), format, "told by its content");
    assert_eq!((trace.malformed().count, trace.disorder().count), (0, 0));
    let round = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let sum = |of: &dyn Fn(&Request) -> bool| -> u64 {
        all.iter()
            .filter(|request| of(request))
            .map(|request| request.size.0)
            .sum()
    };
    let reads = all.iter().filter(|request| request.op == Op::Read).count();
    let bytes = sum(&|_| true) as f64;
    let devices: base::Set<u32> = all.iter().map(|request| request.device).collect();
    let end = all
        .iter()
        .map(|request| request.offset.0 + request.size.0)
        .max()
        .expect("some");
    let last = all.last().expect("some").at;
    let figures = [
        ("requests", all.len() as f64),
        ("span_s", round(last.secs_f64(), 3)),
        (
            "read_pct",
            round(100.0 * reads as f64 / all.len() as f64, 2),
        ),
        (
            "read_bytes_pct",
            round(
                100.0 * sum(&|request| request.op == Op::Read) as f64 / bytes,
                2,
            ),
        ),
        ("mean_size", (bytes / all.len() as f64).floor()),
        ("devices", devices.len() as f64),
        ("max_offset_gib", round(end as f64 / (1u64 << 30) as f64, 3)),
    ];
    for (figure, ours) in figures {
        assert_eq!(ours, measured(&path, figure), "{name}: {figure}");
    }
}

#[test]
fn the_cloudphysics_trace_has_the_figures_measured() {
    assert_measured("cloudphysics/cloudPhysicsIO.vscsi.zst", Format::Vscsi);
}

#[test]
fn the_hp_labs_trace_has_the_figures_measured() {
    assert_measured("hplabs/ajw.1week.srt.zst", Format::Srt);
}

/// Writes the files of some CPUs; in one folder, so that blkparse finds them by their name.
fn files(folder: &Path, cpus: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Vec<PathBuf> {
    let write = |(cpu, bytes)| {
        let path = folder.join(format!("sda.blktrace.{cpu}"));
        std::fs::write(&path, bytes).expect("written");
        path
    };
    cpus.into_iter().map(write).collect()
}

#[test]
fn files_of_several_cpus_are_one_trace_in_order_of_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for big in [false, true] {
        let mut paths = files(
            folder.path(),
            [(0, blktrace(0, big)), (1, blktrace(1, big))],
        );
        paths.push(folder.path().join("sda.blktrace.2"));
        std::fs::write(&paths[2], b"").expect("a CPU that did nothing");
        let (all, trace) = drain(open_many(&paths, &ReadOptions::default()).expect("opened"));
        assert_eq!(trace.format(), Format::Blktrace);
        assert!(trace.notes().is_empty(), "{:?}", trace.notes());
        let read: Vec<_> = all
            .iter()
            .map(|request| {
                (
                    request.at.0,
                    request.op,
                    request.offset.0,
                    request.size.0,
                    request.device,
                )
            })
            .collect();
        let one = [
            (0, Op::Read, 2048 * 512, 4096, 0),
            (2_000, Op::Write, 512 << 31, 65_536, 0),
            (4_000, Op::Discard, 4096 * 512, 1 << 20, 0),
            (5_000, Op::Flush, 0, 0, 0),
            (6_999_999_000, Op::Read, 4096, 512, 16),
        ];
        let mut both: Vec<_> = one
            .into_iter()
            .flat_map(|(at, op, offset, size, device)| {
                [
                    (at, op, offset, size, device),
                    (at + 500, op, offset, size, device),
                ]
            })
            .collect();
        both.sort_by_key(|request| request.0);
        assert_eq!(read, both);
        assert_eq!(
            trace.device_names(),
            [(0, "8,0".to_owned()), (16, "8,16".to_owned())]
        );
    }
}

#[test]
fn a_cpu_that_only_issued_adds_nothing_to_what_others_queued() {
    let issued: Vec<u8> = events(1)
        .iter()
        .filter(|event| event.action & 0xff != 1)
        .flat_map(|event| event.record(1, false))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let paths = files(
        folder.path(),
        [(0, blktrace(0, false)), (1, issued.clone())],
    );
    let (all, _) = drain(open_many(&paths, &ReadOptions::default()).expect("opened"));
    assert_eq!(all.len(), 5);
    let paths = files(folder.path(), [(1, issued)]);
    let (all, trace) = drain(open_many(&paths, &ReadOptions::default()).expect("opened"));
    assert_eq!((all.len(), all[0].op), (1, Op::Read));
    assert!(
        trace.notes()[0].contains("issued to the device (D)"),
        "{:?}",
        trace.notes()
    );
}

#[test]
fn two_devices_with_the_same_minor_number_stay_apart() {
    let event = |device, at| Event {
        at,
        sector: 8,
        len: 512,
        action: QUEUED | READ,
        device,
        cpu: 0,
        pdu: &[],
    };
    let bytes = [event((8, 0), 1), event((253, 0), 2), event((259, 1), 3)];
    let bytes: Vec<u8> = bytes
        .iter()
        .flat_map(|event| event.record(1, false))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (all, trace) = drain(
        open(
            &files(folder.path(), [(0, bytes)])[0],
            &ReadOptions::default(),
        )
        .expect("opened"),
    );
    let devices: Vec<u32> = all.iter().map(|request| request.device).collect();
    assert_eq!(devices, [0, 1, 2]);
    assert_eq!(trace.device_names()[2], (2, "259,1".to_owned()));
}

/// What `blkparse` prints of the traces in `folder`; `None` where it is absent and not required.
fn blkparse(folder: &Path) -> Option<Vec<u8>> {
    let run = Command::new("blkparse")
        .args(["-q", "-i", "sda"])
        .current_dir(folder)
        .output();
    match run {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(output.stdout)
        }
        Err(error) => {
            let required =
                std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
            assert!(!required, "cannot run blkparse: {error}");
            println!("skipped: blkparse not installed");
            None
        }
    }
}

#[test]
fn blkparse_reads_our_records_and_its_text_holds_the_same_requests() {
    let mut rng = env::Rng::from_seed(11);
    let cpus = (0..3u32).map(|cpu| {
        let mut events = events(cpu);
        let mut at = 8_000_000_000;
        for _ in 0..500 {
            at += 1 + rng.below(1_000_000);
            let action = [QUEUED | READ, QUEUED | WRITE, ISSUED | READ][rng.below(3) as usize];
            events.push(Event {
                at,
                sector: rng.below(1 << 40),
                len: 512 * (1 + rng.below(512) as u32),
                action,
                device: (8, 16 * rng.below(3) as u32),
                cpu,
                pdu: &[],
            });
        }
        let numbered = (1..).zip(events);
        (
            cpu,
            numbered
                .flat_map(|(number, event)| event.record(number, false))
                .collect(),
        )
    });
    let folder = tempfile::tempdir().expect("a folder");
    let paths = files(folder.path(), cpus.collect::<Vec<_>>());
    let Some(text) = blkparse(folder.path()) else {
        return;
    };
    let (binary, opened) = drain(open_many(&paths, &ReadOptions::default()).expect("opened"));
    assert!(binary.len() > 900, "{}", binary.len());
    assert_eq!(opened.malformed().count, 0);
    let printed = folder.path().join("printed");
    std::fs::write(&printed, &text).expect("written");
    let options = ReadOptions {
        bad: Bad::Fatal,
        ..ReadOptions::default()
    };
    let (read, trace) = drain(open(&printed, &options).expect("opened"));
    assert_eq!(trace.format(), Format::Blkparse);
    assert_eq!(read.len(), binary.len());
    for (number, (read, binary)) in read.iter().zip(&binary).enumerate() {
        assert_eq!(read, binary, "request {number}");
    }
}
