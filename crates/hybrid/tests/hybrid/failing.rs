//! Devices that fail: what goes on, what is said, and what is never shown.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Bytes, Nanos, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::{Device, DeviceError, DeviceExt, Memory, Op, WriteFlags};
use hybrid::{Health, Hybrid, OpenError, SetError, Settings, Ties, WriteMode};

use crate::common::*;

/// The two devices under the rules of one book.
struct Shaky {
    book: Rc<Book>,
    slow: Rc<Memory>,
    slow_shaky: Rc<dyn Device>,
    fast: Rc<Memory>,
    fast_shaky: Rc<dyn Device>,
}

impl Shaky {
    fn new() -> Shaky {
        let (slow, fast) = devices();
        let book = Book::new(env::rng("faults"));
        Shaky {
            slow_shaky: book.wrap(slow.clone()),
            fast_shaky: book.wrap(fast.clone()),
            book,
            slow,
            fast,
        }
    }

    async fn disk(&self, settings: Settings, ties: Ties) -> Hybrid {
        let (slow, fast) = (self.slow_shaky.clone(), self.fast_shaky.clone());
        Hybrid::create(settings, slow, fast, ties).await.unwrap()
    }

    /// From now on these operations of a device fail.
    fn break_device(&self, name: &str, ops: &[Op]) {
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(ops).device(name);
        self.book.add(rule);
    }
}

const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// A registry of abandoned caches in memory, and what was entered in it.
fn registry() -> (Ties, Rc<RefCell<Vec<u128>>>) {
    let given_up: Rc<RefCell<Vec<u128>>> = Rc::default();
    let list = Rc::clone(&given_up);
    let ties = Ties {
        on_abandon: Some(Rc::new(move |uuid| {
            list.borrow_mut().push(uuid);
            Ok(())
        })),
        ..Ties::default()
    };
    (ties, given_up)
}

#[test]
fn a_dead_clean_cache_is_left_behind_and_never_counts_again() {
    run(1, async {
        let shaky = Shaky::new();
        let (ties, given_up) = registry();
        let disk = shaky.disk(writing(WriteMode::Through), ties).await;
        get(&disk, pages(10, 20)).await;
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(disk.status().occupancy.cached_bytes, 20 * 4096);

        shaky.break_device("ssd0", &ALL);
        // Users notice nothing: reads come from the slow device, writes go there.
        assert!(get(&disk, pages(10, 20)).await[..] == noise(7, SLOW)[10 * 4096..30 * 4096]);
        for turn in 0..40 {
            put(&disk, pages(12, 4), turn).await;
        }
        disk.flush().await.unwrap();
        assert!(reads_as(&disk, pages(12, 4), 39).await);
        let status = disk.status();
        assert_eq!(status.health, Health::PassThrough);
        assert!(
            status
                .why
                .starts_with("the fast device failed while nothing was dirty: cannot "),
            "{}",
            status.why
        );
        disk.close().await.unwrap();
        assert_eq!(given_up.borrow().len(), 1, "the registry knows");

        // The device comes back to life with its stale label.
        shaky.book.clear();
        let ties = Ties {
            abandoned: given_up.borrow().clone(),
            ..Ties::default()
        };
        let (slow, fast) = (shaky.slow.clone(), shaky.fast.clone());
        let refused = Hybrid::open(keep_all(), slow.clone(), fast.clone(), ties.clone()).await;
        assert_eq!(
            refused.err().unwrap().to_string(),
            "cannot open ssd0 as a cache: the cache on it was detached or given up; create one on it instead"
        );
        let disk = Hybrid::open_or_create(keep_all(), slow, fast, ties)
            .await
            .unwrap();
        assert!(reads_as(&disk, pages(12, 4), 39).await);
    });
}

