//! Making, opening, detaching, resizing: the slow device keeps its contents, and pairs that do not belong
//! together are refused in words that help.

use std::rc::Rc;

use base::{Bytes, Nanos, PAGE, Sector, Span};
use device::{Device, DeviceExt, Memory};
use hybrid::{Health, Hybrid, OpenError, Settings, Ties, WriteMode};
use policy::cache::Kind;

use crate::common::*;

async fn open(slow: &Rc<Memory>, fast: &Rc<Memory>) -> Result<Hybrid, OpenError> {
    Hybrid::open(keep_all(), slow.clone(), fast.clone(), Ties::default()).await
}

/// The sentence of a refusal.
fn refused(answer: Result<Hybrid, OpenError>) -> String {
    match answer {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_was_on_the_slow_device_is_there_and_is_not_touched() {
    for write in WriteMode::ALL {
        run(1, async move {
            let (slow, fast) = devices();
            let before = noise(7, SLOW);
            let disk = make(writing(write), slow.clone(), fast.clone()).await;
            assert!(everything(&disk).await == before, "{write}: first reads");
            assert!(everything(&disk).await == before, "{write}: second reads");
            env::sleep(Nanos::secs(60)).await;
            disk.close().await.unwrap();
            let left = slow.contents(Span::bytes(0, SLOW.0));
            assert!(
                left == before,
                "{write}: attaching and reading wrote nothing"
            );
        });
    }
}

#[test]
fn after_a_detach_the_slow_device_is_a_plain_complete_disk() {
    run(2, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        let mut expected = noise(7, SLOW);
        for (number, first) in [0, 5, 1023, 1024, 2000, 3583].into_iter().enumerate() {
            let span = pages(first, 1);
            put(&disk, span, number as u8).await;
            expected[span.start.byte() as usize..span.end().byte() as usize].fill(number as u8);
        }
        // Some sectors of a page, and the incomplete page at the end.
        for span in [
            Span::bytes(9 * 4096 + 512, 1024),
            Span::bytes(SLOW.0 - 1024, 1024),
        ] {
            put(&disk, span, 0xee).await;
            expected[span.start.byte() as usize..span.end().byte() as usize].fill(0xee);
        }
        disk.flush().await.unwrap();
        assert!(disk.status().occupancy.dirty_bytes > 0);
        disk.detach().await.unwrap();
        assert!(slow.contents(Span::bytes(0, SLOW.0)) == expected);
        let status = disk.status();
        assert_eq!(status.health, Health::PassThrough);
        assert_eq!(status.why, "the fast device was detached");
        // It stays in use, without the fast device.
        put(&disk, pages(5, 2), 0x44).await;
        assert!(slow.contents(pages(5, 2)).iter().all(|byte| *byte == 0x44));
        disk.attach(fast, Ties::default()).await.unwrap();
        assert_eq!(disk.status().health, Health::Healthy);
        assert!(reads_as(&disk, pages(5, 2), 0x44).await);
    });
}

#[test]
fn a_detached_cache_is_not_opened_again() {
    run(3, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(1, 1), 1).await;
        disk.detach().await.unwrap();
        disk.close().await.unwrap();
        let said = refused(open(&slow, &fast).await);
        assert_eq!(
            said,
            "cannot open ssd0 as a cache: the cache on it was detached or given up; create one on it instead"
        );
        let disk = Hybrid::open_or_create(keep_all(), slow, fast, Ties::default()).await;
        assert_eq!(
            disk.unwrap().status().occupancy.cached_bytes,
            0,
            "an empty one is made"
        );
    });
}

#[test]
fn a_device_with_other_data_is_no_cache_unless_forced() {
    run(4, async {
        let (slow, fast) = devices();
        fast.load(Sector(0), &noise(3, Bytes::kib(64)));
        let before = fast.contents(Span::bytes(0, FAST.0));
        for answer in [
            open(&slow, &fast).await,
            Hybrid::create(keep_all(), slow.clone(), fast.clone(), Ties::default()).await,
            Hybrid::open_or_create(keep_all(), slow.clone(), fast.clone(), Ties::default()).await,
        ] {
            assert_eq!(
                refused(answer),
                "cannot use ssd0 as a cache: it holds data that are not a cache of ours; choose another \
                 device, or wipe its first MiB if they are not needed"
            );
        }
        assert!(
            fast.contents(Span::bytes(0, FAST.0)) == before,
            "nothing was written"
        );
        let forced = Ties {
            force: true,
            ..Ties::default()
        };
        let disk = Hybrid::open_or_create(keep_all(), slow, fast, forced)
            .await
            .unwrap();
        assert_eq!(disk.status().health, Health::Healthy);
    });
}

