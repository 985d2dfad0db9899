//! Power cuts: what was flushed survives, the rest is old or new sector by sector, and a lying drive
//! is found out.

mod reference;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, SECTOR, Sector, Span, View};
use device::crash::{AfterCut, Discarded, PowerSupply, Survival};
use device::{Class, Crash, Device, DeviceError, DeviceExt, WriteFlags};
use env::{Rng, Runtime};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes::mib(1);

proptest! {
    #![proptest_config(reference::cases(64))]

    #[test]
    fn without_a_cut_it_reads_what_a_vec_reads(
        actions in actions(SIZE, Bytes::kib(64), 60),
        most in 0..2_000_u64,
        kind in 0..3_usize,
    ) {
        let crash = Crash::new("twin", SIZE, Rng::from_seed(3));
        crash.set_delay(Nanos(0), Nanos(most));
        crash.set_discarded(
            [Discarded::Zeroes, Discarded::Unchanged, Discarded::Either][kind],
        );
        Runtime::simulated(1).block_on(async move { agree(&*crash, actions).await });
    }
}

// --- an oracle that knows, for each sector, what a crash may leave -----------------------------------

/// Sectors the storm writes to; few, so that writes meet.
const STORM_SECTORS: u64 = 64;

/// What a sector may hold: each entry is a tag and when its write completed (None: in flight).
#[derive(Clone)]
struct History {
    writes: Vec<(u64, Option<u64>)>,
    /// Writes completed before this are overwritten for good.
    floor: u64,
}

impl History {
    fn allows(&self, tag: u64) -> bool {
        let at_or_above = |at: Option<u64>| at.is_none_or(|at| at >= self.floor);
        self.writes
            .iter()
            .any(|&(written, at)| written == tag && at_or_above(at))
    }

    fn last_completed(&self) -> Option<u64> {
        self.writes.iter().filter_map(|&(_, at)| at).max()
    }
}

struct Oracle {
    sectors: RefCell<Vec<History>>,
    completions: Cell<u64>,
    tags: Cell<u64>,
}

impl Oracle {
    fn new(contents: &[u64]) -> Rc<Oracle> {
        let history = |&tag: &u64| History {
            writes: vec![(tag, Some(0))],
            floor: 0,
        };
        Rc::new(Oracle {
            sectors: RefCell::new(contents.iter().map(history).collect()),
            completions: Cell::new(1),
            // Tags never repeat over restarts: go on above the largest seen.
            tags: Cell::new(contents.iter().max().map_or(1, |tag| tag + 1)),
        })
    }

    fn begin(&self, span: Span, tag: u64) {
        for history in &mut self.sectors.borrow_mut()[range(span)] {
            history.writes.push((tag, None));
        }
    }

    fn complete(&self, span: Span, tag: u64, durable: bool) {
        let now = self.completions.get();
        self.completions.set(now + 1);
        for history in &mut self.sectors.borrow_mut()[range(span)] {
            // Zeroes share a tag: the one in flight is this one.
            let own = history
                .writes
                .iter_mut()
                .find(|(written, at)| *written == tag && at.is_none());
            own.expect("it was begun").1 = Some(now);
            if durable {
                history.floor = now;
            }
        }
    }

    fn flush_begins(&self) -> Vec<Option<u64>> {
        let sectors = self.sectors.borrow();
        sectors.iter().map(History::last_completed).collect()
    }

    fn flush_completes(&self, began: Vec<Option<u64>>) {
        let mut sectors = self.sectors.borrow_mut();
        for (history, began) in sectors.iter_mut().zip(began) {
            history.floor = history.floor.max(began.unwrap_or(0));
        }
    }

    fn next_tag(&self) -> u64 {
        let tag = self.tags.get();
        self.tags.set(tag + 1);
        tag
    }

    /// The sectors that hold what they may not.
    fn violations(&self, contents: &[u64]) -> Vec<String> {
        let sectors = self.sectors.borrow();
        let found = sectors.iter().zip(contents).enumerate();
        found
            .filter(|(_, (history, tag))| !history.allows(**tag))
            .map(|(sector, (history, tag))| {
                let floor = history.floor;
                format!("sector {sector} holds write {tag}; last durable at {floor}")
            })
            .collect()
    }
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.start.0 as usize..span.end().0 as usize
}

