//! Caps in virtual time: what passes, who waits, and what a change does.

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::{Instant, Nanos};
use env::sync::join_all;
use policy::share::BytesPerSec;
use policy::share::cap::Limit;

use super::*;
use crate::{DeviceExt, Memory};

const SIZE: Bytes = Bytes::mib(64);

fn caps(bytes: u64, requests: u64) -> Caps {
    let limit = Limit {
        bytes: (bytes > 0).then_some(BytesPerSec(bytes)),
        requests: (requests > 0).then_some(requests),
    };
    Caps {
        read: limit,
        write: limit,
    }
}

fn disk() -> Rc<Memory> {
    let disk = Memory::new("disk", SIZE);
    disk.set_latency(Nanos::micros(100));
    disk
}

/// When how many bytes were answered.
type Log = Rc<RefCell<Vec<(Instant, u64)>>>;

/// A client that keeps `depth` requests of these lengths under way until `end`, and writes down what it got.
async fn client(disk: Rc<Capped>, depth: u64, lengths: &'static [u64], end: Instant, log: Log) {
    let workers = (0..depth).map(async |worker| {
        let mut turn = worker as usize;
        while env::now() < end {
            let bytes = lengths[turn % lengths.len()];
            disk.read_at(Sector(0), Bytes(bytes)).await.unwrap();
            log.borrow_mut().push((env::now(), bytes));
            turn += 1;
        }
    });
    join_all(workers.collect::<Vec<_>>()).await;
}

fn sum(log: &Log, from: Instant, span: Nanos) -> (u64, u64) {
    let log = log.borrow();
    let within = log
        .iter()
        .filter(|(at, _)| *at >= from && *at < from + span);
    within.fold((0, 0), |(bytes, count), (_, more)| {
        (bytes + more, count + 1)
    })
}

/// The most that was answered in any span of this length.
fn most(log: &Log, span: Nanos) -> (u64, u64) {
    let begins: Vec<Instant> = log.borrow().iter().map(|(at, _)| *at).collect();
    let sums = begins.into_iter().map(|from| sum(log, from, span));
    sums.fold((0, 0), |(bytes, count), (more, number)| {
        (bytes.max(more), count.max(number))
    })
}

#[test]
fn any_ten_seconds_have_no_more_than_the_cap_and_a_burst_and_not_much_less() {
    for (lengths, bound) in [(&[4096][..], "requests"), (&[65536, 131072], "bytes")] {
        env::Runtime::simulated(3).block_on(async move {
            let (rate, requests) = (20_000_000, 500);
            let throttle = Throttle::new(caps(rate, requests));
            let begun = env::now();
            let log = Log::default();
            let capped = Capped::new(disk(), &throttle);
            client(
                capped,
                32,
                lengths,
                begun + Nanos::secs(40),
                Rc::clone(&log),
            )
            .await;
            let ten = Nanos::secs(10);
            let (bytes, count) = most(&log, ten);
            assert!(bytes <= 10 * rate * 102 / 100 + rate, "{bound}: {bytes}");
            assert!(
                count <= 10 * requests * 102 / 100 + requests,
                "{bound}: {count}"
            );
            // After the first burst: the cap, and no less.
            let (bytes, count) = sum(&log, begun + Nanos::secs(20), ten);
            match bound {
                "bytes" => assert!(bytes >= 10 * rate * 99 / 100, "{bytes}"),
                _ => assert!((4_950..=5_001).contains(&count), "{count}"),
            }
            let figures = throttle.counters().read;
            assert_eq!(figures.requests, log.borrow().len() as u64);
            assert!(figures.waited > figures.requests / 2 && figures.wait > ten);
        });
    }
}

