//! Are promises kept while others want more? In virtual time, on a device of one known speed.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};
use env::sync::Semaphore;
use policy::share::{
    BytesPerSec, Cost, Costs, Direction, Kind, Mix, RoundsOptions, Second, Share, Slot,
};

use super::manager::{CREATE, request, reserved};
use super::{pattern, small};
use crate::qos::calibrate::{CalibrateError, Plan};
use crate::qos::manager::{Calibration, Manager, ManagerOptions, ReservationRequest, ScrubOptions};
use crate::qos::session::{Access, Session};
use crate::{ObjectCalls, Settings, Store};

/// Each request, one after the other: a fixed time, then its bytes at this rate.
pub(super) struct Slow {
    below: Rc<Memory>,
    turn: Rc<Semaphore>,
    rate: Cell<BytesPerSec>,
    /// What a request that does not follow on the one before takes longer.
    jump: Cell<Nanos>,
    head: Cell<Sector>,
}

const FIXED: Nanos = Nanos::micros(100);

impl Slow {
    pub(super) fn new(size: Bytes, rate: BytesPerSec) -> Rc<Slow> {
        Rc::new(Slow {
            below: Memory::new("slow", size),
            turn: Semaphore::new(1),
            rate: Cell::new(rate),
            jump: Cell::new(Nanos(0)),
            head: Cell::new(Sector(0)),
        })
    }

    async fn spend(&self, at: Sector, len: usize) {
        let _turn = self.turn.acquire(1).await;
        let end = Sector(at.0 + len as u64 / 512);
        let jump = match self.head.replace(end) == at {
            true => Nanos(0),
            false => self.jump.get(),
        };
        env::sleep(FIXED + jump + self.rate.get().time_for(Bytes(len as u64))).await;
    }
}

impl Device for Slow {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        Box::pin(async move {
            self.spend(at, buf.len()).await;
            self.below.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async move {
            self.spend(at, data.len()).await;
            self.below.write(at, data, flags).await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.below.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write_zeroes(span, flags)
    }
}

pub(super) fn costs(rate: BytesPerSec) -> Costs {
    let cost = Cost {
        fixed: FIXED,
        jump: Nanos(0),
        rate,
    };
    Costs {
        read: cost,
        write: cost,
    }
}

pub(super) const MIB: u64 = 1 << 20;
/// Length of the object that every stream reads.
pub(super) const LENGTH: u64 = 8 * MIB;

/// A manager on a device of this speed, with something to read, and nothing written down for the moment.
pub(super) async fn node_on(disk: &Rc<Slow>, options: ManagerOptions) -> Rc<Manager> {
    let settings = Settings {
        unit: Bytes::mib(1),
        zone: Bytes::mib(16),
        ..small()
    };
    let store = Store::format(disk.clone(), settings).await.unwrap();
    store.close().await.unwrap();
    let manager = Manager::open(disk.clone(), options).await.unwrap();
    let master = manager.open_session(Access::NodeKey).unwrap();
    for at in 0..LENGTH / MIB {
        let data = pattern(at, MIB as usize);
        master.write("film", at * MIB, data, CREATE).await.unwrap();
    }
    manager
}

pub(super) fn options(rate: BytesPerSec) -> ManagerOptions {
    ManagerOptions {
        scrub: None,
        ..ManagerOptions::new(costs(rate), [7; 32])
    }
}

pub(super) async fn session(manager: &Rc<Manager>, mb: u64) -> Rc<Session> {
    let (_, capability) = reserved(manager, &request(manager, Direction::Read, mb)).await;
    manager
        .open_session(Access::Capability(&capability))
        .unwrap()
}

/// Reads as much as it gets, with so many requests at a time.
fn greedy(manager: &Rc<Manager>, depth: u64) -> Rc<Session> {
    let session = manager.open_session(Access::NodeKey).unwrap();
    for lane in 0..depth {
        let session = Rc::clone(&session);
        env::spawn(async move {
            let mut at = lane;
            while session.read("film", at * MIB % LENGTH, MIB).await.is_ok() {
                at += depth;
            }
        });
    }
    session
}

/// Asks for its rate, no more and no less, whatever becomes of it.
pub(super) async fn at_its_rate(session: Rc<Session>, seconds: u64) {
    let rate = session.promised();
    at_rate(session, rate, seconds).await;
}

async fn at_rate(session: Rc<Session>, rate: BytesPerSec, seconds: u64) {
    let piece = 256 << 10;
    let every = rate.time_for(Bytes(piece));
    let begun = env::now();
    let mut at = 0;
    let mut under_way = Vec::new();
    while env::now().since(begun) < Nanos::secs(seconds) {
        let reader = Rc::clone(&session);
        under_way.push(env::spawn(async move {
            let from = at * piece % LENGTH;
            reader.read("film", from, piece).await.unwrap();
        }));
        at += 1;
        env::sleep_until(begun + every * at).await;
    }
    for read in under_way {
        read.await;
    }
}

#[test]
fn reservations_of_two_to_one_get_their_rates_beside_a_greedy_client() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let manager = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let other = greedy(&manager, 16);
        let sessions = [session(&manager, 40).await, session(&manager, 20).await];
        let before = other.report().delivery.delivered_bytes;
        let readers = sessions
            .each_ref()
            .map(|it| env::spawn(at_its_rate(Rc::clone(it), 10)));
        for reader in readers {
            reader.await;
        }
        for session in &sessions {
            let report = session.report();
            let (got, promised) = (report.delivery.delivered_bytes, report.promised * 10);
            println!("{got} of {promised}: {:?}", report.delivery.windows);
            assert!(
                got * 100 >= promised * 95 && got * 100 <= promised * 105,
                "{report:?}"
            );
            assert_eq!(
                (
                    report.delivery.windows.capacity,
                    report.delivery.windows.scheduler
                ),
                (0, 0)
            );
            assert!(report.delivery.windows.kept + report.delivery.windows.no_demand >= 9);
        }
        let rest = other.report().delivery.delivered_bytes - before;
        println!("{rest} for the greedy one");
        assert!(rest > 25 * 10 * 1_000_000, "{rest}");
        let space = manager.store().space();
        assert_eq!(space.free + space.reserved + space.used, space.total);
    });
}

