//! What is made, refused, changed and released, one scene each.

use std::rc::Rc;

use base::Nanos;
use policy::share::{BytesPerSec, Second};
use store::qos::manager::{Group, Manager};
use store::qos::session::Access;
use vdisk::StoreNumber;

use super::world::{World, of_vm1, records};
use crate::ask::TargetAsk;
use crate::capability::StoreCapability;
use crate::confirm::note_lost;
use crate::record::{Phase, Target};
use crate::release::Endings;
use crate::service::Change;
use crate::stores::VolumeFact;
use crate::sweep::promised_now;
use crate::{ReservationError, largest_of};

const FOREVER: u64 = u64::MAX;

fn rates(world: &World) -> Vec<(u16, u64)> {
    let parts = world.parts().into_iter();
    parts
        .map(|(store, it)| (store.0, it.request.rate.0 / 1_000_000))
        .collect()
}

#[test]
fn a_booking_above_a_cap_is_refused_with_both_and_one_below_is_not() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let cap = |mb: u64| {
            let mut facts = world.facts.borrow_mut();
            let caps = &mut facts.volumes.get_mut(&7).unwrap().caps;
            caps.read.bytes = Some(BytesPerSec::mb(mb));
        };
        cap(30);
        let refused = service.create(of_vm1(&service, "nightly", 40)).await;
        let refused = refused.unwrap_err().to_string();
        for said in [
            "a cap of 30 MB/s of reads",
            "the 40 MB/s",
            "set vm1 max_read=40MB/s",
        ] {
            assert!(refused.contains(said), "{refused}");
        }
        assert!(world.parts().is_empty(), "nothing was held");
        let made = service.create(of_vm1(&service, "nightly", 30)).await;
        let (made, _) = made.unwrap();
        let all: Vec<_> = service.all().await.unwrap();
        let records = || all.iter().map(|it| &it.record);
        let booked = [BytesPerSec::mb(30), BytesPerSec(0)];
        assert_eq!(largest_of(records(), 7), booked);
        assert_eq!(largest_of(records(), 8), [BytesPerSec(0); 2]);
        // More than the cap is refused also where there is something already.
        let change = Change {
            read: Some(40_000_000),
            ..Change::default()
        };
        let refused = service.amend(made.clone(), change).await;
        assert!(refused.unwrap_err().to_string().contains("of 30 MB/s"));
        cap(50);
        let grown = service.amend(made, change).await.unwrap();
        assert_eq!(grown.record.promise.read, 40_000_000);
    });
}

