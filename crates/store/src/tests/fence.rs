//! A replaced writer: what it has under way is done before its successor begins, and nothing of it comes later.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Nanos, View};
use device::{Class, Crash, Device, Memory};
use env::net::{Address, Listener};
use policy::share::{BytesPerSec, Costs};

use super::{pattern, small, small_size};
use crate::net::client::{Client, ClientError, ClientOptions, Credentials};
use crate::net::server::{Limits, Server};
use crate::object::parts::Mutation;
use crate::qos::fenced::Fenced;
use crate::qos::manager::{Manager, ManagerOptions};
use crate::qos::session::{Access, OperationError, Session};
use crate::{Change, ObjectCalls, Store, StoreError};

const FENCE: &str = "guards/7";
const CREATE: Change = Change {
    create: true,
    ..Change::FUA
};

async fn opened(device: Rc<dyn Device>) -> Rc<Manager> {
    let options = ManagerOptions {
        unauthenticated: true,
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [7; 32])
    };
    Manager::open(device, options).await.unwrap()
}

async fn formatted(device: Rc<dyn Device>) -> Rc<Manager> {
    let store = Store::format(Rc::clone(&device), small()).await.unwrap();
    store.close().await.unwrap();
    opened(device).await
}

fn session(manager: &Rc<Manager>) -> Rc<Session> {
    manager.open_session(Access::Open).unwrap()
}

async fn sealed(manager: &Rc<Manager>, token: u64) -> Rc<Fenced> {
    let session = session(manager);
    session.seal(FENCE, token).await.unwrap();
    Fenced::new(&session, FENCE, token).unwrap()
}

fn is_fenced<T>(answer: Result<T, OperationError>) -> bool {
    matches!(
        answer,
        Err(OperationError::Store(StoreError::Fenced {
            stamp: 1,
            found: 2,
            ..
        }))
    )
}

#[test]
fn the_fenced_change_nothing_and_see_nothing() {
    env::Runtime::simulated(1).block_on(async {
        let manager = formatted(Memory::new("disk", small_size(20))).await;
        let old = sealed(&manager, 1).await;
        old.write("a", 0, pattern(1, 5000), CREATE).await.unwrap();
        let new = sealed(&manager, 2).await;
        let change = Change::FUA;
        assert!(is_fenced(old.read("a", 0, 10).await));
        assert!(is_fenced(old.write("a", 0, pattern(2, 9), change).await));
        assert!(is_fenced(old.truncate("a", 0, change).await));
        assert!(is_fenced(old.punch("a", 0, 9, change).await));
        assert!(is_fenced(old.create("b", &[], change).await));
        assert!(is_fenced(old.rename("a", "b", false, change).await));
        assert!(is_fenced(old.delete("a", change).await));
        assert!(is_fenced(old.stamp("a", change).await));
        assert!(is_fenced(old.stat("a").await));
        assert!(is_fenced(old.allocated_ranges("a", 0, 9).await));
        assert!(is_fenced(old.list("", None, 9).await));
        assert!(is_fenced(old.space().await));
        assert!(is_fenced(old.flush().await));
        assert_eq!(
            old.stat("a").await.unwrap_err().to_string(),
            "fenced: what \"guards/7\" in small guards has been taken over, mark 2; this was asked under mark 1 and nothing \
             more is done under it: open it anew"
        );
        let read = new.read("a", 0, 9999).await.unwrap();
        assert_eq!(read[..], pattern(1, 5000)[..]);
        // Another fence's requests are not touched, nor are those without a fence.
        let other = Fenced::new(&session(&manager), "guards/8", 0).unwrap();
        other.stat("a").await.unwrap();
        session(&manager).stat("a").await.unwrap();
    });
}

#[test]
fn a_lesser_seal_is_refused_and_an_equal_one_is_the_same_again() {
    env::Runtime::simulated(2).block_on(async {
        let manager = formatted(Memory::new("disk", small_size(20))).await;
        let new = sealed(&manager, 2).await;
        assert!(is_fenced(session(&manager).seal(FENCE, 1).await));
        session(&manager).seal(FENCE, 2).await.unwrap();
        new.create("a", &[], CREATE).await.unwrap();
        let none = session(&manager).seal("", 2).await;
        assert!(matches!(
            none,
            Err(OperationError::Store(StoreError::Request { .. }))
        ));
    });
}

