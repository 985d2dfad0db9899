//! Reservations from hold to end, as one manager keeps them.

use std::rc::Rc;

use base::{Bytes, Nanos, View};
use device::Memory;
use device::fault::{Book, Done, Injury, Rule};
use policy::share::calendar::{BookingId, NoBooking, Refusal, State};
use policy::share::{BytesPerSec, Costs, Direction, Second, Share, Slot};

use super::{pattern, small, small_size, sums_hold};
use crate::qos::capability::CapabilityError;
use crate::qos::manager::{
    Calibration, Group, Manager, ManagerOptions, PartName, ReservationRequest, ReserveError,
};
use crate::qos::session::{Access, OperationError, Phase, SessionError};
use crate::{Change, ObjectCalls, OpenError, Store, StoreError};

pub(super) const CREATE: Change = Change {
    create: true,
    ..Change::FUA
};

pub(super) fn options() -> ManagerOptions {
    ManagerOptions {
        memory: Bytes::mib(24),
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [7; 32])
    }
}

async fn manager() -> (Rc<Memory>, Rc<Manager>) {
    let disk = Memory::new("disk", small_size(30));
    let store = Store::format(disk.clone(), small()).await.unwrap();
    store.close().await.unwrap();
    let manager = Manager::open(disk.clone(), options()).await.unwrap();
    (disk, manager)
}

pub(super) fn request(manager: &Manager, direction: Direction, mb: u64) -> ReservationRequest {
    ReservationRequest::new(direction, BytesPerSec::mb(mb), Slot::new(manager.now(), 60))
}

pub(super) fn soon(manager: &Manager) -> Second {
    Second(manager.now().0 + 10)
}

pub(super) async fn reserved(
    manager: &Manager,
    request: &ReservationRequest,
) -> (BookingId, String) {
    let id = manager.hold(request, None, soon(manager)).await.unwrap();
    (id, manager.commit(id).await.unwrap())
}

#[test]
fn a_capability_opens_what_it_is_for_and_nothing_else() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20).scope("songs/").space(Bytes::kib(64));
        let (id, capability) = reserved(&manager, &writing).await;
        assert_eq!(manager.capability(id), Some(capability.clone()));
        let session = manager.open_session(Access::Capability(&capability)).unwrap();
        assert_eq!((session.phase(), session.promised()), (Phase::Promised, BytesPerSec::mb(20)));
        let data = pattern(1, 20_000);
        session.write("songs/1", 0, data.clone(), CREATE).await.unwrap();
        assert_eq!(session.stat("songs/1").await.unwrap().size, 20_000);
        let refused = session.read("songs/1", 0, 10).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cannot read \"songs/1\": the capability of reservation 1 is for writes only; reserve reads as well"
        );
        let refused = session.write("books/1", 0, data.clone(), CREATE).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cannot write \"books/1\": the capability of reservation 1 is for names that begin with \"songs/\"; \
             stay within or reserve for more"
        );
        let refused = session.rename("songs/1", "books/1", false, CREATE).await;
        assert!(matches!(refused, Err(OperationError::Scope { .. })));
        assert!(matches!(session.list("books/", None, 9).await, Err(OperationError::Scope { .. })));
        assert_eq!(session.list("", None, 9).await.unwrap().objects.len(), 1);
        let refused = manager.open_session(Access::Open).map(|_| ()).unwrap_err();
        assert!(matches!(refused, SessionError::NotOpen { .. }));
        let reading = request(&manager, Direction::Read, 20);
        let (_, capability) = reserved(&manager, &reading).await;
        let session = manager.open_session(Access::Capability(&capability)).unwrap();
        assert!(*session.read("songs/1", 0, 20_000).await.unwrap() == *data);
        for refused in [
            session.write("songs/1", 0, data, CREATE).await.map(drop),
            session.delete("songs/1", CREATE).await,
            session.truncate("songs/1", 0, CREATE).await.map(drop),
            session.punch("songs/1", 0, 9, CREATE).await.map(drop),
            session.create("songs/2", &[], CREATE).await.map(drop),
            session.set_attributes("songs/1", &[], CREATE).await.map(drop),
            session.rename("songs/1", "songs/2", false, CREATE).await.map(drop),
        ] {
            assert!(matches!(refused, Err(OperationError::Direction { .. })), "{refused:?}");
        }
    });
}

