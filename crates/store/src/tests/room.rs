//! Room and order: what is full says so, what is promised stays, a late client gets an error; memory and commits are
//! bounded.

use std::rc::Rc;

use base::{Bytes, View};
use device::{Class, Crash, Memory};

use super::{pattern, small, small_size, sums_hold};
use crate::{
    AllocatedRange, Change, Condition, ReservationId, Settings, Store, StoreError, Version, check,
};

const CREATE: Change = Change {
    create: true,
    ..Change::FUA
};

async fn store(units: u64) -> (Rc<Memory>, Store) {
    let disk = Memory::new("disk", small_size(units));
    let store = Store::format(disk.clone(), small()).await.unwrap();
    (disk, store)
}

#[test]
fn a_full_store_says_so_overwrites_go_on_and_a_delete_makes_room() {
    env::Runtime::simulated(1).block_on(async {
        let (_, store) = store(4).await;
        let mut number = 0;
        let refused = loop {
            let data = pattern(number, 16_384);
            let answer = store.write(&format!("{number:03}"), 0, data, CREATE).await;
            sums_hold(&store);
            match answer {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(number, 15, "63 of 64 pages, one is spare");
        assert_eq!(
            refused.to_string(),
            "no room in small for 16.0 KiB more: 12.0 KiB of 256.0 KiB is neither used nor promised; \
             delete objects or release a reservation"
        );
        for at in 0..40_u64 {
            let name = format!("{:03}", at % 15);
            let data = pattern(at, 4_096);
            store
                .write(&name, at % 4 * 4096, data, Change::default())
                .await
                .unwrap();
            sums_hold(&store);
        }
        store.delete("003", Change::default()).await.unwrap();
        store
            .write("new", 0, pattern(1, 16_384), CREATE)
            .await
            .unwrap();
        assert!(store.read("003", 0, 1, Class::Foreground).await.is_err());
    });
}

#[test]
fn reserved_room_is_nobody_elses_and_comes_back() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, store) = store(4).await;
        let id = store.reserve(Bytes::kib(200)).await.unwrap();
        let refused = store.write("other", 0, pattern(1, 65_000), CREATE).await;
        assert!(
            matches!(refused, Err(StoreError::NoSpace { .. })),
            "{refused:?}"
        );
        let more = store.reserve(Bytes::kib(100)).await;
        assert!(matches!(more, Err(StoreError::NoSpace { .. })), "{more:?}");
        let own = Change {
            reservation: Some(id),
            ..CREATE
        };
        store
            .write("own", 0, pattern(1, 65_536), own)
            .await
            .unwrap();
        assert_eq!(store.space().reserved, Bytes::kib(136));
        sums_hold(&store);
        // What is left and what is used are as durable as the data.
        drop(store);
        let store = Store::open(disk).await.unwrap();
        assert_eq!(store.space().reserved, Bytes::kib(136));
        assert_eq!(store.space().used, Bytes::kib(64));
        let refused = store.write("own", 65_536, pattern(1, 150_000), own).await;
        assert!(
            refused
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("has 136.0 KiB left, 148.0 KiB are needed"),
            "{refused:?}"
        );
        store.release(id).await.unwrap();
        assert_eq!(store.space().reserved, Bytes(0));
        store
            .write("other", 0, pattern(1, 65_000), CREATE)
            .await
            .unwrap();
        let gone = store.write("own", 0, pattern(1, 1), own).await;
        assert!(
            matches!(gone, Err(StoreError::NoReservation { .. })),
            "{gone:?}"
        );
        let unknown = store.release(ReservationId(1)).await;
        assert!(
            matches!(unknown, Err(StoreError::NoReservation { .. })),
            "{unknown:?}"
        );
    });
}