/// Every sector holds its write's tag 64 times over; 0 is zeroes. `u64::MAX` is a third thing.
fn tags(device: &Crash) -> Vec<u64> {
    let bytes = device.contents(Span::bytes(0, STORM_SECTORS * SECTOR));
    let sectors = bytes.chunks(SECTOR as usize).map(|sector| {
        let words: BTreeSet<&[u8]> = sector.chunks(8).collect();
        let word = sector[..8].try_into().expect("eight bytes");
        if words.len() == 1 {
            u64::from_le_bytes(word)
        } else {
            u64::MAX
        }
    });
    sectors.collect()
}

fn tagged(tag: u64, sectors: u64) -> View {
    let mut data = Buf::for_read((sectors * SECTOR) as usize);
    for word in data.chunks_mut(8) {
        word.copy_from_slice(&tag.to_le_bytes());
    }
    data.freeze()
}

/// One writer among several: random requests until the power goes.
async fn writer(device: Rc<Crash>, oracle: Rc<Oracle>, mut rng: Rng) {
    for _ in 0..40 {
        let start = rng.below(STORM_SECTORS);
        let sectors = 1 + rng.below((STORM_SECTORS - start).min(16));
        let span = Span::new(Sector(start), Bytes(sectors * SECTOR));
        let fua = rng.chance(0.2);
        let flags = WriteFlags {
            fua,
            class: Class::Foreground,
        };
        let answer = match rng.below(10) {
            0 => {
                let began = oracle.flush_begins();
                let answer = device.flush().await;
                if answer.is_ok() {
                    oracle.flush_completes(began);
                }
                answer
            }
            1 => {
                oracle.begin(span, 0);
                let answer = device.write_zeroes(span, flags).await;
                if answer.is_ok() {
                    oracle.complete(span, 0, fua);
                }
                answer
            }
            2 => {
                oracle.begin(span, 0);
                let answer = device.discard(span).await;
                if answer.is_ok() {
                    oracle.complete(span, 0, false);
                }
                answer
            }
            _ => {
                let tag = oracle.next_tag();
                oracle.begin(span, tag);
                let answer = device.write(span.start, tagged(tag, sectors), flags).await;
                if answer.is_ok() {
                    oracle.complete(span, tag, fua);
                }
                answer
            }
        };
        if let Err(error) = answer {
            assert!(matches!(error, DeviceError::Gone { .. }), "{error}");
            return;
        }
    }
}

/// Three generations of a device under several writers, each ended by a cut; what the oracle found.
fn storm(seed: u64, plant: impl Fn(&Crash)) -> Vec<String> {
    let mut rng = Rng::from_seed(seed);
    let mut device = Crash::new("storm", Bytes::mib(16), Rng::from_seed(rng.bits()));
    plant(&device);
    let survivals = [
        Survival::Any,
        Survival::Any,
        Survival::All,
        Survival::Nothing,
        Survival::Alternating,
        Survival::Operations(0.5),
        Survival::Sectors(0.5),
    ];
    device.set_survival(survivals[rng.below(survivals.len() as u64) as usize]);
    if rng.chance(0.8) {
        device.set_delay(Nanos(1), Nanos::micros(50));
    }
    for _ in 0..3 {
        let oracle = Oracle::new(&tags(&device));
        device.cut_at(device.steps() + rng.below(120));
        let writers: Vec<_> = (0..4).map(|_| Rng::from_seed(rng.bits())).collect();
        let (under, watch) = (Rc::clone(&device), Rc::clone(&oracle));
        Runtime::simulated(seed).block_on(async move {
            let writers = writers
                .into_iter()
                .map(|rng| writer(Rc::clone(&under), Rc::clone(&watch), rng));
            env::sync::join_all(writers).await;
        });
        let again = rng.bits();
        device = {
            let after = device.restart(Rng::from_seed(again));
            let twice = device.restart(Rng::from_seed(again));
            assert_eq!(tags(&after), tags(&twice), "one seed, one outcome");
            after
        };
        let violations = oracle.violations(&tags(&device));
        if !violations.is_empty() {
            return violations;
        }
    }
    Vec::new()
}