/// A write is begun, its caller leaves after `leaves`, and a seal comes after `later`. What can be seen after the seal must
/// stay, and be all of the write if it was answered.
async fn a_write_meets_a_seal(
    later: Nanos,
    leaves: Nanos,
    mutation: Option<Mutation>,
) -> Result<(), String> {
    let disk = Memory::new("disk", small_size(20));
    let manager = formatted(disk.clone()).await;
    let old = sealed(&manager, 1).await;
    old.write("a", 0, pattern(1, 9000), CREATE).await.unwrap();
    manager.store().inner.planted.set(mutation);
    disk.set_latency(Nanos::millis(5));
    let answered = Rc::new(Cell::new(None));
    let write = {
        let (old, answered) = (Rc::clone(&old), Rc::clone(&answered));
        env::spawn(async move {
            let write = old.write("a", 100, pattern(2, 8000), Change::FUA);
            if let Ok(answer) = env::timeout(leaves, write).await {
                answered.set(Some(answer.is_ok()));
            }
        })
    };
    env::sleep(later).await;
    let new = sealed(&manager, 2).await;
    let seen = new.read("a", 0, 9000).await.unwrap();
    env::sleep(Nanos::secs(1)).await;
    write.await;
    let after = new.read("a", 0, 9000).await.unwrap();
    if seen[..] != after[..] {
        return Err("a fenced write landed after the seal was answered".to_owned());
    }
    let mut whole = pattern(1, 9000).to_vec();
    let before = whole.clone();
    whole[100..8100].copy_from_slice(&pattern(2, 8000));
    let fits = match answered.get() {
        Some(true) => after[..] == whole[..],
        Some(false) => after[..] == before[..],
        None => after[..] == before[..] || after[..] == whole[..],
    };
    if !fits {
        return Err(format!("answered {:?}, and it is not so", answered.get()));
    }
    Ok(())
}

#[test]
fn a_write_at_the_moment_of_a_seal_is_seen_whole_or_refused() {
    for later in 0..30 {
        for leaves in [Nanos::secs(1), Nanos::millis(1), Nanos::millis(7)] {
            let later = Nanos::millis(later);
            let run = async move { a_write_meets_a_seal(later, leaves, None).await };
            env::Runtime::simulated(3).block_on(run).unwrap();
        }
    }
}

#[test]
fn a_seal_that_does_not_wait_is_caught() {
    let caught = (0..30).any(|later| {
        let run = async move {
            let later = Nanos::millis(later);
            a_write_meets_a_seal(later, Nanos::secs(1), Some(Mutation::HastySeal)).await
        };
        env::Runtime::simulated(3).block_on(run).is_err()
    });
    assert!(caught, "the checker is blind");
}

/// Power goes at step `cut` while an old owner writes and a new one seals. Was the power still on at the end?
async fn a_seal_and_a_crash(seed: u64, cut: u64) -> bool {
    let rng = env::Rng::from_seed(seed);
    let disk = Crash::new("disk", small_size(20), rng);
    let manager = formatted(disk.clone()).await;
    let old = sealed(&manager, 1).await;
    old.write("a", 0, pattern(0, 4096), CREATE).await.unwrap();
    disk.set_delay(Nanos::micros(20), Nanos::micros(300));
    disk.cut_at(disk.steps() + cut);
    let acked = Rc::new(Cell::new(0));
    let begun = Rc::new(Cell::new(0));
    let writer = {
        let (acked, begun) = (Rc::clone(&acked), Rc::clone(&begun));
        env::spawn(async move {
            for number in 1..40 {
                begun.set(number);
                let data = pattern(number, 4096);
                if old.write("a", 0, data, Change::FUA).await.is_err() {
                    return;
                }
                acked.set(number);
            }
        })
    };
    env::sleep(Nanos::millis(3)).await;
    let answer = session(&manager).seal(FENCE, 2).await;
    writer.await;
    let power = disk.supply().is_on();
    let disk = disk.restart(env::Rng::from_seed(seed ^ cut));
    let manager = opened(disk).await;
    let old = Fenced::new(&session(&manager), FENCE, 1).unwrap();
    if answer.is_ok() {
        assert!(is_fenced(old.stat("a").await), "seed {seed}, cut {cut}");
    }
    let found = session(&manager).read("a", 0, 4096).await.unwrap();
    let fits = (acked.get()..=begun.get()).any(|number| found[..] == pattern(number, 4096)[..]);
    assert!(
        fits,
        "seed {seed}, cut {cut}: an acknowledged write is gone"
    );
    power
}

