//! Opening after a process was killed, and with sectors that cannot be read.

use std::rc::Rc;

use base::{Bytes, Nanos, Span};
use device::crash::{Crash, PowerSupply, Survival};
use device::fault::{Book, Done, Injury, Rule};
use device::{Device, DeviceExt, Memory, Op};
use env::Rng;
use hybrid::{Health, Hybrid, OpenError, Settings, Ties, WriteMode};

use crate::common::*;

/// Two devices of which nothing unflushed survives a power cut.
fn forgetful() -> (Rc<Crash>, Rc<Crash>) {
    let supply = PowerSupply::new();
    let slow = Crash::on(&supply, "hdd0", SLOW, Rng::from_seed(1));
    let fast = Crash::on(&supply, "ssd0", FAST, Rng::from_seed(2));
    slow.set_survival(Survival::Nothing);
    fast.set_survival(Survival::Nothing);
    (slow, fast)
}

fn killed(pair: &(Rc<Crash>, Rc<Crash>)) -> (Rc<Crash>, Rc<Crash>) {
    let supply = PowerSupply::new();
    let next = |device: &Crash| device.restart_process_on(&supply, Rng::from_seed(3));
    (next(&pair.0), next(&pair.1))
}

fn cut(pair: &(Rc<Crash>, Rc<Crash>)) -> (Rc<Crash>, Rc<Crash>) {
    let supply = PowerSupply::new();
    let next = |device: &Crash| device.restart_on(&supply, Rng::from_seed(4));
    (next(&pair.0), next(&pair.1))
}

async fn open(settings: Settings, pair: &(Rc<Crash>, Rc<Crash>)) -> Hybrid {
    let (slow, fast) = (pair.0.clone(), pair.1.clone());
    let opened = Hybrid::open(settings, slow, fast, Ties::default()).await;
    opened.unwrap_or_else(|error| panic!("the pair opens: {error}"))
}

/// Lets the last handle go without a close: as a kill does.
async fn stop(disk: Hybrid) {
    env::sleep(Nanos::secs(30)).await;
    drop(disk);
}

#[test]
fn what_a_killed_process_wrote_past_the_cache_stays_once_it_was_read() {
    for settings in [writing(WriteMode::Around), writing(WriteMode::Through)] {
        run(1, async move {
            let pair = forgetful();
            let disk = make(settings.clone(), pair.0.clone(), pair.1.clone()).await;
            put(&disk, pages(100, 4), 1).await;
            disk.flush().await.unwrap();
            put(&disk, pages(100, 4), 2).await;
            let pair = killed(&pair);
            let disk = open(settings.clone(), &pair).await;
            assert!(reads_as(&disk, pages(100, 4), 2).await);
            stop(disk).await;
            let pair = cut(&pair);
            let disk = open(settings, &pair).await;
            assert!(reads_as(&disk, pages(100, 4), 2).await, "it turned older");
            disk.detach().await.unwrap();
            assert!(
                reads_as(&*pair.0, pages(100, 4), 2).await,
                "on the slow device"
            );
        });
    }
}

#[test]
fn an_opening_whose_flush_of_the_slow_device_fails_is_refused() {
    run(1, async {
        let (slow, fast) = forgetful();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        disk.close().await.unwrap();
        let book = Book::new(Rng::from_seed(1));
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Flush]);
        book.add(rule.device("hdd0"));
        let opened = Hybrid::open(keep_all(), book.wrap(slow), fast, Ties::default()).await;
        assert!(matches!(opened.err(), Some(OpenError::Device(_))));
    });
}

/// A pair with dirty data, closed, under a book of faults.
async fn closed() -> (Rc<Book>, Rc<dyn Device>, Rc<dyn Device>) {
    let (slow, fast) = devices();
    let book = Book::new(Rng::from_seed(1));
    let (slow, fast) = (book.wrap(slow), book.wrap(fast));
    let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
    put(&disk, pages(7, 20), 9).await;
    disk.close().await.unwrap();
    (book, slow, fast)
}

fn cannot_read(device: &str, span: Span) -> Rule {
    let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
    rule.device(device).within(span)
}

#[test]
fn one_unreadable_copy_of_the_label_keeps_nothing_from_opening() {
    for copy in 0..2 {
        run(1, async move {
            let (book, slow, fast) = closed().await;
            book.add(cannot_read("ssd0", pages(copy, 1)));
            let opened = Hybrid::open_or_create(keep_dirty(), slow, fast, Ties::default()).await;
            let disk = opened.unwrap_or_else(|error| panic!("copy {copy}: {error}"));
            assert!(reads_as(&disk, pages(7, 20), 9).await);
        });
    }
}

