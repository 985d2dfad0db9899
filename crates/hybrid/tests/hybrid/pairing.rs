//! The record of pairs: a cache that may have the only copy of something is missed when it is away. One that was
//! away does not count when it is there again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::crash::{AfterCut, PowerSupply, Survival};
use device::fault::{Book as Faults, Done, Injury, Rule};
use device::{Crash, Device, DeviceExt, Memory, Op, Pending};
use hybrid::{Health, Hybrid, OpenError, Pair, PairBook, Settings, Ties, Unwritten, WriteMode};

use crate::common::*;

/// A record in memory, as durable as a file. It can be made to fail.
#[derive(Default)]
struct Notebook {
    pair: Cell<Option<Pair>>,
    /// What a power cut leaves.
    durable: Cell<Option<Pair>>,
    /// So many writes succeed; `None`: all.
    left: Cell<Option<u32>>,
    /// The next write that fails is durable all the same, though the old record is read.
    unseen: Cell<bool>,
    /// So many writes replace the record and fail all the same: its folder cannot be synced.
    unsynced: Cell<u32>,
    abandoned: RefCell<Vec<u128>>,
}

impl PairBook for Notebook {
    fn read(&self) -> Result<Option<Pair>, String> {
        Ok(self.pair.get())
    }

    fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
        let failed = |why: &str, untouched| Unwritten {
            why: why.to_owned(),
            untouched,
        };
        match self.left.get() {
            Some(0) if self.unseen.replace(false) => {
                self.durable.set(Some(*pair));
                return Err(failed("its folder cannot be synced", false));
            }
            Some(0) => return Err(failed("no room is left on its file system", true)),
            Some(left) => self.left.set(Some(left - 1)),
            None => {}
        }
        self.pair.set(Some(*pair));
        self.durable.set(Some(*pair));
        match self.unsynced.get() {
            0 => Ok(()),
            more => {
                self.unsynced.set(more - 1);
                Err(failed("its folder cannot be synced", false))
            }
        }
    }
}

impl Notebook {
    fn ties(self: &Rc<Self>) -> Ties {
        Ties {
            abandoned: self.abandoned.borrow().clone(),
            pairs: Some(self.clone()),
            ..Ties::default()
        }
    }

    fn now(&self) -> Pair {
        self.pair.get().expect("there is a record by now")
    }

    /// The next `more` writes succeed, one is durable but not seen, and all others fail.
    fn fail_unseen_after(&self, more: u32) {
        self.left.set(Some(more));
        self.unseen.set(true);
    }

    /// The power is gone and back; from now on writes succeed.
    fn power_cut(&self) {
        self.pair.set(self.durable.get());
        self.left.set(None);
        self.unseen.set(false);
    }
}

fn book() -> Rc<Notebook> {
    Rc::default()
}

async fn start(
    settings: Settings,
    slow: &Rc<Memory>,
    fast: &Rc<Memory>,
    book: &Rc<Notebook>,
) -> Result<Hybrid, OpenError> {
    Hybrid::open_or_create(settings, slow.clone(), fast.clone(), book.ties()).await
}

fn refused(answer: Result<Hybrid, OpenError>) -> String {
    match answer {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error.to_string(),
    }
}

/// What is on a device, to be put back later.
fn image(device: &Memory) -> Vec<u8> {
    device.contents(Span::bytes(0, device.info().size.0))
}

#[test]
fn a_record_that_a_power_cut_brings_back_names_no_cache_that_was_replaced() {
    for (first, second) in (0..4).flat_map(|first| (0..4).map(move |second| (first, second))) {
        run(1, async move {
            let (slow, fast) = devices();
            let book = book();
            let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
            disk.detach().await.unwrap();
            drop(disk);
            // Two processes that make a cache are cut off: the first leaves a record that is not seen.
            book.fail_unseen_after(first);
            drop(start(keep_dirty(), &slow, &fast, &book).await);
            book.left.set(Some(second));
            book.unseen.set(false);
            drop(start(keep_dirty(), &slow, &fast, &book).await);
            book.power_cut();
            let opened = start(keep_dirty(), &slow, &fast, &book).await;
            assert!(opened.is_ok(), "{first}, {second}: {:?}", opened.err());
        });
    }
}