#[test]
fn one_request_at_a_time_gets_as_much_as_thirty_two() {
    env::Runtime::simulated(5).block_on(async {
        let throttle = Throttle::new(caps(20_000_000, 0));
        let shared: Rc<dyn Device> = disk();
        let end = env::now() + Nanos::secs(20);
        let logs = [Log::default(), Log::default(), Log::default()];
        let clients = logs
            .iter()
            .zip([(1, &[65536][..]), (32, &[65536]), (32, &[16384])]);
        let clients = clients.map(|(log, (depth, lengths))| {
            let capped = Capped::new(Rc::clone(&shared), &throttle);
            client(capped, depth, lengths, end, Rc::clone(log))
        });
        join_all(clients.collect::<Vec<_>>()).await;
        let from = end - Nanos::secs(10);
        let got: Vec<u64> = logs
            .iter()
            .map(|log| sum(log, from, Nanos::secs(10)).0)
            .collect();
        let all: u64 = got.iter().sum();
        assert!((198_000_000..=202_000_000).contains(&all), "{got:?}");
        // The one that waits for each answer leaves a little of its part.
        assert!(got[0] * 100 >= all * 25, "{got:?}");
        assert!(got[1].abs_diff(got[2]) * 50 <= all, "{got:?}");
    });
}

#[test]
fn requests_of_one_user_pass_in_the_order_they_came() {
    env::Runtime::simulated(7).block_on(async {
        let throttle = Throttle::new(caps(1 << 20, 0));
        let memory = Memory::new("disk", SIZE);
        let capped = Capped::new(memory, &throttle);
        let order = RefCell::new(Vec::new());
        let asked = (0..32_u64).map(async |number| {
            let bytes = if number % 2 == 0 { 4096 } else { 262_144 };
            capped.read_at(Sector(0), Bytes(bytes)).await.unwrap();
            order.borrow_mut().push(number);
        });
        join_all(asked.collect::<Vec<_>>()).await;
        assert_eq!(*order.borrow(), (0..32).collect::<Vec<_>>());
    });
}

#[test]
fn a_cap_that_changes_holds_at_once_for_what_waits() {
    env::Runtime::simulated(9).block_on(async {
        // A second each, after the first.
        let throttle = Throttle::new(caps(1 << 20, 0));
        let capped = Capped::new(disk(), &throttle);
        let log = Log::default();
        let begun = env::now();
        let asked = Rc::clone(&capped);
        let written = Rc::clone(&log);
        let all = env::spawn(async move {
            let requests = (0..32).map(async |_| {
                asked.read_at(Sector(0), Bytes::mib(1)).await.unwrap();
                written.borrow_mut().push((env::now(), 1 << 20));
            });
            join_all(requests.collect::<Vec<_>>()).await;
        });
        env::sleep(Nanos::millis(1_500)).await;
        assert_eq!(
            (log.borrow().len(), throttle.counters().read.waiting),
            (2, 30)
        );
        assert_eq!(capped.in_flight(), 30);
        throttle.set(caps(4 << 20, 0));
        env::sleep(Nanos::secs(2)).await;
        // Half of one was saved; eight more in two seconds.
        assert_eq!(log.borrow().len(), 10);
        throttle.set(Caps::default());
        env::sleep(Nanos::millis(1)).await;
        assert_eq!(
            (log.borrow().len(), throttle.counters().read.waiting),
            (32, 0)
        );
        all.await;
        assert!(env::now().since(begun) < Nanos::secs(4));
        // And back: a full bucket, then the rate.
        throttle.set(caps(1 << 20, 0));
        let begun = env::now();
        for _ in 0..3 {
            capped.read_at(Sector(0), Bytes::mib(1)).await.unwrap();
        }
        let took = env::now().since(begun);
        assert!(
            (Nanos::secs(2)..Nanos::millis(2_001)).contains(&took),
            "{took:?}"
        );
    });
}

