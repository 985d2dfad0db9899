//! Are promises kept while others want more? In virtual time, on a device of one known speed.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};
use env::sync::Semaphore;
use policy::share::{
    BytesPerSec, Cost, Costs, Direction, Kind, Mix, RoundsOptions, Second, Share, Slot,
};

use super::node::{CREATE, ask, reserved};
use super::{pattern, small};
use crate::calibrate::{CalibrateError, Plan};
use crate::node::{Ask, Calibration, Node, NodeOptions, ScrubOptions};
use crate::session::{Access, Session};
use crate::{Settings, Store};

/// Each request, one after the other: a fixed time, then its bytes at this rate.
struct Slow {
    below: Rc<Memory>,
    turn: Rc<Semaphore>,
    rate: Cell<BytesPerSec>,
    /// What a request that does not follow on the one before takes longer.
    jump: Cell<Nanos>,
    head: Cell<Sector>,
}

const FIXED: Nanos = Nanos::micros(100);

impl Slow {
    fn new(size: Bytes, rate: BytesPerSec) -> Rc<Slow> {
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

fn costs(rate: BytesPerSec) -> Costs {
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

const MIB: u64 = 1 << 20;
/// Length of the object that every stream reads.
const LENGTH: u64 = 8 * MIB;

/// A node on a device of this speed, with something to read, and nothing written down for the moment.
async fn node_on(disk: &Rc<Slow>, options: NodeOptions) -> Rc<Node> {
    let settings = Settings {
        unit: Bytes::mib(1),
        zone: Bytes::mib(16),
        ..small()
    };
    let store = Store::format(disk.clone(), settings).await.unwrap();
    store.close().await.unwrap();
    let node = Node::open(disk.clone(), options).await.unwrap();
    let master = node.open_session(Access::NodeKey).unwrap();
    for at in 0..LENGTH / MIB {
        let data = pattern(at, MIB as usize);
        master.write("film", at * MIB, data, CREATE).await.unwrap();
    }
    node
}

fn options(rate: BytesPerSec) -> NodeOptions {
    NodeOptions {
        scrub: None,
        ..NodeOptions::new(costs(rate), [7; 32])
    }
}

async fn session(node: &Rc<Node>, mb: u64) -> Rc<Session> {
    let (_, capability) = reserved(node, &ask(node, Direction::Read, mb)).await;
    node.open_session(Access::Capability(&capability)).unwrap()
}

/// Reads as much as it gets, with so many requests at a time.
fn greedy(node: &Rc<Node>, depth: u64) -> Rc<Session> {
    let session = node.open_session(Access::NodeKey).unwrap();
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
async fn at_its_rate(session: Rc<Session>, seconds: u64) {
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
        let node = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let other = greedy(&node, 16);
        let sessions = [session(&node, 40).await, session(&node, 20).await];
        let before = other.report().delivered_bytes;
        let readers = sessions
            .each_ref()
            .map(|it| env::spawn(at_its_rate(Rc::clone(it), 10)));
        for reader in readers {
            reader.await;
        }
        for session in &sessions {
            let report = session.report();
            let (got, promised) = (report.delivered_bytes, report.promised * 10);
            println!("{got} of {promised}: {:?}", report.windows);
            assert!(
                got * 100 >= promised * 95 && got * 100 <= promised * 105,
                "{report:?}"
            );
            assert_eq!((report.windows.capacity, report.windows.scheduler), (0, 0));
            assert!(report.windows.kept + report.windows.no_demand >= 9);
        }
        let rest = other.report().delivered_bytes - before;
        println!("{rest} for the greedy one");
        assert!(rest > 25 * 10 * 1_000_000, "{rest}");
        let space = node.store().space();
        assert_eq!(space.free + space.reserved + space.used, space.total);
    });
}

#[test]
fn who_has_the_node_key_and_comes_under_a_holders_reservation_gets_its_rate_as_long_as_it_lasts() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let node = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let _other = greedy(&node, 16);
        let engine = node.open_session(Access::NodeKey).unwrap();
        let rate = BytesPerSec::mb(60);
        let late = async |seconds| {
            let begun = env::now();
            at_rate(Rc::clone(&engine), rate, seconds).await;
            env::now().since(begun) > Nanos::secs(seconds) + Nanos::millis(100)
        };
        assert!(late(5).await, "best effort is half at most");
        engine.come_under(Some("disk")).unwrap();
        assert!(late(5).await, "nothing is reserved yet");
        let wanted = ask(&node, Direction::Read, 60).holder("disk");
        // One for tomorrow does not stand before one for now.
        let slot = Slot::new(Second(node.now().0 + 86_400), 60);
        let tomorrow = wanted.clone();
        reserved(&node, &Ask { slot, ..tomorrow }).await;
        env::sleep(Nanos::secs(1)).await;
        engine.read("film", 0, 4096).await.unwrap();
        let slot = Slot::new(node.now(), 12);
        let (id, capability) = reserved(&node, &Ask { slot, ..wanted }).await;
        env::sleep(Nanos::secs(1)).await;
        assert!(!late(5).await);
        // A client that shows the capability is in the same line.
        let shown = node.open_session(Access::Capability(&capability)).unwrap();
        let report = shown.report();
        assert_eq!(report.reservation, Some(id.0));
        assert!(report.delivered_bytes >= 5 * 59_000_000, "{report:?}");
        assert_eq!((report.windows.capacity, report.windows.scheduler), (0, 0));
        assert!(
            shown.come_under(Some("disk")).is_err(),
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
        let node = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let _other = greedy(&node, 16);
        env::sleep(Nanos::secs(2)).await;
        let newcomer = session(&node, 60).await;
        let quantum = 256 << 10;
        let depth = u64::from(node.queue().depth());
        let begun = env::now();
        newcomer.read("film", 0, quantum).await.unwrap();
        let waited = env::now().since(begun);
        // What is at the device already, itself, and one piece of slack.
        let one = costs(BytesPerSec::mb(100)).of(Direction::Read, Bytes(quantum), true);
        println!("{waited} at depth {depth}, a quantum takes {one}");
        assert!(
            waited <= one * (depth + 2),
            "{waited}, {depth} at the device"
        );
        at_its_rate(Rc::clone(&newcomer), 3).await;
        let report = newcomer.report();
        assert!(report.delivered_bytes >= 60 * 3 * 950_000, "{report:?}");
        assert_eq!((report.windows.capacity, report.windows.scheduler), (0, 0));
    });
}