#[test]
fn a_volume_is_reserved_at_all_of_its_stores_once() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let (made, is_new) = service
            .create(of_vm1(&service, "nightly", 40))
            .await
            .unwrap();
        assert!(is_new);
        assert_eq!(made.record.state, Phase::Committed);
        assert_eq!(
            made.record.target,
            Target::Volume {
                name: "vm1".to_owned(),
                id: 7
            }
        );
        // Two copies, one loss tolerated: all of it at each.
        assert_eq!(rates(&world), [(1, 40), (2, 40), (3, 40)]);
        for (store, part) in world.parts() {
            assert_eq!(part.request.holder, "volume:7");
            // Its own store alone is named: the record names all, however many they are.
            let own = world.facts.borrow().stores[&store].uuid;
            assert_eq!(part.group.unwrap().stores, [own, Group::BY_RECORD]);
        }
        env::sleep(Nanos::secs(2)).await;
        let (again, is_new) = service
            .create(of_vm1(&service, "nightly", 40))
            .await
            .unwrap();
        assert_eq!((again.id, is_new), (made.id, false));
        let other = service
            .create(of_vm1(&service, "nightly", 30))
            .await
            .unwrap_err();
        assert!(matches!(other, ReservationError::NameTaken(_)), "{other}");
        let beside = service
            .create(of_vm1(&service, "second", 1))
            .await
            .unwrap_err();
        // Its name is not told: it may be another account's.
        let said = format!("volume vm1 has the reservation {} in that time", made.id);
        assert!(beside.to_string().contains(&said), "{beside}");
        let over = service.release(made, "released").await.unwrap();
        assert_eq!((over.record.state, rates(&world)), (Phase::Ended, vec![]));
        // The name is free again.
        assert!(
            service
                .create(of_vm1(&service, "nightly", 30))
                .await
                .unwrap()
                .1
        );
    });
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let ask = of_vm1(&service, "a", 10);
        let stores = |names: &[&str], scope: &str| TargetAsk::Stores {
            stores: names.iter().map(|it| (*it).to_owned()).collect(),
            stripe: false,
            scope: scope.to_owned(),
        };
        let with = |target| crate::ask::Ask {
            target,
            ..ask.clone()
        };
        let long = "a".repeat(65);
        for (name, said) in [
            ("r-1", "begins with r-"),
            ("42", "such as job-42"),
            ("_a", "is no name"),
            (&*long, "is no name"),
        ] {
            let mut named = ask.clone();
            named.name = name.to_owned();
            let refused = service.create(named).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        for (ask, said) in [
            (
                with(TargetAsk::Volume("vm9".to_owned())),
                "the volumes are vm1",
            ),
            (with(stores(&["s1"], "")), "no scope is given"),
            (with(stores(&["s9"], "a/")), "the stores are s1, s2, s3"),
            (with(stores(&["s1", "s1"], "a/")), "named twice"),
        ] {
            let refused = service.create(ask).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        let mut three = ask.clone();
        (three.promise.tolerate, three.tolerate_said) = (2, true);
        let refused = service.create(three).await.unwrap_err().to_string();
        assert!(
            refused.contains("at most 1 stores may be lost"),
            "{refused}"
        );
        assert_eq!((records(&service).await, rates(&world)), (vec![], vec![]));
    });
}

#[test]
fn a_refusal_leaves_nothing_and_its_offer_is_accepted() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let mut taken = of_vm1(&service, "taken", 50);
        taken.target = TargetAsk::Stores {
            stores: vec!["s2".to_owned()],
            stripe: false,
            scope: "a/".to_owned(),
        };
        taken.promise.from += 100;
        taken.promise.until = taken.promise.from + 200;
        service.create(taken).await.unwrap();
        let ask = of_vm1(&service, "vm", 40);
        let refused = service.create(ask.clone()).await.unwrap_err();
        let ReservationError::Refused { refused, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(refused.iter().map(|it| &*it.0).collect::<Vec<_>>(), ["s2"]);
        assert_eq!(rates(&world), [(2, 50)]);
        let offer = service.quote(&ask).await.unwrap();
        assert!(!offer.fits);
        assert_eq!(offer.earliest, Some(Second(ask.promise.from + 300)));
        assert_eq!(offer.longest_seconds, Some(100));
        // 100 MB/s, 20 % kept free, 5 % for background work, 50 promised.
        assert_eq!(offer.largest_permille, Some(625));
        for taken_up in [
            ask.with(offer.earliest.unwrap().0, 600, 1000),
            ask.with(ask.promise.from, 600, 625),
            ask.with(ask.promise.from, 100, 1000),
        ] {
            let (made, _) = service.create(taken_up).await.unwrap();
            service.release(made, "tried").await.unwrap();
        }
        for beyond in [
            ask.with(ask.promise.from + 299, 600, 1000),
            ask.with(ask.promise.from, 600, 626),
            ask.with(ask.promise.from, 101, 1000),
        ] {
            assert!(service.create(beyond).await.is_err());
        }
    });
}

