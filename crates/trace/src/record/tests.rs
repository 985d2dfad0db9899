//! Does a recording hold what was asked, within its bound, whatever happens to its files?

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use base::{Buf, Sector};
use device::{Device, DeviceExt, Memory, WriteFlags};
use proptest::prelude::*;

use super::segments::numbered;
use super::*;
use crate::tap::Tap;
use crate::{HEADER, ReadOptions, Requests, open_many};

fn read_back(files: &[PathBuf]) -> (Vec<Request>, Vec<String>) {
    let mut trace = open_many(files, &ReadOptions::default()).expect("a trace");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).expect("well-formed") {
        all.extend_from_slice(&batch);
    }
    (all, trace.notes().to_vec())
}

/// Begins a recording on a day like any other.
fn start(file: &Path, max: Bytes, now: Instant) -> Result<Recorder, RecordError> {
    Recorder::start(file, max, now, Nanos::secs(1_792_339_045))
}

fn segments(file: &Path) -> Vec<PathBuf> {
    let all = (0..FILES + 3).map(|n| numbered(file, n));
    all.filter(|one| one.exists()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_goes_in_comes_out(
        asked in prop::collection::vec((0u64..5_000_000, 0u8..4, 0u64..1 << 40, 1u64..1 << 12), 1..400),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("vol0.csv");
        let began = Instant(123_456_789);
        let mut recorder = start(&file, LEAST_MAX, began).expect("a file");
        let mut at = began;
        let mut expected = Vec::new();
        for (gap, op, sector, sectors) in asked {
            at = at + Nanos(gap * 1_000);
            let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][usize::from(op)];
            let span = match op {
                Op::Flush => Span::default(),
                _ => Span::new(Sector(sector), Bytes(sectors * 512)),
            };
            recorder.request(at, op, span);
            expected.push(Request {
                at: at.since(began), offset: Bytes(span.start.byte()), size: span.len, device: 0, op,
            });
        }
        let done = recorder.join();
        prop_assert_eq!((done.written, done.dropped), (expected.len() as u64, 0));
        prop_assert_eq!(done.bytes.0, fs::metadata(&file).expect("it is there").len());
        // A trace begins with its first request.
        let first = expected[0].at;
        for request in &mut expected {
            request.at -= first;
        }
        prop_assert_eq!(read_back(&[file]).0, expected);
    }
}

#[test]
fn files_rotate_within_their_bound_and_are_one_trace_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    let asked = 100_000u64;
    for n in 0..asked {
        recorder.request(
            Instant(n * 1_000_000),
            Op::Write,
            Span::bytes(n * 4096, 4096),
        );
    }
    let done = recorder.join();
    assert_eq!(done.written + done.dropped, asked);
    assert_eq!(done.dropped, 0, "the queue holds more than this");
    let files = segments(&file);
    assert_eq!(files.len() as u64, FILES);
    let held: u64 = files
        .iter()
        .map(|one| fs::metadata(one).expect("there").len())
        .sum();
    assert!(held <= LEAST_MAX.0 && held < done.bytes.0, "{held}");
    assert!(held > LEAST_MAX.0 / FILES * (FILES - 3), "{held}");
    for one in &files {
        let start = fs::read_to_string(one).expect("text");
        assert!(start.starts_with(HEADER), "{}", one.display());
    }
    // Merged by time they are the latest requests, none missing in between.
    let (all, _) = read_back(&files);
    let last = asked - all.len() as u64;
    for (n, request) in (last..).zip(&all) {
        assert_eq!(request.offset.0, n * 4096);
        assert_eq!(request.at, Nanos::millis(n - last));
    }
}

#[test]
fn an_earlier_trace_is_kept_and_anything_else_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut first = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    first.request(Instant(0), Op::Read, Span::bytes(0, 512));
    first.join();
    start(&file, LEAST_MAX, Instant(0))
        .expect("the same file")
        .join();
    assert_eq!(read_back(&[numbered(&file, 1)]).0.len(), 1);
    // One without requests leaves nothing to keep.
    start(&file, LEAST_MAX, Instant(0))
        .expect("the same file")
        .join();
    assert_eq!(segments(&file).len(), 2);

    let refused = |file: &Path, max| match start(file, max, Instant(0)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("recorded to {}", file.display()),
    };
    fs::write(numbered(&file, 3), "letters").expect("a letter");
    let sentence = refused(&file, LEAST_MAX);
    assert!(
        sentence.contains("vol0.csv.3 is there already and was not recorded by tanada"),
        "{sentence}"
    );
    assert_eq!(
        fs::read_to_string(numbered(&file, 3)).expect("untouched"),
        "letters"
    );
    assert!(refused(dir.path(), LEAST_MAX).contains("was not recorded by tanada"));
    let nowhere = dir.path().join("no/such/vol0.csv");
    assert!(refused(&nowhere, LEAST_MAX).starts_with("cannot record to "));
    let other = dir.path().join("other.csv");
    assert_eq!(
        refused(&other, Bytes(4096)),
        "a recording of at most 4.0 KiB is too small; ask for 1.0 MiB at least"
    );
    let running = start(&other, LEAST_MAX, Instant(0)).expect("a file");
    assert!(refused(&other, LEAST_MAX).contains("is being recorded to already"));
    running.join();
}