#[test]
fn what_the_node_keeps_for_itself_is_nobodys() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let all = request(&manager, Direction::Read, 20);
        let (_, capability) = reserved(&manager, &all).await;
        assert!(manager.store().list(".tanada/", None, 9).objects.len() >= 3);
        let master = manager.open_session(Access::NodeKey).unwrap();
        for name in [".a", ".tanada0", "z"] {
            master
                .write(name, 0, View::copy_of(b"x"), CREATE)
                .await
                .unwrap();
        }
        for access in [Access::NodeKey, Access::Capability(&capability)] {
            let session = manager.open_session(access).unwrap();
            for most in [1, 2, 3, 10] {
                let mut names = Vec::new();
                let mut after = None;
                loop {
                    let part = session.list("", after.as_deref(), most).await.unwrap();
                    names.extend(part.objects.into_iter().map(|it| it.name));
                    match part.next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                assert_eq!(names, [".a", ".tanada0", "z"], "{most} at a time");
            }
            let keys = ".tanada/keys";
            assert!(matches!(
                session.stat(keys).await,
                Err(OperationError::System { .. })
            ));
            assert!(matches!(
                session.read(keys, 0, 9).await,
                Err(OperationError::System { .. })
            ));
            assert!(matches!(
                session.list(".tanada/", None, 9).await,
                Err(OperationError::System { .. })
            ));
            let rename = session.rename("z", ".tanada/z", false, CREATE).await;
            assert!(rename.is_err());
        }
        let mine = request(&manager, Direction::Read, 1).scope(".tanada/");
        assert!(matches!(
            manager.hold(&mine, None, soon(&manager)).await,
            Err(ReserveError::Request { .. })
        ));
    });
}

#[test]
fn what_was_answered_is_there_after_a_restart() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20)
            .space(Bytes::kib(128))
            .holder("climate");
        let (id, capability) = reserved(&manager, &writing).await;
        let held = manager.hold(&writing, None, soon(&manager)).await.unwrap();
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        session
            .write("a", 0, pattern(1, 10_000), CREATE)
            .await
            .unwrap();
        let before = manager.reservations();
        drop(session);
        drop(manager);
        let manager = Manager::open(disk.clone(), options()).await.unwrap();
        assert_eq!(manager.reservations(), before);
        assert_eq!(before[0].space_left, Bytes(128 * 1024 - 12_288));
        assert_eq!(manager.store().reservations().len(), 2);
        manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        assert_eq!(manager.capability(id), Some(capability.clone()));
        // The held one may still be committed, or runs out.
        env::sleep(Nanos::secs(11)).await;
        assert_eq!(manager.reservations().len(), 1);
        assert_eq!(manager.store().reservations().len(), 1);
        let late = manager.commit(held).await.unwrap_err();
        assert_eq!(
            late.to_string(),
            "there is no reservation 2: it was released, expired, or never made"
        );
        drop(manager);
        // A number never comes again.
        let manager = Manager::open(disk, options()).await.unwrap();
        let next = manager.hold(&writing, None, soon(&manager)).await.unwrap();
        assert!(next > held, "{next:?}");
        sums_hold(manager.store());
    });
}

#[test]
fn a_refusal_names_what_would_fit_and_an_offer_sets_nothing_aside() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        // 100 MB/s, 20 % free and 5 % for the background leave 75.
        let most = request(&manager, Direction::Read, 75);
        for _ in 0..3 {
            assert_eq!(manager.offer(&most), Ok(most.contract()));
        }
        let (id, _) = reserved(&manager, &most).await;
        let more = request(&manager, Direction::Write, 1);
        let refused = manager.hold(&more, None, soon(&manager)).await.unwrap_err();
        let ReserveError::Refused(Refusal::Full { offer, .. }) = &refused else {
            panic!("{refused}");
        };
        let earliest = offer.earliest.unwrap();
        assert_eq!(earliest.start, most.slot.end);
        assert_eq!(
            manager.offer(&more).unwrap_err().to_string(),
            refused.to_string()
        );
        let later = ReservationRequest {
            slot: earliest,
            ..more.clone()
        };
        assert!(manager.offer(&later).is_ok());
        manager.release(id).await.unwrap();
        assert!(manager.offer(&more).is_ok());
        let room = more.space(Bytes::mib(2));
        let refused = manager.offer(&room).unwrap_err();
        assert!(matches!(refused, Refusal::Space(_)));
        let said = manager
            .hold(&room, None, soon(&manager))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            said.starts_with("cannot reserve room for what is written: cannot take 2.0 MiB"),
            "{said}"
        );
        assert!(manager.reservations().is_empty() && manager.store().reservations().is_empty());
    });
}

#[test]
fn all_who_show_one_capability_share_one_session() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let (_, capability) = reserved(&manager, &request(&manager, Direction::Read, 20)).await;
        let open = || {
            manager
                .open_session(Access::Capability(&capability))
                .unwrap()
        };
        let (first, second) = (open(), open());
        assert!(Rc::ptr_eq(&first, &second));
        let peers = [first.joined("a:1"), second.joined("b:2")];
        assert_eq!(manager.sessions()[0].peers, ["a:1", "b:2"]);
        drop(peers);
        let other = manager.open_session(Access::NodeKey).unwrap();
        let flows = manager.queue().totals().open;
        drop(first);
        assert_eq!(manager.queue().totals().open, flows);
        assert!(second.memory() > other.memory());
        assert_eq!(second.memory() + other.memory(), Bytes::mib(24));
        drop(second);
        assert_eq!(manager.queue().totals().open, flows - 1);
        assert_eq!(other.memory(), Bytes::mib(24));
        let reports = manager.sessions();
        assert_eq!(reports.len(), 2);
        assert!(reports[0].closed.is_none() && reports[1].closed.is_some());
    });
}

