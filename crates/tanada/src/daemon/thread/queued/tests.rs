//! The production hybrid on modelled devices, in virtual time: cold reads keep their rate beside the cleaner and greedy clients.

use std::cell::{Cell, RefCell};

use base::{Buf, Instant, Nanos, Sector, View};
use device::fault::{Done, Fault, Injury, Rule};
use device::model::{ModelDisk, Spec, Store as Backing};
use device::{Class, DeviceError, Memory, Op, WriteFlags};
use hybrid::{Hybrid, Mode, Settings, Ties};
use policy::share::{BytesPerSec, Second, Slot};

use super::*;

const MIB: u64 = 1 << 20;
const SIZE: Bytes = Bytes::gib(64);

fn model(name: &str, kind: &str, size: Bytes) -> (Spec, Rc<ModelDisk>) {
    let spec = Spec::find(kind).expect("the catalogue has it");
    let disk = ModelDisk::new(name, &spec, Some(size), Backing::Memory, 1);
    (spec, disk.expect("a size the model can have"))
}

/// A hybrid with a queue before its slow device.
async fn queued_hybrid(mode: Mode) -> (Rc<Queued>, Hybrid) {
    let (spec, slow) = model("hdd0", "hdd-7200-sata", SIZE);
    let (_, fast) = model("ssd0", "ssd-sata-mlc", Bytes::gib(2));
    let book = Memory::new("book", Bytes::mib(64));
    let costs = store::qos::costs::of_model(&spec);
    let options = ManagerOptions::new(costs, [7; 32]);
    let queued = Queued::on(BookDevice::New(book), HybridQueue::default(), slow, options).await;
    let queued = Rc::new(queued.unwrap());
    let settings = Settings {
        name: "vol0".to_owned(),
        mode,
        ..Settings::default()
    };
    let hybrid = Hybrid::open_or_create(settings, queued.device(), fast, Ties::default()).await;
    (queued, hybrid.unwrap())
}

/// When how many bytes came.
type Log = Rc<RefCell<Vec<(Instant, u64)>>>;

/// Reads all of a part of the volume once, `depth` requests of 1 MiB at a time: cold, each of them.
async fn cold(disk: Rc<dyn Device>, depth: u64, end: Instant, log: Log) {
    let next = Cell::new(SIZE.0 / 2 / MIB);
    let workers = (0..depth).map(async |_| {
        while env::now() < end {
            let mib = next.replace(next.get() + 1);
            let at = Sector(mib * MIB / 512);
            let read = disk.read(at, Buf::for_read(1 << 20), Class::Foreground);
            read.await.unwrap();
            log.borrow_mut().push((env::now(), MIB));
        }
    });
    env::sync::join_all(workers.collect::<Vec<_>>()).await;
}

/// A client that reads and writes here and there with this many requests under way, and makes the cleaner work.
async fn greedy(disk: Rc<dyn Device>, seed: u64, depth: u64, end: Instant, done: Rc<Cell<u64>>) {
    let workers = (0..depth).map(async |worker| {
        let mut state = seed * 1_000 + worker + 1;
        while env::now() < end {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = Sector(state % (SIZE.0 / 2 / 65536) * 128);
            match state % 3 {
                0 => {
                    let buf = Buf::for_read(65536);
                    drop(disk.read(at, buf, Class::Foreground).await.unwrap());
                }
                _ => {
                    let data = View::copy_of(&[7; 65536]);
                    disk.write(at, data, WriteFlags::default()).await.unwrap();
                }
            }
            done.set(done.get() + 1);
        }
    });
    env::sync::join_all(workers.collect::<Vec<_>>()).await;
}

/// Whole seconds from `begun` on in which less than `rate` came, and how many there were.
fn broken(log: &Log, begun: Instant, end: Instant, rate: u64) -> (u64, u64) {
    let seconds = end.since(begun).0 / Nanos::secs(1).0;
    let got = |second: u64| {
        let from = begun + Nanos::secs(1) * second;
        let log = log.borrow();
        let within = log
            .iter()
            .filter(|(at, _)| *at >= from && *at < from + Nanos::secs(1));
        within.map(|(_, bytes)| bytes).sum::<u64>()
    };
    let broken = (0..seconds).filter(|second| got(*second) < rate).count();
    (broken as u64, seconds)
}