#[test]
fn of_two_who_compare_with_one_generation_one_changes_it() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        disk.set_delay(base::Nanos(1_000), base::Nanos(90_000));
        let store = Store::format(disk, small()).await.unwrap();
        let mut seen = store
            .write("a", 0, pattern(0, 9_000), CREATE)
            .await
            .unwrap();
        for round in 0..50_u64 {
            let tasks: Vec<_> = (0..4_u64)
                .map(|who| {
                    let store = store.clone();
                    let change = Change::default().only_if(Condition::Version(seen));
                    // In different pages, so that no lock orders them.
                    env::spawn(async move {
                        store
                            .write("a", who * 8192, pattern(who + round, 100), change)
                            .await
                    })
                })
                .collect();
            let mut winners = Vec::new();
            for task in tasks {
                match task.await {
                    Ok(version) => winners.push(version),
                    Err(StoreError::Condition { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(winners.len(), 1, "round {round}");
            assert!(winners[0] > seen);
            seen = winners[0];
        }
    });
}

#[test]
fn an_owner_that_was_replaced_changes_nothing_any_more() {
    env::Runtime::simulated(1).block_on(async {
        let (_, store) = store(8).await;
        let owner = |epoch| Change {
            condition: Condition::StampAtMost(epoch),
            stamp: Some(epoch),
            create: true,
            ..Change::default()
        };
        store
            .write("extent", 0, pattern(1, 4_096), owner(3))
            .await
            .unwrap();
        store
            .write("extent", 0, pattern(2, 4_096), owner(4))
            .await
            .unwrap();
        let late = store
            .write("extent", 0, pattern(3, 4_096), owner(3))
            .await
            .unwrap_err();
        let message = late.to_string();
        assert!(
            message.contains("only if its mark is at most 3") && message.contains("with mark 4"),
            "{message}"
        );
        assert_eq!(store.stat("extent").unwrap().stamp, 4);
        let none = store.delete("extent", owner(3)).await;
        assert!(matches!(none, Err(StoreError::Condition { .. })));
        let absent = Change::default()
            .creating()
            .only_if(Condition::Version(Version(0)));
        store
            .write("fresh", 0, pattern(1, 10), absent)
            .await
            .unwrap();
        let again = store.write("fresh", 0, pattern(1, 10), absent).await;
        assert!(
            matches!(again, Err(StoreError::Condition { .. })),
            "create only if absent"
        );
    });
}

#[test]
fn no_generation_comes_twice_whatever_a_crash_takes_back() {
    env::Runtime::simulated(1).block_on(async {
        let mut disk = Crash::new("disk", small_size(8), env::rng("disk"));
        drop(Store::format(disk.clone(), small()).await.unwrap());
        let mut last = Version(0);
        for _ in 0..5 {
            let store = Store::open(disk.clone()).await.unwrap();
            for _ in 0..3 {
                // Not flushed: the crash may take them back.
                let given = store
                    .write("a", 0, pattern(1, 10), Change::default().creating())
                    .await;
                let given = given.unwrap();
                assert!(given > last);
                last = given;
            }
            store.inner.stop();
            disk = disk.restart(env::rng("restart"));
        }
    });
}

#[test]
fn extents_tell_data_from_holes_and_what_changed_since() {
    env::Runtime::simulated(1).block_on(async {
        let (_, store) = store(16).await;
        let segment = 32 * 4096;
        let first = store
            .write("a", 2 * segment, pattern(1, 8_192), CREATE)
            .await
            .unwrap();
        let second = store
            .write("a", 0, pattern(1, 4_096), CREATE)
            .await
            .unwrap();
        let born = store.stat("a").unwrap().born;
        let range = |offset, len, data, version| AllocatedRange {
            offset,
            len,
            data,
            version,
        };
        let all = store.allocated_ranges("a", 0, u64::MAX).unwrap();
        let expected = [
            range(0, 4_096, true, second),
            range(4_096, segment - 4_096, false, second),
            range(segment, segment, false, born),
            range(2 * segment, 8_192, true, first),
        ];
        assert_eq!(all, expected);
        assert_eq!(
            store.allocated_ranges("a", 100, 200).unwrap(),
            [range(100, 200, true, second)]
        );
        let third = store
            .punch("a", 2 * segment, 4_096, Change::default())
            .await
            .unwrap();
        let all = store.allocated_ranges("a", 2 * segment, segment).unwrap();
        assert_eq!(all[0], range(2 * segment, 4_096, false, third));
        // Cut off and grown again: a hole since then.
        let fourth = store
            .truncate("a", 10_000, Change::default())
            .await
            .unwrap();
        store
            .truncate("a", 3 * segment, Change::default())
            .await
            .unwrap();
        let all = store.allocated_ranges("a", segment, segment).unwrap();
        assert_eq!(all, [range(segment, segment, false, fourth)]);
    });
}

#[test]
fn one_commit_carries_many_flushes_and_a_whole_write_is_one_device_write() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", Bytes::mib(64), env::rng("disk"));
        disk.set_delay(base::Nanos(50_000), base::Nanos(50_000));
        let store = Store::format(disk, Settings::default()).await.unwrap();
        let tasks: Vec<_> = (0..64_u64)
            .map(|number| {
                let store = store.clone();
                env::spawn(async move {
                    store
                        .write(&format!("{number}"), 0, pattern(1, 4_096), CREATE)
                        .await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let figures = store.figures();
        assert!(
            figures.commits <= 3,
            "{} commits for 64 durable writes",
            figures.commits
        );
        store
            .write("long", 0, pattern(1, 1 << 20), CREATE)
            .await
            .unwrap();
        let after = store.figures();
        assert_eq!(after.device_writes - figures.device_writes, 1);
        assert_eq!(
            after.device_bytes_written - figures.device_bytes_written,
            1 << 20
        );
        // And it lies in one unit, and is read in one piece.
        let (_, object) = {
            let table = store.inner.table.borrow();
            let (id, object) = table.find("long").unwrap();
            (id, object.clone())
        };
        assert_eq!(object.entry(0).unwrap().place % 256, 0);
        assert_eq!(
            object.entry(255).unwrap().place,
            object.entry(0).unwrap().place + 255
        );
    });
}

#[test]
fn appends_of_two_objects_do_not_mix_and_short_ones_share_a_unit() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", Bytes::mib(64));
        let store = Store::format(disk, Settings::default()).await.unwrap();
        for at in 0..24_u64 {
            for name in ["x", "y"] {
                let data = pattern(at, 256 << 10);
                store
                    .write(name, at * (256 << 10), data, CREATE)
                    .await
                    .unwrap();
            }
        }
        let runs = |name: &str| {
            let table = store.inner.table.borrow();
            let entries = table.find(name).unwrap().1.entries(0, 24 * 64);
            let places: Vec<u32> = entries.iter().map(|entry| entry.unwrap().place).collect();
            places.windows(2).filter(|two| two[1] != two[0] + 1).count() + 1
        };
        assert!(
            runs("x") <= 9 && runs("y") <= 9,
            "{} and {} runs of 6 MiB",
            runs("x"),
            runs("y")
        );
        let before = store.space();
        for number in 0..200_u64 {
            store
                .write(&format!("s{number}"), 0, pattern(number, 3_000), CREATE)
                .await
                .unwrap();
        }
        let after = store.space();
        assert!(
            before.units_free - after.units_free <= 1,
            "200 small objects share units"
        );
    });
}