#[test]
fn less_of_stores_is_granted_while_one_of_them_is_silent() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let mut ask = of_vm1(&service, "job", 40);
        ask.target = TargetAsk::Stores {
            stores: vec!["s1".to_owned(), "s2".to_owned()],
            stripe: false,
            scope: "a/".to_owned(),
        };
        let (made, _) = service.create(ask).await.unwrap();
        world.silent.borrow_mut().insert(StoreNumber(2));
        let change = |read, until| Change {
            read: Some(read),
            until,
            ..Change::default()
        };
        let until = made.record.promise.until;
        for (read, until) in [(41_000_000, None), (40_000_000, Some(until + 1))] {
            let more = service.amend(made.clone(), change(read, until)).await;
            assert!(matches!(more, Err(ReservationError::Unreachable { .. })));
        }
        let less = service.amend(made, change(30_000_000, None)).await.unwrap();
        assert_eq!(less.record.promise.read, 30_000_000);
        assert_eq!(rates(&world), [(1, 30), (2, 40)]);
        world.silent.borrow_mut().clear();
        let _tended = world.tend(&service);
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(rates(&world), [(1, 30), (2, 30)]);
        // Made shorter while one is silent, it ends there with the rest.
        world.silent.borrow_mut().insert(StoreNumber(2));
        let soon = Some(service.now().0 + 10);
        service.amend(less, change(30_000_000, soon)).await.unwrap();
        env::sleep(Nanos::secs(8)).await;
        assert_eq!(rates(&world), [(1, 30), (2, 30)]);
        env::sleep(Nanos::secs(3)).await;
        world.silent.borrow_mut().clear();
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(rates(&world), []);
    });
}

#[test]
fn amending_replaces_parts_and_keeps_them_where_it_is_refused() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let (made, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        let more = Change {
            read: Some(60_000_000),
            write: Some(5_000_000),
            ..Change::default()
        };
        let more = service.amend(made, more).await.unwrap();
        assert_eq!(more.record.promise.read, 60_000_000);
        let mut all = rates(&world);
        all.sort_unstable();
        assert_eq!(all, [(1, 5), (1, 60), (2, 5), (2, 60), (3, 5), (3, 60)]);
        world.agree(&records(&service).await).unwrap();
        let until = more.record.promise.until + 600;
        let longer = service
            .amend(
                more,
                Change {
                    until: Some(until),
                    ..Change::default()
                },
            )
            .await
            .unwrap();
        assert!(
            world
                .parts()
                .iter()
                .all(|(_, it)| it.request.slot.end == Second(until))
        );
        let too_much = Change {
            read: Some(90_000_000),
            ..Change::default()
        };
        let refused = service.amend(longer.clone(), too_much).await.unwrap_err();
        assert!(
            matches!(refused, ReservationError::Refused { .. }),
            "{refused}"
        );
        world.agree(&records(&service).await).unwrap();
        let none = Change {
            write: Some(0),
            ..Change::default()
        };
        let reads = service.amend(longer, none).await.unwrap();
        assert_eq!(rates(&world), [(1, 60), (2, 60), (3, 60)]);
        world.agree(&records(&service).await).unwrap();
        service.release(reads, "done").await.unwrap();
        assert_eq!(rates(&world), []);
    });
}

#[test]
fn stores_that_go_degrade_it_and_a_volume_that_moves_takes_it_along() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let (made, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        let set_up = |number, is_up| {
            let mut facts = world.facts.borrow_mut();
            facts.stores.get_mut(&StoreNumber(number)).unwrap().is_up = is_up;
        };
        let now = async || service.find("", &made.id.to_string()).await.unwrap().record;
        set_up(2, false);
        env::sleep(Nanos::secs(5)).await;
        let record = now().await;
        assert_eq!(
            (record.state, record.cause.as_deref()),
            (Phase::Degraded, Some("stores down: s2"))
        );
        assert_eq!(
            promised_now(&record, &world.facts.borrow()),
            (40_000_000, 0)
        );
        set_up(3, false);
        assert_eq!(
            promised_now(&record, &world.facts.borrow()),
            (0, 0),
            "two of two copies may be gone"
        );
        set_up(2, true);
        set_up(3, true);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(now().await.state, Phase::Committed);
        // It leaves store 1.
        let set_stores = |stores: &[u16]| {
            let mut facts = world.facts.borrow_mut();
            let stores = stores.iter().copied().map(StoreNumber).collect();
            let volume = facts.volumes.get_mut(&7).unwrap();
            *volume = VolumeFact {
                stores,
                ..volume.clone()
            };
        };
        set_stores(&[2, 3]);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(rates(&world), [(2, 40), (3, 40)]);
        set_stores(&[1, 2, 3]);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(rates(&world), [(1, 40), (2, 40), (3, 40)]);
        world.agree(&records(&service).await).unwrap();
        // It is removed.
        world.facts.borrow_mut().volumes.clear();
        env::sleep(Nanos::secs(5)).await;
        assert_eq!((now().await.state, rates(&world)), (Phase::Ended, vec![]));
    });
}