#[test]
fn a_record_that_a_power_cut_brings_back_hides_no_dirty_data() {
    for written in 0..3 {
        run(1, async move {
            let (slow, fast) = devices();
            let book = book();
            let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
            // A detach is cut off and leaves a record that is not seen: nothing is dirty, or no cache is there.
            book.fail_unseen_after(written);
            let _ = disk.detach().await;
            drop(disk);
            book.left.set(None);
            book.unseen.set(false);
            let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
            put(&disk, pages(100, 50), 0x61).await;
            disk.flush().await.unwrap();
            assert!(disk.status().occupancy.dirty_bytes > 0);
            drop(disk);
            book.power_cut();
            assert!(book.now().dirty, "{written}: {:?}", book.now());
            let blank = Memory::new("ssd0", FAST);
            refused(start(keep_dirty(), &slow, &blank, &book).await);
        });
    }
}

#[test]
fn a_volume_whose_cache_is_missed_answers_nothing_until_that_is_given_up() {
    run(1, async {
        let (slow, fast) = devices();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        drop(disk);
        let (before, record) = (image(&slow), book.now());
        let blank = Memory::new("ssd0", FAST);
        let why = refused(start(keep_dirty(), &slow, &blank, &book).await);
        let disk = Hybrid::withheld(keep_dirty(), slow.clone(), why.clone()).unwrap();
        let status = disk.status();
        assert_eq!((status.health, &status.why), (Health::CacheLost, &why));
        assert!(!disk.found_all());
        let (at, len) = (Sector::containing(400 << 10), Bytes(4096));
        let data = base::View::copy_of(&[1; 4096]);
        let refusals = [
            disk.read_at(at, len).await.map(drop),
            disk.write_at(at, data).await,
            disk.flush().await,
            disk.discard(Span::bytes(at.byte(), 4096)).await,
        ];
        for refusal in refusals {
            assert!(refusal.unwrap_err().to_string().contains(&why));
        }
        // As long as the record names it, nothing takes its place.
        let early = disk.attach(blank.clone(), book.ties()).await;
        assert!(matches!(early, Err(OpenError::NotHere { .. })));
        assert_eq!(disk.status().health, Health::CacheLost);
        assert!(image(&slow) == before && book.now() == record);

        book.pair.set(Some(Pair {
            cache: None,
            dirty: false,
            ..record
        }));
        disk.attach(blank.clone(), book.ties()).await.unwrap();
        assert_eq!(disk.status().health, Health::Healthy);
        assert_eq!(disk.why_withheld(), None);
        let has = disk.read_at(at, len).await.unwrap();
        assert_eq!(
            has[..],
            before[400 << 10..][..4096],
            "what the slow device has"
        );
        assert!(!disk.found_all(), "no client of before may go on");
        disk.close().await.unwrap();
        let withheld = Hybrid::withheld(keep_dirty(), slow.clone(), why).unwrap();
        withheld.close().await.unwrap();
        assert_eq!(withheld.status().health, Health::Closed);
    });
}