#[test]
fn a_session_gets_the_rate_of_an_attached_reservation_while_it_lasts() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let manager = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let _other = greedy(&manager, 16);
        let engine = manager.open_session(Access::NodeKey).unwrap();
        let rate = BytesPerSec::mb(60);
        let late = async |seconds| {
            let begun = env::now();
            at_rate(Rc::clone(&engine), rate, seconds).await;
            env::now().since(begun) > Nanos::secs(seconds) + Nanos::millis(100)
        };
        assert!(late(5).await, "best effort is half at most");
        engine.attach_reservations(Some("disk")).unwrap();
        assert!(late(5).await, "nothing is reserved yet");
        let wanted = request(&manager, Direction::Read, 60).holder("disk");
        // One for tomorrow does not stand before one for now.
        let slot = Slot::new(Second(manager.now().0 + 86_400), 60);
        let tomorrow = wanted.clone();
        reserved(&manager, &ReservationRequest { slot, ..tomorrow }).await;
        env::sleep(Nanos::secs(1)).await;
        engine.read("film", 0, 4096).await.unwrap();
        let slot = Slot::new(manager.now(), 12);
        let (id, capability) = reserved(&manager, &ReservationRequest { slot, ..wanted }).await;
        env::sleep(Nanos::secs(1)).await;
        assert!(!late(5).await);
        // A client that shows the capability is in the same flow.
        let shown = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        let report = shown.report();
        assert_eq!(report.reservation, Some(id.0));
        assert!(
            report.delivery.delivered_bytes >= 5 * 59_000_000,
            "{report:?}"
        );
        assert_eq!(
            (
                report.delivery.windows.capacity,
                report.delivery.windows.scheduler
            ),
            (0, 0)
        );
        assert!(
            shown.attach_reservations(Some("disk")).is_err(),
            "it is under its own"
        );
        drop(shown);
        engine
            .write("film", 0, pattern(0, 4096), CREATE)
            .await
            .unwrap();
        env::sleep(Nanos::secs(8)).await;
        assert!(late(5).await, "its time is over");
    });
}

