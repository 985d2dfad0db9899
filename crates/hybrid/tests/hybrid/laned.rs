//! Hybrids of several lanes: what is where, what is refused, and that one lane is what it was without lanes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, PAGE, Sector, Span, View};
use device::crash::{Crash, PowerSupply};
use device::shared::part_of;
use device::{Class, Device, Info, Memory, Pending, WriteFlags};
use env::sync::join_all;
use hybrid::{
    Health, Hybrid, Lanes, OpenError, Pair, PairBook, RESTART_LOG, RestartPlace, Settings, Ties,
    Unwritten,
};
use proptest::prelude::*;

use crate::common::*;
use crate::twin::{actions, agree, cases};

const UNIT: Bytes = Bytes::mib(16);
/// A few units for each of four lanes, and no whole number of them.
const VOLUME: Bytes = Bytes((150 << 20) + 3 * 512);
/// Enough for eight lanes.
const CACHE: Bytes = Bytes::mib(136);
/// What each of four has of it.
const QUARTER: u64 = CACHE.0 / 4;

fn pair() -> (Rc<Memory>, Rc<Memory>) {
    (Memory::new("hdd0", VOLUME), Memory::new("ssd0", CACHE))
}

async fn open(
    count: u32,
    settings: Settings,
    pair: &(Rc<Memory>, Rc<Memory>),
) -> Result<Lanes, OpenError> {
    let (slow, fast) = (pair.0.clone(), pair.1.clone());
    Lanes::open_or_create(count, settings, slow, fast, |_| Ties::default()).await
}

fn refusal(answer: Result<Lanes, OpenError>) -> String {
    match answer {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error.to_string(),
    }
}

/// A write across the ends of units that all of four lanes have a piece of.
async fn put_on_all(disk: &Lanes, fill: u8) {
    for unit in 1..5 {
        put(disk, pages(unit * 4096 - 2, 4), fill).await;
    }
}

async fn all_read(disk: &dyn Device, fill: u8) -> bool {
    for unit in 1..5 {
        if !reads_as(disk, pages(unit * 4096 - 2, 4), fill).await {
            return false;
        }
    }
    true
}

#[test]
fn one_lane_is_a_hybrid_bit_for_bit() {
    let image = |as_lanes: bool| {
        run(7, async move {
            let (slow, fast) = pair();
            let (below, above) = (slow.clone(), fast.clone());
            if as_lanes {
                let disk = open(1, keep_dirty(), &(below, above)).await.unwrap();
                put_on_all(&disk, 7).await;
                disk.close().await.unwrap();
            } else {
                let disk = make(keep_dirty(), below, above).await;
                for unit in 1..5 {
                    put(&disk, pages(unit * 4096 - 2, 4), 7).await;
                }
                disk.close().await.unwrap();
            }
            let contents = |disk: &Memory| disk.contents(Span::bytes(0, disk.info().size.0));
            (contents(&fast), contents(&slow))
        })
    };
    let (lanes, hybrid) = (image(true), image(false));
    assert!(lanes == hybrid);
    assert_eq!(lanes.0[8..12], [2, 0, 0, 0], "its label's version");
    assert_eq!(lanes.0[168..4096], [0; 3928], "behind the mode");
}

#[test]
fn each_lane_has_a_label_that_says_which_one_it_is() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 7).await;
        disk.close().await.unwrap();
        let mut names = Vec::new();
        for lane in 0..4_u32 {
            let label = pair
                .1
                .contents(Span::bytes(u64::from(lane) * QUARTER, 4096));
            let word = |at: usize| u32::from_le_bytes(label[at..at + 4].try_into().unwrap());
            let long = |at: usize| u64::from_le_bytes(label[at..at + 8].try_into().unwrap());
            assert_eq!(&label[..8], b"TANADAHY");
            assert_eq!((word(8), word(168), word(172)), (3, 4, lane));
            assert_eq!((long(176), long(184)), (UNIT.0, QUARTER));
            names.push(label[24..40].to_vec());
            // Nine whole units, and one that is short: lane 0 has three, lane 1 two and the short one.
            let part = match lane {
                0 => 3 * UNIT.0,
                1 => 2 * UNIT.0 + VOLUME.0 % UNIT.0,
                _ => 2 * UNIT.0,
            };
            assert_eq!(long(56), part, "its part of the slow device");
        }
        names.dedup();
        assert_eq!(names.len(), 4, "each is a cache of its own");
    });
}