#[test]
fn a_blank_device_is_no_cache_to_open() {
    run(4, async {
        let (slow, fast) = devices();
        let said = refused(open(&slow, &fast).await);
        assert_eq!(
            said,
            "cannot open ssd0 as a cache: it is blank; create one on it instead"
        );
    });
}

#[test]
fn a_cache_of_another_disk_is_refused_by_size_and_by_contents() {
    run(5, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(100, 10), 9).await;
        disk.close().await.unwrap();

        let bigger = Memory::new("hdd1", SLOW + Bytes::mib(4));
        let said = refused(open(&bigger, &fast).await);
        assert!(
            said.starts_with("ssd0 is the cache of a slow device of ") && said.contains("hdd1 has"),
            "{said}"
        );

        let other = Memory::new("hdd2", SLOW);
        other.load(Sector(0), &noise(8, SLOW));
        let said = refused(open(&other, &fast).await);
        assert!(
            said.starts_with("ssd0 is not the cache of hdd2, or hdd2 was changed without it: "),
            "{said}"
        );
        // The right one still fits: the refusals wrote nothing.
        let disk = open(&slow, &fast).await.unwrap();
        assert!(reads_as(&disk, pages(100, 10), 9).await);
    });
}

#[test]
fn a_slow_disk_changed_behind_its_cache_is_noticed() {
    run(6, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(100, 10), 9).await;
        disk.close().await.unwrap();
        // The bare disk is mounted elsewhere: its first block changes.
        slow.load(Sector(0), &[1; PAGE]);
        let said = refused(open(&slow, &fast).await);
        assert!(
            said.contains("1 of ") && said.contains("first at byte 0"),
            "{said}"
        );
        let forced = Ties {
            force: true,
            ..Ties::default()
        };
        let disk = Hybrid::open_or_create(keep_all(), slow, fast, forced)
            .await
            .unwrap();
        assert!(
            !reads_as(&disk, pages(100, 10), 9).await,
            "forced: what only the cache had is given up"
        );
        assert!(reads_as(&disk, pages(0, 1), 1).await);
    });
}

#[test]
fn a_live_cache_is_not_taken_for_a_new_one() {
    run(7, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(1, 1), 1).await;
        disk.close().await.unwrap();
        let said = refused(Hybrid::create(keep_all(), slow, fast, Ties::default()).await);
        assert!(
            said.starts_with("cannot make a cache for vol0: ssd0 is the cache of 'vol0' already"),
            "{said}"
        );
    });
}

#[test]
fn a_fast_device_that_is_too_small_is_refused_with_the_size_needed() {
    run(8, async {
        let (slow, _) = devices();
        let fast = Memory::new("ssd0", Bytes::kib(64));
        let said = refused(Hybrid::create(keep_all(), slow.clone(), fast, Ties::default()).await);
        assert!(
            said.starts_with(
                "cannot use ssd0 (64.0 KiB) as a cache for hdd0 (14.0 MiB): at least "
            ),
            "{said}"
        );
        let least = match Hybrid::create(
            keep_all(),
            slow.clone(),
            Memory::new("ssd0", Bytes::kib(64)),
            Ties::default(),
        )
        .await
        {
            Err(OpenError::TooSmall { least, .. }) => least,
            other => panic!("{:?}", other.err()),
        };
        make(keep_all(), slow.clone(), Memory::new("ssd1", least)).await;
    });
}

#[test]
fn a_disk_that_was_closed_refuses_and_says_so() {
    run(9, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow, fast).await;
        disk.close().await.unwrap();
        let error = disk.read_at(Sector(0), Bytes(4096)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read on vol0: it is gone (it was shut down)"
        );
        assert_eq!(disk.status().health, Health::Closed);
        let error = disk.detach().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot detach the fast device of vol0: it was shut down"
        );
    });
}

