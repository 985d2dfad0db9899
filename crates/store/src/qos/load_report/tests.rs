//! A load report says what is there, to every client that asked.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use base::{Bytes, Nanos, View};
use device::Memory;
use env::Runtime;
use env::net::sim;
use env::net::{Address, Listener};
use env::sync::join_all;
use policy::place::{Class, ClientId, Origin, Penalties};
use policy::share::{BytesPerSec, Costs, Direction, Second, Slot};

use super::{ClientTag, place_of};
use crate::net::client::{Client, ClientError, Credentials, RefusedKind};
use crate::net::server::{Limits, Server};
use crate::qos::fenced::Fenced;
use crate::qos::manager::{Manager, ManagerOptions, ReservationRequest};
use crate::qos::session::Access;
use crate::{Change, ObjectCalls, ObjectOps, Settings, Store};

const KEY: [u8; 32] = [7; 32];

fn tag(client: u64, class: Class) -> ClientTag {
    ClientTag {
        origin: Origin {
            client: ClientId(client),
            class,
        },
        penalties: Penalties::default(),
    }
}

/// A store of 100 MB/s whose device takes 2 ms for each request, on a host of its own; with 4 MiB in object "a".
async fn site() -> (Rc<Manager>, Rc<Memory>, Address) {
    let device = Memory::new("disk", Bytes::mib(64));
    let formatted = Store::format(Rc::clone(&device) as _, Settings::default()).await;
    formatted.unwrap().close().await.unwrap();
    let options = ManagerOptions {
        node_key: Some(KEY),
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [9; 32])
    };
    let (manager, disk) = sim::on_host(IpAddr::from([10, 0, 0, 1]), async move {
        let manager = Manager::open(Rc::clone(&device) as _, options)
            .await
            .unwrap();
        let server = Server::new(Rc::clone(&manager), Limits::default());
        let listener = Listener::bind(&"0.0.0.0:7400".parse().unwrap()).unwrap();
        server.serve(listener).unwrap();
        env::spawn(async move {
            // As long as the host.
            let _server = server;
            std::future::pending::<()>().await;
        });
        (manager, device)
    })
    .await;
    let session = manager.open_session(Access::NodeKey).unwrap();
    for at in 0..4 {
        let data = View::copy_of(&vec![1; 1 << 20]);
        let change = Change::FUA.creating();
        session.write("a", at << 20, data, change).await.unwrap();
    }
    disk.set_latency(Nanos::millis(2));
    (manager, disk, "10.0.0.1:7400".parse().unwrap())
}

async fn client(address: &Address) -> Client {
    let secret = Credentials::NodeKey(KEY);
    Client::connect(address, secret).await.unwrap()
}

#[test]
fn a_client_hears_beside_its_answers_who_else_waits_and_what_for() {
    Runtime::simulated(1).block_on(async {
        let (_node, _disk, address) = site().await;
        let (busy, curious, silent) = (
            client(&address).await,
            client(&address).await,
            client(&address).await,
        );
        let every = Nanos::millis(1);
        assert!(
            busy.set_client_tag(tag(7, Class::High), every)
                .await
                .unwrap()
        );
        assert!(
            curious
                .set_client_tag(tag(8, Class::Normal), every)
                .await
                .unwrap()
        );
        assert_eq!(curious.load().unwrap().requests, 0);
        let reads: Vec<_> = (0..40)
            .map(|nth| {
                let busy = busy.clone();
                env::spawn(async move { busy.read("a", nth * 65_536, 65_536).await })
            })
            .collect();
        env::sleep(Nanos::millis(5)).await;
        let before = env::now();
        curious.stat("a").await.unwrap();
        let heard = curious.load().unwrap();
        assert!(heard.at >= before, "{heard:?}");
        assert!((5..40).contains(&heard.requests), "{heard:?}");
        assert_eq!(heard.queued, Bytes(u64::from(heard.requests) * 65_536));
        assert_eq!(heard.tail.last, Some(tag(7, Class::High).origin));
        assert_eq!(heard.tail.end, Some(place_of("a", 40 * 65_536)));
        assert_eq!(heard.foremost, Some(Class::High));
        assert!(
            heard.work > Nanos(0) && heard.work_mean > Nanos(0),
            "{heard:?}"
        );
        join_all(reads)
            .await
            .into_iter()
            .for_each(|read| drop(read.unwrap()));
        env::sleep(Nanos::millis(1)).await;
        curious.stat("a").await.unwrap();
        let idle = curious.load().unwrap();
        assert_eq!(
            (idle.requests, idle.cost, idle.work),
            (0, Nanos(0), Nanos(0))
        );
        assert!(idle.utilisation.0 > 0, "{idle:?}");
        // A client that did not ask gets no load report.
        silent.read("a", 0, 10).await.unwrap();
        assert_eq!(silent.load(), None);
    });
}