#[test]
fn capabilities_are_of_stores_and_over_when_it_is() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let mut ask = of_vm1(&service, "job", 60);
        ask.target = TargetAsk::Stores {
            stores: vec!["s3".to_owned(), "s1".to_owned()],
            stripe: true,
            scope: "job/".to_owned(),
        };
        let (made, _) = service.create(ask).await.unwrap();
        let parts = world.parts();
        let of: Vec<_> = parts
            .iter()
            .map(|(store, it)| (store.0, it.request.rate))
            .collect();
        assert_eq!(of, [(1, BytesPerSec::mb(33)), (3, BytesPerSec::mb(33))]);
        let all = service.capabilities(&made).await.unwrap();
        assert_eq!(all.len(), 2);
        for capability in all {
            assert!(capability.token.starts_with("tanada1."), "{capability:?}");
        }
        let over = service.release(made, "done").await.unwrap();
        let refused = service.capabilities(&over).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "reservation job is ended; reserve anew"
        );
    });
}

#[test]
fn a_renewal_keeps_what_was_given_out() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let mut ask = of_vm1(&service, "job", 30);
        ask.target = TargetAsk::Stores {
            stores: vec!["s3".to_owned(), "s1".to_owned()],
            stripe: false,
            scope: "job/".to_owned(),
        };
        let (mut known, _) = service.create(ask).await.unwrap();
        let given = service.capabilities(&known).await.unwrap();
        let opened = || {
            let open = |capability: &StoreCapability| {
                let of = |it: &&(_, Rc<Manager>)| {
                    capability.store == format!("{:032x}", it.1.store().uuid())
                };
                let stores = world.stores();
                let (_, store) = stores.iter().find(of).unwrap();
                let session = store.open_session(Access::Capability(&capability.token));
                session.is_ok_and(|it| it.promised() == BytesPerSec::mb(30))
            };
            given.iter().filter(|it| open(it)).count()
        };
        // A job that runs for an hour with what it was given at its start, for ten minutes.
        for _ in 0..12 {
            assert_eq!(opened(), 2);
            env::sleep(Nanos::secs(300)).await;
            let change = Change {
                until: Some(service.now().0 + 600),
                ..Change::default()
            };
            known = service.amend(known, change).await.unwrap();
        }
        let copy = world.copy_of(StoreNumber(3));
        world.put_back(StoreNumber(3), &copy).await;
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(opened(), 2);
        service.release(known, "done").await.unwrap();
        assert_eq!(opened(), 0);
    });
}

#[test]
fn what_is_over_is_forgotten_after_a_day() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        env::sleep(Nanos::secs(604)).await;
        let all = records(&service).await;
        assert_eq!(
            (all[0].state, all[0].cause.as_deref()),
            (Phase::Ended, Some("its time is out"))
        );
        assert_eq!(rates(&world), []);
        env::sleep(Nanos::secs(24 * 60 * 60 + 10)).await;
        assert_eq!(records(&service).await, []);
    });
}

#[test]
fn a_name_that_was_given_again_is_not_taken_away_by_the_one_before() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let (first, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        world.silent.borrow_mut().insert(StoreNumber(2));
        let over = service.release(first, "done").await.unwrap();
        assert_eq!(over.record.parts.len(), 1, "one store did not hear of it");
        world.silent.borrow_mut().clear();
        let (second, _) = service.create(of_vm1(&service, "vm", 10)).await.unwrap();
        let _tending = world.tend(&service);
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(service.find("astro", "vm").await.unwrap().id, second.id);
        assert_eq!(rates(&world), [(1, 10), (2, 10), (3, 10)]);
    });
}

