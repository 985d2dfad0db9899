//! What a ledger promises, one sentence at a time.

use std::rc::Rc;

use crate::common::*;
use base::crc::crc32c;
use base::{Bytes, Nanos, Sector, Span};
use device::Device;
use device::fault::{Done, Fault, Injury, Rule};
use device::{Op, crash::Crash, crash::Survival};
use env::Rng;
use ledger::{Batch, Identity, Ledger, LedgerError, Map, Record, VALUE_MAX};

#[test]
fn what_was_committed_is_there_after_a_reopen_and_what_was_not_is_gone() {
    run(async {
        let device = memory(64);
        let map = Map::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        map.put(1, b"one");
        map.put(2, &[7; VALUE_MAX]);
        map.put(3, b"");
        map.commit().await.unwrap();
        map.remove(1);
        map.put(2, b"two");
        map.commit().await.unwrap();
        map.put(4, b"staged, never committed");
        let (map, replay) = Map::open(device, region(64)).await.unwrap();
        let expected = Model::from([(2, b"two".to_vec()), (3, Vec::new())]);
        assert_eq!(contents(&map), expected);
        assert_eq!((replay.records, replay.batches), (5, 2));
        assert_eq!((replay.clean, replay.torn_tail), (false, false));
        assert_eq!(map.ledger().id(), identity().id);
        assert_eq!(map.ledger().payload(), b"payload");
    });
}

#[test]
fn replay_shows_changes_in_order() {
    run(async {
        let device = memory(64);
        let ledger = Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        let mut owner = Slots::default();
        let mut batch = Batch::new();
        owner.put(&mut batch, 9, b"a");
        owner.put(&mut batch, 9, b"b");
        owner.remove(&mut batch, 8);
        let prepared = ledger.prepare(batch, &mut owner);
        ledger.commit(prepared).await.unwrap();
        let mut seen = Vec::new();
        Ledger::open(device, region(64), |record| {
            seen.push(format!("{record:?}"))
        })
        .await
        .unwrap();
        let expected = [
            Record::Put {
                key: 9,
                value: b"a",
            },
            Record::Put {
                key: 9,
                value: b"b",
            },
            Record::Remove { key: 8 },
        ];
        assert_eq!(seen, expected.map(|record| format!("{record:?}")));
    });
}

#[test]
fn commits_that_wait_share_one_write() {
    run(async {
        let device = memory(256);
        device.set_latency(Nanos::micros(100));
        let map = Map::format(device.clone(), region(256), identity())
            .await
            .unwrap();
        map.put(1000, b"first");
        map.commit().await.unwrap(); // also takes the clean mark away
        let map = Rc::new(map);
        let before = map.ledger().figures();
        let mut tasks = Vec::new();
        for key in 0..100 {
            let map = Rc::clone(&map);
            tasks.push(env::spawn(async move {
                map.put(key, b"together");
                map.commit().await.unwrap();
            }));
            if key == 0 {
                env::sleep(Nanos::micros(1)).await;
            }
        }
        for task in tasks {
            task.await;
        }
        let after = map.ledger().figures();
        assert_eq!(after.batches - before.batches, 100);
        // The first is on its way when the others come; those 99 fit one block.
        assert_eq!(after.device_writes - before.device_writes, 2);
        assert_eq!(after.bytes_written - before.bytes_written, 2 * BLOCK);
        let (map, _) = Map::open(device, region(256)).await.unwrap();
        assert_eq!(map.len(), 101);
    });
}

#[test]
fn a_batch_waits_for_those_prepared_before_it() {
    run(async {
        let device = memory(64);
        let ledger = Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        let mut owner = Slots::default();
        let mut prepare = |key| {
            let mut batch = ledger.batch();
            owner.put(&mut batch, key, b"v");
            ledger.prepare(batch, &mut owner)
        };
        let (first, second) = (prepare(1), prepare(2));
        let late = ledger.clone();
        let second = env::spawn(async move { late.commit(second).await });
        env::sleep(Nanos::secs(1)).await;
        assert!(
            !second.is_done(),
            "durable before the one prepared before it"
        );
        ledger.commit(first).await.unwrap();
        second.await.unwrap();
        assert_eq!(
            open_slots(device, region(64))
                .await
                .unwrap()
                .1
                .model()
                .len(),
            2
        );
    });
}

