//! Does a booking of reads hold its part of a node's link? In virtual time, on a modelled link of 100 MB/s.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Memory;
use env::net::{Address, Listener, sim};
use policy::share::calendar::{Booking, BookingId, State};
use policy::share::{BytesPerSec, Contract, Costs, Direction, Second, Slot};

use super::manager::{CREATE, request, reserved};
use super::pattern;
use crate::net::client::{Client, Credentials};
use crate::net::server::{Limits, Server};
use crate::qos::manager::{Manager, ManagerOptions, ReservationRequest, ReserveError};
use crate::qos::network::{Booked, Network, OfStore};
use crate::qos::session::Access;
use crate::{ObjectCalls, Settings, Store};

const MIB: u64 = 1 << 20;
const LENGTH: u64 = 8 * MIB;
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENTS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
/// As the link is sold; 94 of it are for data.
const SPEED: BytesPerSec = BytesPerSec::mb(100);

fn address() -> Address {
    "10.0.0.1:7400".parse().unwrap()
}

/// A store on a disk that does whatever is asked, behind a link.
async fn store(network: Option<BytesPerSec>) -> Rc<Manager> {
    for (from, to) in [(SERVER, CLIENTS), (CLIENTS, SERVER)] {
        let link = sim::Link {
            bandwidth: Some(100_000_000),
            ..sim::Link::LAN
        };
        sim::set_link(from, to, link);
    }
    let disk = Memory::new("disk", Bytes::mib(64));
    let formatted = Store::format(disk.clone(), Settings::default()).await;
    formatted.unwrap().close().await.unwrap();
    let options = ManagerOptions {
        node_key: Some([7; 32]),
        scrub: None,
        network: network.map(|speed| Network::new("n1", speed)),
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(5_000)), [7; 32])
    };
    let manager = Manager::open(disk, options).await.unwrap();
    let master = manager.open_session(Access::NodeKey).unwrap();
    for at in 0..LENGTH / MIB {
        let data = pattern(at, MIB as usize);
        master.write("film", at * MIB, data, CREATE).await.unwrap();
    }
    let server = Server::new(Rc::clone(&manager), Limits::default());
    sim::on_host(SERVER, async {
        let listener = Listener::bind(&address()).unwrap();
        server.serve(listener).unwrap();
        env::spawn(async move {
            let _server = server;
            std::future::pending::<()>().await;
        });
    })
    .await;
    manager
}

async fn client(credentials: Credentials) -> Rc<Client> {
    let connected = Client::connect(&address(), credentials).await;
    Rc::new(connected.unwrap())
}

/// Reads as much as it gets.
async fn greedy() {
    let client = client(Credentials::NodeKey([7; 32])).await;
    for lane in 0..8 {
        let client = Rc::clone(&client);
        env::spawn(async move { while client.read("film", lane * MIB, MIB).await.is_ok() {} });
    }
}

/// Windows of a second with 60 MB of them that a client gets that asks for so much, in per cent.
async fn kept(client: Rc<Client>, seconds: u64) -> u64 {
    let (piece, rate) = (256 << 10, BytesPerSec::mb(60));
    let begun = env::now();
    let (asked, got) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u64)));
    for _ in 0..16 {
        let (client, asked, got) = (Rc::clone(&client), Rc::clone(&asked), Rc::clone(&got));
        env::spawn(async move {
            loop {
                let nth: u64 = asked.replace(asked.get() + 1);
                env::sleep_until(begun + rate.time_for(Bytes(nth * piece))).await;
                let read = client.read("film", nth * piece % LENGTH, piece).await;
                got.set(got.get() + read.unwrap().len() as u64);
            }
        });
    }
    let mut kept = 0;
    // The client may be late by what it has under way.
    let slack = 16 * piece;
    let mut due = 0;
    for second in 1..=seconds {
        env::sleep_until(begun + Nanos::secs(second)).await;
        due += rate.0;
        kept += u64::from(got.get() + slack >= due);
    }
    kept * 100 / seconds
}

async fn beside_greedy_clients(network: Option<BytesPerSec>) -> u64 {
    let manager = store(network).await;
    let (_, capability) = reserved(&manager, &request(&manager, Direction::Read, 60)).await;
    sim::on_host(CLIENTS, async move {
        let booked = client(Credentials::Capability(capability)).await;
        for _ in 0..16 {
            greedy().await;
        }
        env::sleep(Nanos::secs(1)).await;
        kept(booked, 50).await
    })
    .await
}

#[test]
fn a_booking_of_sixty_of_a_hundred_holds_beside_greedy_clients_where_the_link_is_known() {
    let run = |network| env::Runtime::simulated(5).block_on(beside_greedy_clients(network));
    let (with, without) = (run(Some(SPEED)), run(None));
    println!("net: {with} % of windows with [network], {without} % without");
    assert!(with >= 99, "{with} %");
    assert!(without < 50, "{without} %");
}