#[test]
fn when_its_slot_ends_a_session_does_nothing_more() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20).space(Bytes::kib(256));
        let (id, capability) = reserved(&manager, &writing).await;
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        session
            .write("a", 0, pattern(1, 9_000), CREATE)
            .await
            .unwrap();
        let delivered = session.report().delivery.delivered_bytes;
        assert_eq!(delivered, 12_288);
        env::sleep(Nanos::secs(61)).await;
        assert_eq!(
            (session.phase(), session.promised()),
            (Phase::Over, BytesPerSec(0))
        );
        let refused = session.write("a", 9_000, pattern(1, 9_000), CREATE).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("is over, and its capability with it"),
            "{refused}"
        );
        assert!(session.stat("a").await.is_err() && session.flush().await.is_err());
        assert_eq!(session.report().delivery.delivered_bytes, delivered);
        assert!(manager.reservations().is_empty() && manager.store().reservations().is_empty());
        sums_hold(manager.store());
        let report = manager.report();
        assert!(
            report
                .log
                .iter()
                .any(|it| it.kind == "over" && it.reservation == Some(id.0))
        );
        assert_eq!(report.ended.len(), 1);
        assert!(report.ended[0].delivered_bytes >= delivered);
        env::sleep(Nanos::secs(10)).await;
        let late = manager
            .open_session(Access::Capability(&capability))
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(
            late,
            SessionError::Capability(CapabilityError::Expired { .. })
        ));
    });
}

#[test]
fn a_session_that_comes_early_is_promised_from_the_second_its_slot_begins() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let slot = Slot::new(Second(manager.now().0 + 4), 10);
        let later = ReservationRequest {
            slot,
            ..request(&manager, Direction::Read, 20)
        };
        let (_, capability) = reserved(&manager, &later).await;
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        assert_eq!(session.phase(), Phase::Early);
        while manager.now() < slot.start {
            assert_eq!(session.promised(), BytesPerSec(0));
            env::sleep(Nanos::millis(100)).await;
        }
        env::sleep(Nanos::millis(1)).await;
        assert_eq!(session.promised(), BytesPerSec::mb(20));
    });
}

#[test]
fn a_released_reservation_is_refused_and_its_sessions_do_nothing_more() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20).space(Bytes::kib(64));
        let (id, capability) = reserved(&manager, &writing).await;
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        manager.release(id).await.unwrap();
        assert_eq!(session.phase(), Phase::Over);
        let late = session.write("a", 0, pattern(1, 100_000), CREATE).await;
        assert!(matches!(late, Err(OperationError::Over { .. })), "{late:?}");
        let refused = manager
            .open_session(Access::Capability(&capability))
            .map(|_| ())
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("it was released; reserve anew"),
            "{refused}"
        );
        assert!(manager.release(id).await.is_err());
        assert_eq!(manager.store().reservations(), []);
    });
}

#[test]
fn booked_room_is_there_when_all_else_is_full() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20).space(Bytes::kib(256));
        let (_, capability) = reserved(&manager, &writing).await;
        let master = manager.open_session(Access::NodeKey).unwrap();
        let mut at = 0;
        while master
            .write("full", at, pattern(at, 65_536), CREATE)
            .await
            .is_ok()
        {
            at += 65_536;
        }
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        for part in 0..4 {
            session
                .write("mine", part << 16, pattern(part, 65_536), CREATE)
                .await
                .unwrap();
        }
        let refused = session
            .write("mine", 4 << 16, pattern(4, 1), CREATE)
            .await
            .unwrap_err();
        assert!(
            matches!(
                refused,
                OperationError::Store(StoreError::Reservation { .. })
            ),
            "{refused}"
        );
        sums_hold(manager.store());
    });
}

#[test]
fn a_new_key_signs_and_the_old_one_is_good_until_what_it_signed_has_ended() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        let (id, old) = reserved(&manager, &request(&manager, Direction::Read, 20)).await;
        manager.rotate_key([8; 32]).await.unwrap();
        let new = manager.capability(id).unwrap();
        assert_ne!(new, old);
        drop(manager);
        let manager = Manager::open(
            disk.clone(),
            ManagerOptions {
                signer: [8; 32],
                ..options()
            },
        )
        .await
        .unwrap();
        for token in [&old, &new] {
            manager.open_session(Access::Capability(token)).unwrap();
        }
        env::sleep(Nanos::secs(62)).await;
        manager.rotate_key([9; 32]).await.unwrap();
        let late = manager
            .open_session(Access::Capability(&old))
            .map(|_| ())
            .unwrap_err();
        assert!(
            matches!(
                late,
                SessionError::Capability(
                    CapabilityError::Expired { .. } | CapabilityError::KeyRetired { .. }
                )
            ),
            "{late}"
        );
        env::sleep(Nanos::secs(10)).await;
        manager.rotate_key([10; 32]).await.unwrap();
        // The last one may still be shown by those whose clocks are behind.
        let kept: Vec<_> = manager
            .core
            .keys
            .ring()
            .keys()
            .iter()
            .map(|key| key.public)
            .collect();
        let of = |secret| crate::qos::capability::Signer::new(&[secret; 32]).public();
        assert_eq!(kept, [of(9), of(10)]);
    });
}