#[test]
fn of_two_nodes_that_reserve_for_a_volume_at_once_one_does() {
    for seed in 0..20 {
        env::Runtime::simulated(seed).block_on(async move {
            let world = World::new().await;
            let (a, _, faults) = world.node("n1", FOREVER);
            let (b, _, other) = world.node("n2", FOREVER);
            for client in [&faults, &other] {
                client.set_faults(vdisk::meta::Faults {
                    delay_most: Nanos::millis(5),
                    ..vdisk::meta::Faults::default()
                });
            }
            let asking = |service: &std::rc::Rc<crate::Service>, name| {
                let (service, ask) = (std::rc::Rc::clone(service), of_vm1(service, name, 10));
                env::spawn(async move { service.create(ask).await })
            };
            let (first, second) = (asking(&a, "a"), asking(&b, "b"));
            let made = [first.await, second.await]
                .iter()
                .filter(|it| it.is_ok())
                .count();
            assert!(made <= 1, "seed {seed}: both were made");
            let standing = records(&a).await.into_iter().filter(|it| it.state.stands());
            assert_eq!(standing.count(), made, "seed {seed}");
        });
    }
}

#[test]
fn while_a_tolerated_store_is_down_a_reservation_is_renewed_all_the_same() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let (made, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        world.silent.borrow_mut().insert(StoreNumber(2));
        let is_up = |is_up| {
            let mut facts = world.facts.borrow_mut();
            facts.stores.get_mut(&StoreNumber(2)).unwrap().is_up = is_up;
        };
        is_up(false);
        let until = made.record.promise.until + 900;
        let longer = Change {
            until: Some(until),
            read: Some(30_000_000),
            ..Change::default()
        };
        let longer = service.amend(made, longer).await.unwrap();
        assert_eq!(longer.record.promise.until, until);
        assert_eq!(rates(&world), [(1, 30), (2, 40), (3, 30)]);
        env::sleep(Nanos::secs(5)).await;
        is_up(true);
        world.silent.borrow_mut().clear();
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(rates(&world), [(1, 30), (2, 30), (3, 30)]);
        assert!(
            world
                .parts()
                .iter()
                .all(|(_, it)| it.request.slot.end == Second(until))
        );
        world.agree(&records(&service).await).unwrap();
    });
}

#[test]
fn parts_that_a_store_lost_are_noticed_and_made_anew() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let (made, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        let part = made.record.parts[1];
        let (_, manager) = &world.stores()[1];
        manager.release(part.name(made.id)).await.unwrap();
        note_lost(&service, &world.own()).await.unwrap();
        let degraded = service.find("astro", "vm").await.unwrap().record;
        assert_eq!(degraded.state, Phase::Degraded);
        // A store may be lost.
        assert_eq!(promised_now(&degraded, &world.facts.borrow()).0, 40_000_000);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(rates(&world), [(1, 40), (2, 40), (3, 40)]);
        let whole = records(&service).await;
        assert_eq!(whole[0].state, Phase::Committed);
        world.agree(&whole).unwrap();
    });
}