#[test]
fn a_blank_fast_device_is_refused_while_another_may_have_the_only_copy() {
    run(1, async {
        let (slow, fast) = devices();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        drop(disk);
        let pair = book.now();
        assert!(pair.dirty && pair.generation == 1, "{pair:?}");
        let cache = pair.cache.unwrap();

        let blank = Memory::new("ssd0", FAST);
        let before = image(&slow);
        let said = refused(start(keep_dirty(), &slow, &blank, &book).await);
        assert_eq!(
            said,
            format!(
                "ssd0 is blank, but vol0 has a cache that may hold what hdd0 has not (cache {cache:032x}, attachment \
                 1): connect its device and start again; if it is lost, `tanada volume attach vol0 --new-cache \
                 --lose-dirty` gives up what only it had, or, while no daemon runs, `tanada volume give-up vol0 --cache \
                 {cache:032x}`, and an empty cache is made"
            )
        );
        // Neither does a key that stays in a file give it up.
        let forced = Ties {
            force: true,
            ..book.ties()
        };
        let answer =
            Hybrid::open_or_create(keep_dirty(), slow.clone(), blank.clone(), forced).await;
        assert_eq!(refused(answer), said);
        let answer = Hybrid::create(keep_dirty(), slow.clone(), blank.clone(), book.ties()).await;
        assert_eq!(refused(answer), said);
        assert!(image(&slow) == before && image(&blank).iter().all(|byte| *byte == 0));

        // The right one is found again, and all is there.
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x61).await);
        assert_eq!(book.now().generation, 2);
        drop(disk);

        // Given up by name, a blank one will do.
        book.abandoned.borrow_mut().push(cache);
        let disk = start(keep_dirty(), &slow, &blank, &book).await.unwrap();
        assert_eq!(disk.status().occupancy.cached_bytes, 0);
        assert_ne!(book.now().cache, Some(cache));
        assert_eq!(book.now().generation, 3);
    });
}

#[test]
fn a_blank_fast_device_is_welcome_where_nothing_was_dirty() {
    run(2, async {
        // Never dirty; closed with nothing dirty; detached.
        for way in 0..3 {
            let (slow, fast) = devices();
            let book = book();
            let settings = match way {
                0 => writing(WriteMode::Through),
                _ => keep_dirty(),
            };
            let disk = start(settings.clone(), &slow, &fast, &book).await.unwrap();
            put(&disk, pages(100, 50), 0x61).await;
            disk.flush().await.unwrap();
            match way {
                0 => {}
                1 => {
                    disk.set_write_mode(WriteMode::Through).await.unwrap();
                    disk.set_write_mode(WriteMode::Back).await.unwrap();
                    assert!(book.now().dirty, "it may be from now on");
                    disk.close().await.unwrap();
                }
                _ => disk.detach().await.unwrap(),
            }
            assert!(!book.now().dirty, "way {way}: {:?}", book.now());
            let blank = Memory::new("ssd1", FAST);
            let disk = start(settings, &slow, &blank, &book).await.unwrap();
            assert!(reads_as(&disk, pages(100, 50), 0x61).await);
        }
    });
}

#[test]
fn a_cache_that_was_away_while_the_volume_went_on_is_refused() {
    run(3, async {
        let (slow, a) = devices();
        let book = book();
        let through = || writing(WriteMode::Through);
        let disk = start(through(), &slow, &a, &book).await.unwrap();
        get(&disk, pages(100, 50)).await;
        get(&disk, pages(100, 50)).await;
        disk.close().await.unwrap();
        // A is out; work goes on with B.
        let b = Memory::new("ssd0", FAST);
        let disk = start(through(), &slow, &b, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x62).await;
        disk.close().await.unwrap();
        // A is back.
        let said = refused(start(through(), &slow, &a, &book).await);
        assert!(
            said.starts_with("ssd0 has an old state of the cache of vol0 (attachment 1 of 2): "),
            "{said}"
        );
        let disk = start(through(), &slow, &b, &book).await.unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x62).await);
        // Also when B is detached, or lost and given up.
        disk.detach().await.unwrap();
        let said = refused(start(through(), &slow, &a, &book).await);
        assert!(said.contains("(attachment 1 of 3)"), "{said}");
    });
}

#[test]
fn an_older_copy_of_the_same_cache_is_refused() {
    run(4, async {
        let (slow, fast) = devices();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x61).await;
        disk.close().await.unwrap();
        let copy = image(&fast);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x62).await;
        disk.close().await.unwrap();
        let newer = image(&fast);
        fast.load(Sector(0), &copy);
        let said = refused(start(keep_dirty(), &slow, &fast, &book).await);
        assert!(said.contains("(attachment 1 of 2)"), "{said}");
        fast.load(Sector(0), &newer);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x62).await);
    });
}

#[test]
fn a_pair_without_a_record_opens_as_before_and_gets_one() {
    run(5, async {
        let (slow, fast) = devices();
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        put(&disk, pages(100, 50), 0x61).await;
        disk.close().await.unwrap();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x61).await);
        assert!(book.now().dirty && book.now().cache.is_some());
        assert_eq!(book.now().generation, 2, "one more than its label said");
    });
}