#[test]
fn system_objects_of_another_version_are_refused_and_stay() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        reserved(&manager, &request(&manager, Direction::Read, 20)).await;
        let names: Vec<String> = {
            let listed = manager.store().list(".tanada/", None, 99).objects;
            listed.into_iter().map(|it| it.name).collect()
        };
        manager.close().await.unwrap();
        assert!(names.len() >= 3, "{names:?}");
        for name in names {
            for (text, what) in [
                ("{\"version\":2}", "version 2"),
                ("{\"version\":1}", "what cannot be"),
                ("x", "what cannot be"),
            ] {
                let store = Store::open(disk.clone()).await.unwrap();
                let size = store.stat(&name).unwrap().size;
                let before = store
                    .read(&name, 0, size, device::Class::Foreground)
                    .await
                    .unwrap();
                let mut other = text.as_bytes().to_vec();
                other.resize(size as usize, b' ');
                store
                    .write(&name, 0, View::copy_of(&other), CREATE)
                    .await
                    .unwrap();
                store.close().await.unwrap();
                let refused = Manager::open(disk.clone(), options())
                    .await
                    .map(|_| ())
                    .unwrap_err();
                assert!(
                    matches!(
                        refused,
                        OpenError::System { .. } | OpenError::SystemVersion { .. }
                    ) && refused.to_string().contains(what),
                    "{name}: {refused}"
                );
                let store = Store::open(disk.clone()).await.unwrap();
                let found = store
                    .read(&name, 0, size, device::Class::Foreground)
                    .await
                    .unwrap();
                assert!(*found == *other, "{name} was written over");
                store
                    .write(&name, 0, before.freeze(), CREATE)
                    .await
                    .unwrap();
                store.close().await.unwrap();
            }
        }
        let manager = Manager::open(disk, options()).await.unwrap();
        assert_eq!(manager.reservations()[0].state, State::Committed);
    });
}

#[test]
fn a_calibration_of_another_device_does_not_count() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        let other = Calibration {
            costs: Costs::flat(BytesPerSec::mb(7_000)),
            points: Vec::new(),
            beyond: Share::percent(10),
            measured: manager.now(),
            device: ("disk".to_owned(), Bytes::gib(1)),
            identity: None,
            surface: serde_json::json!({}),
        };
        manager.set_calibration(other.clone()).await.unwrap();
        manager.close().await.unwrap();
        let manager = Manager::open(disk.clone(), options()).await.unwrap();
        let capacity = manager.report().capacity;
        assert!(manager.calibration().is_none() && capacity.calibration_due);
        assert_eq!(capacity.source, "configured");
        assert!(
            manager
                .offer(&request(&manager, Direction::Read, 1_000))
                .is_err()
        );
        let ours = Calibration {
            device: ("disk".to_owned(), small_size(30)),
            identity: None,
            ..other
        };
        manager.set_calibration(ours).await.unwrap();
        manager.close().await.unwrap();
        let manager = Manager::open(disk, options()).await.unwrap();
        assert!(!manager.report().capacity.calibration_due);
        manager
            .offer(&request(&manager, Direction::Read, 1_000))
            .unwrap();
    });
}

#[test]
fn a_reservation_that_ended_names_all_it_got_over_all_its_sessions() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let (id, capability) = reserved(&manager, &request(&manager, Direction::Write, 20)).await;
        for at in 0..2 {
            let session = manager
                .open_session(Access::Capability(&capability))
                .unwrap();
            let data = pattern(at, 20_000);
            session.write("a", 0, data, CREATE).await.unwrap();
            drop(session);
            for _ in 0..70 {
                manager.open_session(Access::NodeKey).unwrap();
            }
        }
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        session
            .write("a", 0, pattern(3, 20_000), CREATE)
            .await
            .unwrap();
        manager.release(id).await.unwrap();
        drop(session);
        let ended = manager.report().ended;
        assert!(ended[0].delivered_bytes >= 60_000, "{ended:?}");
        assert!(manager.sessions.totals.borrow().is_empty());
    });
}

#[test]
fn history_that_could_not_be_written_is_written_later() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", small_size(30));
        let store = Store::format(disk.clone(), small()).await.unwrap();
        store.close().await.unwrap();
        let faults = Book::new(env::rng("faults"));
        let manager = Manager::open(faults.wrap(disk.clone()), options())
            .await
            .unwrap();
        let (id, _) = reserved(&manager, &request(&manager, Direction::Write, 20)).await;
        manager.release(id).await.unwrap();
        faults.add(Rule::new(Injury::Error(Done::Part)).once());
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(faults.injuries().errors, 1);
        manager.close().await.unwrap();
        let manager = Manager::open(disk, options()).await.unwrap();
        assert_eq!(manager.report().ended.len(), 1);
    });
}

/// What sessions of reservation `id` got so far.
fn delivered(manager: &Manager, id: BookingId) -> u64 {
    let sessions = manager.sessions().into_iter();
    let of = sessions.filter(|it| it.reservation == Some(id.0));
    of.map(|it| it.delivery.delivered_bytes).sum()
}