#[test]
fn a_closed_hybrid_opens_warm_with_as_many_lanes_as_it_has() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 7).await;
        let dirty = disk.status().occupancy.dirty_bytes;
        assert_eq!(dirty, 16 * 4096);
        let each = disk.lanes().map(|lane| lane.status().occupancy.dirty_bytes);
        assert_eq!(each.collect::<Vec<_>>(), [4 * 4096; 4]);
        disk.close().await.unwrap();
        let late = disk.flush().await.unwrap_err().to_string();
        assert_eq!(late, "cannot flush on vol0: it is gone (it was shut down)");
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let disk = Lanes::open(keep_dirty(), slow, fast, |_| Ties::default());
        let disk = disk.await.unwrap();
        assert_eq!(disk.lanes().count(), 4);
        assert_eq!(disk.status().occupancy.dirty_bytes, dirty);
        assert!(all_read(&disk, 7).await);
        assert_eq!(hits_and_misses(&disk.status()).1, 0);
        disk.detach().await.unwrap();
        assert_eq!(disk.status().health, Health::PassThrough);
        assert!(all_read(&*pair.0, 7).await, "the slow device has it all");
    });
}

#[test]
fn another_number_of_lanes_is_refused_until_the_cache_is_detached() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 7).await;
        disk.close().await.unwrap();
        let before = pair.1.contents(Span::bytes(0, CACHE.0));
        for count in [1, 2, 8, 16] {
            assert_eq!(
                refusal(open(count, keep_dirty(), &pair).await),
                format!(
                    "the cache on ssd0 has 4 lane(s), and vol0 is to have {count}: set lanes = 4, or detach the cache first"
                )
            );
        }
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let alone = Hybrid::open(keep_dirty(), slow, fast, Ties::default()).await;
        assert!(matches!(
            alone.err(),
            Some(OpenError::OtherLanes { found: 4, .. })
        ));
        assert!(
            pair.1.contents(Span::bytes(0, CACHE.0)) == before,
            "nothing was written"
        );
        open(4, keep_dirty(), &pair)
            .await
            .unwrap()
            .detach()
            .await
            .unwrap();
        // What lies where the new lanes begin is of a cache that ended.
        for count in [2, 8, 1, 4] {
            let disk = open(count, keep_dirty(), &pair).await.unwrap();
            assert_eq!(disk.lanes().count(), count as usize);
            assert!(all_read(&disk, 7).await);
            put(&disk, pages(0, 500), 7).await;
            disk.detach().await.unwrap();
        }
    });
}

#[test]
fn lanes_that_count_are_not_lost_where_the_first_one_ended() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 7).await;
        disk.flush().await.unwrap();
        // As a failure of the first lane alone leaves it.
        disk.lanes().next().unwrap().detach().await.unwrap();
        disk.close().await.unwrap();
        for count in [1, 2, 8] {
            let said = refusal(open(count, keep_dirty(), &pair).await);
            assert!(said.contains("has 4 lane(s)"), "{said}");
        }
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        assert!(all_read(&disk, 7).await);
        // A detach that was cut off in the middle goes on.
        disk.lanes().nth(2).unwrap().detach().await.unwrap();
        disk.close().await.unwrap();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        assert!(all_read(&disk, 7).await);
        disk.detach().await.unwrap();
        assert!(all_read(&*pair.0, 7).await);
    });
}

#[test]
fn lanes_at_the_wrong_place_are_refused() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        disk.close().await.unwrap();
        let second = pair.1.contents(Span::bytes(QUARTER, QUARTER));
        pair.1.load(Sector::containing(2 * QUARTER), &second);
        let said = refusal(open(4, keep_dirty(), &pair).await);
        assert_eq!(
            said,
            "the cache on ssd0 is damaged: lane 1 of 4 is where lane 2 should be; repair or copy the device and start \
             again; what only this cache had can be given up with `tanada volume give-up`"
        );
    });
}

#[test]
fn foreign_data_are_refused_whole() {
    run(1, async {
        let pair = pair();
        pair.1.load(Sector(8), &[9; 4096]);
        let before = pair.1.contents(Span::bytes(0, CACHE.0));
        let said = refusal(open(4, keep_dirty(), &pair).await);
        assert!(
            said.starts_with("cannot use ssd0 as a cache: it holds data"),
            "{said}"
        );
        assert!(pair.1.contents(Span::bytes(0, CACHE.0)) == before);
    });
}