#[test]
fn a_newcomer_is_served_at_its_rate_within_one_quantum() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let manager = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let _other = greedy(&manager, 16);
        env::sleep(Nanos::secs(2)).await;
        let newcomer = session(&manager, 60).await;
        let quantum = 256 << 10;
        let depth = u64::from(manager.queue().depth());
        let begun = env::now();
        newcomer.read("film", 0, quantum).await.unwrap();
        let waited = env::now().since(begun);
        // What is at the device already, itself, and one piece of slack.
        let one = costs(BytesPerSec::mb(100)).of(
            Direction::Read,
            Bytes(quantum),
            policy::share::Approach::Follows,
        );
        println!("{waited} at depth {depth}, a quantum takes {one}");
        assert!(
            waited <= one * (depth + 2),
            "{waited}, {depth} at the device"
        );
        at_its_rate(Rc::clone(&newcomer), 3).await;
        let report = newcomer.report();
        assert!(
            report.delivery.delivered_bytes >= 60 * 3 * 950_000,
            "{report:?}"
        );
        assert_eq!(
            (
                report.delivery.windows.capacity,
                report.delivery.windows.scheduler
            ),
            (0, 0)
        );
    });
}

/// Four that read as much as they get, each in a part of its own, for so long; what reads are trusted with then.
async fn trusted_beside_streams(manager: &Rc<Manager>, seconds: u64) -> u64 {
    let until = env::now() + Nanos::secs(seconds);
    let mut readers = Vec::new();
    for part in 0..4 {
        let session = manager.open_session(Access::NodeKey).unwrap();
        readers.push(env::spawn(async move {
            let mut at = 0;
            while env::now() < until {
                let from = 2 * MIB * part + at % (2 * MIB);
                session.read("film", from, MIB / 4).await.unwrap();
                at += MIB / 4;
            }
        }));
    }
    for reader in readers {
        reader.await;
    }
    manager.report().capacity.read
}

#[test]
fn streams_that_take_turns_are_not_taken_for_a_slower_disk() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(24), rate);
        let mut options = options(rate);
        options.queue.share.costs.read.jump = Nanos::millis(10);
        let manager = node_on(&disk, options).await;
        disk.jump.set(Nanos::millis(10));
        let before = manager.report().capacity.read;
        let trusted = trusted_beside_streams(&manager, 300).await;
        assert!(
            trusted * 10 >= before * 8,
            "{trusted} of {before}: {:?}",
            manager.report().capacity
        );
    });
}

#[test]
fn a_disk_that_was_slow_beside_others_is_trusted_again_when_they_are_gone() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(24), rate);
        let manager = node_on(&disk, options(rate)).await;
        let before = manager.report().capacity.read;
        // The manager does not know of its jumps, so streams that take turns look like a slower disk.
        disk.jump.set(Nanos::millis(10));
        let low = trusted_beside_streams(&manager, 300).await;
        assert!(low * 10 < before * 6, "{low} of {before}");
        assert!(manager.report().capacity.calibration_due);
        disk.jump.set(Nanos(0));
        env::sleep(Nanos::secs(300)).await;
        let trusted = manager.report().capacity.read;
        assert!(
            trusted * 10 >= before * 8,
            "{trusted} of {before}: {:?}",
            manager.report().capacity
        );
    });
}