#[test]
fn with_both_copies_of_the_label_unreadable_nothing_is_made_anew() {
    run(1, async {
        let (book, slow, fast) = closed().await;
        let rule = book.add(cannot_read("ssd0", pages(0, 2)));
        let (one, other) = (slow.clone(), fast.clone());
        let opened = Hybrid::open_or_create(keep_dirty(), one, other, Ties::default()).await;
        let refused = opened.err().unwrap();
        assert_eq!(
            refused.to_string(),
            "cannot tell whose cache ssd0 is: neither copy of its label can be read; copy the device to a sound one \
             (ddrescue does) and attach that"
        );
        book.remove(rule);
        let opened = Hybrid::open_or_create(keep_dirty(), slow, fast, Ties::default()).await;
        assert!(reads_as(&opened.unwrap(), pages(7, 20), 9).await);
    });
}

#[test]
fn a_first_label_that_was_cut_off_and_cannot_be_read_leaves_a_blank_device() {
    run(1, async {
        let (slow, fast) = devices();
        let book = Book::new(Rng::from_seed(1));
        book.add(cannot_read("ssd0", pages(1, 1)));
        let fast = book.wrap(fast);
        let made = Hybrid::open_or_create(keep_all(), slow, fast, Ties::default()).await;
        assert_eq!(made.unwrap().status().health, Health::Healthy);
    });
}

#[test]
fn pages_of_the_slow_device_that_cannot_be_read_are_not_compared() {
    run(1, async {
        let (book, slow, fast) = closed().await;
        // The last pages are fingerprinted; all but one of them stay readable.
        let last = SLOW.0 / 4096 - 1;
        let rule = book.add(cannot_read("hdd0", pages(last, 1)));
        let (one, other) = (slow.clone(), fast.clone());
        let opened = Hybrid::open(keep_dirty(), one, other, Ties::default()).await;
        let disk = opened.unwrap_or_else(|error| panic!("{error}"));
        assert!(reads_as(&disk, pages(7, 20), 9).await);
        disk.close().await.unwrap();
        book.remove(rule);
        // What can be read must still agree.
        let bad = slow.write_at(pages(last, 1).start, base::View::copy_of(&[3; 512]));
        bad.await.unwrap();
        let opened = Hybrid::open(keep_dirty(), slow, fast, Ties::default()).await;
        assert!(matches!(opened.err(), Some(OpenError::Stale { .. })));
    });
}

#[test]
fn a_slow_device_of_which_too_little_can_be_read_is_refused() {
    run(1, async {
        let (book, slow, fast) = closed().await;
        let rule = book.add(cannot_read("hdd0", Span::bytes(0, SLOW.0)));
        let (one, other) = (slow.clone(), fast.clone());
        let opened = Hybrid::open(keep_dirty(), one, other, Ties::default()).await;
        assert!(matches!(opened.err(), Some(OpenError::Device(_))));
        book.remove(rule);
        let rule = book.add(cannot_read("hdd0", pages(0, 1)));
        let verify = Ties {
            verify: true,
            ..Ties::default()
        };
        let opened = Hybrid::open(keep_dirty(), slow.clone(), fast.clone(), verify).await;
        let said = opened.err().unwrap().to_string();
        assert!(said.starts_with("cannot verify vol0: 1 of "), "{said}");
        assert!(
            said.contains("pages of hdd0 that are to be compared cannot be read"),
            "{said}"
        );
        book.remove(rule);
        let opened = Hybrid::open(keep_dirty(), slow, fast, Ties::default()).await;
        assert!(reads_as(&opened.unwrap(), pages(7, 20), 9).await);
    });
}

#[test]
fn a_disk_is_made_though_a_page_of_the_slow_device_cannot_be_read() {
    run(1, async {
        let (slow, fast) = devices();
        let book = Book::new(Rng::from_seed(1));
        book.add(cannot_read("hdd0", pages(0, 1)));
        let slow = book.wrap(slow);
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(7, 1), 9).await;
        disk.close().await.unwrap();
        let opened = Hybrid::open(keep_all(), slow, fast, Ties::default()).await;
        assert!(reads_as(&opened.unwrap(), pages(7, 1), 9).await);
    });
}

#[test]
fn a_sector_that_can_be_read_is_read_though_a_neighbour_in_its_page_cannot() {
    run(1, async {
        let (slow, fast) = devices();
        let kept = slow.contents(Span::bytes(7 * 4096 + 512, 1024));
        let book = Book::new(Rng::from_seed(1));
        let disk = make(keep_dirty(), book.wrap(slow), fast).await;
        put(&disk, Span::bytes(7 * 4096, 512), 9).await;
        book.add(cannot_read("hdd0", Span::bytes(7 * 4096 + 3584, 512)));
        let got = get(&disk, Span::bytes(7 * 4096, 1536)).await;
        assert_eq!((&got[..512], &got[512..]), (&[9; 512][..], &kept[..]));
        let bad = Span::bytes(7 * 4096 + 3584, 512);
        assert!(disk.read_at(bad.start, bad.len).await.is_err());
    });
}

/// A pair with dirty data that was not closed, and where on its fast device the next batch of the map would lie.
async fn stopped() -> (Rc<Memory>, Rc<Memory>, Span) {
    let (slow, fast) = devices();
    let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
    put(&disk, pages(7, 20), 9).await;
    disk.flush().await.unwrap();
    let log = 4 * 4096;
    let used = disk.status().ledger.used_bytes;
    drop(disk);
    (slow, fast, Span::bytes(log + used, 3 * 4096))
}