/// Four that read as much as they get, each in a part of its own, for so long; what reads are trusted with then.
async fn trusted_beside_streams(node: &Rc<Node>, seconds: u64) -> u64 {
    let until = env::now() + Nanos::secs(seconds);
    let mut readers = Vec::new();
    for part in 0..4 {
        let session = node.open_session(Access::NodeKey).unwrap();
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
    node.report().capacity.read
}

#[test]
fn streams_that_take_turns_are_not_taken_for_a_slower_disk() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(24), rate);
        let mut options = options(rate);
        options.queue.share.costs.read.jump = Nanos::millis(10);
        let node = node_on(&disk, options).await;
        disk.jump.set(Nanos::millis(10));
        let before = node.report().capacity.read;
        let trusted = trusted_beside_streams(&node, 300).await;
        assert!(
            trusted * 10 >= before * 8,
            "{trusted} of {before}: {:?}",
            node.report().capacity
        );
    });
}

#[test]
fn a_disk_that_was_slow_beside_others_is_trusted_again_when_they_are_gone() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(24), rate);
        let node = node_on(&disk, options(rate)).await;
        let before = node.report().capacity.read;
        // The node does not know of its jumps, so streams that take turns look like a slower disk.
        disk.jump.set(Nanos::millis(10));
        let low = trusted_beside_streams(&node, 300).await;
        assert!(low * 10 < before * 6, "{low} of {before}");
        assert!(node.report().capacity.calibration_due);
        disk.jump.set(Nanos(0));
        env::sleep(Nanos::secs(300)).await;
        let trusted = node.report().capacity.read;
        assert!(
            trusted * 10 >= before * 8,
            "{trusted} of {before}: {:?}",
            node.report().capacity
        );
    });
}