#[test]
fn a_store_put_back_to_an_older_copy_gives_no_part_of_another_away() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let of = |name: &str, stores: &[&str]| {
            let mut ask = of_vm1(&service, name, 20);
            ask.target = TargetAsk::Stores {
                stores: stores.iter().map(|it| (*it).to_owned()).collect(),
                stripe: false,
                scope: format!("{name}/"),
            };
            ask
        };
        let older = world.copy_of(StoreNumber(2));
        let (first, _) = service.create(of("first", &["s1", "s2"])).await.unwrap();
        world.put_back(StoreNumber(2), &older).await;
        let (second, _) = service.create(of("second", &["s2"])).await.unwrap();
        assert_eq!(
            first.record.parts[1].number, second.record.parts[0].number,
            "the number was given twice"
        );
        let others = |world: &World| {
            let parts = world.parts().into_iter();
            let group = |it: &store::qos::manager::Reserved| it.group.as_ref().unwrap().id;
            let parts = parts.filter(|(_, it)| group(it) == second.id.0);
            parts.map(|(_, it)| it.request).collect::<Vec<_>>()
        };
        let before = others(&world);
        let capabilities = service.capabilities(&first).await.unwrap_err();
        assert!(
            matches!(capabilities, ReservationError::Refused { .. }),
            "{capabilities}"
        );
        let more = Change {
            read: Some(30_000_000),
            ..Change::default()
        };
        let first = service.amend(first, more).await.unwrap();
        assert_eq!(others(&world), before);
        world.agree(&records(&service).await).unwrap();
        // Once more, and given up as it stands in its record.
        world.put_back(StoreNumber(2), &older).await;
        let (third, _) = service.create(of("third", &["s2"])).await.unwrap();
        assert_eq!(third.record.parts[0].number, second.record.parts[0].number);
        service.release(second.clone(), "done").await.unwrap();
        service.release(first, "done").await.unwrap();
        assert_eq!(rates(&world), [(2, 20)]);
        let _tending = world.tend(&service);
        env::sleep(Nanos::secs(100)).await;
        world.agree(&records(&service).await).unwrap();
    });
}

fn of_stores(ask: crate::ask::Ask, stores: &[&str]) -> crate::ask::Ask {
    crate::ask::Ask {
        target: TargetAsk::Stores {
            stores: stores.iter().map(|it| (*it).to_owned()).collect(),
            stripe: false,
            scope: "job/".to_owned(),
        },
        ..ask
    }
}

#[test]
fn what_is_not_used_for_so_long_ends_by_itself() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let mut ask = of_vm1(&service, "vm", 40);
        ask.terms.idle = Some(60);
        ask.promise.from += 100;
        ask.promise.until += 1000;
        let (made, _) = service.create(ask).await.unwrap();
        assert_eq!(made.record.terms.idle, Some(60));
        let now = async || service.find("", &made.id.to_string()).await.unwrap().record;
        // It has not begun, then one store of three is asked for something now and then.
        env::sleep(Nanos::secs(120)).await;
        let session = world.stores()[1]
            .1
            .open_session(store::qos::session::Access::NodeKey)
            .unwrap();
        session.attach_reservations(Some("volume:7")).unwrap();
        for _ in 0..10 {
            use store::ObjectCalls as _;
            assert!(now().await.state.stands());
            let _ = session.read("v/1", 0, 1).await;
            env::sleep(Nanos::secs(45)).await;
        }
        // One that cannot be asked counts as in use.
        world.silent.borrow_mut().insert(StoreNumber(3));
        env::sleep(Nanos::secs(60)).await;
        assert!(now().await.state.stands());
        world.silent.borrow_mut().clear();
        env::sleep(Nanos::secs(5)).await;
        let over = now().await;
        let why = over.cause.as_deref();
        assert_eq!(
            (over.state, why),
            (Phase::Ended, Some("nothing of it was asked for 60 s"))
        );
        assert_eq!(rates(&world), []);
    });
}

#[test]
fn a_fast_clock_of_the_node_that_sweeps_ends_nothing_early() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (fast, ..) = world.node("n1", FOREVER);
        fast.clock_ahead.set(7200);
        let (other, ..) = world.node("n2", FOREVER);
        let _tending = world.tend(&fast);
        let begin = other.now();
        let (made, _) = other.create(of_vm1(&other, "vm", 40)).await.unwrap();
        let now = async || other.find("", &made.id.to_string()).await.unwrap().record;
        env::sleep(Nanos::secs(500)).await;
        assert_eq!(
            (now().await.state, rates(&world).len()),
            (Phase::Committed, 3)
        );
        let (more, _) = other
            .create(of_stores(of_vm1(&other, "job", 5), &["s1"]))
            .await
            .unwrap();
        env::sleep(Nanos::secs(more.record.promise.from + 104 - other.now().0)).await;
        assert_eq!(now().await.state, Phase::Ended, "600 s are over");
        assert!(other.now().0 - begin.0 < 610);
        let job = other.find("astro", "job").await.unwrap();
        assert_eq!(job.record.state, Phase::Committed);
    });
}