/// Users write and read while `manage` runs; in the end everything is where it was put.
fn under_load(seed: u64, manage: impl AsyncFnOnce(&Hybrid, &Rc<Memory>) + 'static) {
    run(seed, async move {
        let (slow, fast) = devices();
        slow.set_latency(Nanos::micros(300));
        fast.set_latency(Nanos::micros(20));
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        let users: Vec<_> = (0..4_u64)
            .map(|user| {
                let disk = disk.clone();
                env::spawn(async move {
                    // Each user has its own pages, more than the cache holds.
                    let mut rng = env::rng("user");
                    let mut last = vec![None; 200];
                    for turn in 0..600_u64 {
                        let number = rng.below(200);
                        let span = pages(user * 800 + number * 4, 1 + rng.below(3));
                        match last[number as usize] {
                            Some((len, fill)) if rng.chance(0.5) => {
                                let span = pages(user * 800 + number * 4, len);
                                let same = reads_as(&disk, span, fill).await;
                                assert!(same, "user {user}, turn {turn}: {span} is not {fill}");
                            }
                            _ => {
                                let fill = (turn % 251) as u8;
                                put(&disk, span, fill).await;
                                last[number as usize] = Some((span.len.0 / 4096, fill));
                            }
                        }
                        if rng.chance(0.05) {
                            disk.flush().await.unwrap();
                        }
                    }
                    last
                })
            })
            .collect();
        env::sleep(Nanos::millis(20)).await;
        manage(&disk, &fast).await;
        let mut wanted = Vec::new();
        for user in users {
            wanted.push(user.await);
        }
        disk.detach().await.unwrap();
        for (user, last) in wanted.into_iter().enumerate() {
            for (number, entry) in last.into_iter().enumerate() {
                let Some((len, fill)) = entry else { continue };
                let span = pages(user as u64 * 800 + number as u64 * 4, len);
                let held = slow.contents(span);
                assert!(
                    held.iter().all(|byte| *byte == fill),
                    "{span} on the bare disk"
                );
            }
        }
    });
}

#[test]
fn the_cache_grows_and_shrinks_while_it_is_in_use() {
    under_load(10, async |disk, _| {
        for kib in [400, 1200, 256, 800] {
            let bytes = Bytes::kib(kib);
            disk.resize(Some(bytes)).await.unwrap();
            assert_eq!(disk.status().occupancy.cache_bytes, bytes.0);
            assert!(disk.status().occupancy.cached_bytes <= bytes.0);
            env::sleep(Nanos::millis(15)).await;
        }
        disk.resize(None).await.unwrap();
        assert!(disk.status().occupancy.cache_bytes > Bytes::mib(1).0);
        let error = disk.resize(Some(Bytes::kib(4))).await.unwrap_err();
        assert!(matches!(error, OpenError::TooSmall { .. }), "{error}");
    });
}

#[test]
fn policy_block_size_and_mode_change_while_it_is_in_use() {
    under_load(11, async |disk, _| {
        for (turn, policy) in Kind::ALL.into_iter().enumerate() {
            let settings = Settings {
                policy,
                block: Bytes(4096 << turn),
                write: WriteMode::ALL[turn % WriteMode::ALL.len()],
                ..disk.settings()
            };
            disk.set(settings).await.unwrap();
            let status = disk.status();
            assert_eq!(status.policy, policy.to_string());
            assert_eq!(status.block_bytes, 4096 << turn);
            env::sleep(Nanos::millis(10)).await;
        }
    });
}

#[test]
fn the_fast_device_comes_and_goes_while_the_disk_is_in_use() {
    under_load(12, async |disk, fast| {
        for _ in 0..3 {
            disk.detach().await.unwrap();
            assert_eq!(disk.status().occupancy.dirty_bytes, 0);
            env::sleep(Nanos::millis(10)).await;
            disk.attach(fast.clone(), Ties::default()).await.unwrap();
            let error = disk
                .attach(fast.clone(), Ties::default())
                .await
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "cannot attach a fast device to vol0: it has one; detach that first"
            );
            env::sleep(Nanos::millis(10)).await;
        }
    });
}

#[test]
fn a_detach_whose_caller_goes_away_ends_all_the_same() {
    run(11, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast).await;
        put(&disk, pages(10, 40), 3).await;
        slow.set_latency(Nanos::millis(10));
        let detach = env::spawn({
            let disk = disk.clone();
            async move { disk.detach().await }
        });
        let caller = env::cancel_scope(detach);
        env::sleep(Nanos::millis(5)).await;
        assert!(disk.status().occupancy.dirty_bytes > 0, "it is under way");
        drop(caller);
        env::sleep(Nanos::secs(10)).await;
        let status = disk.status();
        assert_eq!(status.health, Health::PassThrough, "{}", status.why);
        assert!(reads_as(&*slow, pages(10, 40), 3).await);
        put(&disk, pages(10, 1), 4).await;
        assert!(reads_as(&*slow, pages(10, 1), 4).await, "requests go on");
    });
}