#[test]
fn a_device_that_became_slower_is_trusted_less_and_said_to_be_overcommitted() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(8);
        let disk = Slow::new(Bytes::mib(24), rate);
        let node = node_on(&disk, options(rate)).await;
        let most = BytesPerSec::mb(5);
        let mut long = ask(&node, Direction::Read, 5);
        long.slot.end.0 += 10_000;
        let (id, _) = reserved(&node, &long).await;
        assert_eq!(node.report().calendar.overcommitted, []);
        let _other = greedy(&node, 4);
        disk.rate.set(BytesPerSec::mb(4));
        env::sleep(Nanos::secs(100)).await;
        let report = node.report();
        println!("{:?}", report.capacity);
        assert_eq!(report.capacity.source, "configured, observed");
        let speed = report.capacity.read_speed_percent.unwrap();
        assert!((40.0..=55.0).contains(&speed), "{speed} %");
        assert!(report.capacity.read < most.0);
        assert_eq!(report.calendar.overcommitted.len(), 1);
        assert!(report.log.iter().any(|it| it.kind == "overcommitted"));
        // Nothing is taken back, but no more is promised.
        assert!(node.capability(id).is_some());
        assert!(node.offer(&ask(&node, Direction::Read, 1)).is_err());
        // A calibration begins anew.
        let measured = Calibration {
            costs: costs(BytesPerSec::mb(4)),
            points: Vec::new(),
            beyond: policy::share::Share::percent(10),
            measured: node.now(),
            device: ("slow".to_owned(), Bytes::mib(24)),
            surface: serde_json::json!({"runs": 3}),
        };
        node.set_calibration(measured.clone()).await.unwrap();
        assert_eq!(node.report().capacity.source, "calibrated");
        node.release(id).await.unwrap();
        assert!(node.offer(&ask(&node, Direction::Read, 3)).is_ok());
        node.close().await.unwrap();
        let node = Node::open(disk, options(rate)).await.unwrap();
        assert_eq!(node.calibration().as_deref(), Some(&measured));
        assert!(node.offer(&ask(&node, Direction::Read, 4)).is_err());
    });
}

#[test]
fn a_promise_that_cannot_be_kept_is_logged_with_its_cause() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(100));
        let node = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let promised = session(&node, 60).await;
        let id = promised.reservation().unwrap();
        disk.rate.set(BytesPerSec::mb(30));
        at_its_rate(Rc::clone(&promised), 5).await;
        assert!(
            promised.report().windows.capacity >= 3,
            "{:?}",
            promised.report()
        );
        drop(promised);
        let report = node.report();
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
        let options = NodeOptions {
            scrub: Some(scrub),
            ..options(BytesPerSec::mb(100))
        };
        let node = node_on(&disk, options).await;
        let _other = greedy(&node, 4);
        let promised = session(&node, 40).await;
        let before = node.report().scrub.read_bytes;
        at_its_rate(Rc::clone(&promised), 3).await;
        let read = node.report().scrub.read_bytes - before;
        println!("{read} bytes scrubbed in 3 s");
        assert!((4 << 20..=8 << 20).contains(&read), "{read}");
        let windows = promised.report().windows;
        assert_eq!((windows.capacity, windows.scheduler), (0, 0));
        env::sleep(Nanos::secs(4)).await;
        let report = node.report().scrub;
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
        let node = node_on(&disk, options).await;
        let before = node.store().figures().commits;
        let begun = env::now();
        let session = node.open_session(Access::NodeKey).unwrap();
        for at in 0..16 {
            let data = pattern(at, MIB as usize);
            let change = crate::Change::default().creating();
            session
                .write("round", at % 4 * MIB, data, change)
                .await
                .unwrap();
        }
        let seconds = env::now().since(begun).secs_f64();
        let commits = node.store().figures().commits - before;
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
        let node = node_on(&disk, options(rate)).await;
        let _other = greedy(&node, 4);
        env::sleep(Nanos::secs(240)).await;
        assert!(!node.report().capacity.calibration_due);
        disk.rate.set(BytesPerSec::mb(1));
        env::sleep(Nanos::secs(90)).await;
        let report = node.report();
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
        let node = node_on(&disk, options(BytesPerSec::mb(100))).await;
        let (fast, slow) = (session(&node, 40).await, session(&node, 20).await);
        let floor = node.store().write_max();
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
fn a_device_that_becomes_slower_is_trusted_no_more_and_no_more_after_a_restart() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec(2_500_000);
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(2));
        let node = node_on(&disk, options(rate)).await;
        let _other = greedy(&node, 4);
        env::sleep(Nanos::secs(240)).await;
        let trusted = |node: &Node| node.report().capacity.read;
        let before = trusted(&node);
        assert!(before < 2_100_000, "{before}");
        disk.rate.set(BytesPerSec::mb(1));
        for second in 0..90 {
            env::sleep(Nanos::secs(1)).await;
            let now = trusted(&node);
            assert!(now <= before, "{now} of {before} after {second} s");
            if node.report().capacity.calibration_due {
                assert!(now <= 1_100_000, "{now} after {second} s");
            }
        }
        let before = node.report().capacity;
        assert!(
            before.calibration_due && before.samples[0] < 200,
            "{before:?}"
        );
        node.close().await.unwrap();
        let node = Node::open(disk, options(rate)).await.unwrap();
        let after = node.report().capacity;
        assert_eq!(after.samples, [0; 3]);
        assert_eq!((after.read, after.write), (before.read, before.write));
        assert!(after.calibration_due);
        let most = node.offer(&ask(&node, Direction::Read, 2));
        assert!(most.is_err(), "{most:?}");
    });
}