async fn kept(mode: Mode) {
    let (queued, hybrid) = queued_hybrid(mode).await;
    let manager = queued.manager();
    let slot = Slot::new(manager.now(), 600);
    let request = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
    let request = Queued::request("vol0", request);
    let until = Second(manager.now().0 + 10);
    let held = manager.hold(&request, None, until).await.unwrap();
    manager.commit(held).await.unwrap();

    let volume: Rc<dyn Device> = Rc::new(hybrid.clone());
    let booked = queued.flowed("vol0", Rc::clone(&volume));
    let others = ["b", "c"].map(|export| queued.flowed(export, Rc::clone(&volume)));
    let done = Rc::new(Cell::new(0));
    // The cache is filled and dirty before anything is judged.
    let warm = env::now() + Nanos::secs(60);
    let end = warm + Nanos::secs(120);
    let mut all = Vec::new();
    for (seed, other) in others.into_iter().enumerate() {
        let (seed, done) = (seed as u64 + 1, Rc::clone(&done));
        all.push(env::spawn(greedy(other, seed, 32, end, done)));
    }
    env::sleep(warm.since(env::now())).await;
    let cleaned = hybrid.status().upkeep.bytes_cleaned;
    let log = Log::default();
    cold(booked, 2, end, Rc::clone(&log)).await;
    for one in all {
        one.await;
    }
    let status = hybrid.status();
    // One flow of several: single blocks here and there, a seek each.
    let cleaned = status.upkeep.bytes_cleaned - cleaned;
    assert!(cleaned > 8 * MIB, "the cleaner was at work: {cleaned}");
    assert!(done.get() > 10_000, "the others got something: {done:?}");
    let sessions = manager.sessions();
    let session = sessions.iter().find(|it| it.holder == holder_of("vol0"));
    let windows = session.expect("it was promised").delivery.windows;
    let violated = windows.scheduler + windows.capacity;
    assert!(
        windows.kept >= 115 && violated * 100 <= windows.kept,
        "{mode:?}: {windows:?}"
    );
    // As the client sees it, to a request of 1 MiB: a window may cut one off.
    let (broken, seconds) = broken(&log, warm, end, 10_000_000 - MIB);
    assert!(broken * 100 <= seconds, "{mode:?}: {broken} of {seconds} s");
    drop(queued.close().await);
}

#[test]
fn cold_reads_keep_their_rate_beside_cleaner_and_greedy_clients() {
    env::Runtime::simulated(51).block_on(kept(Mode::Cache));
}

#[test]
fn cold_reads_keep_their_rate_beside_cleaner_mover_and_greedy_clients() {
    env::Runtime::simulated(52).block_on(kept(Mode::Both));
}

#[test]
fn without_a_reservation_the_same_reads_fall_behind() {
    env::Runtime::simulated(53).block_on(async {
        let (queued, hybrid) = queued_hybrid(Mode::Cache).await;
        let volume: Rc<dyn Device> = Rc::new(hybrid.clone());
        let done = Rc::new(Cell::new(0));
        let end = env::now() + Nanos::secs(60);
        let mut all = Vec::new();
        for seed in 1..9 {
            let other = queued.flowed(&format!("g{seed}"), Rc::clone(&volume));
            all.push(env::spawn(greedy(other, seed, 32, end, Rc::clone(&done))));
        }
        let log = Log::default();
        let begun = env::now() + Nanos::secs(30);
        cold(queued.flowed("vol0", volume), 2, end, Rc::clone(&log)).await;
        for one in all {
            one.await;
        }
        let (broken, seconds) = broken(&log, begun, end, 10_000_000 - MIB);
        assert!(
            broken * 2 > seconds,
            "the promise makes the difference: {broken} of {seconds} s"
        );
    });
}

#[test]
fn writes_are_promised_only_where_they_go_to_the_slow_device() {
    for (write, refused) in [
        (WriteMode::Back, true),
        (WriteMode::OnlyWrites, true),
        (WriteMode::Through, false),
        (WriteMode::Around, false),
        (WriteMode::Pass, false),
    ] {
        let said = Queued::refusal(Direction::Write, write);
        assert_eq!(said.is_some(), refused, "{said:?}");
        assert_eq!(Queued::refusal(Direction::Read, write), None);
    }
}