#[test]
fn a_long_request_lets_others_pass_between_its_pieces() {
    env::Runtime::simulated(17).block_on(async {
        let rate = 1 << 20;
        let throttle = Throttle::new(caps(rate, 0));
        let memory = disk();
        let contents = Buf::for_read(SIZE.0 as usize).freeze();
        memory.write_at(Sector(0), contents).await.unwrap();
        let meter = crate::Meter::new(memory);
        let shared: Rc<dyn Device> = meter.clone();
        let [long, short] = [0, 1].map(|_| Capped::new(Rc::clone(&shared), &throttle));
        let begun = env::now();
        let asked = Rc::clone(&long);
        let whole = env::spawn(async move {
            let read = asked.read_at(Sector(8), Bytes::mib(16)).await.unwrap();
            (read.len(), env::now())
        });
        let (mut longest, mut got) = (Nanos(0), 0);
        while env::now().since(begun) < Nanos::secs(10) {
            let asked = env::now();
            short.read_at(Sector(0), Bytes::kib(64)).await.unwrap();
            longest = longest.max(env::now().since(asked));
            got += 65_536;
        }
        // A piece is an eighth of a second of the cap; the short one waits for one, and for its own 64 KiB.
        assert!(longest <= Nanos::millis(190), "{longest}");
        // It asks for one at a time, so it leaves a little of its half.
        assert!(got * 100 >= rate * 10 * 30, "{got}");
        let pieces = meter.counters().all(crate::Op::Read);
        let log = pieces.bytes;
        assert!(log <= rate * 11 + rate, "{log}: no more than the cap");
        let (length, end) = whole.await;
        assert_eq!(length, 16 << 20);
        assert!(end.since(begun) >= Nanos::secs(15), "at the cap, all told");
        assert_eq!(long.in_flight(), 0);
        // The bytes are those of one read, and so are those of a write in pieces.
        let mut data = Buf::for_read(5 << 20);
        for (nth, byte) in data.iter_mut().enumerate() {
            *byte = (nth / 4096) as u8;
        }
        let data = data.freeze();
        throttle.set(caps(1 << 20, 0));
        long.write_at(Sector(16), data.clone()).await.unwrap();
        let read = long.read_at(Sector(16), Bytes::mib(5)).await.unwrap();
        assert!(read[..] == data[..]);
    });
}

#[test]
fn what_a_tiny_cap_kept_waiting_is_not_behind_newcomers_once_it_is_raised() {
    env::Runtime::simulated(19).block_on(async {
        let throttle = Throttle::new(caps(4096, 0));
        let shared: Rc<dyn Device> = disk();
        let [old, new] = [0, 1].map(|_| Capped::new(Rc::clone(&shared), &throttle));
        let log = Log::default();
        // By this cap its requests are hours of it.
        let asked = Rc::clone(&old);
        let written = Rc::clone(&log);
        env::spawn(async move {
            loop {
                let all = (0..64).map(async |_| {
                    asked.read_at(Sector(0), Bytes::mib(1)).await.unwrap();
                    written.borrow_mut().push((env::now(), 1 << 20));
                });
                join_all(all.collect::<Vec<_>>()).await;
            }
        });
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(log.borrow().len(), 0);
        let rate = 20 << 20;
        throttle.set(caps(rate, 0));
        let others = Log::default();
        let end = env::now() + Nanos::secs(20);
        client(new, 32, &[1 << 20], end, Rc::clone(&others)).await;
        let ten = Nanos::secs(10);
        let [old, new] = [&log, &others].map(|log| sum(log, end - ten, ten).0);
        assert!(old.abs_diff(new) * 20 <= rate * 10, "{old} {new}");
    });
}

#[test]
fn a_request_whose_caller_goes_away_keeps_no_other_waiting() {
    env::Runtime::simulated(11).block_on(async {
        let throttle = Throttle::new(caps(1 << 20, 0));
        let memory = disk();
        let meter = crate::Meter::new(memory);
        let capped = Capped::new(Rc::clone(&meter) as _, &throttle);
        capped.read_at(Sector(0), Bytes::mib(1)).await.unwrap();
        let begun = env::now();
        let (first, second) = (Rc::clone(&capped), Rc::clone(&capped));
        let long = env::spawn(async move { drop(first.read_at(Sector(0), Bytes::mib(60)).await) });
        let long = env::cancel_scope(long);
        let short =
            env::spawn(async move { drop(second.read_at(Sector(0), Bytes::kib(512)).await) });
        env::sleep(Nanos::millis(100)).await;
        assert_eq!(throttle.counters().read.waiting, 2);
        drop(long);
        short.await;
        let took = env::now().since(begun);
        assert!(
            (Nanos::millis(500)..Nanos::millis(502)).contains(&took),
            "{took:?}"
        );
        assert_eq!(
            (capped.in_flight(), throttle.counters().read.waiting),
            (0, 0)
        );
        let read = meter.counters().all(crate::Op::Read).requests;
        assert_eq!(read, 2, "what was given up never came to the device");
    });
}