#[test]
fn a_volume_whose_record_cannot_be_written_is_not_opened() {
    run(6, async {
        let (slow, fast) = devices();
        let book = book();
        book.left.set(Some(0));
        let said = refused(start(keep_dirty(), &slow, &fast, &book).await);
        assert_eq!(
            said,
            "cannot keep the record of the cache of vol0: no room is left on its file system"
        );
        book.left.set(None);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(1, 1), 1).await;
        disk.close().await.unwrap();
        book.left.set(Some(0));
        let answer = start(keep_dirty(), &slow, &fast, &book).await;
        assert!(matches!(answer, Err(OpenError::Record { .. })));
        book.left.set(None);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(1, 1), 1).await);
        disk.set_write_mode(WriteMode::Through).await.unwrap();
        assert!(!book.now().dirty);
        book.left.set(Some(0));
        let refused = disk.set_write_mode(WriteMode::Back).await;
        assert!(refused.is_err(), "data would be dirty without a word of it");
        assert_eq!(disk.settings().write, WriteMode::Through);
    });
}

#[test]
fn nothing_is_written_to_a_cache_without_a_record_if_none_can_be_written() {
    run(6, async {
        let (slow, fast) = devices();
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        put(&disk, pages(1, 1), 1).await;
        disk.close().await.unwrap();
        let before = image(&fast);
        let book = book();
        book.left.set(Some(0));
        let answer = start(keep_dirty(), &slow, &fast, &book).await;
        assert!(matches!(answer, Err(OpenError::Record { .. })));
        assert!(image(&fast) == before, "another program may open it");
        // Room for one record only: it names the cache as it was found.
        book.left.set(Some(1));
        let answer = start(keep_dirty(), &slow, &fast, &book).await;
        assert!(matches!(answer, Err(OpenError::Record { .. })));
        let found = book.now();
        assert!(found.cache.is_some() && found.dirty && found.generation == 1);
        book.left.set(None);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(1, 1), 1).await);
        assert!(book.now().generation > 1);
    });
}

#[test]
fn the_cache_of_another_volume_is_attached_to_it_and_not_given_up() {
    run(6, async {
        let (slow, fast) = devices();
        let (other_slow, other_fast) = devices();
        let (book, other_book) = (book(), self::book());
        let other = Settings {
            name: "vol1".to_owned(),
            ..keep_all()
        };
        for _ in 0..2 {
            let disk = start(keep_all(), &slow, &fast, &book).await.unwrap();
            disk.close().await.unwrap();
        }
        let disk = start(other.clone(), &other_slow, &other_fast, &other_book).await;
        disk.unwrap().close().await.unwrap();
        let said = refused(start(keep_all(), &slow, &other_fast, &book).await);
        let first = "is a cache of 'vol1'";
        assert!(
            said.contains(first) && said.contains("attach it to volume vol1"),
            "{said}"
        );
        assert!(!said.contains("give-up vol0"), "{said}");
        // A later attachment than the record's has other words in its error.
        for _ in 0..3 {
            let disk = start(other.clone(), &other_slow, &other_fast, &other_book).await;
            disk.unwrap().close().await.unwrap();
        }
        let pair = Pair {
            dirty: false,
            ..book.now()
        };
        book.pair.set(Some(pair));
        let said = refused(start(keep_all(), &slow, &other_fast, &book).await);
        assert!(
            said.contains(first) && said.contains("attach it to volume vol1"),
            "{said}"
        );
        assert!(!said.contains("give-up vol0"), "{said}");
    });
}

