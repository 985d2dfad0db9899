//! A device that holds no store, whose users are promised rates: what is promised is kept on another one.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span};
use device::model::{ModelDisk, Spec, Store as Backing};
use device::{Class, Crash, Device, Memory, WriteFlags};
use policy::share::{BytesPerSec, Costs, Direction, Second, Share, Slot};

use crate::OpenError;
use crate::qos::costs;
use crate::qos::manager::{
    BookDevice, Calibration, Manager, ManagerOptions, ReservationRequest, ReserveError, open_beside,
};
use crate::qos::session::{Access, Flowed};

const BOOK: Bytes = Bytes::mib(64);

fn options(spec: &Spec) -> ManagerOptions {
    ManagerOptions {
        scrub: None,
        ..ManagerOptions::new(costs::of_model(spec), [7; 32])
    }
}

fn flash() -> (Spec, Rc<ModelDisk>) {
    let spec = Spec::find("ssd-sata-mlc").unwrap();
    let disk = ModelDisk::new("ssd", &spec, Some(Bytes::gib(4)), Backing::None, 1);
    (spec, disk.unwrap())
}

async fn reserve(manager: &Rc<Manager>, holder: &str, mb: u64, seconds: u64) {
    let slot = Slot::new(manager.now(), seconds);
    let request = ReservationRequest::new(Direction::Read, BytesPerSec::mb(mb), slot);
    let until = Second(manager.now().0 + 10);
    let held = manager.hold(&request.holder(holder), None, until).await;
    manager.commit(held.unwrap()).await.unwrap();
}

/// A client of the manager's device, that comes under what `holder` has reserved.
fn client(manager: &Rc<Manager>, holder: &str) -> Rc<Flowed> {
    let session = manager.open_session(Access::NodeKey).unwrap();
    session.attach_reservations(Some(holder)).unwrap();
    let device: Rc<dyn Device> = manager.queue().clone();
    Flowed::new(device, session)
}

/// Keeps `depth` reads of `len` under way until `end`; counts bytes.
async fn read(disk: Rc<Flowed>, depth: u64, len: usize, end: base::Instant, got: Rc<Cell<u64>>) {
    let workers = (0..depth).map(async |worker| {
        let mut at = worker * 7_919;
        while env::now() < end {
            let place = Sector(at % 4_000_000 / 8 * 8);
            disk.read(place, Buf::for_read(len), Class::Foreground)
                .await
                .unwrap();
            got.set(got.get() + len as u64);
            at += 104_729;
        }
    });
    env::sync::join_all(workers.collect::<Vec<_>>()).await;
}

#[test]
fn a_promise_of_a_device_without_a_store_is_kept_beside_greedy_users() {
    env::Runtime::simulated(41).block_on(async {
        let (spec, disk) = flash();
        let book = Memory::new("book", BOOK);
        let manager = open_beside(BookDevice::New(book), disk, options(&spec))
            .await
            .unwrap();
        reserve(&manager, "export:a", 100, 600).await;
        let booked = client(&manager, "export:a");
        let greedy = client(&manager, "export:b");
        let end = env::now() + Nanos::secs(60);
        let (got, rest) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let one = env::spawn(read(booked, 2, 1 << 20, end, Rc::clone(&got)));
        read(greedy, 64, 65536, end, Rc::clone(&rest)).await;
        one.await;
        let sessions = manager.sessions();
        let of = sessions.iter().find(|it| it.holder == "export:a").unwrap();
        let windows = of.delivery.windows;
        assert!(
            windows.kept >= 59 && windows.scheduler + windows.capacity == 0,
            "{windows:?}"
        );
        assert!(got.get() >= 59 * 100_000_000, "{got:?}");
        // What is not promised is shared by weight, and little is idle.
        let all = (got.get() + rest.get()) / 60;
        assert!(rest.get() > 0 && all >= 200_000_000, "{all} bytes a second");
        let report = manager.report();
        assert_eq!(
            (report.device.as_str(), report.calendar.committed),
            ("ssd", 1)
        );
    });
}