#[test]
fn reads_flushes_and_looks_do_not_wait_behind_writes() {
    env::Runtime::simulated(13).block_on(async {
        let write = Limit {
            bytes: Some(BytesPerSec(1 << 20)),
            requests: Some(4),
        };
        let throttle = Throttle::new(Caps {
            write,
            ..Caps::default()
        });
        let memory = Memory::new("disk", SIZE);
        assert!(memory.info().discards);
        let capped = Capped::new(memory, &throttle);
        let begun = env::now();
        // A discard and zeroes on a device that discards are requests, and no bytes.
        let span = Span::bytes(0, SIZE.0);
        capped.discard(span).await.unwrap();
        capped
            .write_zeroes(span, WriteFlags::default())
            .await
            .unwrap();
        let data = Buf::for_read(1 << 20).freeze();
        capped.write_at(Sector(0), data.clone()).await.unwrap();
        assert_eq!(env::now(), begun, "all three fit a burst");
        let written = Rc::clone(&capped);
        let late = env::spawn(async move { written.write_at(Sector(0), data).await });
        env::sleep(Nanos::millis(1)).await;
        capped.read_at(Sector(0), Bytes::mib(8)).await.unwrap();
        capped.flush().await.unwrap();
        capped.allocation(span).await.unwrap();
        assert_eq!(env::now().since(begun), Nanos::millis(1));
        late.await.unwrap();
        assert_eq!(env::now().since(begun), Nanos::secs(1));
        let figures = throttle.counters();
        assert_eq!(figures.read, Passed::default(), "there is no cap of reads");
        assert_eq!((figures.write.requests, figures.write.waited), (4, 1));
        assert_eq!(figures.write.bytes, Bytes::mib(2));
        // Three of four requests are left of this second: the fourth and fifth wait.
        for _ in 0..5 {
            capped.discard(span).await.unwrap();
        }
        assert_eq!(env::now().since(begun), Nanos::millis(1_500));
    });
}

#[test]
fn all_that_an_account_does_is_under_its_cap_also_what_was_there_before_it() {
    env::Runtime::simulated(21).block_on(async {
        let accounts = AccountCaps::default();
        let shared: Rc<dyn Device> = disk();
        let volume = Capped::new(Rc::clone(&shared), &accounts.of("astro"));
        let session = ThrottleUser::new(accounts.of("astro"));
        let other = Capped::new(shared, &accounts.of("bio"));
        let rate = 20_000_000;
        accounts.set_all(BTreeMap::from([("astro".to_owned(), caps(rate, 0))]));
        let end = env::now() + Nanos::secs(20);
        let logs = [Log::default(), Log::default(), Log::default()];
        let written = Rc::clone(&logs[1]);
        let of_session = async {
            while env::now() < end {
                session.pass(Direction::Read, Bytes::kib(256)).await;
                written.borrow_mut().push((env::now(), 262_144));
            }
        };
        let clients = join_all([
            client(volume, 8, &[65536], end, Rc::clone(&logs[0])),
            client(other, 8, &[65536], end, Rc::clone(&logs[2])),
        ]);
        join_all::<std::pin::Pin<Box<dyn Future<Output = ()>>>>([
            Box::pin(async { drop(clients.await) }) as _,
            Box::pin(of_session) as _,
        ])
        .await;
        let ten = Nanos::secs(10);
        let got = logs.map(|log| sum(&log, end - ten, ten).0);
        let both = got[0] + got[1];
        assert!((198_000_000..=202_000_000).contains(&both), "{got:?}");
        assert!(got[0].abs_diff(got[1]) * 20 <= both, "{got:?}");
        assert!(got[2] > 2 * both, "no cap is the other's: {got:?}");
        accounts.lift();
        let begun = env::now();
        session.pass(Direction::Read, Bytes::gib(1)).await;
        assert_eq!(env::now(), begun);
    });
}