#[test]
fn an_amended_reservation_goes_on_without_a_gap() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let writing = request(&manager, Direction::Write, 20)
            .scope("a/")
            .holder("vm")
            .space(Bytes::kib(64));
        let (first, capability) = reserved(&manager, &writing).await;
        let holder = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        let attached = manager.open_session(Access::NodeKey).unwrap();
        attached.attach_reservations(Some("vm")).unwrap();
        let data = pattern(1, 16_384);
        holder.write("a/1", 0, data.clone(), CREATE).await.unwrap();
        let more = request(&manager, Direction::Write, 30);
        let more = ReservationRequest {
            slot: Slot::new(manager.now(), 600),
            ..more
        };
        let second = manager
            .amend(first, &more, None, soon(&manager))
            .await
            .unwrap();
        assert_eq!(
            (state_of(&manager, first), holder.promised()),
            (Some(State::Committed), BytesPerSec::mb(20))
        );
        let again = manager.commit(second).await.unwrap();
        assert_eq!(state_of(&manager, first), None);
        assert_eq!(
            (holder.phase(), holder.promised()),
            (Phase::Promised, BytesPerSec::mb(30))
        );
        // Scope, holder and room are those of before.
        let kept = manager
            .reservations()
            .into_iter()
            .find(|it| it.id == second)
            .unwrap()
            .request;
        assert_eq!(
            (&*kept.scope, &*kept.holder, kept.space),
            ("a/", "vm", Bytes::kib(64))
        );
        let before = delivered(&manager, second);
        attached
            .write("b/1", 0, data.clone(), CREATE)
            .await
            .unwrap();
        holder.write("a/1", 0, data.clone(), CREATE).await.unwrap();
        assert!(delivered(&manager, second) >= before + 32_768);
        let refused = holder.write("b/1", 0, data, CREATE).await;
        assert!(
            matches!(refused, Err(OperationError::Scope { .. })),
            "{refused:?}"
        );
        // The capability of before goes on, and both are of the same session.
        for shown in [&capability, &again] {
            let same = manager.open_session(Access::Capability(shown)).unwrap();
            assert_eq!(same.number(), holder.number());
        }
        let other_way = request(&manager, Direction::Read, 1);
        let refused = manager
            .amend(second, &other_way, None, soon(&manager))
            .await
            .unwrap_err();
        assert!(
            refused.to_string().contains("cannot become one of reads"),
            "{refused}"
        );
        let gone = manager.amend(first, &more, None, soon(&manager)).await;
        assert!(matches!(gone, Err(ReserveError::NoBooking(_))), "{gone:?}");
    });
}

/// Renews `id` as it is, to `seconds` from now on; what took its place.
async fn renewed(manager: &Manager, id: BookingId, seconds: u64) -> (BookingId, String) {
    let all = manager.reservations();
    let before = all.into_iter().find(|it| it.id == id).unwrap();
    let slot = Slot {
        end: Second(manager.now().0 + seconds),
        ..before.request.slot
    };
    let wanted = ReservationRequest {
        slot,
        ..before.request
    };
    let next = manager
        .amend(id, &wanted, before.group, soon(manager))
        .await
        .unwrap();
    let group = manager.reservations();
    let group = group.into_iter().find(|it| it.id == next).unwrap().group;
    let part = PartName {
        id: next,
        group: group.map(|it| it.id),
    };
    (next, manager.commit(part).await.unwrap())
}

fn why_refused(manager: &Rc<Manager>, capability: &str) -> String {
    let refused = manager.open_session(Access::Capability(capability));
    refused.map(drop).unwrap_err().to_string()
}

#[test]
fn a_capability_lives_as_long_as_its_reservation_is_renewed() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        let reading = request(&manager, Direction::Read, 20).scope("a/");
        let (first, capability) = reserved(&manager, &reading).await;
        // Beside it the same is reserved by another one, for the same objects.
        let (beside, of_beside) = reserved(&manager, &reading).await;
        let (mut id, mut given) = (first, vec![capability.clone()]);
        for _ in 0..5 {
            env::sleep(Nanos::secs(30)).await;
            let (next, again) = renewed(&manager, id, 60).await;
            assert!(next > id);
            (id, given) = (next, [given, vec![again]].concat());
        }
        // By now the first one's own time is long out, and that of the one beside it, which was not renewed.
        assert_eq!(state_of(&manager, beside), None);
        assert!(why_refused(&manager, &of_beside).contains("ended 90 s ago"));
        let session = manager.open_session(Access::Capability(&given[0])).unwrap();
        assert_eq!(
            (session.reservation(), session.phase()),
            (Some(id), Phase::Promised)
        );
        drop(session);
        let open = |manager: &Rc<Manager>| {
            for capability in &given {
                let session = manager.open_session(Access::Capability(capability));
                assert_eq!(session.unwrap().reservation(), Some(id));
            }
        };
        open(&manager);
        manager.close().await.unwrap();
        let manager = Manager::open(disk.clone(), options()).await.unwrap();
        open(&manager);
        // Its end is the end of all of them: the last renewal's.
        env::sleep(Nanos::secs(59)).await;
        open(&manager);
        env::sleep(Nanos::secs(20)).await;
        for capability in &given {
            let why = why_refused(&manager, capability);
            assert!(why.contains(" ago"), "{why}");
        }
    });
}