#[test]
fn a_device_that_became_slower_is_trusted_less_and_said_to_be_overcommitted() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(8);
        let disk = Slow::new(Bytes::mib(24), rate);
        let manager = node_on(&disk, options(rate)).await;
        let most = BytesPerSec::mb(5);
        let mut long = request(&manager, Direction::Read, 5);
        long.slot.end.0 += 10_000;
        let (id, _) = reserved(&manager, &long).await;
        assert_eq!(manager.report().calendar.overcommitted, []);
        let _other = greedy(&manager, 4);
        disk.rate.set(BytesPerSec::mb(4));
        env::sleep(Nanos::secs(100)).await;
        let report = manager.report();
        println!("{:?}", report.capacity);
        assert_eq!(report.capacity.source, "configured, observed");
        let speed = report.capacity.read_speed_percent.unwrap();
        assert!((40.0..=55.0).contains(&speed), "{speed} %");
        assert!(report.capacity.read < most.0);
        assert_eq!(report.calendar.overcommitted.len(), 1);
        assert!(report.log.iter().any(|it| it.kind == "overcommitted"));
        // Nothing is taken back, but no more is promised.
        assert!(manager.capability(id).is_some());
        assert!(
            manager
                .offer(&request(&manager, Direction::Read, 1))
                .is_err()
        );
        // A calibration begins anew.
        let measured = Calibration {
            costs: costs(BytesPerSec::mb(4)),
            points: Vec::new(),
            beyond: policy::share::Share::percent(10),
            measured: manager.now(),
            device: ("slow".to_owned(), Bytes::mib(24)),
            identity: None,
            surface: serde_json::json!({"runs": 3}),
        };
        manager.set_calibration(measured.clone()).await.unwrap();
        assert_eq!(manager.report().capacity.source, "calibrated");
        manager.release(id).await.unwrap();
        assert!(
            manager
                .offer(&request(&manager, Direction::Read, 3))
                .is_ok()
        );
        manager.close().await.unwrap();
        let manager = Manager::open(disk, options(rate)).await.unwrap();
        assert_eq!(manager.calibration().as_deref(), Some(&measured));
        assert!(
            manager
                .offer(&request(&manager, Direction::Read, 4))
                .is_err()
        );
    });
}

#[test]
fn a_promise_that_cannot_be_kept_is_logged_with_its_cause() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let manager = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let promised = session(&manager, 60).await;
        let id = promised.reservation().unwrap();
        disk.rate.set(BytesPerSec::mb(30));
        at_its_rate(Rc::clone(&promised), 5).await;
        assert!(
            promised.report().delivery.windows.capacity >= 3,
            "{:?}",
            promised.report()
        );
        drop(promised);
        let report = manager.report();
        let violated = report.log.iter().filter(|it| it.kind == "violated");
        let mut count = 0;
        for line in violated {
            count += 1;
            assert_eq!(line.reservation, Some(id.0), "{line:?}");
            assert_eq!(line.cause.as_deref(), Some("capacity"), "{line:?}");
        }
        assert!(count > 0);
    });
}

#[test]
fn the_scrub_reads_all_data_at_its_rate_and_promises_are_kept_beside_it() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let scrub = ScrubOptions {
            rate: BytesPerSec(2 << 20),
            pause: Nanos::millis(100),
        };
        let options = ManagerOptions {
            scrub: Some(scrub),
            ..options(BytesPerSec::mb(100))
        };
        let manager = node_on(&disk, options).await;
        let _other = greedy(&manager, 4);
        let promised = session(&manager, 40).await;
        let before = manager.report().scrub.read_bytes;
        at_its_rate(Rc::clone(&promised), 3).await;
        let read = manager.report().scrub.read_bytes - before;
        println!("{read} bytes scrubbed in 3 s");
        assert!((4 << 20..=8 << 20).contains(&read), "{read}");
        let windows = promised.report().delivery.windows;
        assert_eq!((windows.capacity, windows.scheduler), (0, 0));
        env::sleep(Nanos::secs(4)).await;
        let report = manager.report().scrub;
        assert!(
            report.rounds >= 1 && report.round_ended.is_some() && report.bad == 0,
            "{report:?}"
        );
    });
}

#[test]
fn at_the_end_of_a_round_the_store_commits() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let mut options = options(BytesPerSec::mb(100));
        options.queue.kind = Kind::Rounds;
        options.queue.share.rounds = RoundsOptions {
            round_ios: 4,
            ..RoundsOptions::default()
        };
        let manager = node_on(&disk, options).await;
        let before = manager.store().figures().commits;
        let begun = env::now();
        let session = manager.open_session(Access::NodeKey).unwrap();
        for at in 0..16 {
            let data = pattern(at, MIB as usize);
            let change = crate::Change::default().creating();
            session
                .write("round", at % 4 * MIB, data, change)
                .await
                .unwrap();
        }
        let seconds = env::now().since(begun).secs_f64();
        let commits = manager.store().figures().commits - before;
        println!("{commits} commits in {seconds:.2} s");
        // Of itself the store commits once a second.
        assert!(seconds < 1.0 && commits >= 3, "{commits} in {seconds} s");
    });
}