#[test]
fn a_large_object_is_deleted_and_cut_in_steps_and_its_room_comes_back() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", Bytes::mib(160));
        let settings = Settings {
            ledger: Some(Bytes::kib(600)),
            ..Settings::default()
        };
        let store = Store::format(disk.clone(), settings).await.unwrap();
        let zeroes = View::copy_of(&[0; 4096]);
        // One page in each segment: 600 segments, more than one step takes.
        for segment in 0..600_u64 {
            for name in ["gone", "cut"] {
                let change = Change::default().creating();
                store
                    .write(name, segment * (128 << 10), zeroes.clone(), change)
                    .await
                    .unwrap();
            }
        }
        let full = store.space();
        assert_eq!(full.used, Bytes(1200 * 4096));
        store.delete("gone", Change::FUA).await.unwrap();
        assert_eq!(store.list("", None, 9).objects.len(), 1);
        store.truncate("cut", 1_000, Change::FUA).await.unwrap();
        store.punch("cut", 0, 2_000, Change::FUA).await.unwrap();
        env::sleep(base::Nanos::secs(3)).await;
        store.flush().await.unwrap();
        assert_eq!(store.space().used, Bytes(0));
        assert_eq!(store.stat("cut").unwrap().size, 1_000);
        store.close().await.unwrap();
        let report = check(disk, true).await.unwrap();
        assert!(report.is_clean() && report.deleting == 0, "{report:?}");
    });
}