#[test]
fn a_capability_opens_a_part_that_was_lost_and_made_anew_and_no_other_whole() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        manager.parts().take_by_record();
        let reading = request(&manager, Direction::Read, 10).scope("a/");
        let part = async |whole: u128, wanted: &ReservationRequest| {
            let group = Group {
                id: whole,
                stores: vec![manager.store().uuid(), Group::BY_RECORD],
            };
            let held = manager.hold(wanted, Some(group), soon(&manager)).await;
            let name = PartName::of(held.unwrap(), whole);
            (name, manager.commit(name).await.unwrap())
        };
        let opens = |capability: &str, part: PartName| {
            let session = manager.open_session(Access::Capability(capability));
            session
                .map(|it| it.reservation() == Some(part.id))
                .unwrap_or(false)
        };
        let (lost, capability) = part(7, &reading).await;
        assert!(opens(&capability, lost));
        manager.release(lost).await.unwrap();
        assert!(why_refused(&manager, &capability).contains("it was released"));
        // Another whole's, of the same terms, and others of its own are not it.
        part(8, &reading).await;
        part(7, &request(&manager, Direction::Read, 10).scope("b/")).await;
        part(7, &request(&manager, Direction::Write, 10).scope("a/")).await;
        assert!(why_refused(&manager, &capability).contains("it was released"));
        let (anew, again) = part(7, &reading).await;
        assert!(opens(&capability, anew) && opens(&again, anew));
    });
}

#[test]
fn a_capability_of_before_dies_with_its_reservation_and_with_its_key() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let reading = request(&manager, Direction::Read, 20).scope("a/");
        let (first, capability) = reserved(&manager, &reading).await;
        // An amendment that is only held takes the place of nothing, and is nothing to open.
        let held = manager
            .amend(first, &reading, None, soon(&manager))
            .await
            .unwrap();
        manager.release(first).await.unwrap();
        assert!(why_refused(&manager, &capability).contains("it was released"));
        manager.release(held).await.unwrap();
        // Renewed and cancelled.
        let (first, capability) = reserved(&manager, &reading).await;
        let (second, _) = renewed(&manager, first, 60).await;
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        manager.release(second).await.unwrap();
        assert_eq!(session.phase(), Phase::Over);
        assert!(why_refused(&manager, &capability).contains("it was released"));
        // The same reserved anew is another one.
        let (_, anew) = reserved(&manager, &reading).await;
        assert!(why_refused(&manager, &capability).contains("it was released"));
        manager.open_session(Access::Capability(&anew)).unwrap();
        // Renewed, and its key made void.
        let (first, capability) = reserved(&manager, &reading).await;
        renewed(&manager, first, 600).await;
        manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        manager.replace_key([9; 32]).await.unwrap();
        assert!(why_refused(&manager, &capability).contains("does not know"));
        // A key that goes is good to the last end of what was reserved by then, renewed or not.
        let (first, capability) = reserved(&manager, &reading).await;
        let most = manager.reservations().into_iter();
        let most = most.map(|it| it.request.slot.end).max().unwrap();
        manager.rotate_key([8; 32]).await.unwrap();
        let (second, again) = renewed(&manager, first, 3_600).await;
        manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        env::sleep(Nanos::secs(most.0 - manager.now().0 + 5)).await;
        assert_eq!(state_of(&manager, second), Some(State::Committed));
        assert!(why_refused(&manager, &capability).contains("is accepted from"));
        manager.open_session(Access::Capability(&again)).unwrap();
    });
}

fn state_of(manager: &Manager, id: BookingId) -> Option<State> {
    let all = manager.reservations();
    all.iter().find(|it| it.id == id).map(|it| it.state)
}

#[test]
fn a_load_report_says_how_much_of_the_device_is_promised() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let later = Slot::new(Second(manager.now().0 + 600), 60);
        let beyond = Slot::new(Second(manager.now().0 + 4000), 60);
        for (mb, slot) in [
            (20, Slot::new(manager.now(), 60)),
            (50, later),
            (70, beyond),
        ] {
            let wanted = ReservationRequest::new(Direction::Read, BytesPerSec::mb(mb), slot);
            reserved(&manager, &wanted).await;
        }
        let promised = || {
            let promised = manager.state().promised;
            (promised.now.0, promised.hour.0)
        };
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(promised(), (200, 500));
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(promised(), (0, 500));
        env::sleep(Nanos::secs(600)).await;
        assert_eq!(promised(), (0, 700));
    });
}