#[test]
fn a_disk_in_use_is_detached_attached_resized_and_changed_as_one() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 3).await;
        disk.detach().await.unwrap();
        put_on_all(&disk, 4).await;
        disk.attach(pair.1.clone(), |_| Ties::default())
            .await
            .unwrap();
        assert!(all_read(&disk, 4).await);
        let room = |disk: &Lanes| disk.status().occupancy.cache_bytes;
        let whole = room(&disk);
        let refused = disk.resize(Some(Bytes::mib(60))).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "vol0 cannot have 4 lanes: the cache may use 60.0 MiB, and each lane needs 16.0 MiB at least; give it more, or \
             detach it and choose fewer lanes"
        );
        assert_eq!(room(&disk), whole);
        disk.resize(Some(Bytes::mib(80))).await.unwrap();
        assert!(room(&disk) < whole && room(&disk) > 64 << 20);
        assert_eq!(disk.settings().fast_bytes, Some(Bytes::mib(80)));
        let settings = Settings {
            dirty_low: 20,
            dirty_high: 30,
            ..disk.settings()
        };
        disk.set(settings).await.unwrap();
        for lane in disk.lanes() {
            let own = lane.settings();
            assert_eq!((own.dirty_high, own.fast_bytes), (30, Some(Bytes::mib(20))));
        }
        put_on_all(&disk, 5).await;
        disk.close().await.unwrap();
        let disk = open(4, disk.settings(), &pair).await.unwrap();
        assert!(all_read(&disk, 5).await);
    });
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_disk_of_lanes_reads_what_a_vec_reads(
        requests in actions(Bytes::mib(66), Bytes::mib(20), 24),
        lanes in 0..3_u32,
        seed in 0..100_u64,
    ) {
        run(seed, async move {
            let (slow, fast) = (Memory::new("hdd0", Bytes::mib(66)), Memory::new("ssd0", CACHE));
            let disk = open(1 << lanes, keep_all(), &(slow, fast)).await.unwrap();
            agree(&disk, requests).await;
        });
    }
}

/// A disk with an arm, which notes how many parts of it are written to in the background at once.
struct Arm {
    disk: Rc<Memory>,
    lanes: u32,
    writing: RefCell<BTreeMap<u32, u32>>,
    most: Cell<usize>,
}

impl Device for Arm {
    fn info(&self) -> Info {
        Info {
            rotational: true,
            ..self.disk.info()
        }
    }
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.disk.read(at, buf, class)
    }
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let (lane, _) = part_of(UNIT, self.lanes, at.byte());
        let wrote = self.disk.write(at, data, flags);
        if flags.class != Class::Background {
            return wrote;
        }
        Box::pin(async move {
            *self.writing.borrow_mut().entry(lane).or_default() += 1;
            self.most
                .set(self.most.get().max(self.writing.borrow().len()));
            let answer = wrote.await;
            let mut writing = self.writing.borrow_mut();
            *writing.get_mut(&lane).unwrap() -= 1;
            writing.retain(|_, count| *count > 0);
            answer
        })
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.disk.flush()
    }
    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.disk.discard(span)
    }
    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.disk.write_zeroes(span, flags)
    }
}

#[test]
fn one_lane_destages_at_a_time_where_an_arm_has_to_move() {
    run(1, async {
        let disk = Memory::new("hdd0", VOLUME);
        disk.set_latency(Nanos::millis(4));
        let arm = Rc::new(Arm {
            disk,
            lanes: 4,
            writing: RefCell::default(),
            most: Cell::new(0),
        });
        let (slow, fast) = (arm.clone(), Memory::new("ssd0", CACHE));
        let opened = Lanes::open_or_create(4, keep_dirty(), slow, fast, |_| Ties::default());
        let disk = opened.await.unwrap();
        put_on_all(&disk, 7).await;
        // Every lane destages all it has, at once as far as it may.
        let drained = disk.lanes().map(Hybrid::detach);
        assert!(join_all(drained).await.iter().all(Result::is_ok));
        assert_eq!(arm.most.get(), 1);
    });
}