/// A trace of the user's own, longer than a file of a small recording.
fn own_trace() -> String {
    let lines = (0..20_000).map(|n| format!("{n},R,{},512,0\n", n * 512));
    format!("{HEADER}\n{}", lines.collect::<String>())
}

#[test]
fn a_trace_that_was_not_recorded_is_neither_moved_nor_removed() {
    let own = own_trace();
    assert!(own.len() as u64 > LEAST_MAX.0 / FILES);
    let header_only = format!("{HEADER}\n");
    for (n, text) in [(0, &own), (3, &own), (FILES - 1, &own), (0, &header_only)] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("mine.csv");
        fs::write(numbered(&file, n), text).expect("written");
        let refused = start(&file, LEAST_MAX, Instant(0)).map(Recorder::join);
        assert!(
            matches!(refused, Err(RecordError::NotATrace { .. })),
            "{refused:?}"
        );
        let checked = env::Runtime::simulated(1)
            .block_on(async move { Recorder::check(&file, LEAST_MAX).await });
        assert!(
            matches!(checked, Err(RecordError::NotATrace { .. })),
            "{checked:?}"
        );
        let left: Vec<_> = fs::read_dir(dir.path()).expect("a directory").collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let file = dir.path().join("mine.csv");
        assert!(fs::read_to_string(numbered(&file, n)).expect("there") == *text);
    }
}

#[test]
fn a_trace_that_comes_to_lie_there_meanwhile_ends_the_recording_and_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    fs::write(numbered(&file, 1), own_trace()).expect("written");
    for n in 0..20_000u64 {
        recorder.request(Instant(n), Op::Read, Span::bytes(n * 512, 512));
    }
    let done = recorder.join();
    let why = done.failed.expect("it failed");
    assert!(
        why.contains("vol0.csv.1 is there already and was not recorded"),
        "{why}"
    );
    assert_eq!(done.written + done.dropped, 20_000);
    assert!(fs::read_to_string(numbered(&file, 1)).expect("there") == own_trace());
}

#[test]
fn recordings_without_requests_push_out_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut first = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    first.request(Instant(0), Op::Read, Span::bytes(0, 512));
    first.join();
    for _ in 0..2 * FILES {
        let idle = start(&file, LEAST_MAX, Instant(0));
        idle.expect("the same file").join();
    }
    assert_eq!(segments(&file), [file.clone(), numbered(&file, 1)]);
    assert_eq!(read_back(&[numbered(&file, 1)]).0.len(), 1);
}

#[test]
fn a_lower_bound_holds_from_the_next_write_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let record = |requests: u64| {
        let mut recorder = start(&file, Bytes::mib(4), Instant(0)).expect("the same file");
        for n in 0..requests {
            recorder.request(Instant(n), Op::Read, Span::bytes(n * 512, 512));
        }
        recorder
    };
    let held = || -> u64 {
        let length = |one: &PathBuf| fs::metadata(one).expect("there").len();
        segments(&file).iter().map(length).sum()
    };
    // Long files of earlier, and a short one that alone would have room for more.
    for _ in 0..4 {
        record(20_000).join();
    }
    assert!(held() > LEAST_MAX.0, "{}", held());
    let recorder = record(100);
    recorder.set_max(LEAST_MAX).expect("enough");
    assert_eq!(recorder.join().written, 100);
    assert!(held() <= LEAST_MAX.0, "{}", held());
    // The latest that fit are there still.
    let left = [file.clone(), numbered(&file, 1), numbered(&file, 2)];
    assert_eq!(segments(&file), left);
}

