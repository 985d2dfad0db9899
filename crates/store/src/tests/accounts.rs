//! Is what is not promised shared among accounts, whatever number of connections each has? In virtual time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::AccountCaps;
use policy::share::cap::{Caps, Limit};
use policy::share::{BytesPerSec, Direction, Kind, Slot};

use super::kept::{LENGTH, MIB, Slow, at_its_rate, node_on, options};
use super::manager::{request, reserved};
use crate::ObjectCalls;
use crate::qos::manager::{Manager, ManagerOptions, ReservationRequest, set_account_weights};
use crate::qos::network::Network;
use crate::qos::session::{Access, Session};

/// Reads as much as it gets, four requests at a time, as long as it lives.
fn read_on(session: &Rc<Session>) {
    for lane in 0..4 {
        let session = Rc::clone(session);
        env::spawn(async move {
            let mut at = lane;
            while session.read("film", at * MIB % LENGTH, MIB).await.is_ok() {
                at += 4;
            }
        });
    }
}

fn connections(manager: &Manager, account: &str, count: usize) -> Vec<Rc<Session>> {
    let open = |_| {
        let session = manager.open_session(Access::Account(account)).unwrap();
        read_on(&session);
        session
    };
    (0..count).map(open).collect()
}

fn got(sessions: &[Rc<Session>]) -> u64 {
    let got = |it: &Rc<Session>| it.report().delivery.delivered_bytes;
    sessions.iter().map(got).sum()
}

/// The part of what both get in `seconds` that is the second's.
async fn part_of_second(first: &[Rc<Session>], second: &[Rc<Session>], seconds: u64) -> f64 {
    let before = [got(first), got(second)];
    env::sleep(Nanos::secs(seconds)).await;
    let [first, second] = [got(first) - before[0], got(second) - before[1]];
    second as f64 / (first + second) as f64
}

async fn node(kind: Kind) -> Rc<Manager> {
    let rate = BytesPerSec::mb(100);
    let disk = Slow::new(Bytes::mib(24), rate);
    let mut options = ManagerOptions {
        unauthenticated: true,
        ..options(rate)
    };
    options.queue.kind = kind;
    node_on(&disk, options).await
}

#[test]
fn one_connection_of_an_account_gets_as_much_as_sixteen_of_another() {
    let part = |kind| {
        env::Runtime::simulated(1).block_on(async move {
            let manager = node(kind).await;
            let many = connections(&manager, "many", 16);
            let one = connections(&manager, "one", 1);
            part_of_second(&many, &one, 20).await
        })
    };
    let ours = part(Kind::Tags);
    let published = part(Kind::Rounds);
    println!("fair: {ours:.3} by accounts, {published:.3} as published");
    assert!(ours >= 0.45, "{ours}");
    assert!(published < 0.45, "the bar tells them apart: {published}");
}

#[test]
fn a_weight_counts_at_once_and_what_has_no_account_gets_half() {
    env::Runtime::simulated(2).block_on(async {
        let manager = node(Kind::Tags).await;
        let many = connections(&manager, "many", 3);
        let one = connections(&manager, "one", 1);
        let weights = |many, one| {
            let all = [("many".to_owned(), many), ("one".to_owned(), one)];
            set_account_weights(&manager, BTreeMap::from(all));
        };
        weights(1, 3);
        let heavy = part_of_second(&many, &one, 20).await;
        assert!((0.72..0.78).contains(&heavy), "{heavy}");
        weights(1, 1);
        let even = part_of_second(&many, &one, 20).await;
        assert!((0.47..0.53).contains(&even), "{even}");
        // Eight without an account get as much as both accounts together, and no more than that.
        let owners: Vec<_> = (0..8)
            .map(|_| manager.open_session(Access::NodeKey).unwrap())
            .collect();
        owners.iter().for_each(read_on);
        let of_three = got(&one);
        let all = got(&many) + of_three + got(&owners);
        env::sleep(Nanos::secs(20)).await;
        let part = (got(&one) - of_three) as f64;
        let all = (got(&many) + got(&one) + got(&owners) - all) as f64;
        assert!((0.23..0.27).contains(&(part / all)), "{part} of {all}");
        // One of them is a volume of the second account's from now on.
        owners[0].attach_reservations(Some("one")).unwrap();
        assert_eq!(owners[0].report().account, "one");
        let pair = [Rc::clone(&one[0]), Rc::clone(&owners[0])];
        let together = part_of_second(&many, &pair, 20).await;
        assert!((0.47..0.53).contains(&together), "{together}");
        owners[0].attach_reservations(Some("volume:7")).unwrap();
        assert_eq!(owners[0].report().account, "");
    });
}