#[test]
fn force_takes_the_cache_of_another_volume_only_once_that_one_let_it_go() {
    run(12, async {
        // With a record that names another cache, with one that names none, and without one.
        for way in 0..3 {
            let (slow, fast) = devices();
            let (other_slow, other_fast) = devices();
            other_slow.load(Sector(0), &[9; 4096]);
            let (book, other_book) = (book(), self::book());
            let disk = start(keep_all(), &slow, &fast, &book).await.unwrap();
            match way {
                1 => disk.detach().await.unwrap(),
                _ => disk.close().await.unwrap(),
            }
            book.pair
                .set(book.pair.get().filter(|_| way < 2).map(|pair| Pair {
                    dirty: false,
                    ..pair
                }));
            let other = Settings {
                name: "vol1".to_owned(),
                ..keep_dirty()
            };
            for page in 0..4 {
                let disk = start(other.clone(), &other_slow, &other_fast, &other_book).await;
                let disk = disk.unwrap();
                put(&disk, pages(100 + page, 1), 0x61).await;
                disk.close().await.unwrap();
            }
            let before = image(&other_fast);
            let forced = || Ties {
                force: true,
                ..book.ties()
            };
            let take = || {
                let (slow, fast) = (slow.clone(), other_fast.clone());
                Hybrid::open_or_create(keep_all(), slow, fast, forced())
            };
            let said = refused(take().await);
            assert!(said.contains("`tanada volume detach vol1`"), "{said}");
            let made = Hybrid::create(keep_all(), slow.clone(), other_fast.clone(), forced());
            refused(made.await);
            assert!(image(&other_fast) == before, "nothing was written");
            book.abandoned.borrow_mut().extend(other_book.now().cache);
            assert_eq!(take().await.unwrap().status().occupancy.cached_bytes, 0);
        }
    });
}

/// Two devices under the rules of one book of faults.
fn shaky() -> (Rc<Faults>, Rc<Memory>, Rc<Memory>) {
    let (slow, fast) = devices();
    (Faults::new(env::rng("faults")), slow, fast)
}

const WRITES: [Op; 4] = [Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

#[test]
fn dirty_data_stay_where_they_are_if_the_failure_can_be_noted_nowhere() {
    run(7, async {
        let (faults, slow, fast) = shaky();
        let (hdd, ssd) = (faults.wrap(slow.clone()), faults.wrap(fast.clone()));
        let disk = make(keep_dirty(), hdd, ssd).await;
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        let before = image(&slow);
        faults.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&WRITES)
                .device("ssd0"),
        );
        let data = crate::twin::filled(0x62, Bytes::kib(4));
        assert!(disk.write_at(pages(200, 1).start, data).await.is_err());
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(disk.status().health, Health::Failed);
        assert!(
            disk.status().why.contains("could not be noted elsewhere"),
            "{}",
            disk.status().why
        );
        assert!(image(&slow) == before, "evacuation began");
        assert!(reads_as(&disk, pages(100, 50), 0x61).await);
    });
}

#[test]
fn dirty_data_go_home_if_the_record_tells_of_the_failure() {
    run(8, async {
        let (faults, slow, fast) = shaky();
        let book = book();
        let listed = book.clone();
        let ties = Ties {
            on_abandon: Some(Rc::new(move |cache| {
                listed.abandoned.borrow_mut().push(cache);
                Ok(())
            })),
            ..book.ties()
        };
        let (hdd, ssd) = (faults.wrap(slow.clone()), faults.wrap(fast.clone()));
        let disk = Hybrid::create(keep_dirty(), hdd, ssd, ties).await.unwrap();
        put(&disk, pages(100, 50), 0x61).await;
        disk.flush().await.unwrap();
        faults.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&WRITES)
                .device("ssd0"),
        );
        put(&disk, pages(200, 2), 0x62).await;
        assert_eq!(
            disk.status().health,
            Health::PassThrough,
            "{}",
            disk.status().why
        );
        assert!(
            slow.contents(pages(100, 50))
                .iter()
                .all(|byte| *byte == 0x61)
        );
        assert_eq!(
            book.now(),
            Pair {
                generation: 1,
                mode: book.now().mode,
                ..Pair::default()
            }
        );
        assert_eq!(book.abandoned.borrow().len(), 1);
    });
}