#[test]
fn what_a_record_decides_is_held_until_the_record_is_asked() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        let group = Group {
            id: 9,
            stores: vec![manager.store().uuid(), Group::BY_RECORD],
        };
        let part = request(&manager, Direction::Read, 10);
        let hold = async |manager: &Manager| {
            manager
                .hold(&part, Some(group.clone()), soon(manager))
                .await
        };
        let refused = hold(&manager).await.unwrap_err();
        assert!(
            refused.to_string().contains("belongs to no cluster"),
            "{refused}"
        );
        manager.parts().take_by_record();
        let (stands, waits) = (hold(&manager).await.unwrap(), hold(&manager).await.unwrap());
        let named = |id| PartName::of(id, group.id);
        manager.commit(named(stands)).await.unwrap();
        let unconfirmed = |manager: &Manager| {
            let all = manager.parts().unconfirmed(60).into_iter();
            all.map(|it| (it.id, it.held_until.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(unconfirmed(&manager), [(waits, true)]);
        env::sleep(Nanos::secs(30)).await;
        // Its time is out, and no record said so: it is promised meanwhile.
        let full = request(&manager, Direction::Read, 60);
        assert!(manager.offer(&full).is_err());
        assert_eq!(unconfirmed(&manager), [(waits, true)]);
        manager.close().await.unwrap();
        drop(manager);
        let manager = Manager::open(disk, options()).await.unwrap();
        manager.parts().take_by_record();
        assert_eq!(unconfirmed(&manager), [(stands, false), (waits, true)]);
        // None of it is for stores to decide.
        assert_eq!(manager.parts().undecided(), []);
        manager.commit(named(stands)).await.unwrap();
        manager.release(named(waits)).await.unwrap();
        assert_eq!(unconfirmed(&manager), []);
        assert!(manager.offer(&full).is_ok());
        env::sleep(Nanos::secs(61)).await;
        assert_eq!(unconfirmed(&manager), [], "its slot is over");
    });
}

#[test]
fn capabilities_lapse_where_the_record_is_out_of_reach() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        manager.parts().take_by_record();
        let slot = Slot::new(manager.now(), 7200);
        let mut made = Vec::new();
        for (number, marks) in [(1, vec![]), (2, vec![Group::OFFLINE])] {
            let asked = ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot);
            let group = Group {
                id: number,
                stores: [vec![manager.store().uuid()], marks, vec![Group::BY_RECORD]].concat(),
            };
            let held = manager
                .hold(&asked.scope("a/"), Some(group), soon(&manager))
                .await;
            let held = held.unwrap();
            let part = PartName::of(held, number);
            made.push((part, manager.commit(part).await.unwrap()));
        }
        let phases = |manager: &Manager| {
            let opened = made
                .iter()
                .map(|(_, it)| manager.open_session(Access::Capability(it)));
            opened.map(|it| it.map(|it| it.phase())).collect::<Vec<_>>()
        };
        let session = manager
            .open_session(Access::Capability(&made[0].1))
            .unwrap();
        env::sleep(Nanos::secs(599)).await;
        assert_eq!(session.phase(), Phase::Promised);
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(session.phase(), Phase::Over);
        let lapsed = phases(&manager);
        let why = lapsed[0].as_ref().unwrap_err().to_string();
        assert!(
            why.contains("did not reach the cluster's meta store for 10 minutes"),
            "{why}"
        );
        assert_eq!(lapsed[1], Ok(Phase::Promised), "good to its end");
        // The promise itself stands.
        let full = ReservationRequest::new(Direction::Read, BytesPerSec::mb(85), slot);
        assert!(manager.offer(&full.scope("b/")).is_err());
        // What opens anew has 10 minutes to ask.
        manager.close().await.unwrap();
        drop((session, manager));
        let manager = Manager::open(disk, options()).await.unwrap();
        manager.parts().take_by_record();
        assert_eq!(phases(&manager), [Ok(Phase::Promised), Ok(Phase::Promised)]);
        env::sleep(Nanos::secs(601)).await;
        assert!(phases(&manager)[0].is_err());
        // The record says that it stands: it is as before.
        manager.commit(made[0].0).await.unwrap();
        assert_eq!(phases(&manager), [Ok(Phase::Promised), Ok(Phase::Promised)]);
    });
}

#[test]
fn a_part_is_named_with_its_whole_and_of_another_it_is_not_there() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        manager.parts().take_by_record();
        let group = Group {
            id: 9,
            stores: vec![manager.store().uuid(), Group::BY_RECORD],
        };
        let wanted = request(&manager, Direction::Read, 10);
        let held = manager.hold(&wanted, Some(group.clone()), soon(&manager));
        let id = held.await.unwrap();
        let alone = manager.hold(&wanted, None, soon(&manager)).await.unwrap();
        for stranger in [
            PartName::from(id),
            PartName::of(id, 8),
            PartName::of(alone, 9),
        ] {
            let none = Err(ReserveError::NoBooking(NoBooking(stranger.id)));
            assert_eq!(manager.commit(stranger).await, none);
            assert_eq!(
                manager.release(stranger).await.map(|()| String::new()),
                none
            );
            assert!(!manager.parts().has(stranger));
        }
        manager.commit(PartName::of(id, 9)).await.unwrap();
        let other = Group {
            id: 8,
            ..group.clone()
        };
        for stranger in [None, Some(other)] {
            let amended = manager.amend(id, &wanted, stranger, soon(&manager)).await;
            assert_eq!(amended, Err(ReserveError::NoBooking(NoBooking(id))));
        }
        let longer = manager.amend(id, &wanted, Some(group), soon(&manager));
        manager
            .commit(PartName::of(longer.await.unwrap(), 9))
            .await
            .unwrap();
        manager.commit(alone).await.unwrap();
        assert_eq!(manager.reservations().len(), 2);
    });
}