#[test]
fn an_account_gets_no_more_than_its_cap_by_all_its_connections_and_nodes_are_not_capped() {
    env::Runtime::simulated(4).block_on(async {
        let rate = BytesPerSec::mb(100);
        let disk = Slow::new(Bytes::mib(24), rate);
        let caps = Rc::new(AccountCaps::default());
        let options = ManagerOptions {
            unauthenticated: true,
            account_caps: Some(Rc::clone(&caps)),
            ..options(rate)
        };
        let manager = node_on(&disk, options).await;
        let many = connections(&manager, "many", 4);
        let one = connections(&manager, "one", 1);
        let read = Limit {
            bytes: Some(BytesPerSec::mb(20)),
            requests: None,
        };
        let cap = Caps {
            read,
            ..Caps::default()
        };
        caps.set_all(BTreeMap::from([("many".to_owned(), cap)]));
        env::sleep(Nanos::secs(5)).await;
        let of = |sessions: &[Rc<Session>]| got(sessions);
        let before = [of(&many), of(&one)];
        env::sleep(Nanos::secs(10)).await;
        let [capped, rest] = [of(&many) - before[0], of(&one) - before[1]];
        assert!(capped <= 204_000_000 + 20_000_000, "{capped}");
        assert!(capped >= 190_000_000, "{capped}");
        assert!(
            rest > 700_000_000,
            "what it may not have is the other's: {rest}"
        );
        // The cap goes, and so does the wait.
        caps.set_all(BTreeMap::new());
        let even = part_of_second(&many, &one, 10).await;
        assert!((0.45..0.55).contains(&even), "{even}");
    });
}

#[test]
fn a_promise_holds_beside_accounts_of_any_weight() {
    env::Runtime::simulated(3).block_on(async {
        let manager = node(Kind::Tags).await;
        set_account_weights(&manager, BTreeMap::from([("many".to_owned(), 1000)]));
        let many = connections(&manager, "many", 16);
        let wanted = ReservationRequest {
            slot: Slot::new(manager.now(), 60),
            ..request(&manager, Direction::Read, 60).holder("astro")
        };
        let (_, capability) = reserved(&manager, &wanted).await;
        let booked = manager.open_session(Access::Capability(&capability));
        let booked = booked.unwrap();
        assert_eq!(booked.report().account, "astro");
        at_its_rate(Rc::clone(&booked), 20).await;
        let windows = booked.report().delivery.windows;
        assert_eq!((windows.capacity, windows.scheduler), (0, 0), "{windows:?}");
        assert!(windows.kept + windows.no_demand >= 19, "{windows:?}");
        assert!(got(&many) > 0);
    });
}

/// The part that the node key gets beside 200 accounts, of what `pass` lets through for each session.
async fn part_of_nodes(manager: &Manager, pass: fn(Rc<Session>, u64) -> Passing) -> f64 {
    let sums: [Rc<Cell<u64>>; 2] = Default::default();
    for nth in 0..201_u64 {
        let account = format!("a{nth}");
        let access = match nth {
            200 => Access::NodeKey,
            _ => Access::Account(&account),
        };
        let session = manager.open_session(access).unwrap();
        for lane in 0..4 {
            let (session, sum) = (Rc::clone(&session), Rc::clone(&sums[(nth / 200) as usize]));
            env::spawn(async move {
                loop {
                    pass(Rc::clone(&session), lane).await;
                    sum.set(sum.get() + MIB);
                }
            });
        }
    }
    env::sleep(Nanos::secs(20)).await;
    let before = sums.clone().map(|it| it.get());
    env::sleep(Nanos::secs(40)).await;
    let [accounts, nodes] = [0, 1].map(|at| (sums[at].get() - before[at]) as f64);
    nodes / (accounts + nodes)
}

type Passing = std::pin::Pin<Box<dyn Future<Output = ()>>>;

#[test]
fn nodes_get_half_of_disk_and_link_beside_two_hundred_accounts() {
    let rate = BytesPerSec::mb(100);
    let disk = env::Runtime::simulated(5).block_on(async {
        let manager = node(Kind::Tags).await;
        part_of_nodes(&manager, |session, lane| {
            Box::pin(async move { drop(session.read("film", lane * MIB, MIB).await.unwrap()) })
        })
        .await
    });
    assert!((0.45..0.55).contains(&disk), "{disk}");
    let link = env::Runtime::simulated(6).block_on(async move {
        let options = ManagerOptions {
            unauthenticated: true,
            network: Some(Network::new("n1", rate)),
            ..options(BytesPerSec::mb(5_000))
        };
        let disk = Slow::new(Bytes::mib(24), BytesPerSec::mb(5_000));
        let manager = node_on(&disk, options).await;
        part_of_nodes(&manager, |session, _| {
            Box::pin(async move { session.cross_link(Direction::Read, MIB).await })
        })
        .await
    });
    println!("nodes beside 200 accounts: {disk:.3} of the disk, {link:.3} of the link");
    assert!((0.45..0.55).contains(&link), "{link}");
}