#[test]
fn a_cache_that_can_still_be_labelled_needs_no_registry() {
    run(2, async {
        let shaky = Shaky::new();
        let disk = shaky
            .disk(writing(WriteMode::Through), Ties::default())
            .await;
        // The slots cannot be written any more; the labels can.
        let slots = Span::bytes(8192, FAST.0 - 8192);
        let rule = Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Write])
            .device("ssd0")
            .within(slots);
        shaky.book.add(rule);
        put(&disk, pages(1, 4), 5).await;
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(disk.status().health, Health::PassThrough);
        assert!(reads_as(&disk, pages(1, 4), 5).await);
        disk.close().await.unwrap();
        shaky.book.clear();
        let refused = Hybrid::open(keep_all(), shaky.slow, shaky.fast, Ties::default()).await;
        assert!(matches!(refused, Err(OpenError::NoCache { .. })));
    });
}

#[test]
fn a_failed_cache_that_cannot_be_recorded_stops_writes() {
    run(3, async {
        let shaky = Shaky::new();
        let disk = shaky
            .disk(writing(WriteMode::Through), Ties::default())
            .await;
        put(&disk, pages(1, 4), 5).await;
        disk.flush().await.unwrap();
        shaky.break_device("ssd0", &ALL);
        let mut refusal = None;
        for turn in 0..50 {
            let data = crate::twin::filled(turn, Bytes::kib(4));
            let answer = disk
                .write(pages(2, 1).start, data, WriteFlags::default())
                .await;
            refusal = refusal.or(answer.err());
            env::sleep(Nanos::millis(100)).await;
        }
        let said = refusal.expect("writes are refused").to_string();
        assert!(said.contains("could not be given up safely"), "{said}");
        assert_eq!(disk.status().health, Health::Failed);
        assert!(disk.flush().await.is_err());
    });
}

#[test]
fn dirty_data_of_a_failing_cache_are_destaged() {
    run(4, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_dirty(), Ties::default()).await;
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        assert_eq!(disk.status().occupancy.dirty_bytes, 50 * 4096);
        let slots = Span::bytes(8192, FAST.0 - 8192);
        let rule = Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Write])
            .device("ssd0");
        shaky.book.add(rule.within(slots));
        // This write meets the failure, and succeeds all the same: it goes to the slow device.
        put(&disk, pages(200, 2), 0x62).await;
        disk.flush().await.unwrap();
        let status = disk.status();
        assert_eq!(status.health, Health::PassThrough, "{}", status.why);
        assert!(
            status
                .why
                .starts_with("the fast device failed; its dirty data were destaged: "),
            "{}",
            status.why
        );
        for (span, fill) in [(pages(100, 50), 0x61), (pages(200, 2), 0x62)] {
            assert!(reads_as(&disk, span, fill).await);
            assert!(shaky.slow.contents(span).iter().all(|byte| *byte == fill));
        }
    });
}

#[test]
fn dirty_data_that_cannot_be_read_are_an_error_and_never_older_data() {
    run(5, async {
        let shaky = Shaky::new();
        let (ties, given_up) = registry();
        let disk = shaky.disk(keep_dirty(), ties).await;
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        shaky.break_device("ssd0", &ALL);
        let old = disk.read_at(pages(100, 1).start, Bytes(4096)).await;
        assert!(old.is_err(), "what is there is older than what was written");
        let wrote = disk
            .write(
                pages(300, 1).start,
                crate::twin::filled(1, Bytes(4096)),
                WriteFlags::default(),
            )
            .await;
        assert!(wrote.is_err());
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(disk.status().health, Health::Failed);
        assert!(
            disk.read_at(pages(100, 1).start, Bytes(4096))
                .await
                .is_err()
        );
        assert!(disk.flush().await.is_err());
        assert!(
            given_up.borrow().is_empty(),
            "a cache with the only copy is not given up"
        );
        assert!(disk.detach().await.is_err());

        // Once it answers again, everything is there.
        shaky.book.clear();
        let disk = Hybrid::open(keep_all(), shaky.slow, shaky.fast, Ties::default())
            .await
            .unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x61).await);
    });
}