#[test]
fn an_export_is_reserved_for_at_its_node_and_by_its_record() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (elsewhere, ..) = world.node("n1", FOREVER);
        let (service, ..) = world.node("n2", FOREVER);
        let ask = |name: &str, mb, node: Option<&str>| {
            let mut ask = of_vm1(&service, name, mb);
            ask.target = TargetAsk::Export {
                name: "vol0".to_owned(),
                node: node.map(str::to_owned),
            };
            ask
        };
        for (service, node, said) in [
            (&elsewhere, None, "node n1 has no export vol0"),
            (&elsewhere, Some("n2"), "ask at node n2"),
            (&service, Some("n1"), "ask at node n1"),
        ] {
            let refused = service.create(ask("a", 10, node)).await.unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
        let (made, _) = service.create(ask("cold", 10, None)).await.unwrap();
        let target = Target::Export {
            node: "n2".to_owned(),
            name: "vol0".to_owned(),
        };
        assert_eq!(
            (&made.record.target, rates(&world)),
            (&target, vec![(u16::MAX, 10)])
        );
        assert_eq!(world.parts()[0].1.request.holder, "export:vol0");
        let beside = service.create(ask("second", 1, None)).await.unwrap_err();
        let said = format!("export vol0 of node n2 has the reservation {}", made.id);
        assert!(beside.to_string().contains(&said), "{beside}");
        let offer = service.quote(&ask("second", 1, None)).await.unwrap();
        assert_eq!(offer.earliest, Some(Second(made.record.promise.until)));
        assert_eq!(
            (offer.largest_permille, offer.longest_seconds),
            (None, None)
        );
        let too_much = service.create(crate::ask::Ask {
            promise: crate::record::Promise {
                from: made.record.promise.until,
                until: made.record.promise.until + 10,
                ..ask("third", 90, None).promise
            },
            ..ask("third", 90, None)
        });
        assert!(matches!(
            too_much.await,
            Err(ReservationError::Refused { .. })
        ));
        let more = Change {
            read: Some(20_000_000),
            ..Change::default()
        };
        let amended = service.amend(made, more).await.unwrap();
        assert_eq!(rates(&world), [(u16::MAX, 20)]);
        // Another node ends it by its record; its own node gives the part back.
        let over = elsewhere.release(amended, "released").await.unwrap();
        assert_eq!((over.record.state, rates(&world).len()), (Phase::Ended, 1));
        let _tending = world.tend(&service);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(rates(&world), []);
        assert_eq!(
            service
                .find("", &over.id.to_string())
                .await
                .unwrap()
                .record
                .parts,
            []
        );
        service.create(ask("cold", 10, None)).await.unwrap();
        world.agree(&records(&service).await).unwrap();
    });
}

#[test]
fn offline_capabilities_are_marked_at_each_store_and_stay_so() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let marks = |world: &World| -> Vec<bool> {
            let groups = world.parts().into_iter().filter_map(|(_, it)| it.group);
            groups
                .map(|it| it.stores.contains(&Group::OFFLINE))
                .collect()
        };
        let mut ask = of_vm1(&service, "far", 10);
        ask.terms.offline = true;
        let refused = service.create(ask.clone()).await.unwrap_err().to_string();
        assert!(
            refused.contains("only stores give capabilities"),
            "{refused}"
        );
        ask.promise.tolerate = 0;
        ask.target = TargetAsk::Stores {
            stores: vec!["s1".to_owned(), "s2".to_owned()],
            stripe: false,
            scope: "a/".to_owned(),
        };
        let (made, _) = service.create(ask).await.unwrap();
        assert_eq!(marks(&world), [true, true]);
        let more = Change {
            read: Some(20_000_000),
            ..Change::default()
        };
        service.amend(made, more).await.unwrap();
        assert_eq!(marks(&world), [true, true]);
    });
}