#[test]
fn an_unreadable_end_of_the_map_is_reported_until_the_next_start() {
    run(1, async {
        let (slow, fast, end) = stopped().await;
        let book = Book::new(Rng::from_seed(1));
        let fast = book.wrap(fast);
        book.add(cannot_read("ssd0", end));
        let opened = Hybrid::open(keep_dirty(), slow.clone(), fast.clone(), Ties::default()).await;
        let disk = opened.unwrap_or_else(|error| panic!("{error}"));
        assert!(book.injuries().errors > 0);
        assert!(reads_as(&disk, pages(7, 20), 9).await);
        let status = disk.status();
        assert_eq!(status.occupancy.dirty_bytes, Bytes::kib(80).0);
        assert_eq!(status.health, Health::Degraded);
        let said = format!(
            "12.0 KiB at the end of the map's log, from byte {} of ssd0 on, could not be read at the start: a power \
             cut hit the last commit there, or what was flushed last before the stop is missing; check what lies on \
             the volume (such as with fsck), and replace ssd0 if its power was not cut; this is told until the next \
             start",
            end.start.byte()
        );
        assert_eq!(status.why, said);
        // The first commit writes over it.
        book.clear();
        put(&disk, pages(40, 1), 10).await;
        disk.flush().await.unwrap();
        assert_eq!(disk.status().health, Health::Degraded);
        disk.close().await.unwrap();
        let opened = Hybrid::open(keep_dirty(), slow, fast, Ties::default()).await;
        let disk = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(disk.status().health, Health::Healthy);
        assert!(reads_as(&disk, pages(40, 1), 10).await);
    });
}

#[test]
fn an_unreadable_block_behind_a_readable_end_of_the_map_says_nothing() {
    run(1, async {
        let (slow, fast, end) = stopped().await;
        let book = Book::new(Rng::from_seed(1));
        let behind = Span::new(end.start.after(Bytes(4096)), Bytes(4096));
        book.add(cannot_read("ssd0", behind));
        let opened = Hybrid::open(keep_dirty(), slow, book.wrap(fast), Ties::default()).await;
        let disk = opened.unwrap_or_else(|error| panic!("{error}"));
        assert!(book.injuries().errors > 0);
        assert_eq!(disk.status().health, Health::Healthy);
    });
}

#[test]
fn an_opening_that_is_refused_leaves_an_unreadable_end_of_the_map_as_it_is() {
    run(1, async {
        let (slow, fast, end) = stopped().await;
        // What may be a batch that was flushed.
        fast.load(end.start, &[0xb5; 512]);
        let before = fast.contents(Span::bytes(0, FAST.0));
        let own = slow.contents(pages(0, 1));
        slow.load(pages(0, 1).start, &[0xee; 512]);
        let book = Book::new(Rng::from_seed(1));
        let rule = book.add(cannot_read("ssd0", end));
        let (hdd, ssd) = (slow.clone(), book.wrap(fast.clone()));
        let opened = Hybrid::open(keep_dirty(), hdd, ssd, Ties::default()).await;
        assert!(matches!(opened.err(), Some(OpenError::Stale { .. })));
        assert!(book.injuries().errors > 0);
        book.remove(rule);
        let after = fast.contents(Span::bytes(0, FAST.0));
        assert!(after == before, "something was written");
        // With the right slow device it opens.
        slow.load(pages(0, 1).start, &own);
        let opened = Hybrid::open(keep_dirty(), slow, fast, Ties::default()).await;
        assert!(reads_as(&opened.unwrap(), pages(7, 20), 9).await);
    });
}

#[test]
fn what_an_unreadable_commit_may_have_forgotten_is_not_read_from_the_cache() {
    for write in [WriteMode::Around, WriteMode::Through] {
        run(1, async move {
            let mut opened = 0;
            for page in 0..8 {
                let (slow, fast) = devices();
                let disk = make(writing(write), slow.clone(), fast.clone()).await;
                get(&disk, pages(100, 300)).await;
                disk.flush().await.unwrap();
                env::sleep(Nanos::secs(5)).await;
                let used = disk.status().ledger.used_bytes;
                put(&disk, pages(120 + 30 * page, 1), 7).await;
                disk.flush().await.unwrap();
                drop(disk);
                let book = Book::new(Rng::from_seed(1));
                book.add(cannot_read("ssd0", Span::bytes(4 * 4096 + used, 8 * 4096)));
                let one =
                    Hybrid::open(writing(write), slow, book.wrap(fast), Ties::default()).await;
                match one {
                    Ok(disk) => {
                        opened += 1;
                        assert!(
                            reads_as(&disk, pages(120 + 30 * page, 1), 7).await,
                            "it is older"
                        );
                    }
                    // The page is one of those that are compared.
                    Err(error) => assert!(matches!(error, OpenError::Stale { .. }), "{error}"),
                }
            }
            assert!(opened > 0);
        });
    }
}