#[test]
fn a_dropped_batch_fails_the_ledger_instead_of_leaving_a_hole() {
    run(async {
        let device = memory(64);
        let ledger = Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        let mut owner = Slots::default();
        let mut prepare = |key| {
            let mut batch = ledger.batch();
            owner.put(&mut batch, key, b"v");
            ledger.prepare(batch, &mut owner)
        };
        let (first, dropped, last) = (prepare(1), prepare(2), prepare(3));
        drop(dropped);
        ledger.commit(first).await.unwrap();
        let refused = ledger.commit(last).await.unwrap_err();
        let cause = Box::new(LedgerError::Dropped);
        assert_eq!(refused, LedgerError::Failed { first: cause });
        let kept = open_slots(device, region(64)).await.unwrap().1.model();
        assert_eq!(kept.keys().copied().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn a_cancelled_commit_is_written_all_the_same_and_holds_up_nobody() {
    run(async {
        let device = memory(64);
        device.set_latency(Nanos::millis(1));
        let map = Rc::new(
            Map::format(device.clone(), region(64), identity())
                .await
                .unwrap(),
        );
        map.put(1, b"v");
        let other = Rc::clone(&map);
        let task = env::spawn(async move { other.commit().await });
        env::yield_now().await;
        task.cancel();
        map.put(2, b"v");
        map.commit().await.unwrap();
        assert_eq!(Map::open(device, region(64)).await.unwrap().0.len(), 2);
    });
}

#[test]
fn after_a_failed_commit_nothing_more_is_taken_until_a_reopen() {
    run(async {
        let fault = Fault::new(memory(64), Rng::from_seed(1));
        let map = Map::format(fault.clone(), region(64), identity())
            .await
            .unwrap();
        map.put(1, b"before");
        map.commit().await.unwrap();
        fault.book().add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[Op::Write])
                .once(),
        );
        map.put(2, b"fails");
        let first = map.commit().await.unwrap_err();
        assert!(matches!(first, LedgerError::Device { .. }), "{first}");
        let sentence = first.to_string();
        assert!(
            sentence.starts_with("cannot write a batch of the ledger in sectors"),
            "{sentence}"
        );
        map.put(3, b"refused");
        let failed = LedgerError::Failed {
            first: Box::new(first),
        };
        assert_eq!(map.commit().await.unwrap_err(), failed);
        assert_eq!(map.ledger().set_payload(b"x").await.unwrap_err(), failed);
        assert_eq!(map.ledger().close().await.unwrap_err(), failed);
        let model = Model::from([(1, b"before".to_vec())]);
        let (map, _) = expect(fault.clone(), region(64), &model).await;
        map.put(2, b"works");
        map.commit().await.unwrap();
    });
}

#[test]
fn a_clean_close_is_seen_until_the_next_commit() {
    run(async {
        let device = memory(64);
        let map = Map::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        map.put(1, b"v");
        map.commit().await.unwrap();
        map.ledger().close().await.unwrap();
        assert_eq!(
            map.ledger().set_payload(b"x").await,
            Err(LedgerError::Closed)
        );
        map.put(2, b"v");
        assert_eq!(map.commit().await, Err(LedgerError::Closed));
        let (map, replay) = Map::open(device.clone(), region(64)).await.unwrap();
        assert!(replay.clean);
        map.put(3, b"v");
        map.commit().await.unwrap();
        let (map, replay) = Map::open(device, region(64)).await.unwrap();
        assert!(!replay.clean);
        assert_eq!(map.len(), 2);
    });
}

#[test]
fn close_refuses_while_something_is_prepared() {
    run(async {
        let ledger = Ledger::format(memory(64), region(64), identity())
            .await
            .unwrap();
        let prepared = ledger.prepare(Batch::new(), &mut Slots::default());
        assert_eq!(
            ledger.close().await,
            Err(LedgerError::Unfinished { prepared: 1 })
        );
        ledger.commit(prepared).await.unwrap();
        assert_eq!(ledger.close().await, Ok(()));
    });
}

#[test]
fn a_payload_is_replaced_and_one_too_long_is_refused() {
    run(async {
        let device = memory(64);
        let ledger = Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        ledger.set_payload(&[5; 2048]).await.unwrap();
        let refused = ledger.set_payload(&[5; 2049]).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a payload of 2.0 KiB does not fit a ledger's superblock, which holds 2.0 KiB"
                .replacen("2.0 KiB", &Bytes(2049).to_string(), 1)
        );
        let (ledger, _) = Ledger::open(device, region(64), |_| {}).await.unwrap();
        assert_eq!(ledger.payload(), [5; 2048]);
    });
}

#[test]
fn a_region_that_cannot_hold_a_ledger_is_refused() {
    run(async {
        let device = memory(64);
        for (span, why) in [
            (Span::bytes(512, 64 * BLOCK), "multiples of 4 KiB"),
            (Span::bytes(0, 64 * BLOCK + 512), "multiples of 4 KiB"),
            (Span::bytes(0, 9 * BLOCK), "at least 40.0 KiB"),
            (Span::bytes(1 << 20, 100 * BLOCK), "the device holds"),
            (Span::bytes(u64::MAX - 4095, 64 * BLOCK), "the device holds"),
        ] {
            let format = Ledger::format(device.clone(), span, identity())
                .await
                .err()
                .unwrap();
            let open = Ledger::open(device.clone(), span, |_| {})
                .await
                .err()
                .unwrap();
            assert_eq!(format, open);
            assert!(format.to_string().contains(why), "{format}");
        }
    });
}

#[test]
fn a_region_of_another_size_than_formatted_is_refused() {
    run(async {
        let device = memory(64);
        Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        let refused = Ledger::open(device, region(60), |_| {})
            .await
            .err()
            .unwrap();
        assert!(
            refused.to_string().contains("was formatted with 264.0 KiB"),
            "{refused}"
        );
    });
}

#[test]
fn no_superblock_is_a_clear_error_and_one_is_enough() {
    run(async {
        let device = memory(64);
        let refused = Ledger::open(device.clone(), region(64), |_| {})
            .await
            .err()
            .unwrap();
        assert!(
            refused
                .to_string()
                .contains("superblock A has no magic, superblock B has no magic"),
            "{refused}"
        );
        let map = Map::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        map.put(1, b"v");
        map.commit().await.unwrap();
        let model = contents(&map);
        let superblocks = Span::new(region(64).start, Bytes(2 * BLOCK));
        let whole = device.contents(superblocks);
        for slot in 0..2 {
            let at = slot * BLOCK as usize;
            let mut bad = whole.clone();
            bad[at..at + 512].fill(0xee);
            device.load(superblocks.start, &bad);
            expect(device.clone(), region(64), &model).await;
        }
        let mut bad = whole.clone();
        bad[100] ^= 1;
        bad[BLOCK as usize + 100] ^= 1;
        device.load(superblocks.start, &bad);
        let refused = Ledger::open(device.clone(), region(64), |_| {})
            .await
            .err()
            .unwrap();
        assert!(
            refused
                .to_string()
                .contains("superblock A has a wrong checksum, superblock B has a wrong"),
            "{refused}"
        );
        Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        Ledger::wipe(device.clone(), region(64)).await.unwrap();
        let refused = Ledger::open(device, region(64), |_| {})
            .await
            .err()
            .unwrap();
        assert!(matches!(refused, LedgerError::NoLedger { .. }), "{refused}");
    });
}

#[test]
fn an_unknown_version_is_refused_and_never_overwritten() {
    run(async {
        let device = memory(64);
        Ledger::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        let superblocks = Span::new(region(64).start, Bytes(2 * BLOCK));
        // One slot from the future is enough, in either place.
        for slot in 0..2 {
            let original = device.contents(superblocks);
            let mut bytes = original.clone();
            let block = &mut bytes[slot * BLOCK as usize..(slot + 1) * BLOCK as usize];
            block[8] = 3;
            block[12..16].fill(0);
            let crc = crc32c(block).to_le_bytes();
            block[12..16].copy_from_slice(&crc);
            device.load(superblocks.start, &bytes);
            let open = Ledger::open(device.clone(), region(64), |_| {})
                .await
                .err()
                .unwrap();
            let salvage = Ledger::open_salvage(device.clone(), region(64), |_| {})
                .await
                .err()
                .unwrap();
            let format = Ledger::format(device.clone(), region(64), identity())
                .await
                .err()
                .unwrap();
            assert!(
                matches!(
                    open,
                    LedgerError::Version {
                        found: 3,
                        known: 2,
                        ..
                    }
                ),
                "{open}"
            );
            assert_eq!((&open, &open), (&salvage, &format));
            assert_eq!(device.contents(superblocks), bytes);
            device.load(superblocks.start, &original);
        }
    });
}

#[test]
fn batches_of_an_earlier_format_never_count() {
    // The same seed each time: even then the generations differ.
    let device = memory(64);
    for round in 0..5u64 {
        let device = device.clone();
        run(async move {
            let map = Map::format(device.clone(), region(64), identity())
                .await
                .unwrap();
            let map_after = Map::open(device.clone(), region(64)).await.unwrap().0;
            assert_eq!(map_after.len(), 0, "round {round}");
            for key in 0..10 - round {
                map.put(key, &[round as u8; 500]);
                map.commit().await.unwrap();
            }
        });
    }
}

#[test]
fn more_live_records_than_the_region_holds_are_refused_with_numbers() {
    run(async {
        let device = memory(16);
        let map = Map::format(device.clone(), region(16), identity())
            .await
            .unwrap();
        let mut model = Model::new();
        let refused = loop {
            let key = model.len() as u64;
            map.put(key, &[1; 1000]);
            match map.commit().await {
                Ok(()) => model.insert(key, vec![1; 1000]),
                Err(refused) => break refused,
            };
        };
        assert!(matches!(refused, LedgerError::Full { .. }), "{refused}");
        assert!(
            refused.to_string().contains("of 64.0 KiB are free"),
            "{refused}"
        );
        // Half of the log's 16 blocks hold 32 such records, less what headers and the cut of blocks take.
        assert!((26..=32).contains(&model.len()), "{} records", model.len());
        expect(device, region(16), &model).await;
    });
}

#[test]
fn what_a_killed_process_left_in_the_device_cache_is_made_durable_first() {
    run(async {
        let crash = Crash::new("crash", Bytes::mib(2), Rng::from_seed(5));
        crash.set_survival(Survival::Nothing);
        let map = Map::format(crash.clone(), region(64), identity())
            .await
            .unwrap();
        map.put(1, b"v");
        map.commit().await.unwrap();
        // The write has reached the device's cache when the process is killed, before FUA was answered.
        crash.lie_about_fua(true);
        map.put(2, b"v");
        map.commit().await.unwrap();
        crash.lie_about_fua(false);
        let (map, _) = Map::open(crash.clone(), region(64)).await.unwrap();
        assert_eq!(map.len(), 2);
        map.put(3, b"v");
        map.commit().await.unwrap();
        let device = crash.restart(Rng::from_seed(6));
        let (map, _) = Map::open(device, region(64)).await.unwrap();
        assert_eq!(map.len(), 3);
    });
}

#[test]
fn a_device_that_takes_little_at_once_gets_a_batch_in_pieces() {
    struct Small(Rc<device::Memory>);
    impl Device for Small {
        fn info(&self) -> device::Info {
            let max_io = Bytes(2 * BLOCK);
            device::Info {
                max_io,
                ..self.0.info()
            }
        }
        fn read(
            &self,
            at: Sector,
            buf: base::Buf,
            class: device::Class,
        ) -> device::Pending<'_, base::Buf> {
            assert!(buf.len() as u64 <= 2 * BLOCK);
            self.0.read(at, buf, class)
        }
        fn write(
            &self,
            at: Sector,
            data: base::View,
            flags: device::WriteFlags,
        ) -> device::Pending<'_, ()> {
            assert!(data.len() as u64 <= 2 * BLOCK && flags.fua);
            self.0.write(at, data, flags)
        }
        fn flush(&self) -> device::Pending<'_, ()> {
            self.0.flush()
        }
        fn discard(&self, span: Span) -> device::Pending<'_, ()> {
            self.0.discard(span)
        }
        fn write_zeroes(&self, span: Span, flags: device::WriteFlags) -> device::Pending<'_, ()> {
            self.0.write_zeroes(span, flags)
        }
    }
    run(async {
        let device: Rc<dyn Device> = Rc::new(Small(memory(64)));
        let map = Map::format(Rc::clone(&device), region(64), identity())
            .await
            .unwrap();
        for round in 0..50u8 {
            for key in 0..24 {
                map.put(key, &[round; 1000]);
            }
            map.commit().await.unwrap();
        }
        let model = contents(&map);
        expect(device, region(64), &model).await;
    });
}

#[test]
fn an_empty_identity_is_fine_and_a_second_handle_sees_the_same_ledger() {
    run(async {
        let ledger = Ledger::format(memory(64), region(64), Identity::default())
            .await
            .unwrap();
        let other = ledger.clone();
        let prepared = other.prepare(Batch::new(), &mut Slots::default());
        ledger.commit(prepared).await.unwrap();
        assert_eq!(other.figures().sequence, 1);
        assert_eq!(other.figures().log_used, BLOCK);
        assert_eq!(other.figures().log_size, 64 * BLOCK);
        assert!(ledger.payload().is_empty());
    });
}