#[test]
fn clean_pages_of_a_cache_that_the_record_calls_failing_are_forgotten() {
    run(9, async {
        let (slow, fast) = devices();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 5), 0x61).await;
        get(&disk, pages(300, 5)).await;
        get(&disk, pages(300, 5)).await;
        disk.flush().await.unwrap();
        env::sleep(Nanos::secs(3)).await;
        // Some of what went past the map reached the slow device, and the machine died.
        book.pair.set(Some(Pair {
            failing: true,
            ..book.now()
        }));
        slow.load(pages(300, 5).start, &[0x63; 5 * 4096]);
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        assert!(reads_as(&disk, pages(300, 5), 0x63).await, "stale");
        assert!(reads_as(&disk, pages(100, 5), 0x61).await);
        assert!(!book.now().failing);
    });
}

#[test]
fn a_fast_device_that_became_read_only_is_opened_to_destage_its_dirty_data() {
    run(10, async {
        let (faults, slow, fast) = shaky();
        let book = book();
        let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
        put(&disk, pages(100, 50), 0x61).await;
        put(&disk, pages(0, 2), 0x62).await;
        disk.flush().await.unwrap();
        drop(disk);
        let writes = [Op::Write, Op::Discard, Op::WriteZeroes];
        faults.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&writes)
                .device("ssd0"),
        );
        let listed = book.clone();
        let ties = Ties {
            on_abandon: Some(Rc::new(move |cache| {
                listed.abandoned.borrow_mut().push(cache);
                Ok(())
            })),
            ..book.ties()
        };
        let (hdd, ssd) = (faults.wrap(slow.clone()), faults.wrap(fast.clone()));
        let disk = Hybrid::open_or_create(keep_dirty(), hdd, ssd, ties)
            .await
            .unwrap();
        assert!(reads_as(&disk, pages(100, 50), 0x61).await);
        put(&disk, pages(200, 1), 0x63).await;
        disk.flush().await.unwrap();
        assert_eq!(
            disk.status().health,
            Health::PassThrough,
            "{}",
            disk.status().why
        );
        for (span, fill) in [
            (pages(100, 50), 0x61),
            (pages(0, 2), 0x62),
            (pages(200, 1), 0x63),
        ] {
            assert!(
                slow.contents(span).iter().all(|byte| *byte == fill),
                "{span}"
            );
        }
        assert_eq!(book.now().cache, None, "nothing is missed any more");
    });
}

// --- a crash, or a failed step, anywhere ------------------------------------------------------------

type Operation = fn(Hybrid, Rc<dyn Device>, Rc<Notebook>) -> Pending<'static, ()>;

/// What is to be cut off.
fn operations() -> [(&'static str, Operation); 6] {
    fn plainly<E: std::fmt::Display>(error: E) -> device::DeviceError {
        device::DeviceError::Gone {
            device: "vol0".to_owned(),
            op: Op::Flush,
            why: error.to_string(),
        }
    }
    [
        ("nothing", |_, _, _| Box::pin(async { Ok(()) })),
        ("close", |disk, _, _| {
            Box::pin(async move { disk.close().await.map_err(plainly) })
        }),
        ("detach", |disk, _, _| {
            Box::pin(async move { disk.detach().await.map_err(plainly) })
        }),
        ("attach", |disk, fast, book| {
            Box::pin(async move {
                disk.detach().await.map_err(plainly)?;
                disk.attach(fast, book.ties()).await.map_err(plainly)?;
                disk.write_at(
                    pages(100, 3).start,
                    crate::twin::filled(0x71, Bytes::kib(12)),
                )
                .await?;
                disk.flush().await
            })
        }),
        ("modes", |disk, _, _| {
            Box::pin(async move {
                disk.set_write_mode(WriteMode::Through)
                    .await
                    .map_err(plainly)?;
                disk.set_write_mode(WriteMode::Back)
                    .await
                    .map_err(plainly)?;
                disk.write_at(
                    pages(100, 3).start,
                    crate::twin::filled(0x71, Bytes::kib(12)),
                )
                .await?;
                disk.flush().await
            })
        }),
        ("shrink", |disk, _, _| {
            Box::pin(async move { disk.resize(Some(Bytes::kib(256))).await.map_err(plainly) })
        }),
    ]
}

/// How a run is to be cut off.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Power(u64),
    /// The record takes no more than so many writes, and then the power goes.
    Record(u32),
}

