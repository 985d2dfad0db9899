//! Does a recording hold what was asked, within its bound, whatever happens to its files?

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Sector};
use device::{Device, DeviceExt, Memory, WriteFlags};
use proptest::prelude::*;

use super::*;
use crate::tap::Tap;
use crate::trace::{ReadOptions, Requests, open_many};

fn read_back(files: &[PathBuf]) -> (Vec<Request>, Vec<String>) {
    let mut trace = open_many(files, &ReadOptions::default()).expect("a trace");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).expect("well-formed") {
        all.extend_from_slice(&batch);
    }
    (all, trace.notes().to_vec())
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
        let mut recorder = Recorder::start(&file, LEAST_MAX, began).expect("a file");
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
    let mut recorder = Recorder::start(&file, LEAST_MAX, Instant(0)).expect("a file");
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
    let mut first = Recorder::start(&file, LEAST_MAX, Instant(0)).expect("a file");
    first.request(Instant(0), Op::Read, Span::bytes(0, 512));
    first.join();
    Recorder::start(&file, LEAST_MAX, Instant(0))
        .expect("the same file")
        .join();
    assert_eq!(read_back(&[numbered(&file, 1)]).0.len(), 1);
    // One without requests leaves nothing to keep.
    Recorder::start(&file, LEAST_MAX, Instant(0))
        .expect("the same file")
        .join();
    assert_eq!(segments(&file).len(), 2);

    let refused = |file: &Path, max| match Recorder::start(file, max, Instant(0)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("recorded to {}", file.display()),
    };
    fs::write(numbered(&file, 3), "letters").expect("a letter");
    assert!(refused(&file, LEAST_MAX).contains("vol0.csv.3 is there already and is no trace"));
    assert_eq!(
        fs::read_to_string(numbered(&file, 3)).expect("untouched"),
        "letters"
    );
    assert!(refused(dir.path(), LEAST_MAX).contains("is no trace"));
    let nowhere = dir.path().join("no/such/vol0.csv");
    assert!(refused(&nowhere, LEAST_MAX).starts_with("cannot record to "));
    let other = dir.path().join("other.csv");
    assert_eq!(
        refused(&other, Bytes(4096)),
        "a recording of at most 4.0 KiB is too small; ask for 1.0 MiB at least"
    );
    let running = Recorder::start(&other, LEAST_MAX, Instant(0)).expect("a file");
    assert!(refused(&other, LEAST_MAX).contains("is being recorded to already"));
    running.join();
}

#[test]
fn a_writer_that_lags_costs_requests_not_time_and_the_trace_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = Recorder::start(&file, LEAST_MAX, Instant(0)).expect("a file");
    // Its queue is replaced by one that nobody empties for now.
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
        notes[0].starts_with("3 requests before this line are missing"),
        "{notes:?}"
    );
}

#[test]
fn a_file_that_fails_ends_the_recording_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vol0.csv");
    let mut recorder = Recorder::start(&file, LEAST_MAX, Instant(0)).expect("a file");
    // The next rotation finds a directory where FILE.7 goes.
    fs::create_dir_all(numbered(&file, FILES - 1).join("in the way")).expect("a directory");
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
}

#[test]
fn what_a_device_is_asked_is_recorded_and_answered_as_ever() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("disk.csv");
    let path = file.clone();
    env::Runtime::simulated(1).block_on(async move {
        let tap = Tap::new(Memory::new("disk", Bytes::mib(1)));
        let recorder = Recorder::start(&path, LEAST_MAX, env::now()).expect("a file");
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
        let recorder = Rc::into_inner(recorder).expect("nobody else has it");
        assert_eq!(recorder.into_inner().join().written, 5);
    });
    assert_eq!(
        fs::read_to_string(&file).expect("text"),
        "t_us,op,offset,size,dev\n0,W,4096,4096,0\n3000,R,4096,512,0\n3000,W,0,1024,0\n\
         3000,D,8192,4096,0\n3000,F,0,0,0\n"
    );
}