#[test]
fn a_hybrid_opens_without_promises_where_its_bookings_are_broken_and_keeps_them_aside() {
    let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
    runtime.block_on(async {
        let dir = tempfile::tempdir().expect("a folder");
        let disk = || (Memory::new("slow", Bytes::mib(64)) as Rc<dyn Device>, None);
        let costs = Costs::flat(BytesPerSec::mb(100));
        let open = async || {
            let opened = Queued::open("vol0", HybridQueue::default(), disk(), costs, dir.path());
            opened.await.expect("it opens")
        };
        let book = async |queued: &Queued| {
            let manager = queued.manager();
            let slot = Slot::new(manager.now(), 600);
            let request = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
            let until = Second(manager.now().0 + 10);
            let request = Queued::request("vol0", request);
            let held = manager.hold(&request, None, until).await?;
            manager.commit(held).await
        };
        let queued = open().await;
        book(&queued).await.expect("there is time");
        assert_eq!(queued.close().await, None);
        drop(queued);
        let path = dir.path().join("bookings/vol0.store");
        let mut bytes = std::fs::read(&path).expect("it is there");
        // Both superblocks and all behind them.
        bytes
            .iter_mut()
            .take(64 << 20)
            .for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, &bytes).expect("written");
        let queued = open().await;
        let said = queued.manager().report().best_effort_only;
        let said = said.expect("it says so");
        assert!(said.contains("cannot be used"), "{said}");
        assert!(
            said.contains("vol0.broken-1; move it elsewhere or delete it"),
            "{said}"
        );
        let refused = book(&queued).await.expect_err("nothing is promised");
        assert!(refused.to_string().contains(&said), "{refused}");
        let device = queued.flowed("vol0", queued.device());
        let read = device.read(Sector(0), Buf::for_read(4096), Class::Foreground);
        read.await.expect("served all the same");
        assert_eq!(queued.close().await, None);
        drop(queued);
        let kept = std::fs::read(dir.path().join("bookings/vol0.broken-1"));
        assert!(kept.expect("kept aside") == bytes);
        // Further starts do not begin anew behind the operator's back.
        let queued = open().await;
        let said = queued.manager().report().best_effort_only;
        let said = said.expect("it says so again");
        assert!(said.contains("vol0.broken-1; move it elsewhere"), "{said}");
        book(&queued).await.expect_err("nothing is promised yet");
        assert_eq!(queued.close().await, None);
        drop(queued);
        assert!(!path.exists(), "and none was made");
        let aside = dir.path().join("bookings/vol0.broken-1");
        std::fs::remove_file(aside).expect("acknowledged");
        // A start that was cut off while it made one left this.
        std::fs::write(path.with_extension("making"), [0; 4096]).expect("written");
        let queued = open().await;
        assert_eq!(queued.manager().report().best_effort_only, None);
        book(&queued).await.expect("it is promised again");
        assert_eq!(queued.close().await, None);
        drop(queued);
        // What cannot be opened at all stays where it is.
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        let queued = open().await;
        let said = queued.manager().report().best_effort_only;
        let said = said.expect("it says so");
        assert!(said.contains("is left as it is"), "{said}");
        assert!(path.is_dir());
        assert_eq!(queued.close().await, None);
        drop(queued);
    });
}

#[test]
fn bookings_that_only_cannot_be_read_or_written_now_stay_where_they_are() {
    env::Runtime::simulated(54).block_on(async {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("vol0.store");
        std::fs::write(&path, b"as it was").expect("written");
        let disk = Memory::new("book", Bytes::mib(64));
        let open = async |book: BookDevice| {
            let options = ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [7; 32]);
            let slow = Memory::new("slow", Bytes::mib(64));
            Queued::on(book, HybridQueue::default(), slow, options).await
        };
        let made = open(BookDevice::New(disk.clone())).await.expect("made");
        made.close().await;
        drop(made);
        let mut failed = 0;
        for op in [Op::Read, Op::Write] {
            for after in 0..40 {
                let fault = Fault::new(disk.clone(), env::rng("fault"));
                let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[op]);
                fault.book().add(rule.after(after).once());
                match open(BookDevice::Existing(fault)).await {
                    Ok(opened) => drop(opened.close().await),
                    Err(error) => {
                        failed += 1;
                        let said = without_book("vol0", &path, &error.into());
                        assert!(said.contains("is left as it is"), "{said}");
                        assert!(said.contains("restart the daemon"), "{said}");
                    }
                }
                assert_eq!(std::fs::read(&path).expect("it is there"), b"as it was");
                assert_eq!(earlier_aside(&path), None);
            }
        }
        assert!(failed > 2, "{failed}");
        let full = DeviceError::NoSpace {
            device: "book".to_owned(),
            op: Op::Write,
            why: "the file system is full".to_owned(),
        };
        let full = OpenError::Device {
            device: "book".to_owned(),
            what: "write",
            source: full,
        };
        let said = without_book("vol0", &path, &full.into());
        assert!(said.contains("is left as it is"), "{said}");
        // It is as good as it was.
        open(BookDevice::Existing(disk))
            .await
            .expect("it opens")
            .close()
            .await;
    });
}

#[test]
fn bookings_of_zeroes_are_kept_aside_and_nothing_is_formatted_over_them() {
    env::Runtime::simulated(55).block_on(async {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("vol0.store");
        std::fs::write(&path, b"as it was").expect("written");
        let zeroes = Memory::new("book", Bytes::mib(64));
        let slow = Memory::new("slow", Bytes::mib(64));
        let options = ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [7; 32]);
        let opened = Queued::on(
            BookDevice::Existing(zeroes),
            HybridQueue::default(),
            slow,
            options,
        );
        let error = opened.await.err().expect("there is no book");
        let said = without_book("vol0", &path, &error.into());
        assert!(said.contains("vol0.broken-1; move it elsewhere"), "{said}");
        assert_eq!(earlier_aside(&path), Some(dir.path().join("vol0.broken-1")));
    });
}