#[test]
fn when_the_device_drifts_a_calibration_is_due() {
    env::Runtime::simulated(1).block_on(async {
        // Slow, so that five minutes are few bytes.
        let rate = BytesPerSec::mb(2);
        let disk = Slow::new(Bytes::mib(24), rate);
        let manager = node_on(&disk, options(rate)).await;
        let _other = greedy(&manager, 4);
        env::sleep(Nanos::secs(240)).await;
        assert!(!manager.report().capacity.calibration_due);
        disk.rate.set(BytesPerSec::mb(1));
        env::sleep(Nanos::secs(90)).await;
        let report = manager.report();
        assert!(report.capacity.calibration_due, "{:?}", report.capacity);
        let drift = report.log.iter().find(|it| it.kind == "drift").unwrap();
        assert!(
            drift
                .what
                .starts_with("the device is slower than it was (reads)"),
            "{drift:?}"
        );
    });
}

#[test]
fn buffers_follow_the_rates_and_hold_back_who_has_used_his() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let manager = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let (fast, slow) = (session(&manager, 40).await, session(&manager, 20).await);
        let floor = manager.store().write_max();
        let memory = || [&fast, &slow].map(|it| it.memory().0);
        let [of_fast, of_slow] = memory();
        assert_eq!(of_fast + of_slow, 64 * MIB);
        assert!(
            (of_fast - floor).abs_diff(2 * (of_slow - floor)) <= 2,
            "{of_fast} {of_slow}"
        );
        let held = slow.buffer(Bytes(of_slow - 10)).await;
        let more = env::timeout(Nanos::millis(1), slow.buffer(Bytes(11)));
        assert!(more.await.is_err(), "more than its part");
        let little = slow.buffer(Bytes(10)).await;
        // No request overtakes one that wants much.
        let much = {
            let slow = Rc::clone(&slow);
            env::spawn(async move { slow.buffer(Bytes(of_slow)).await })
        };
        env::sleep(Nanos::millis(1)).await;
        drop(little);
        let little = env::timeout(Nanos::millis(1), slow.buffer(Bytes(10)));
        assert!(little.await.is_err(), "overtaken");
        much.cancel();
        env::sleep(Nanos::millis(1)).await;
        let little = env::timeout(Nanos::millis(1), slow.buffer(Bytes(10)));
        let little = little.await.expect("no request is before it any more");
        // What is longer than its part goes alone.
        let waiting = {
            let fast = Rc::clone(&fast);
            env::spawn(async move {
                let first = fast.buffer(Bytes::mib(500)).await;
                drop(first);
                fast.buffer(Bytes(1)).await
            })
        };
        waiting.await;
        // When the other goes there is more for those that stay.
        drop(fast);
        assert_eq!(slow.memory(), Bytes::mib(64));
        let more = env::timeout(Nanos::millis(1), slow.buffer(Bytes(11)));
        assert!(more.await.is_ok());
        drop((held, little));
        let all = env::timeout(Nanos::millis(1), slow.buffer(Bytes::mib(64)));
        assert!(all.await.is_ok(), "all was given back");
    });
}

#[test]
fn a_device_that_becomes_slower_is_trusted_less_also_after_a_restart() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec(2_500_000);
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(2));
        let manager = node_on(&disk, options(rate)).await;
        let _other = greedy(&manager, 4);
        env::sleep(Nanos::secs(240)).await;
        let trusted = |manager: &Manager| manager.report().capacity.read;
        let before = trusted(&manager);
        assert!(before < 2_100_000, "{before}");
        disk.rate.set(BytesPerSec::mb(1));
        for second in 0..90 {
            env::sleep(Nanos::secs(1)).await;
            let now = trusted(&manager);
            assert!(now <= before, "{now} of {before} after {second} s");
            if manager.report().capacity.calibration_due {
                assert!(now <= 1_100_000, "{now} after {second} s");
            }
        }
        let before = manager.report().capacity;
        assert!(
            before.calibration_due && before.samples[0] < 200,
            "{before:?}"
        );
        manager.close().await.unwrap();
        let manager = Manager::open(disk, options(rate)).await.unwrap();
        let after = manager.report().capacity;
        assert_eq!(after.samples, [0; 3]);
        assert_eq!((after.read, after.write), (before.read, before.write));
        assert!(after.calibration_due);
        let most = manager.offer(&request(&manager, Direction::Read, 2));
        assert!(most.is_err(), "{most:?}");
    });
}