#[test]
fn flushed_survives_and_the_rest_is_old_or_new_over_2000_storms() {
    for seed in 0..2_000 {
        let violations = storm(seed, |_| {});
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    }
}

#[test]
fn a_flush_that_lies_is_found_out() {
    let caught =
        (0..50).filter(|&seed| !storm(seed, |device| device.lie_about_flush(true)).is_empty());
    assert!(caught.count() >= 25);
}

#[test]
fn a_fua_write_that_lies_is_found_out() {
    let caught =
        (0..50).filter(|&seed| !storm(seed, |device| device.lie_about_fua(true)).is_empty());
    assert!(caught.count() >= 25);
}

// --- single facts -----------------------------------------------------------------------------------

fn write_two(device: &Rc<Crash>) {
    let device = Rc::clone(device);
    Runtime::simulated(1).block_on(async move {
        device
            .write_at(Sector(0), filled(1, Bytes(1024)))
            .await
            .unwrap();
        device
            .write_at(Sector(8), filled(2, Bytes(1024)))
            .await
            .unwrap();
    });
}

#[test]
fn any_survival_loses_tears_reorders_and_keeps() {
    // (first write, second write), each as the fill of its two sectors.
    let mut seen = BTreeSet::new();
    let device = Crash::new("d", SIZE, Rng::from_seed(1));
    write_two(&device);
    for seed in 0..2_000 {
        let after = device.restart(Rng::from_seed(seed));
        let bytes = after.contents(Span::bytes(0, 8192));
        seen.insert([bytes[0], bytes[512], bytes[4096], bytes[4608]]);
    }
    assert_eq!(
        seen.len(),
        16,
        "each sector is there or not, in every combination: {seen:?}"
    );
}

#[test]
fn the_fixed_survivals_leave_what_they_say() {
    let outcome = |survival| {
        let device = Crash::new("d", SIZE, Rng::from_seed(1));
        device.set_survival(survival);
        write_two(&device);
        assert_eq!(device.unflushed(), 2);
        let after = device.restart(Rng::from_seed(5));
        assert_eq!(after.unflushed(), 0);
        let bytes = after.contents(Span::bytes(0, 8192));
        [bytes[0], bytes[512], bytes[4096], bytes[4608]]
    };
    assert_eq!(outcome(Survival::All), [1, 1, 2, 2]);
    assert_eq!(outcome(Survival::Nothing), [0, 0, 0, 0]);
    assert_eq!(outcome(Survival::Alternating), [1, 1, 0, 0]);
    assert_eq!(outcome(Survival::Operations(1.0)), [1, 1, 2, 2]);
    assert_eq!(outcome(Survival::Sectors(0.0)), [0, 0, 0, 0]);
}

#[test]
fn devices_on_one_supply_stop_at_the_same_step() {
    for cut in 0..6 {
        let supply = PowerSupply::new();
        let a = Crash::on(&supply, "a", SIZE, Rng::from_seed(1));
        let b = Crash::on(&supply, "b", SIZE, Rng::from_seed(2));
        supply.cut_at(cut);
        Runtime::simulated(1).block_on(async move {
            let mut completed = 0;
            for round in 0..3 {
                for device in [&a, &b] {
                    let answer = device.write_at(Sector(round), filled(1, Bytes(512))).await;
                    completed += u64::from(answer.is_ok());
                }
            }
            assert_eq!(completed, cut);
            let refusal = a.flush().await.unwrap_err().to_string();
            assert_eq!(
                refusal,
                "cannot flush on a: it is gone (its power was cut; restart it)"
            );
            assert!(b.read_at(Sector(0), Bytes(512)).await.is_err());
        });
    }
}