#[test]
fn what_the_link_has_no_room_for_is_refused_with_an_offer() {
    env::Runtime::simulated(6).block_on(async {
        let manager = store(Some(SPEED)).await;
        let ask = |direction, mb| request(&manager, direction, mb);
        let (first, _) = reserved(&manager, &ask(Direction::Read, 60)).await;
        let until = policy::share::Second(manager.now().0 + 10);
        let hold = async |wanted: &ReservationRequest| manager.hold(wanted, None, until).await;
        let refused = hold(&ask(Direction::Read, 40)).await.unwrap_err();
        let ReserveError::Request { why } = &refused else {
            panic!("{refused}");
        };
        assert!(
            why.contains("n1/out of 94 MB/s has no room for 40 MB/s"),
            "{why}"
        );
        // The offer can be taken up.
        let offered = why.rsplit("at most ").next().unwrap();
        let rate: BytesPerSec = offered.replace(' ', "").parse().unwrap();
        assert_eq!(rate.0 / 1_000_000, 24, "{why}");
        // As it is written it is rounded.
        let rate = BytesPerSec(rate.0 - 100_000);
        let fits = ReservationRequest::new(Direction::Read, rate, Slot::new(manager.now(), 60));
        let held = hold(&fits).await.unwrap();
        manager.release(held).await.unwrap();
        // Asked before it is held, it is the same.
        let quote = manager.quote(&[ask(Direction::Read, 40)]);
        assert_eq!(quote.refused.as_ref(), Some(why));
        assert_eq!(quote.earliest, Some(ask(Direction::Read, 40).slot.end));
        let later = ReservationRequest {
            slot: Slot::new(quote.earliest.unwrap(), 60),
            ..ask(Direction::Read, 40)
        };
        assert_eq!(manager.quote(&[later]).refused, None);
        // The other way is a line of its own, and what is released is free.
        reserved(&manager, &ask(Direction::Write, 60)).await;
        manager.release(first).await.unwrap();
        reserved(&manager, &ask(Direction::Read, 80)).await;
    });
}

/// A store of this number that has these.
struct Before(u128, Vec<OfStore>);

impl Booked for Before {
    fn store(&self) -> u128 {
        self.0
    }

    fn bookings(&self) -> Vec<OfStore> {
        self.1.clone()
    }
}

fn reads(mb: u64, seconds: u64) -> Contract {
    let slot = Slot::new(Second(0), seconds);
    Contract::new(BytesPerSec::mb(mb), Direction::Read, slot)
}

fn there(id: u64, contract: Contract, replaces: Option<u64>) -> OfStore {
    OfStore {
        id: BookingId(id),
        booking: Booking {
            contract,
            state: State::Committed,
        },
        replaces: replaces.map(BookingId),
    }
}

#[test]
fn what_is_no_more_than_before_is_granted_on_a_link_that_has_less() {
    env::Runtime::simulated(7).block_on(async {
        let store: Rc<dyn Booked> = Rc::new(Before(1, vec![there(4, reads(200, 100), None)]));
        let network = Network::new("n1", SPEED);
        network.joined(Rc::downgrade(&store));
        let admits = |contract, replaced: Option<u64>| {
            let replaced = replaced.map(|it| (1, BookingId(it)));
            network.admits(Second(1), &contract, replaced).is_ok()
        };
        assert!(admits(reads(150, 100), Some(4)));
        assert!(admits(reads(200, 50), Some(4)));
        assert!(!admits(reads(201, 100), Some(4)));
        assert!(!admits(reads(200, 101), Some(4)));
        assert!(!admits(reads(1, 100), None));
        assert!(!admits(reads(1, 100), Some(5)));
    });
}

#[test]
fn what_is_amended_at_two_stores_of_a_node_counts_once_at_each() {
    env::Runtime::simulated(8).block_on(async {
        let (old, new) = (reads(40, 100), reads(42, 100));
        let amended: Rc<dyn Booked> =
            Rc::new(Before(1, vec![there(4, old, None), there(5, new, Some(4))]));
        let next: Rc<dyn Booked> = Rc::new(Before(2, vec![there(9, old, None)]));
        let network = Network::new("n1", BytesPerSec::mb(100));
        for store in [&amended, &next] {
            network.joined(Rc::downgrade(store));
        }
        let admits = |mb| {
            let replaced = Some((2, BookingId(9)));
            network.admits(Second(1), &reads(mb, 100), replaced).is_ok()
        };
        assert!(admits(42));
        assert!(!admits(43), "84.6 are for promises");
    });
}