#[test]
fn a_seal_that_was_answered_holds_after_a_crash_at_every_step() {
    for seed in 0..3 {
        for cut in 0.. {
            let run = async move { a_seal_and_a_crash(seed, cut).await };
            if env::Runtime::simulated(seed).block_on(run) {
                assert!(cut > 10, "nothing was cut");
                break;
            }
        }
    }
}

async fn connected(address: &Address, token: u64) -> Result<Client, ClientError> {
    let options = ClientOptions::default();
    let client = Client::connect_with(address, Credentials::Open, &options).await?;
    client.fence(FENCE, token).await?;
    Ok(client)
}

#[test]
fn over_a_wire_a_seal_fences_what_was_sent_and_waits_for_what_was_begun() {
    env::Runtime::simulated(5).block_on(async {
        let disk = Memory::new("disk", small_size(40));
        let manager = formatted(disk.clone()).await;
        let server = Server::new(Rc::clone(&manager), Limits::default());
        let address: Address = "127.0.0.1:7400".parse().unwrap();
        server.serve(Listener::bind(&address).unwrap()).unwrap();
        let old = connected(&address, 1).await.unwrap();
        old.write("a", 0, pattern(1, 4096), CREATE).await.unwrap();
        disk.set_latency(Nanos::millis(2));
        let outcomes: Rc<RefCell<Vec<bool>>> = Rc::default();
        let mut writes = Vec::new();
        for number in 0..50_u64 {
            let (old, outcomes) = (old.clone(), Rc::clone(&outcomes));
            writes.push(env::spawn(async move {
                env::sleep(Nanos::micros(200 * number)).await;
                let name = format!("b/{number:02}");
                let answer = old.write(&name, 0, pattern(number, 4096), CREATE).await;
                outcomes.borrow_mut().push(answer.is_ok());
                match answer {
                    Ok(_) => Some(name),
                    Err(ClientError::Store(StoreError::Fenced { .. })) => None,
                    Err(other) => panic!("{other}"),
                }
            }));
        }
        env::sleep(Nanos::millis(5)).await;
        let successor = Client::connect(&address, Credentials::Open).await.unwrap();
        successor.seal(FENCE, 2).await.unwrap();
        successor.fence(FENCE, 2).await.unwrap();
        let seen = successor.list("b/", None, 100).await.unwrap().objects;
        let mut written = Vec::new();
        for write in writes {
            written.extend(write.await);
        }
        let seen: Vec<String> = seen.into_iter().map(|stat| stat.name).collect();
        assert_eq!(seen, written);
        assert!(
            !written.is_empty() && written.len() < 50,
            "{}",
            written.len()
        );
        let refused = old.read("a", 0, 1).await.unwrap_err();
        let local = manager.store().stat(FENCE).unwrap();
        assert_eq!(local.stamp, 2);
        assert!(
            refused
                .to_string()
                .starts_with("fenced: what \"guards/7\" in small")
        );
        assert!(refused.changed_nothing());
        // Pings go on, and a fenced connection cannot take another token.
        old.ping().await.unwrap();
        let refused = old.fence(FENCE, 3).await.unwrap_err();
        assert!(refused.to_string().contains("guarded already"), "{refused}");
        let late = connected(&address, 1).await;
        assert!(late.is_err_and(|why| why.to_string().starts_with("fenced")));
        let read = manager.store().read("a", 0, 9999, Class::Foreground).await;
        assert_eq!(read.unwrap()[..], pattern(1, 4096)[..]);
    });
}

#[test]
fn what_follows_a_guard_on_the_same_connection_is_never_begun_without_it() {
    env::Runtime::simulated(6).block_on(async {
        let manager = formatted(Memory::new("disk", small_size(20))).await;
        sealed(&manager, 2).await;
        let server = Server::new(Rc::clone(&manager), Limits::default());
        let address: Address = "127.0.0.1:7400".parse().unwrap();
        server.serve(Listener::bind(&address).unwrap()).unwrap();
        let client = Client::connect(&address, Credentials::Open).await.unwrap();
        // Both are sent at once, and the fence's answer is not waited for.
        let fence = {
            let client = client.clone();
            env::spawn(async move { client.fence(FENCE, 1).await })
        };
        env::yield_now().await;
        let data = View::copy_of(&[1; 100]);
        let write = client.write("a", 0, data, CREATE).await;
        assert!(fence.await.is_err());
        assert!(write.is_err_and(|why| why.to_string().starts_with("fenced")));
        assert!(manager.store().stat("a").is_err());
    });
}