#[test]
fn devices_restarted_on_one_supply_are_cut_together_again() {
    let supply = PowerSupply::new();
    let a = Crash::on(&supply, "a", SIZE, Rng::from_seed(1));
    let b = Crash::on(&supply, "b", SIZE, Rng::from_seed(2));
    a.load(Sector(0), &[1; 512]);
    b.load(Sector(0), &[2; 512]);
    let again = PowerSupply::new();
    let a = a.restart_on(&again, Rng::from_seed(3));
    assert!(!supply.is_on(), "a restart without a cut is a cut");
    let b = b.restart_on(&again, Rng::from_seed(4));
    let contents = |device: &Crash| device.contents(Span::bytes(0, 512))[0];
    assert_eq!((contents(&a), contents(&b)), (1, 2));
    Runtime::simulated(1).block_on(async move {
        assert!(a.flush().await.is_ok());
        b.cut_now();
        assert!(a.flush().await.is_err());
    });
    assert_eq!(again.steps(), 1);
}

#[test]
fn a_silent_cut_answers_no_request_and_the_onlooker_sees_it() {
    let device = Crash::new("d", SIZE, Rng::from_seed(1));
    device.set_after_cut(AfterCut::Silence);
    device.set_delay(Nanos::micros(1), Nanos::micros(9));
    device.cut_at(2);
    Runtime::simulated(1).block_on(async move {
        let answers = Rc::new(Cell::new(0));
        let (under, count) = (Rc::clone(&device), Rc::clone(&answers));
        let engine = env::spawn(async move {
            loop {
                under
                    .write_at(Sector(0), filled(1, Bytes(512)))
                    .await
                    .unwrap();
                count.set(count.get() + 1);
            }
        });
        device.supply().wait_for_cut().await;
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(answers.get(), 2);
        engine.cancel();
    });
}

#[test]
fn a_write_whose_future_is_dropped_still_happens() {
    let device = Crash::new("d", SIZE, Rng::from_seed(1));
    device.set_delay(Nanos::micros(1), Nanos::micros(9));
    let under = Rc::clone(&device);
    Runtime::simulated(1).block_on(async move {
        drop(under.write_at(Sector(3), filled(4, Bytes(512))));
        assert_eq!(under.in_flight(), 0);
    });
    assert_eq!(device.contents(Span::bytes(1536, 512)), [4; 512]);
    assert_eq!(device.unflushed(), 1);
}

#[test]
fn a_write_in_flight_at_the_cut_may_survive_and_may_not() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        device.set_delay(Nanos::micros(5), Nanos::micros(5));
        device.load(Sector(0), &[7; 512]);
        let under = Rc::clone(&device);
        Runtime::simulated(seed).block_on(async move {
            let write = env::spawn({
                let under = Rc::clone(&under);
                async move { under.write_at(Sector(0), filled(8, Bytes(512))).await }
            });
            env::sleep(Nanos::micros(2)).await;
            under.cut_now();
            assert!(write.await.is_err());
        });
        seen.insert(
            device
                .restart(Rng::from_seed(seed))
                .contents(Span::bytes(0, 512))[0],
        );
    }
    assert_eq!(seen, BTreeSet::from([7, 8]));
}

#[test]
fn a_flush_covers_only_what_had_completed_when_it_began() {
    let device = Crash::new("d", SIZE, Rng::from_seed(1));
    device.set_survival(Survival::Nothing);
    let under = Rc::clone(&device);
    Runtime::simulated(1).block_on(async move {
        under
            .write_at(Sector(0), filled(1, Bytes(512)))
            .await
            .unwrap();
        under.set_delay(Nanos::micros(10), Nanos::micros(10));
        let flush = under.flush();
        under.set_delay(Nanos(0), Nanos(0));
        under
            .write_at(Sector(1), filled(2, Bytes(512)))
            .await
            .unwrap();
        flush.await.unwrap();
    });
    let bytes = device
        .restart(Rng::from_seed(1))
        .contents(Span::bytes(0, 1024));
    assert_eq!((bytes[0], bytes[512]), (1, 0));
}

#[test]
fn a_fua_write_survives_over_an_older_unflushed_one() {
    for seed in 0..200 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        let under = Rc::clone(&device);
        Runtime::simulated(1).block_on(async move {
            under
                .write_at(Sector(0), filled(1, Bytes(1024)))
                .await
                .unwrap();
            let fua = under.write(Sector(0), filled(2, Bytes(512)), WriteFlags::FUA);
            fua.await.unwrap();
        });
        let bytes = device
            .restart(Rng::from_seed(seed))
            .contents(Span::bytes(0, 1024));
        assert_eq!(bytes[0], 2, "seed {seed}");
        assert!(bytes[512] <= 1);
    }
}