#[test]
fn each_lane_has_a_restart_log_and_the_disk_finds_all_if_each_does() {
    let places: Vec<RestartPlace> = (0..4)
        .map(|_| RestartPlace {
            memory: Rc::new(env::Mapping::simulated(RESTART_LOG)),
            boot: 1,
        })
        .collect();
    run(1, async move {
        let supply = PowerSupply::new();
        let slow = Crash::on(&supply, "hdd0", VOLUME, env::rng("slow"));
        let fast = Crash::on(&supply, "ssd0", CACHE, env::rng("fast"));
        let ties = |places: Vec<RestartPlace>| {
            move |lane: u32| Ties {
                restart: places.get(lane as usize).cloned(),
                ..Ties::default()
            }
        };
        let (below, above) = (slow.clone(), fast.clone());
        let opened =
            Lanes::open_or_create(4, keep_dirty(), below, above, ties(places.clone())).await;
        let disk = opened.unwrap();
        assert!(disk.info().crash_keeping && disk.found_all());
        put_on_all(&disk, 7).await;
        // The process dies, unflushed writes and all.
        slow.cut_now();
        let supply = PowerSupply::new();
        let slow = slow.restart_process_on(&supply, env::rng("restart"));
        let fast = fast.restart_process_on(&supply, env::rng("restart"));
        let (below, above) = (slow.clone(), fast.clone());
        let opened =
            Lanes::open_or_create(4, keep_dirty(), below, above, ties(places.clone())).await;
        let disk = opened.unwrap();
        assert!(disk.found_all());
        assert!(all_read(&disk, 7).await);
        // One log that is not there is enough to have missed something.
        slow.cut_now();
        let supply = PowerSupply::new();
        let slow = slow.restart_process_on(&supply, env::rng("restart"));
        let fast = fast.restart_process_on(&supply, env::rng("restart"));
        let opened = Lanes::open_or_create(4, keep_dirty(), slow, fast, ties(places[..3].to_vec()));
        let disk = opened.await.unwrap();
        assert!(!disk.found_all() && !disk.info().crash_keeping);
        assert_eq!(disk.info().size.0 % PAGE as u64, 3 * 512);
    });
}

/// A day's budget of the fast device is that of all lanes: one that is used alone has most of it, and never more.
#[test]
fn one_lane_may_use_what_the_others_leave_of_the_flash_budget() {
    run(1, async {
        let pair = pair();
        let settings = Settings {
            flash_writes_per_day: Some(Bytes::mib(24 * 16)),
            ..keep_dirty()
        };
        let disk = open(4, settings, &pair).await.unwrap();
        // An hour's share at once is 16 MiB; the first lane has 4 of them before anything is known.
        let dirtied = async |first: u64, count: u64| {
            let before = disk.status().occupancy.dirty_bytes;
            put(&disk, pages(first, count), 7).await;
            disk.status().occupancy.dirty_bytes - before
        };
        let mut fast = Vec::new();
        for mib in 0..15_u64 {
            fast.push(dirtied(mib * 256, 256).await);
            env::sleep(Nanos::secs(2)).await;
        }
        let all: u64 = fast.iter().sum();
        assert!((12 << 20..=16 << 20).contains(&all), "{fast:?}");
        // What is left is used up, by any lane; half a minute brings 34 pages.
        for unit in 0..8_u64 {
            fast.push(dirtied(unit * 4096 + 3900, 40).await);
        }
        let all: u64 = fast.iter().sum();
        assert!(all <= (16 << 20) + (35 << 12), "{fast:?}");
        // Another lane has its part of the next hour.
        env::sleep(Nanos::secs(3600)).await;
        assert_eq!(dirtied(4096, 900).await, 900 * 4096);
        disk.close().await.unwrap();
    });
}

/// So much of the whole cache may be dirty, wherever it is.
#[test]
fn one_lane_may_have_dirty_what_the_others_do_not_need() {
    run(1, async {
        let disk = Memory::new("hdd0", VOLUME);
        disk.set_latency(Nanos::millis(1));
        let (slow, fast) = (disk, Memory::new("ssd0", CACHE));
        let settings = Settings {
            dirty_low: 10,
            dirty_high: 20,
            sequential_bypass: None,
            ..Settings::default()
        };
        let disk = Lanes::open_or_create(4, settings, slow, fast, |_| Ties::default());
        let disk = disk.await.unwrap();
        let whole = disk.status().occupancy.cache_bytes;
        let mut most = 0;
        for page in (0..4000).step_by(16) {
            put(&disk, pages(page, 16), 7).await;
            env::sleep(Nanos::millis(20)).await;
            let dirty = disk.status().occupancy.dirty_bytes;
            most = most.max(dirty);
        }
        let own = whole / 4 / 5;
        println!("{most} bytes were dirty, {own} would be the lane's share of {whole}");
        assert!(most > own * 3 / 2);
        assert!(most <= whole / 5);
    });
}