#[test]
fn a_calibration_takes_the_device_only_where_nothing_is_promised() {
    env::Runtime::simulated(1).block_on(async {
        let rate = BytesPerSec::mb(50);
        let disk = Slow::new(Bytes::mib(96), rate);
        let node = node_on(&disk, options(BytesPerSec::mb(80))).await;
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
        let believed = node.queue().costs();
        let mut later = ask(&node, Direction::Read, 1);
        later.slot = Slot::new(Second(node.now().0 + 50), 10);
        let (id, _) = reserved(&node, &later).await;
        let refused = node.calibrate(&plan, &mut |_, _| {}).await.unwrap_err();
        assert!(
            refused.to_string().contains("and reservation 1 has"),
            "{refused}"
        );
        let begun = node.begin_calibration(plan.clone()).await;
        assert!(matches!(begun, Err(CalibrateError::Reserved { .. })));
        node.release(id).await.unwrap();
        // Given up before anything was measured: as if it had never begun.
        drop(node.begin_calibration(plan.clone()).await.unwrap());
        assert_eq!(node.queue().costs(), believed);
        assert_eq!(node.report().capacity.source, "configured");
        let taken = node.begin_calibration(plan.clone()).await.unwrap();
        let running = env::spawn(async move { taken.measure(&mut |_, _| {}).await });
        env::sleep(Nanos::secs(5)).await;
        let soon = ask(&node, Direction::Read, 1);
        let refused = node.hold(&soon, None, Second(node.now().0 + 9)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("taken by a calibration"), "{refused}");
        assert!(node.offer(&soon).is_err());
        let twice = node.calibrate(&plan, &mut |_, _| {}).await;
        assert!(matches!(twice, Err(CalibrateError::Running { .. })));
        let mut after = soon.clone();
        after.slot = Slot::new(Second(node.now().0 + 200), 10);
        assert!(node.offer(&after).is_ok());
        let surface = running.await.unwrap();
        let report = node.report();
        assert_eq!(report.capacity.source, "calibrated");
        assert_eq!(report.capacity.samples, [0; 3]);
        assert_eq!(node.queue().costs(), surface.costs());
        assert!(report.log.is_empty(), "{:?}", report.log);
        node.hold(&soon, None, Second(node.now().0 + 9))
            .await
            .unwrap();
    });
}

#[test]
fn a_write_that_began_before_the_end_of_its_slot_is_done() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(8));
        let node = node_on(&disk, options(BytesPerSec::mb(8))).await;
        let writing = ask(&node, Direction::Write, 1).space(Bytes::kib(64));
        let (id, capability) = reserved(&node, &writing).await;
        let session = node.open_session(Access::Capability(&capability)).unwrap();
        let master = node.open_session(Access::NodeKey).unwrap();
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
        node.release(id).await.unwrap();
        begun.await.unwrap();
        long.await;
    });
}