#[test]
fn what_is_within_an_allotment_takes_nothing_else_and_ends_with_it() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, manager) = manager().await;
        manager.parts().take_by_record();
        let uuid = manager.store().uuid();
        let group = |id| Group {
            id,
            stores: vec![uuid, Group::BY_RECORD],
        };
        let all = request(&manager, Direction::Read, 60);
        let allotment = manager.hold(&all, Some(group(9)), soon(&manager));
        let allotment = PartName::of(allotment.await.unwrap(), 9);
        let inside = async |manager: &Manager, id, mb| {
            let part = request(manager, Direction::Read, mb);
            let held = manager
                .parts()
                .hold_within(9, &part, group(id), soon(manager));
            Ok::<_, ReserveError>(PartName::of(held.await?, id))
        };
        let early = inside(&manager, 1, 10).await.unwrap_err();
        assert!(
            early.to_string().contains("no allotment has reads here"),
            "{early}"
        );
        manager.commit(allotment).await.unwrap();
        let taken = manager.calendar(all.slot);
        let first = inside(&manager, 1, 40).await.unwrap();
        manager.commit(first).await.unwrap();
        let too_much = inside(&manager, 2, 21).await.unwrap_err();
        assert!(
            too_much
                .to_string()
                .contains("20 MB/s of the allotment's 60 MB/s"),
            "{too_much}"
        );
        let second = inside(&manager, 2, 20).await.unwrap();
        assert_eq!(
            manager.calendar(all.slot),
            taken,
            "the device promises no more"
        );
        // Less of the one leaves more for others; until then both count.
        let less = request(&manager, Direction::Read, 30);
        let less = manager.amend(first.id, &less, Some(group(1)), soon(&manager));
        let less = PartName::of(less.await.unwrap(), 1);
        assert!(inside(&manager, 3, 1).await.is_err());
        manager.commit(less).await.unwrap();
        inside(&manager, 3, 5).await.unwrap();
        // Of what is held and what it is to replace the greater counts, not both.
        let more = request(&manager, Direction::Read, 31);
        let more = manager.amend(less.id, &more, Some(group(1)), soon(&manager));
        let more = PartName::of(more.await.unwrap(), 1);
        inside(&manager, 5, 4).await.unwrap();
        assert!(inside(&manager, 6, 1).await.is_err());
        manager.release(more).await.unwrap();
        inside(&manager, 6, 1).await.unwrap();
        manager.commit(second).await.unwrap();
        manager.close().await.unwrap();
        drop(manager);
        let manager = Manager::open(disk, options()).await.unwrap();
        manager.parts().take_by_record();
        assert_eq!(manager.calendar(all.slot), taken);
        assert!(inside(&manager, 4, 1).await.is_err());
        manager.release(allotment).await.unwrap();
        assert_eq!(manager.reservations(), []);
    });
}

#[test]
fn a_store_knows_for_how_long_nothing_of_a_part_was_asked() {
    env::Runtime::simulated(1).block_on(async {
        let (_, manager) = manager().await;
        let part = request(&manager, Direction::Write, 10);
        let id = manager.hold(&part, None, soon(&manager)).await.unwrap();
        let capability = manager.commit(id).await.unwrap();
        let unused = |manager: &Manager, id| manager.parts().look(id).unwrap().unused;
        // It begins when it is looked at in its slot, whatever a clock said meanwhile.
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(unused(&manager, id.into()), 0);
        env::sleep(Nanos::secs(7)).await;
        assert_eq!(unused(&manager, id.into()), 7);
        let session = manager
            .open_session(Access::Capability(&capability))
            .unwrap();
        assert_eq!(unused(&manager, id.into()), 7, "it was only opened");
        session
            .write("a", 0, View::copy_of(b"x"), CREATE)
            .await
            .unwrap();
        assert_eq!(unused(&manager, id.into()), 0);
        env::sleep(Nanos::secs(5)).await;
        drop(session);
        assert_eq!(unused(&manager, id.into()), 5);
        let amended = manager
            .amend(id, &part, None, soon(&manager))
            .await
            .unwrap();
        manager.commit(amended).await.unwrap();
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(unused(&manager, amended.into()), 6);
        let later = ReservationRequest {
            slot: Slot::new(Second(manager.now().0 + 100), 10),
            ..part.clone()
        };
        let later = manager.hold(&later, None, soon(&manager)).await.unwrap();
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(unused(&manager, later.into()), 0, "it has not begun");
        let none = manager.parts().look(id.into());
        assert_eq!(none, Err(NoBooking(id)));
    });
}