/// Each step of a detach is the last one of a disk of several lanes: then it opens, and what was answered is there.
#[test]
fn a_lane_that_was_detached_before_the_rest_begins_empty() {
    run(1, async {
        let pair = pair();
        let disk = open(4, keep_dirty(), &pair).await.unwrap();
        put_on_all(&disk, 7).await;
        disk.flush().await.unwrap();
        for lane in [2, 3] {
            disk.lanes().nth(lane).unwrap().detach().await.unwrap();
        }
        disk.close().await.unwrap();
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let opened = Lanes::open(keep_dirty(), slow, fast, |_| Ties::default()).await;
        let disk = opened.unwrap();
        let dirty = disk.lanes().map(|lane| lane.status().occupancy.dirty_bytes);
        assert_eq!(dirty.collect::<Vec<_>>(), [4 * 4096, 4 * 4096, 0, 0]);
        assert_eq!(disk.status().health, Health::Healthy);
        assert!(all_read(&disk, 7).await);
        put_on_all(&disk, 8).await;
        disk.close().await.unwrap();
        // As a part of the device that was wiped, or an attachment that was cut off.
        let part = pair.1.contents(Span::bytes(QUARTER, QUARTER));
        pair.1
            .load(Sector::containing(QUARTER), &vec![0; QUARTER as usize]);
        let before = pair.1.contents(Span::bytes(0, CACHE.0));
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let said = refusal(Lanes::open(keep_dirty(), slow, fast, |_| Ties::default()).await);
        assert_eq!(
            said,
            "cannot open ssd0 as the cache of vol0: lane 1 of 4 (the first is 0) is blank; making or attaching the cache was \
             cut off, and a start that may make caches goes on with it, or else something wiped that part: look for the \
             cause first, as what only this lane had is lost then"
        );
        assert!(pair.1.contents(Span::bytes(0, CACHE.0)) == before);
        pair.1.load(Sector::containing(QUARTER), &part);
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let opened = Lanes::open(keep_dirty(), slow, fast, |_| Ties::default()).await;
        let disk = opened.unwrap();
        assert!(all_read(&disk, 8).await);
        disk.detach().await.unwrap();
        assert!(all_read(&*pair.0, 8).await);
        // All of them detached: there is none to open.
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let said = refusal(Lanes::open(keep_dirty(), slow, fast, |_| Ties::default()).await);
        assert_eq!(
            said,
            "cannot open ssd0 as a cache: the cache on it was detached or given up; create one on it instead"
        );
    });
}

/// A record of any lane that may miss something stops all, before anything is written.
#[test]
fn a_blank_device_is_refused_whole_where_any_lane_may_have_had_dirty_data() {
    #[derive(Default)]
    struct Book(Cell<Option<Pair>>);
    impl PairBook for Book {
        fn read(&self) -> Result<Option<Pair>, String> {
            Ok(self.0.get())
        }
        fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
            self.0.set(Some(*pair));
            Ok(())
        }
    }
    run(1, async {
        let books: Vec<Rc<Book>> = (0..4).map(|_| Rc::default()).collect();
        let ties = |lane: u32| Ties {
            pairs: Some(books[lane as usize].clone()),
            ..Ties::default()
        };
        let pair = pair();
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let made = Lanes::open_or_create(4, keep_dirty(), slow, fast, ties).await;
        let disk = made.unwrap();
        // Dirty in the third lane alone.
        put(&disk, pages(2 * 4096, 4), 7).await;
        disk.close().await.unwrap();
        let dirty = |book: &Rc<Book>| book.0.get().is_some_and(|pair| pair.dirty);
        assert_eq!(
            books.iter().map(dirty).collect::<Vec<_>>(),
            [false, false, true, false]
        );
        let records: Vec<_> = books.iter().map(|book| book.0.get()).collect();
        let blank = Memory::new("ssd1", CACHE);
        let (slow, fast) = (pair.0.clone(), blank.clone());
        let said = refusal(Lanes::open_or_create(4, keep_dirty(), slow, fast, ties).await);
        assert!(
            said.starts_with("ssd1 is blank, but vol0 has a cache that may hold what hdd0 has not"),
            "{said}"
        );
        assert!(
            blank
                .contents(Span::bytes(0, CACHE.0))
                .iter()
                .all(|byte| *byte == 0)
        );
        assert!(books.iter().map(|book| book.0.get()).eq(records));
        let (slow, fast) = (pair.0.clone(), pair.1.clone());
        let opened = Lanes::open_or_create(4, keep_dirty(), slow, fast, ties).await;
        let disk = opened.unwrap();
        assert!(reads_as(&disk, pages(2 * 4096, 4), 7).await);
    });
}