/// How many of 40 reads of a client with `class` are answered before the read of a high-class client that came last.
async fn answered_before_a_preferred_one(class: Class, far: bool) -> usize {
    let (manager, _disk, address) = site().await;
    let every = Nanos::millis(1);
    let (before, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let one = |client, class| {
        let (manager, address) = (Rc::clone(&manager), address.clone());
        async move {
            if far {
                let client = self::client(&address).await;
                client.set_client_tag(tag(7, class), every).await.unwrap();
                return (Some(client), None);
            }
            let session = manager.open_session(Access::NodeKey).unwrap();
            let fenced = Fenced::new(&session, "g", 1).unwrap();
            fenced.set_client_tag(tag(client, class));
            (None, Some(fenced))
        }
    };
    async fn read(from: &(Option<Client>, Option<Rc<Fenced>>), at: u64) {
        match from {
            (Some(client), _) => drop(client.read("a", at, 65_536).await.unwrap()),
            (_, Some(fenced)) => drop(fenced.read("a", at, 65_536).await.unwrap()),
            _ => unreachable!("one of them is there"),
        }
    }
    let (many, last) = (one(1, class).await, one(2, Class::High).await);
    let many = Rc::new(many);
    let reads: Vec<_> = (0..40)
        .map(|nth| {
            let (many, done) = (Rc::clone(&many), Rc::clone(&done));
            env::spawn(async move {
                read(&many, nth * 65_536).await;
                done.set(done.get() + 1);
            })
        })
        .collect();
    env::sleep(Nanos::millis(7)).await;
    assert!(done.get() < 10, "they wait");
    let late: Vec<_> = (0..4).map(|nth| read(&last, nth << 20)).collect();
    join_all(late).await;
    before.set(done.get());
    join_all(reads).await;
    before.get()
}

#[test]
fn a_preferred_client_does_not_wait_behind_the_queue_of_another_one() {
    for far in [false, true] {
        let after = |class| {
            let count = answered_before_a_preferred_one(class, far);
            Runtime::simulated(5).block_on(count)
        };
        // Four reads of high class take the time that one of low class has to wait for, or one of normal class.
        let [low, normal, high] = Class::ALL.map(after);
        assert!(
            low <= 6 && normal <= 8 && high >= normal,
            "{low} {normal} {high}"
        );
    }
}

#[test]
fn what_the_device_takes_is_learnt_from_the_requests() {
    Runtime::simulated(2).block_on(async {
        let (manager, disk, _) = site().await;
        disk.set_latency(Nanos::millis(5));
        let session = manager.open_session(Access::NodeKey).unwrap();
        session.seal("g", 1).await.unwrap();
        let fenced = Fenced::new(&session, "g", 1).unwrap();
        fenced.set_client_tag(tag(3, Class::Low));
        let before = manager.state().weights.seek;
        for nth in 0..200_u64 {
            let at = (nth * 37 % 64) * 65_536;
            fenced.read("a", at, 4096).await.unwrap();
        }
        let after = manager.state().weights.seek;
        assert!(before < Nanos::millis(1), "{before}");
        assert!(
            (Nanos::millis(3)..Nanos::millis(8)).contains(&after),
            "each of them took 5 ms: {after}"
        );
    });
}

#[test]
fn a_request_that_fails_or_is_given_up_is_counted_no_more() {
    Runtime::simulated(3).block_on(async {
        let (manager, _disk, _) = site().await;
        let session = manager.open_session(Access::NodeKey).unwrap();
        let fenced = Fenced::new(&session, "g", 1).unwrap();
        fenced.read("b", 0, 10).await.unwrap_err();
        assert_eq!(manager.state().requests, 0);
        let given_up = env::timeout(Nanos::micros(10), fenced.read("a", 0, 4096)).await;
        assert!(given_up.is_err());
        assert_eq!(manager.state().requests, 0);
        let data = View::copy_of(&[2; 4096]);
        let write = fenced.write("a", 0, data, Change::FUA);
        let given_up = env::timeout(Nanos::micros(10), write).await;
        assert!(given_up.is_err());
        // A change goes on to its end, and counts until then.
        assert_eq!(manager.state().requests, 1);
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(manager.state().requests, 0);
    });
}

#[test]
fn a_session_with_a_capability_gets_no_load_report() {
    Runtime::simulated(4).block_on(async {
        let (manager, _disk, address) = site().await;
        let slot = Slot::new(manager.now(), 3600);
        let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(1), slot).scope("a");
        let soon = Second(manager.now().0 + 30);
        let held = manager.hold(&wanted, None, soon).await;
        let token = manager.commit(held.unwrap()).await.unwrap();
        let secret = Credentials::Capability(token);
        let guest = Client::connect(&address, secret).await.unwrap();
        let every = Nanos::millis(1);
        assert!(
            !guest
                .set_client_tag(tag(1, Class::High), every)
                .await
                .unwrap()
        );
        let refused = guest.offer(&wanted).await.unwrap_err();
        assert!(matches!(
            refused,
            ClientError::Refused {
                kind: RefusedKind::NodeKeyOnly,
                ..
            }
        ));
    });
}