#[test]
fn once_a_flush_of_the_slow_device_failed_all_later_ones_fail() {
    for write in [WriteMode::Through, WriteMode::Around, WriteMode::Pass] {
        run(6, async move {
            let shaky = Shaky::new();
            let disk = shaky.disk(writing(write), Ties::default()).await;
            let rule = Rule::new(Injury::Error(Done::Nothing))
                .on(&[Op::Flush])
                .device("hdd0");
            shaky.book.add(rule.once());
            put(&disk, pages(1, 1), 1).await;
            for turn in 0..3 {
                let error = disk.flush().await.unwrap_err();
                assert!(
                    matches!(error, DeviceError::FlushFailed { .. }),
                    "{write}, {turn}: {error}"
                );
                put(&disk, pages(1, 1), 2).await;
            }
            let status = disk.status();
            assert_eq!(status.health, Health::Failed);
            assert!(
                status
                    .why
                    .starts_with("a flush of the slow device failed: "),
                "{}",
                status.why
            );
            let fua = disk
                .write(
                    pages(2, 1).start,
                    crate::twin::filled(1, Bytes(4096)),
                    WriteFlags::FUA,
                )
                .await;
            // A write with its own durability does not depend on what was lost.
            assert!(
                fua.is_ok() || matches!(fua, Err(DeviceError::FlushFailed { .. })),
                "{fua:?}"
            );
        });
    }
}

#[test]
fn a_failed_commit_fails_the_flush_that_asked_for_it_unless_all_came_home() {
    run(7, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_dirty(), Ties::default()).await;
        put(&disk, pages(1, 8), 0x31).await;
        // Neither the map nor the data can be written or read from here on.
        shaky.break_device("ssd0", &ALL);
        let error = disk.flush().await.unwrap_err();
        assert!(matches!(error, DeviceError::FlushFailed { .. }), "{error}");
        assert!(disk.flush().await.is_err(), "and it stays so");
    });
}

/// One page read from the fast device shows a flipped bit from now on.
fn rot_one_page(book: &Book) {
    let rot = Injury::Rot {
        bits: 1,
        lasting: true,
    };
    book.add(Rule::new(rot).device("ssd0").once());
}

#[test]
fn a_rotten_clean_page_is_read_from_the_slow_device() {
    run(8, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_all(), Ties::default()).await;
        put(&disk, pages(40, 1), 0x77).await;
        disk.set_write_mode(WriteMode::Through).await.unwrap();
        assert_eq!(disk.status().occupancy.dirty_bytes, 0);
        rot_one_page(&shaky.book);
        assert!(reads_as(&disk, pages(40, 1), 0x77).await);
        let status = disk.status();
        assert_eq!(
            (status.upkeep.bad_checksums, status.health),
            (1, Health::Healthy)
        );
        assert_eq!(shaky.book.injuries().rotten_reads, 1);
        assert!(reads_as(&disk, pages(40, 1), 0x77).await, "and again");
        assert_eq!(
            disk.status().upkeep.bad_checksums,
            1,
            "the rotten copy is gone"
        );
    });
}

#[test]
fn a_rotten_page_among_whole_ones_costs_the_others_nothing() {
    run(9, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_all(), Ties::default()).await;
        put(&disk, pages(40, 16), 0x77).await;
        disk.set_write_mode(WriteMode::Through).await.unwrap();
        rot_one_page(&shaky.book);
        assert!(
            !reads_as(&disk, pages(36, 24), 0x77).await,
            "neighbours differ"
        );
        assert!(reads_as(&disk, pages(40, 16), 0x77).await);
        assert!(disk.status().upkeep.bad_checksums >= 1);
    });
}

#[test]
fn a_rotten_dirty_page_is_an_error_that_names_the_place() {
    run(10, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_dirty(), Ties::default()).await;
        put(&disk, pages(40, 1), 0x77).await;
        disk.flush().await.unwrap();
        rot_one_page(&shaky.book);
        let error = disk
            .read_at(pages(40, 1).start, Bytes(4096))
            .await
            .unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("of ssd0 is damaged: the checksum of slot "),
            "{said}"
        );
        assert!(
            disk.read_at(pages(40, 1).start, Bytes(4096)).await.is_err(),
            "not the older one"
        );
        let status = disk.status();
        assert_eq!(
            (status.health, status.occupancy.unreadable_dirty_bytes),
            (Health::Degraded, 4096)
        );
        assert_eq!(
            status.why,
            "4.0 KiB that only the fast device has cannot be read from it, the first at byte 163840: write them anew, \
             or restore them from a backup"
        );
        // Writing it anew repairs it.
        put(&disk, pages(40, 1), 0x78).await;
        assert!(reads_as(&disk, pages(40, 1), 0x78).await);
        assert_eq!(disk.status().health, Health::Healthy);
    });
}