#[test]
fn what_was_judged_by_an_older_version_ends_no_newer_one() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let (older, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        let longer = Change {
            until: Some(older.record.promise.until + 900),
            ..Change::default()
        };
        let newer = service.amend(older.clone(), longer).await.unwrap();
        Endings(&service)
            .end_judged(&older, "its time is out")
            .await
            .unwrap();
        let now = service.find("astro", "vm").await.unwrap();
        assert_eq!(now.record, newer.record);
        world.agree(&records(&service).await).unwrap();
        // Its user means whatever there is.
        let over = service.release(older, "done").await.unwrap();
        assert_eq!(over.record.state, Phase::Ended);
        // And what was judged as it is does end.
        let (next, _) = service.create(of_vm1(&service, "vm", 40)).await.unwrap();
        Endings(&service)
            .end_judged(&next, "its time is out")
            .await
            .unwrap();
        assert_eq!(records(&service).await[0].state, Phase::Ended);
        assert_eq!(rates(&world), []);
    });
}

#[test]
fn a_lost_part_of_a_store_that_is_down_is_not_counted_as_there() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let _tending = world.tend(&service);
        let mut ask = of_stores(of_vm1(&service, "job", 20), &["s2"]);
        ask.terms.idle = Some(60);
        let (made, _) = service.create(ask).await.unwrap();
        let (_, manager) = &world.stores()[1];
        let part = made.record.parts[0];
        manager.release(part.name(made.id)).await.unwrap();
        note_lost(&service, &world.own()).await.unwrap();
        let is_up = |is_up| {
            let mut facts = world.facts.borrow_mut();
            facts.stores.get_mut(&StoreNumber(2)).unwrap().is_up = is_up;
        };
        is_up(false);
        env::sleep(Nanos::secs(100)).await;
        let now = service.find("astro", "job").await.unwrap().record;
        assert_eq!(
            (now.state, now.cause.as_deref()),
            (Phase::Degraded, Some("stores down: s2"))
        );
        assert_eq!(promised_now(&now, &world.facts.borrow()), (0, 0));
        is_up(true);
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(rates(&world), [(2, 20)]);
        let now = service.find("astro", "job").await.unwrap().record;
        assert_eq!(now.state, Phase::Committed);
    });
}

#[test]
fn an_export_that_is_gone_while_its_node_is_up_is_degraded() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n2", FOREVER);
        world.facts.borrow_mut().nodes = ["n2".to_owned()].into();
        let mut ask = of_vm1(&service, "cold", 10);
        ask.target = TargetAsk::Export {
            name: "vol0".to_owned(),
            node: None,
        };
        service.create(ask).await.unwrap();
        let _tending = world.tend(&service);
        let state = async || service.find("astro", "cold").await.unwrap().record.state;
        for (has, wanted) in [(false, Phase::Degraded), (true, Phase::Committed)] {
            world.has_export.set(has);
            env::sleep(Nanos::secs(7)).await;
            assert_eq!(state().await, wanted);
        }
    });
}

#[test]
fn what_another_node_makes_is_not_aborted_by_a_fast_clock() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        // Far enough to hold at stores, not to commit.
        let (slow, ..) = world.node("n1", 13);
        let task = env::spawn(async move {
            let ask = of_vm1(&slow, "vm", 40);
            let _ = slow.create(ask).await;
        });
        let (fast, ..) = world.node("n2", FOREVER);
        fast.clock_ahead.set(20);
        let _tending = world.tend(&fast);
        env::sleep(Nanos::secs(15)).await;
        let state = async || records(&fast).await[0].state;
        assert_ne!(world.parts().len(), 0);
        assert_eq!(state().await, Phase::Holding);
        env::sleep(Nanos::secs(25)).await;
        assert_eq!((state().await, world.parts().len()), (Phase::Aborted, 0));
        task.cancel();
    });
}