#[test]
fn what_a_replaced_disk_was_seen_to_do_does_not_count() {
    env::Runtime::simulated(45).block_on(async {
        let (spec, _) = flash();
        let book = Memory::new("book", BOOK);
        let open = async |book: BookDevice, identity: Option<&str>| {
            let options = ManagerOptions {
                device_identity: identity.map(str::to_owned),
                ..options(&spec)
            };
            open_beside(book, flash().1, options).await.unwrap()
        };
        let manager = open(BookDevice::New(book.clone()), Some("wwid 1")).await;
        let measured = Calibration {
            costs: Costs::flat(BytesPerSec::mb(50)),
            points: Vec::new(),
            beyond: Share::percent(10),
            measured: manager.now(),
            device: ("ssd".to_owned(), Bytes::gib(4)),
            identity: None,
            surface: serde_json::Value::Null,
        };
        manager.set_calibration(measured).await.unwrap();
        manager.close().await.unwrap();
        let source = async |identity| {
            let manager = open(BookDevice::Existing(book.clone()), identity).await;
            let capacity = manager.report().capacity;
            manager.close().await.unwrap();
            (capacity.source, capacity.calibration_due)
        };
        let calibrated = || ("calibrated".to_owned(), false);
        assert_eq!(source(Some("wwid 1")).await, calibrated());
        assert_eq!(source(None).await, calibrated(), "nothing is known of it");
        let (costs, due) = source(Some("wwid 2")).await;
        assert!(costs == "configured" && due, "{costs} {due}");
        assert_eq!(source(Some("wwid 1")).await.0, "calibrated", "it came back");
    });
}

#[test]
fn what_is_promised_of_it_is_found_again_after_a_power_cut() {
    env::Runtime::simulated(43).block_on(async {
        let (spec, disk) = flash();
        let book = Crash::new("book", BOOK, env::rng("book"));
        let manager =
            open_beside(BookDevice::New(book.clone()), disk.clone(), options(&spec)).await;
        let manager = manager.unwrap();
        reserve(&manager, "export:a", 40, 600).await;
        let room = ReservationRequest::new(
            Direction::Write,
            BytesPerSec::mb(1),
            Slot::new(manager.now(), 60),
        );
        let until = Second(manager.now().0 + 10);
        let refused = manager.hold(&room.space(Bytes::mib(1)), None, until).await;
        assert!(
            matches!(refused, Err(ReserveError::Request { .. })),
            "{refused:?}"
        );
        book.cut_now();
        drop(manager);
        let book = book.restart(env::rng("again"));
        let manager = open_beside(BookDevice::Existing(book), disk, options(&spec))
            .await
            .unwrap();
        let [reserved] = &manager.reservations()[..] else {
            panic!("{:?}", manager.reservations());
        };
        assert_eq!(reserved.request.holder, "export:a");
        assert_eq!(reserved.request.rate, BytesPerSec::mb(40));
        manager.release(reserved.id).await.unwrap();
        assert!(manager.reservations().is_empty());
    });
}

#[test]
fn a_book_whose_head_is_gone_is_not_made_anew() {
    env::Runtime::simulated(46).block_on(async {
        let (spec, disk) = flash();
        let book = Memory::new("book", BOOK);
        let manager = open_beside(BookDevice::New(book.clone()), disk.clone(), options(&spec));
        let manager = manager.await.unwrap();
        reserve(&manager, "export:a", 40, 600).await;
        manager.close().await.unwrap();
        let head = Span::bytes(0, BOOK.0);
        book.write_zeroes(head, WriteFlags::default())
            .await
            .unwrap();
        let opened = open_beside(
            BookDevice::Existing(book.clone()),
            disk.clone(),
            options(&spec),
        )
        .await;
        let error = opened.err().expect("there is no book");
        assert!(matches!(error, OpenError::NoStore { .. }), "{error}");
        // And it is as it was.
        let again = open_beside(BookDevice::Existing(book), disk, options(&spec)).await;
        assert_eq!(again.err(), Some(error));
    });
}