/// One run: made, written to, opened again, operated on, cut off. Did the operation come to its end, whatever
/// its answer?
fn cut_off(seed: u64, cut: Cut, name: &'static str, operation: Operation) -> bool {
    run(seed, async move {
        let supply = PowerSupply::new();
        let slow = Crash::on(&supply, "hdd0", Bytes::mib(14), env::rng("slow"));
        let fast = Crash::on(&supply, "ssd0", FAST, env::rng("fast"));
        // The process ends with the power.
        slow.set_after_cut(AfterCut::Silence);
        fast.set_after_cut(AfterCut::Silence);
        let book = book();
        let settings = keep_dirty();
        let disk = Hybrid::create(settings.clone(), slow.clone(), fast.clone(), book.ties()).await;
        let disk = disk.unwrap();
        put(&disk, pages(100, 5), 0x61).await;
        disk.flush().await.unwrap();
        disk.close().await.unwrap();
        match cut {
            Cut::Power(step) => supply.cut_at(supply.steps() + step),
            Cut::Record(writes) => book.left.set(Some(writes)),
        }
        // Opening is part of what is cut off.
        let (hdd, ssd, ties) = (slow.clone(), fast.clone(), book.ties());
        let again = settings.clone();
        let noted = book.clone();
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        let task = env::spawn(async move {
            if let Ok(disk) = Hybrid::open_or_create(again, hdd, ssd.clone(), ties).await {
                let _ = operation(disk, ssd, noted).await;
            }
            end.set(true);
        });
        for _ in 0..200 {
            if ended.get() || !supply.is_on() {
                break;
            }
            env::sleep(Nanos::millis(5)).await;
        }
        let through = supply.is_on();
        drop(env::cancel_scope(task));
        supply.cut_now();
        book.left.set(None);
        // The fast device may be lost with the power: then either nothing is missed, or it is.
        let dark = PowerSupply::new();
        slow.set_survival(Survival::Nothing);
        let bare = slow.restart_on(&dark, env::rng("bare"));
        let whole = [0x61, 0x71].iter().any(|fill| {
            let shown = bare.contents(pages(100, 3));
            shown.iter().all(|byte| byte == fill)
        });
        let blank = Crash::on(&dark, "ssd0", FAST, env::rng("blank"));
        let answer =
            Hybrid::open_or_create(settings.clone(), bare, blank, copy(&book).ties()).await;
        assert!(
            whole || matches!(answer, Err(OpenError::NotHere { .. })),
            "{name}, {cut:?}: data are missing, and a blank device is welcome: {:?}",
            book.pair.get()
        );
        // With both devices it opens in any case, and has what was flushed.
        let light = PowerSupply::new();
        let hdd = slow.restart_on(&light, env::rng("slow again"));
        let ssd = fast.restart_on(&light, env::rng("fast again"));
        let disk = Hybrid::open_or_create(settings, hdd, ssd, book.ties()).await;
        let disk = disk.unwrap_or_else(|error| panic!("{name}, {cut:?}: {error}"));
        let shown = get(&disk, pages(100, 5)).await;
        for (page, bytes) in shown.chunks(4096).enumerate() {
            let right = bytes.iter().all(|byte| *byte == bytes[0]);
            let allowed = bytes[0] == 0x61 || (bytes[0] == 0x71 && page < 3);
            assert!(right && allowed, "{name}, {cut:?}: page {page}");
        }
        through
    })
}

/// The record as it is, in another book.
fn copy(book: &Notebook) -> Rc<Notebook> {
    Rc::new(Notebook {
        pair: Cell::new(book.pair.get()),
        abandoned: RefCell::new(book.abandoned.borrow().clone()),
        ..Notebook::default()
    })
}

