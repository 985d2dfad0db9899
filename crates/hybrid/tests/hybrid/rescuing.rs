//! A map of which a part was lost: what a rescue keeps, drops and lists.

use std::rc::Rc;

use base::{Bytes, Nanos, PAGE, Sector, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::{Device, Memory, Op};
use env::Rng;
use hybrid::rescue::{RescueOf, Rescued, rescue};
use hybrid::{Health, Hybrid, OpenError, Pair, Settings, Ties, WriteMode};

use crate::common::*;

const SMALL: Bytes = Bytes::mib(6);
/// Pages that are worked on.
const PAGES: u64 = 200;

/// A pair as it was left, and what its volume holds.
#[derive(Clone)]
struct Left {
    slow: Rc<Vec<u8>>,
    fast: Rc<Vec<u8>>,
    whole: Rc<Vec<u8>>,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Left {
    fn slow(&self) -> Rc<Memory> {
        let slow = Memory::new("hdd0", SMALL);
        slow.load(Sector(0), &self.slow);
        slow
    }

    fn fast(&self) -> Rc<Memory> {
        let fast = Memory::new("ssd0", FAST);
        fast.load(Sector(0), &self.fast);
        fast
    }

    /// The blocks of the map's log, as `docs/formats.md` says where they are.
    fn blocks(&self) -> Vec<Span> {
        let (start, len) = (number(&self.fast, 64), number(&self.fast, 72));
        let blocks = start / 4096 + 2..(start + len) / 4096;
        blocks.map(|block| pages(block, 1)).collect()
    }

    fn of(&self, record: Option<Pair>) -> RescueOf {
        RescueOf {
            name: "vol0".to_owned(),
            cache: u128::from_le_bytes(self.fast[24..40].try_into().unwrap()),
            record,
            abandoned: Vec::new(),
        }
    }
}

fn settings(write: WriteMode) -> Settings {
    Settings {
        dirty_low: 20,
        dirty_high: 50,
        fast_bytes: Some(Bytes(150 * PAGE as u64)),
        commit_after: Nanos::millis(20),
        ..writing(write)
    }
}

/// Some work, flushed at its end, and then a close or none.
fn work(seed: u64, write: WriteMode, closes: bool) -> Left {
    run(seed, async move {
        let slow = Memory::new("hdd0", SMALL);
        slow.load(Sector(0), &noise(seed, SMALL));
        let fast = Memory::new("ssd0", FAST);
        let mut whole = noise(seed, SMALL);
        let disk = make(settings(write), slow.clone(), fast.clone()).await;
        let mut rng = env::rng("work");
        for round in 0..260u64 {
            let (first, count) = (rng.below(PAGES), 1 + rng.below(3));
            let span = pages(first, count);
            if rng.chance(0.3) {
                get(&disk, span).await;
            } else {
                let fill = round as u8;
                put(&disk, span, fill).await;
                whole[span.start.byte() as usize..span.end().byte() as usize].fill(fill);
            }
            if rng.chance(0.7) {
                disk.flush().await.unwrap();
            }
            if rng.chance(0.2) {
                env::sleep(Nanos::millis(rng.below(1_500))).await;
            }
        }
        disk.flush().await.unwrap();
        if closes {
            disk.close().await.unwrap();
        }
        Left {
            slow: Rc::new(slow.contents(Span::bytes(0, SMALL.0))),
            fast: Rc::new(fast.contents(Span::bytes(0, FAST.0))),
            whole: Rc::new(whole),
        }
    })
}

fn is_listed(rescued: &Rescued, page: u64) -> bool {
    let lists = [&rescued.older, &rescued.lost, &rescued.unknown];
    let inside = |span: &Span| (span.start.byte()..span.end().byte()).contains(&(page * 4096));
    lists.into_iter().flatten().any(inside)
}

/// Does every page that is not listed show what was flushed last? How many are that?
fn expect_unlisted(left: &Left, shown: &[u8], rescued: &Rescued, what: &str) -> u64 {
    let mut unlisted = 0;
    for (page, (shown, right)) in (0..).zip(shown.chunks(4096).zip(left.whole.chunks(4096))) {
        if !is_listed(rescued, page) {
            assert!(
                shown == right,
                "{what}: page {page} is wrong and not listed"
            );
            unlisted += 1;
        }
    }
    unlisted
}

/// What a block of the log that cannot be read comes to.
enum Outcome {
    /// The volume opens, and all is there; or the end of the log may be lost, and it says so.
    Opens,
    /// So many pages of a rescue are not listed.
    Rescued(u64),
}

/// Opens the pair while `bad` cannot be read, after a rescue if it must be.
fn without(left: Left, write: WriteMode, bad: Span, record: Option<Pair>) -> Outcome {
    run(1, async move {
        let (slow, memory) = (left.slow(), left.fast());
        let book = Book::new(Rng::from_seed(1));
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
        book.add(rule.device("ssd0").within(bad));
        let fast = book.wrap(memory.clone());
        let what = format!("without {bad}");
        let open = || Hybrid::open(settings(write), slow.clone(), fast.clone(), Ties::default());
        let error = match open().await {
            Ok(disk) => {
                let health = disk.status().health;
                let all = everything(&disk).await;
                assert!(health == Health::Degraded || all == *left.whole, "{what}");
                return Outcome::Opens;
            }
            Err(error) => error.to_string(),
        };
        assert!(error.contains("tanada volume rescue vol0"), "{error}");
        let listed = rescue(fast.clone(), &left.of(record), false).await;
        let listed = listed.unwrap_or_else(|error| panic!("{what}: {error}"));
        let now = memory.contents(Span::bytes(0, FAST.0));
        assert!(now == *left.fast, "{what}: a dry run wrote");
        let rescued = rescue(fast.clone(), &left.of(record), true).await;
        let rescued = rescued.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(listed, rescued, "{what}");
        if memory.contents(bad) != left.fast[bad.start.byte() as usize..bad.end().byte() as usize] {
            // What was written can be read again.
            book.clear();
        }
        let disk = open().await;
        let disk = disk.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(
            disk.status().occupancy.dirty_bytes,
            rescued.dirty.0,
            "{what}"
        );
        let shown = everything(&disk).await;
        let unlisted = expect_unlisted(&left, &shown, &rescued, &what);
        disk.detach().await.unwrap();
        expect_unlisted(&left, &everything(&*slow).await, &rescued, &what);
        Outcome::Rescued(unlisted)
    })
}

#[test]
fn every_page_that_a_rescue_does_not_list_is_right_whatever_block_is_lost() {
    let (mut opened, mut rescued, mut best) = (0, 0, 0);
    for (seed, closes) in [(1, false), (2, true)] {
        let left = work(seed, WriteMode::Back, closes);
        for bad in left.blocks() {
            match without(left.clone(), WriteMode::Back, bad, None) {
                Outcome::Opens => opened += 1,
                Outcome::Rescued(unlisted) => {
                    rescued += 1;
                    best = best.max(unlisted);
                }
            }
        }
    }
    println!("{opened} opened, {rescued} rescued, at best {best} pages not listed");
    assert!(
        opened > 10 && rescued > 20,
        "{opened} opened, {rescued} rescued"
    );
    assert!(
        best > PAGES / 4,
        "{best}: a rescue that lists all is of no use"
    );
}

#[test]
fn a_rescue_lists_nothing_where_the_record_says_that_nothing_was_dirty() {
    let left = work(3, WriteMode::Through, true);
    let record = Pair {
        cache: Some(left.of(None).cache),
        generation: 1,
        ..Pair::default()
    };
    let all = SMALL.0 / 4096;
    let mut rescued = 0;
    for bad in left.blocks() {
        if let Outcome::Rescued(unlisted) =
            without(left.clone(), WriteMode::Through, bad, Some(record))
        {
            assert_eq!(unlisted, all);
            rescued += 1;
        }
    }
    assert!(rescued > 5, "{rescued}");
}

#[test]
fn a_rescue_takes_the_cache_that_is_named_and_only_if_it_needs_one() {
    let left = work(1, WriteMode::Back, true);
    run(1, async move {
        let said = |answer: Result<Rescued, OpenError>| answer.unwrap_err().to_string();
        let fast: Rc<dyn Device> = left.fast();
        let answer = rescue(fast.clone(), &left.of(None), true).await;
        assert_eq!(
            said(answer),
            "cannot rescue the cache of vol0: all of its map can be read: start the daemon"
        );
        let other = RescueOf {
            cache: 7,
            ..left.of(None)
        };
        let answer = said(rescue(fast.clone(), &other, true).await);
        assert!(answer.contains("ssd0 holds cache "), "{answer}");
        let given_up = RescueOf {
            abandoned: vec![left.of(None).cache],
            ..left.of(None)
        };
        let answer = said(rescue(fast, &given_up, true).await);
        assert!(answer.contains("counts no more"), "{answer}");
    });
}