/// The device in the next process: this one was killed, and the power stayed on.
fn killed(device: &Crash, seed: u64) -> Rc<Crash> {
    device.restart_process_on(&PowerSupply::new(), Rng::from_seed(seed))
}

#[test]
fn a_killed_process_loses_no_completed_write_a_later_power_cut_may() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        let under = Rc::clone(&device);
        Runtime::simulated(1).block_on(async move {
            under
                .write_at(Sector(0), filled(1, Bytes(512)))
                .await
                .unwrap();
        });
        let next = killed(&device, seed);
        assert_eq!(next.contents(Span::bytes(0, 512)), [1; 512]);
        assert_eq!(next.unflushed(), 1);
        let after = next.restart(Rng::from_seed(seed));
        seen.insert(after.contents(Span::bytes(0, 512))[0]);
    }
    assert_eq!(seen, BTreeSet::from([0, 1]));
}

#[test]
fn what_a_killed_process_left_is_durable_once_the_next_one_flushed() {
    for seed in 0..50 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        device.set_survival(Survival::Nothing);
        let under = Rc::clone(&device);
        Runtime::simulated(1).block_on(async move {
            let data = filled(1, Bytes(512));
            under.write_at(Sector(0), data).await.unwrap();
        });
        let next = killed(&device, seed);
        let under = Rc::clone(&next);
        Runtime::simulated(1).block_on(async move { under.flush().await.unwrap() });
        let after = next.restart(Rng::from_seed(seed));
        assert_eq!(after.contents(Span::bytes(0, 512)), [1; 512]);
    }
}

#[test]
fn a_write_in_flight_when_the_process_is_killed_lands_whole_in_part_or_not() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        device.set_delay(Nanos::micros(5), Nanos::micros(5));
        let under = Rc::clone(&device);
        Runtime::simulated(seed).block_on(async move {
            let write = env::spawn({
                let under = Rc::clone(&under);
                let data = filled(8, Bytes(1024));
                async move { under.write(Sector(0), data, WriteFlags::FUA).await }
            });
            env::sleep(Nanos::micros(2)).await;
            under.cut_now();
            assert!(write.await.is_err());
        });
        let next = killed(&device, seed);
        let bytes = next.contents(Span::bytes(0, 1024));
        seen.insert((bytes[0], bytes[512]));
        // No flush promised anything: the next power cut may take it again.
        assert!(next.unflushed() <= 1);
    }
    assert_eq!(seen, BTreeSet::from([(0, 0), (8, 0), (8, 8)]));
}

#[test]
fn sectors_of_unflushed_operations_alone_are_unreadable_until_written() {
    let mut unreadable = 0;
    for seed in 0..50 {
        let device = Crash::new("d", SIZE, Rng::from_seed(seed));
        device.set_unreadable(0.7);
        let under = Rc::clone(&device);
        Runtime::simulated(1).block_on(async move {
            let write = |at, fill| under.write_at(Sector(at), filled(fill, Bytes(4096)));
            write(0, 1).await.unwrap();
            under.flush().await.unwrap();
            write(16, 2).await.unwrap();
        });
        let after = device.restart(Rng::from_seed(seed));
        let bad = after.unreadable();
        assert!(bad.iter().all(|sector| (16..24).contains(&sector.0)));
        unreadable += bad.len();
        let under = Rc::clone(&after);
        Runtime::simulated(1).block_on(async move {
            assert!(under.read_at(Sector(0), Bytes(4096)).await.is_ok());
            let read = under.read_at(Sector(16), Bytes(4096)).await;
            assert_eq!(read.is_ok(), bad.is_empty());
            if let Err(error) = read {
                assert!(matches!(error, DeviceError::Io { .. }), "{error}");
            }
            let again = under.write_at(Sector(16), filled(3, Bytes(4096)));
            again.await.unwrap();
            assert!(under.read_at(Sector(16), Bytes(4096)).await.is_ok());
        });
        assert_eq!(after.unreadable(), []);
    }
    assert!(unreadable > 20, "{unreadable}");
}