#[test]
fn a_record_that_cannot_be_synced_never_says_clean_of_a_cache_that_goes_on() {
    for unsynced in [1, u32::MAX] {
        run(11, async move {
            let (slow, fast) = devices();
            let book = book();
            let disk = start(keep_dirty(), &slow, &fast, &book).await.unwrap();
            put(&disk, pages(100, 5), 0x61).await;
            disk.flush().await.unwrap();
            book.unsynced.set(unsynced);
            let refused = disk.detach().await.unwrap_err();
            assert!(
                matches!(refused, OpenError::Record { .. }),
                "{unsynced}: {refused}"
            );
            put(&disk, pages(100, 5), 0x62).await;
            disk.flush().await.unwrap();
            let health = disk.status().health;
            drop(disk);
            book.unsynced.set(0);
            // The fast device is lost: nothing is missing, or it is missed.
            let shown = slow.contents(pages(100, 5));
            let whole = shown.iter().all(|byte| *byte == 0x62);
            let blank = Memory::new("ssd0", FAST);
            let answer = start(keep_dirty(), &slow, &blank, &book).await;
            assert!(
                whole || matches!(answer, Err(OpenError::NotHere { .. })),
                "{unsynced}: data are missing, and a blank device is welcome"
            );
            // Where the old record could be put back, all is as before.
            assert_eq!(health == Health::Healthy, unsynced == 1, "{health:?}");
        });
    }
}

/// What became of a pair whose making was cut off, and then the next one.
#[derive(Default)]
struct Made {
    /// The record named a cache after the first one.
    named: bool,
    /// Which of the two came to their end.
    ended: [bool; 2],
}

/// Makes a cache, cut off at step `steps[0]`, and again, cut off at `steps[1]`. The third start must not be refused.
fn made_thrice(steps: [u64; 2]) -> Made {
    run(1, async move {
        let mut supply = PowerSupply::new();
        let mut slow = Crash::on(&supply, "hdd0", Bytes::mib(14), env::rng("slow"));
        let mut fast = Crash::on(&supply, "ssd0", FAST, env::rng("fast"));
        slow.set_after_cut(AfterCut::Silence);
        fast.set_after_cut(AfterCut::Silence);
        let book = book();
        let mut made = Made::default();
        for (number, step) in steps.into_iter().enumerate() {
            supply.cut_at(step);
            let (hdd, ssd, ties) = (slow.clone(), fast.clone(), book.ties());
            let making = env::spawn(Hybrid::open_or_create(keep_dirty(), hdd, ssd, ties));
            let answered = env::timeout(Nanos::secs(1), making).await.is_ok();
            made.ended[number] = answered && supply.is_on();
            made.named |= number == 0 && book.pair.get().is_some_and(|pair| pair.dirty);
            supply = PowerSupply::new();
            slow = slow.restart_on(&supply, env::rng("slow again"));
            fast = fast.restart_on(&supply, env::rng("fast again"));
        }
        let opened = Hybrid::open_or_create(keep_dirty(), slow, fast, book.ties()).await;
        if let Err(error) = opened {
            panic!("cut off at steps {steps:?}: {error}");
        }
        made
    })
}

#[test]
fn a_cache_whose_making_is_cut_off_twice_is_made_at_the_third_start() {
    let mut pairs = 0;
    for first in 0..1_000 {
        let made = made_thrice([first, 0]);
        for second in 1..1_000 {
            if !made.named || made_thrice([first, second]).ended[1] {
                break;
            }
            pairs += 1;
        }
        if made.ended[0] {
            break;
        }
    }
    assert!(pairs > 100, "{pairs} pairs of steps are too few");
}

#[test]
fn the_record_and_the_labels_agree_after_a_power_cut_at_any_step() {
    for (name, operation) in operations() {
        for seed in 0..3 {
            let mut step = 0;
            while !cut_off(seed, Cut::Power(step), name, operation) {
                step += 1;
                assert!(step < 2_000, "{name} does not come to an end");
            }
            println!("{name}, seed {seed}: {step} steps cut off one by one");
            assert!(step > 5, "{name}: opening alone takes more");
        }
    }
}

#[test]
fn the_record_and_the_labels_agree_when_any_write_of_the_record_fails() {
    for (name, operation) in operations() {
        for writes in 0..8 {
            cut_off(1, Cut::Record(writes), name, operation);
        }
    }
}