#[test]
fn the_cleaner_tries_again_after_write_errors_of_the_slow_device() {
    run(11, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_dirty(), Ties::default()).await;
        put(&disk, pages(100, 200), 0x21).await;
        disk.flush().await.unwrap();
        let rule = Rule::new(Injury::Error(Done::Part))
            .on(&[Op::Write])
            .device("hdd0");
        let broken = shaky.book.add(rule);
        let error = disk.set_write_mode(WriteMode::Through).await.unwrap_err();
        assert!(matches!(error, SetError::Cleaning(_)), "{error}");
        let said = error.to_string();
        assert!(
            said.starts_with(
                "the new settings are in force, but dirty data could not all be destaged: cannot write"
            ),
            "{said}"
        );
        env::sleep(Nanos::secs(30)).await;
        assert!(shaky.book.injuries().errors > 10, "it keeps trying");
        let status = disk.status();
        assert_eq!(
            status.health,
            Health::Degraded,
            "the data are safe where they are"
        );
        assert!(
            status.occupancy.clean_failures > 10,
            "{}",
            status.occupancy.clean_failures
        );
        let said = status.why;
        assert!(
            said.starts_with("the cleaner has failed ")
                && said.contains("times in a row and 800.0 KiB wait for it: cannot write")
                && said.ends_with("put that device right, it goes on by itself"),
            "{said}"
        );
        assert_eq!(
            status.occupancy.dirty_bytes,
            200 * 4096,
            "nothing is called clean"
        );
        assert!(reads_as(&disk, pages(100, 200), 0x21).await);
        disk.flush().await.unwrap();
        // The disk recovers: the cleaner goes on by itself.
        shaky.book.remove(broken);
        env::sleep(Nanos::secs(30)).await;
        assert_eq!(disk.status().occupancy.dirty_bytes, 0);
        assert_eq!(disk.status().health, Health::Healthy);
        assert!(
            shaky
                .slow
                .contents(pages(100, 200))
                .iter()
                .all(|byte| *byte == 0x21)
        );
    });
}

#[test]
fn a_detach_that_cannot_bring_everything_home_leaves_the_pair_together() {
    run(12, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_dirty(), Ties::default()).await;
        put(&disk, pages(100, 20), 0x21).await;
        let bad = pages(110, 1);
        let rule = Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Write])
            .device("hdd0");
        let broken = shaky.book.add(rule.within(bad));
        let error = disk.detach().await.unwrap_err();
        assert!(matches!(error, OpenError::Device(_)), "{error}");
        assert_eq!(disk.status().health, Health::Degraded);
        assert!(reads_as(&disk, pages(100, 20), 0x21).await);
        shaky.book.remove(broken);
        disk.detach().await.unwrap();
        assert!(
            shaky
                .slow
                .contents(pages(100, 20))
                .iter()
                .all(|byte| *byte == 0x21)
        );
    });
}

#[test]
fn a_read_error_of_the_slow_device_is_the_users_to_know() {
    run(13, async {
        let shaky = Shaky::new();
        let disk = shaky.disk(keep_all(), Ties::default()).await;
        shaky.break_device("hdd0", &[Op::Read]);
        let error = disk
            .read_at(pages(5, 1).start, Bytes(4096))
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("cannot read"), "{error}");
        assert!(error.to_string().contains("hdd0"), "{error}");
        shaky.book.clear();
        assert!(get(&disk, pages(5, 1)).await[..] == noise(7, SLOW)[5 * 4096..6 * 4096]);
    });
}