#[test]
fn an_account_that_comes_and_goes_gains_nothing() {
    env::Runtime::simulated(22).block_on(async {
        let accounts = AccountCaps::default();
        let rate = 1 << 20;
        accounts.set_all(BTreeMap::from([("astro".to_owned(), caps(rate, 0))]));
        let begun = env::now();
        let mut passed = 0;
        while env::now().since(begun) < Nanos::secs(20) {
            let user = ThrottleUser::new(accounts.of("astro"));
            assert!(user.pass(Direction::Read, Bytes(rate)).await);
            passed += rate;
            drop(user);
            // Another one comes in, which is when what nothing uses is forgotten.
            accounts.of(&format!("bio-{passed}"));
        }
        let most = rate + rate * 20;
        assert!((most - rate..=most).contains(&passed), "{passed} of {most}");
        assert!(accounts.known() <= 2, "full ones are forgotten");
    });
}

#[test]
fn what_waits_for_an_accounts_cap_is_refused_at_the_end_and_holds_no_more_than_it_may() {
    env::Runtime::simulated(23).block_on(async {
        let accounts = AccountCaps::default();
        let rate = 1 << 20;
        accounts.set_all(BTreeMap::from([("astro".to_owned(), caps(rate, 0))]));
        let user = Rc::new(ThrottleUser::new(accounts.of("astro")));
        assert!(user.pass(Direction::Write, Bytes(rate)).await);
        let mib = Bytes::mib(1);
        let first = user.hold(Bytes::mib(9), mib).await;
        let held = env::timeout(Nanos::secs(1), user.hold(Bytes(1), mib));
        assert!(held.await.is_err(), "one alone may hold more, no two");
        drop(first);
        let _second = user.hold(mib, mib).await.expect("it is capped");
        let waits = {
            let user = Rc::clone(&user);
            env::spawn(async move { user.pass(Direction::Write, Bytes(rate * 100)).await })
        };
        env::sleep(Nanos::millis(10)).await;
        accounts.lift();
        assert!(!waits.await, "it is not begun");
        assert!(
            user.pass(Direction::Write, Bytes(1)).await,
            "nothing is capped any more"
        );
    });
}

#[test]
fn caps_on_top_of_each_other_all_hold() {
    env::Runtime::simulated(15).block_on(async {
        let volume = Throttle::new(caps(10_000_000, 0));
        let exports = [
            Throttle::new(caps(2_000_000, 0)),
            Throttle::new(Caps::default()),
        ];
        let shared: Rc<dyn Device> = disk();
        let end = env::now() + Nanos::secs(20);
        let logs = [Log::default(), Log::default()];
        let clients = exports.iter().zip(&logs).map(|(export, log)| {
            let below = Capped::new(Rc::clone(&shared), &volume);
            let capped = Capped::new(below, export);
            client(capped, 8, &[65536], end, Rc::clone(log))
        });
        join_all(clients.collect::<Vec<_>>()).await;
        let got = logs.map(|log| sum(&log, end - Nanos::secs(10), Nanos::secs(10)).0);
        assert!((19_000_000..=20_200_000).contains(&got[0]), "{got:?}");
        assert!((79_000_000..=81_000_000).contains(&got[1]), "{got:?}");
    });
}

#[test]
fn holes_count_as_requests_and_looks_at_data_do_not() {
    env::Runtime::simulated(1).block_on(async {
        let disk = disk();
        disk.write_at(Sector(0), View::copy_of(&[7; 65536]))
            .await
            .unwrap();
        let capped = Capped::new(disk, &Throttle::new(caps(0, 100)));
        let took = async |span: Span| {
            let begun = env::now();
            for _ in 0..500 {
                capped.allocation(span).await.unwrap();
            }
            env::now().since(begun)
        };
        let data = took(Span::bytes(0, 65536)).await;
        let holes = took(Span::bytes(1 << 20, 65536)).await;
        assert!(data < Nanos::secs(1), "{data}");
        assert!(holes >= Nanos::secs(4), "{holes}");
    });
}