#[test]
fn each_file_says_which_recording_it_belongs_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    for wall in [Nanos::secs(1_792_339_045), Nanos(1_792_339_046_000_000_007)] {
        let began = Instant(77);
        let mut recorder = Recorder::start(&file, LEAST_MAX, began, wall).expect("a file");
        for n in 0..10_000u64 {
            recorder.request(
                began + Nanos(n * 1_000),
                Op::Read,
                Span::bytes(n * 512, 512),
            );
        }
        recorder.join();
    }
    let mut starts: Vec<String> = segments(&file)
        .iter()
        .map(|one| {
            let text = fs::read_to_string(one).expect("text");
            let remark = text.lines().nth(1).expect("a remark");
            let start = remark.strip_prefix("# recorded by tanada: times count from ");
            let (start, _) = start.expect("our remark").split_once(' ').expect("more");
            start.to_owned()
        })
        .collect();
    let (new, old) = ("1792339046.000000007", "1792339045.000000000");
    let ours = starts.iter().filter(|start| *start == new).count();
    assert!(ours > 1, "one file says little: {starts:?}");
    starts.dedup();
    assert_eq!(starts, [new, old]);
    // One recording leaves one note, two recordings two: the reader sees that they are not one trace.
    let files = segments(&file);
    let notes = read_back(&files[..ours]).1;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains(new) && notes[0].ends_with("another start is another trace"),
        "{notes:?}"
    );
    let notes = read_back(&files).1;
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn a_writer_that_lags_costs_requests_not_time_and_the_trace_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    // Its queue is replaced by one that no thread empties for now.
    let (stuck, batches) = sync_channel(1);
    let queue = recorder.queue.replace(stuck).expect("a queue");
    for n in 0..4u64 {
        recorder.request(Instant(n * 1_000_000_000), Op::Read, Span::bytes(0, 512));
        recorder.tick(Instant(n * 1_000_000_000 + BATCH_AGE.0));
    }
    assert_eq!(recorder.status().dropped, 3);
    // It catches up: one batch that was taken, then what comes after the gap.
    queue
        .send(batches.recv().expect("a batch"))
        .expect("the writer");
    recorder.queue = Some(queue);
    recorder.request(Instant(9_000_000_000), Op::Write, Span::bytes(512, 512));
    let done = recorder.join();
    assert_eq!((done.written, done.dropped), (2, 3));
    let (requests, notes) = read_back(&[file]);
    assert_eq!(requests.len(), 2);
    assert!(
        notes[1].starts_with("3 requests before this line are missing"),
        "{notes:?}"
    );
}

#[test]
fn a_file_that_fails_ends_the_recording_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = start(&file, LEAST_MAX, Instant(0)).expect("a file");
    // The next rotation finds no directory any more.
    fs::remove_dir_all(dir.path()).expect("removed");
    for n in 0..20_000u64 {
        recorder.request(Instant(n), Op::Read, Span::bytes(n * 512, 512));
    }
    let done = recorder.join();
    let why = done.failed.expect("it failed");
    assert!(
        why.starts_with("cannot write ") && why.contains("vol0.csv"),
        "{why}"
    );
    assert!(done.written < 20_000);
    assert_eq!(done.written + done.dropped, 20_000);
}

#[test]
fn what_a_device_is_asked_is_recorded_and_answered_as_ever() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("disk.csv");
    let path = file.clone();
    env::Runtime::simulated(1).block_on(async move {
        let tap = Tap::new(Memory::new("disk", Bytes::mib(1)));
        let recorder = start(&path, LEAST_MAX, env::now()).expect("a file");
        let recorder = Rc::new(RefCell::new(recorder));
        let attached = tap.attach(Rc::clone(&recorder) as Rc<RefCell<dyn Observer>>);
        let data = Buf::zeroed(4096);
        tap.write_at(Sector(8), data.freeze())
            .await
            .expect("written");
        env::sleep(Nanos::millis(3)).await;
        tap.read_at(Sector(8), Bytes(512)).await.expect("read");
        tap.write_zeroes(Span::bytes(0, 1024), WriteFlags::default())
            .await
            .expect("zeroed");
        tap.discard(Span::bytes(8192, 4096))
            .await
            .expect("discarded");
        tap.flush().await.expect("flushed");
        tap.detach(attached);
        tap.read_at(Sector(0), Bytes(512)).await.expect("read");
        let recorder = Rc::into_inner(recorder).expect("it is the last one");
        assert_eq!(recorder.into_inner().join().written, 5);
    });
    let text = fs::read_to_string(&file).expect("text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(
        lines.map(|line| format!("{line}\n")).collect::<String>(),
        "t_us,op,offset,size,dev\n0,W,4096,4096,0\n3000,R,4096,512,0\n3000,W,0,1024,0\n\
         3000,D,8192,4096,0\n3000,F,0,0,0\n"
    );
}