#[test]
fn a_table_that_is_full_says_so_and_the_store_lives_on() {
    env::Runtime::simulated(1).block_on(async {
        let (disk, store) = store(60).await;
        let name = |number: u64| format!("{number:0>900}");
        let mut number = 0;
        let refused = loop {
            match store.create(&name(number), &[], Change::default()).await {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StoreError::TableFull { .. }), "{refused}");
        assert!(number > 80, "{number} objects");
        store.flush().await.unwrap();
        for round in 0..300_u64 {
            store
                .delete(&name(round % number), Change::default())
                .await
                .unwrap();
            store
                .create(&name(round % number), &[], Change::default())
                .await
                .unwrap();
        }
        store.close().await.unwrap();
        let store = Store::open(disk).await.unwrap();
        assert_eq!(store.list("", None, 10_000).objects.len() as u64, number);
    });
}

#[test]
fn tables_take_six_bytes_of_memory_a_page_and_a_few_hundred_an_object() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", Bytes::mib(256));
        let store = Store::format(disk, Settings::default()).await.unwrap();
        let empty = store.memory().0;
        let units = store.space().units;
        assert!(
            empty <= units * (256 / 8 + 3) + 200,
            "{empty} bytes for {units} units"
        );
        for at in 0..100_u64 {
            let data = pattern(1, 1 << 20);
            store
                .write("long", at << 20, data, Change::default().creating())
                .await
                .unwrap();
        }
        store.flush().await.unwrap();
        let pages = 100 * 256;
        let per_page = (store.memory().0 - empty) as f64 / f64::from(pages);
        println!("{per_page:.2} bytes of memory a page in a row");
        assert!(per_page < 6.5, "{per_page}");
        let before = store.memory().0;
        for number in 0..1000 {
            store
                .create(&format!("object {number}"), &[], Change::default())
                .await
                .unwrap();
        }
        store.flush().await.unwrap();
        let per_object = (store.memory().0 - before) / 1000;
        println!("{per_object} bytes of memory an empty object");
        assert!(per_object < 400, "{per_object}");
    });
}

#[test]
fn what_no_store_can_do_is_refused_with_a_reason() {
    env::Runtime::simulated(1).block_on(async {
        let (_, store) = store(4).await;
        let long = "n".repeat(1_025);
        let why = |answer: Result<Version, StoreError>| answer.unwrap_err().to_string();
        let data = pattern(1, 10);
        assert!(why(store.write(&long, 0, data.clone(), CREATE).await).contains("at most 1024"));
        assert!(why(store.write("", 0, data.clone(), CREATE).await).contains("at least one byte"));
        assert!(why(store.write("a", 0, View::empty(), CREATE).await).contains("split it"));
        assert!(
            why(store.write("a", u64::MAX - 4, data.clone(), CREATE).await).contains("at most")
        );
        assert!(
            why(store.write("a", 0, data.clone(), Change::FUA).await)
                .contains("has no object \"a\"")
        );
        let most = store.write_max() as usize;
        assert!(why(store.write("a", 0, pattern(1, most + 1), CREATE).await).contains("split it"));
        let large = [("k", &[0_u8; 4_096][..])];
        assert!(why(store.create("a", &large, CREATE).await).contains("at most 4096"));
        store
            .create("a", &[("k", &[1; 4_000])], CREATE)
            .await
            .unwrap();
        assert!(why(store.create("a", &[], CREATE).await).contains("exists"));
        store.close().await.unwrap();
        assert!(why(store.write("a", 0, data, CREATE).await).contains("is closed"));
    });
}