#[test]
fn a_calibration_takes_the_device_only_where_nothing_is_promised() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(96), rate);
        let manager = node_on(&disk, options(BytesPerSec::mb(80))).await;
        let plan = Plan {
            sizes: [64, 256].map(Bytes::kib).to_vec(),
            probe: Nanos::millis(500),
            mixes: vec![Mix::Reads],
            sessions: vec![2],
            windows: 5,
            step: Share::percent(20),
            room: Bytes::mib(16),
            budget: Nanos::secs(100),
            ..Plan::quick()
        };
        let trusted = manager.queue().costs();
        let mut later = request(&manager, Direction::Read, 1);
        later.slot = Slot::new(Second(manager.now().0 + 50), 10);
        let (id, _) = reserved(&manager, &later).await;
        let refused = manager.calibrate(&plan, &mut |_, _| {}).await.unwrap_err();
        assert!(
            refused.to_string().contains("and reservation 1 has"),
            "{refused}"
        );
        let begun = manager.begin_calibration(plan.clone()).await;
        assert!(matches!(begun, Err(CalibrateError::Reserved { .. })));
        manager.release(id).await.unwrap();
        // Given up before anything was measured: as if it had never begun.
        drop(manager.begin_calibration(plan.clone()).await.unwrap());
        assert_eq!(manager.queue().costs(), trusted);
        assert_eq!(manager.report().capacity.source, "configured");
        let taken = manager.begin_calibration(plan.clone()).await.unwrap();
        let running = env::spawn(async move { taken.measure(&mut |_, _| {}).await });
        env::sleep(Nanos::secs(5)).await;
        let soon = request(&manager, Direction::Read, 1);
        let refused = manager.hold(&soon, None, Second(manager.now().0 + 9)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("taken by a calibration"), "{refused}");
        assert!(manager.offer(&soon).is_err());
        let twice = manager.calibrate(&plan, &mut |_, _| {}).await;
        assert!(matches!(twice, Err(CalibrateError::Running { .. })));
        let mut after = soon.clone();
        after.slot = Slot::new(Second(manager.now().0 + 200), 10);
        assert!(manager.offer(&after).is_ok());
        let surface = running.await.unwrap();
        let report = manager.report();
        assert_eq!(report.capacity.source, "calibrated");
        assert_eq!(report.capacity.samples, [0; 3]);
        assert_eq!(manager.queue().costs(), surface.costs());
        assert!(report.log.is_empty(), "{:?}", report.log);
        manager
            .hold(&soon, None, Second(manager.now().0 + 9))
            .await
            .unwrap();
    });
}

#[test]
fn a_write_that_began_before_the_end_of_its_slot_is_done() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(8));
        let manager = node_on(&disk, options(BytesPerSec::mb(8))).await;
        let writing = request(&manager, Direction::Write, 1).space(Bytes::kib(64));
        let (id, capability) = reserved(&manager, &writing).await;
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        let master = manager.open_session(Access::NodeKey).unwrap();
        // While this goes on no other session writes to it.
        let long = env::spawn(async move {
            for at in 0..2 {
                let data = pattern(1, MIB as usize);
                master.write("song", at * MIB, data, CREATE).await.unwrap();
            }
        });
        env::sleep(Nanos::millis(1)).await;
        let begun =
            env::spawn(async move { session.write("song", 0, pattern(2, 8_192), CREATE).await });
        env::sleep(Nanos::millis(1)).await;
        manager.release(id).await.unwrap();
        begun.await.unwrap();
        long.await;
    });
}
