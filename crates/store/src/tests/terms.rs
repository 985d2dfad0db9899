//! Terms of a manager that change while clients use it.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Class, Device, Memory};
use env::net::{Address, Listener};
use policy::share::{BytesPerSec, Costs, Direction, Second, Slot};

use super::manager::{CREATE, options, request, reserved};
use super::{small, small_size};
use crate::net::client::{Client, Credentials};
use crate::net::server::{Limits, Server};
use crate::qos::capability::CapabilityError;
use crate::qos::manager::{
    Manager, ManagerOptions, ManagerTerms, TermsError, check_terms, set_terms,
};
use crate::qos::session::{Access, SessionError};
use crate::{ObjectCalls, Store};

const TERMS: ManagerTerms = ManagerTerms {
    unauthenticated: true,
    skew: 5,
    floor: BytesPerSec::mb(5),
    ceiling: BytesPerSec::mb(50),
};

async fn manager(unauthenticated: bool) -> Rc<Manager> {
    let disk = Memory::new("disk", small_size(30));
    let store = Store::format(disk.clone(), small()).await.unwrap();
    store.close().await.unwrap();
    let options = ManagerOptions {
        unauthenticated,
        ..options()
    };
    Manager::open(disk, options).await.unwrap()
}

fn at(address: &str) -> (Address, Listener) {
    let address: Address = address.parse().unwrap();
    let listener = Listener::bind(&address).expect("free");
    (address, listener)
}

#[test]
fn who_came_in_without_credentials_leaves_once_they_are_asked_for() {
    env::Runtime::simulated(1).block_on(async {
        let manager = manager(true).await;
        let server = Server::new(Rc::clone(&manager), Limits::default());
        let (address, listener) = at("127.0.0.1:7400");
        server.serve(listener).unwrap();
        let reading = request(&manager, Direction::Read, 20);
        let (_, capability) = reserved(&manager, &reading).await;
        let open = Client::connect(&address, Credentials::Open).await.unwrap();
        open.write("a", 0, View::copy_of(b"x"), CREATE)
            .await
            .unwrap();
        let shown = Credentials::Capability(capability);
        let holder = Client::connect(&address, shown).await.unwrap();
        let closed = ManagerTerms {
            unauthenticated: false,
            ..TERMS
        };
        set_terms(&manager, &closed).unwrap();
        env::sleep(Nanos::secs(1)).await;
        let why = open.read("a", 0, 1).await.unwrap_err().to_string();
        assert!(why.contains("only clients with credentials"), "{why}");
        assert_eq!(&holder.read("a", 0, 1).await.unwrap()[..], b"x");
        let again = Client::connect(&address, Credentials::Open).await;
        assert!(again.is_err(), "it came in again");
        set_terms(&manager, &TERMS).unwrap();
        let back = Client::connect(&address, Credentials::Open).await.unwrap();
        back.ping().await.unwrap();
    });
}

#[test]
fn an_address_that_ends_takes_nobody_and_leaves_those_who_came_there() {
    env::Runtime::simulated(2).block_on(async {
        let server = Server::new(manager(true).await, Limits::default());
        let (first, listener) = at("127.0.0.1:7400");
        server.serve(listener).unwrap();
        let client = Client::connect(&first, Credentials::Open).await.unwrap();
        let (second, listener) = at("127.0.0.1:7401");
        server.serve(listener).unwrap();
        server.close_at(&first);
        env::sleep(Nanos::secs(1)).await;
        client
            .write("a", 0, View::copy_of(b"x"), CREATE)
            .await
            .unwrap();
        assert!(Client::connect(&first, Credentials::Open).await.is_err());
        Client::connect(&second, Credentials::Open).await.unwrap();
        // It is free, and may be listened at once more.
        let (_, listener) = at("127.0.0.1:7400");
        server.serve(listener).unwrap();
        Client::connect(&first, Credentials::Open).await.unwrap();
        server.drain().await;
        assert!(client.ping().await.is_err());
    });
}

#[test]
fn clocks_may_differ_by_what_is_said_last() {
    env::Runtime::simulated(3).block_on(async {
        let manager = manager(false).await;
        let slot = Slot::new(Second(manager.now().0 + 60), 60);
        let mut early = request(&manager, Direction::Read, 20);
        early.slot = slot;
        let (_, capability) = reserved(&manager, &early).await;
        let refused = manager.open_session(Access::Capability(&capability));
        let refused = refused.map(drop).unwrap_err();
        let is_early = matches!(
            refused,
            SessionError::Capability(CapabilityError::NotYet { .. })
        );
        assert!(is_early, "{refused:?}");
        let lenient = ManagerTerms { skew: 90, ..TERMS };
        set_terms(&manager, &lenient).unwrap();
        manager
            .open_session(Access::Capability(&capability))
            .unwrap();
    });
}

#[test]
fn background_work_gets_what_is_said_last_unless_it_is_promised_already() {
    env::Runtime::simulated(4).block_on(async {
        let manager = manager(false).await;
        let read = async || {
            let buf = Buf::for_read(4096);
            let read = manager.queue().read(Sector(0), buf, Class::Background);
            read.await.unwrap();
        };
        read().await;
        let floors = || manager.report().calendar.floors_percent;
        assert!((floors() - 5.0).abs() < 0.1, "{}", floors());
        let more = ManagerTerms {
            floor: BytesPerSec::mb(20),
            ..TERMS
        };
        set_terms(&manager, &more).unwrap();
        read().await;
        assert!((floors() - 20.0).abs() < 0.1, "{}", floors());
        assert_eq!(
            manager.report().queue.background_bytes,
            2 * Bytes::kib(4).0,
            "what was, counts on"
        );
        let (_, _) = reserved(&manager, &request(&manager, Direction::Read, 50)).await;
        let most = ManagerTerms {
            floor: BytesPerSec::mb(48),
            ..TERMS
        };
        let refused = check_terms(&manager, &most).unwrap_err();
        assert!(
            matches!(refused, TermsError::Promised { .. }),
            "{refused:?}"
        );
        assert_eq!(set_terms(&manager, &most), Err(refused));
        // Once too much is promised, it may become less alone.
        let costs = Costs::flat(BytesPerSec::mb(60));
        let calendar = || manager.core.bookings.calendar.borrow_mut();
        let headroom = manager.core.options.headroom.clone();
        calendar().set_capacity(costs, headroom);
        assert!(check_terms(&manager, &most).is_err());
        assert_eq!(check_terms(&manager, &TERMS), Ok(()));
        assert!((floors() - 20.0).abs() < 0.1, "{}", floors());
    });
}
