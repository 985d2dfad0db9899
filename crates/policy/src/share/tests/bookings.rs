//! Does the calendar accept exactly what fits at every second? A list of seconds is its reference model.

use base::{Bytes, Nanos};
use proptest::prelude::*;

use super::super::calendar::{Booking, BookingId, Calendar, NoBooking, Refusal, State};
use super::super::*;
use super::Dice;

/// Seconds the reference model looks at; everything booked ends before.
const SECONDS: u64 = 120;

fn costs() -> Costs {
    let cost = |mb| Cost {
        fixed: Nanos::micros(100),
        jump: Nanos(0),
        rate: BytesPerSec::mb(mb),
    };
    Costs {
        read: cost(256),
        write: cost(203),
    }
}

fn headroom() -> Headroom {
    let point = |mix, sessions, ms, percent, overhead| Point {
        mix,
        sessions,
        window: Nanos::millis(ms),
        probability: Probability::percent(percent),
        overhead: Share::percent(overhead),
    };
    let points = [
        point(Mix::Reads, 2, 1000, 99, 4),
        point(Mix::Reads, 6, 1000, 99, 8),
        point(Mix::Reads, 6, 100, 99, 12),
        point(Mix::Writes, 4, 1000, 90, 10),
        point(Mix::Mixed, 3, 1000, 99, 15),
    ];
    Headroom::new(points, Share::percent(25))
}

fn calendar() -> Calendar {
    Calendar::new(
        costs(),
        Bytes::mib(1),
        headroom(),
        Space::new(Bytes(1000), Bytes(0)),
    )
}

/// Everything second by second.
struct Naive {
    contracts: Vec<Contract>,
    floors: Share,
}

impl Naive {
    fn fits_at(&self, second: u64, newcomer: &Contract) -> bool {
        let inside = |c: &&Contract| c.slot.start.0 <= second && second < c.slot.end.0;
        let mut open: Vec<&Contract> = self.contracts.iter().filter(inside).collect();
        open.push(newcomer);
        let sum = |way| {
            let rates = open.iter().filter(|c| c.direction == way).map(|c| c.rate);
            rates.sum::<BytesPerSec>()
        };
        let (reads, writes) = (sum(Direction::Read), sum(Direction::Write));
        let mix = match (reads.0, writes.0) {
            (_, 0) => Mix::Reads,
            (0, _) => Mix::Writes,
            _ => Mix::Mixed,
        };
        let window = open.iter().map(|c| c.window).min().unwrap();
        let probability = open.iter().map(|c| c.probability).max().unwrap();
        let aside = headroom().at(mix, open.len() as u32, window, probability);
        let share = |way, rate| costs().share(way, rate, Bytes::mib(1));
        let promised = share(Direction::Read, reads) + share(Direction::Write, writes);
        promised + aside + self.floors <= Share::WHOLE
    }

    fn fits(&self, contract: &Contract) -> bool {
        let Slot { start, end } = contract.slot;
        (start.0..end.0).all(|second| self.fits_at(second, contract))
    }

    fn earliest(&self, contract: &Contract) -> Option<Slot> {
        let seconds = contract.slot.seconds();
        let slots = (contract.slot.start.0..=SECONDS).map(|at| Slot::new(Second(at), seconds));
        slots.into_iter().find(|slot| {
            self.fits(&Contract {
                slot: *slot,
                ..*contract
            })
        })
    }
}

fn compare(seed: u64) -> (usize, usize) {
    let mut dice = Dice::new(seed);
    let mut calendar = calendar();
    let mut naive = Naive {
        contracts: Vec::new(),
        floors: Share::percent(dice.below(6)),
    };
    calendar.set_floors(naive.floors);
    let mut ids: Vec<BookingId> = Vec::new();
    let (mut held, mut refused, mut released) = (0, 0, 0);
    for step in 0..60 {
        let at = format!("seed {seed} step {step}");
        if dice.below(5) == 0 && !ids.is_empty() {
            let i = dice.below(ids.len() as u64) as usize;
            released += 1;
            let booking = calendar.release(ids.swap_remove(i)).unwrap();
            assert_eq!(booking.contract, naive.contracts.swap_remove(i), "{at}");
            continue;
        }
        let direction = Direction::ALL[dice.below(2) as usize];
        let slot = Slot::new(Second(dice.below(60)), 1 + dice.below(20));
        let mut contract = Contract::new(BytesPerSec::mb(1 + dice.below(90)), direction, slot);
        contract.window = Nanos::millis([100, 1000, 2000][dice.below(3) as usize]);
        contract.probability = Probability::percent([50, 90, 99][dice.below(3) as usize]);
        match calendar.hold(Second(0), contract, Second(1000)) {
            Ok(id) => {
                held += 1;
                assert!(naive.fits(&contract), "{at}: held {contract:?}");
                ids.push(id);
                naive.contracts.push(contract);
            }
            Err(Refusal::Full {
                at: second, offer, ..
            }) => {
                refused += 1;
                assert!(
                    !naive.fits_at(second.0, &contract),
                    "{at}: refused {contract:?}"
                );
                let before = contract.slot.start.0..second.0;
                assert!(
                    before.into_iter().all(|s| naive.fits_at(s, &contract)),
                    "{at}"
                );
                assert_eq!(
                    offer.earliest,
                    naive.earliest(&contract),
                    "{at}: {contract:?}"
                );
                let with = |rate: u64| Contract {
                    rate: BytesPerSec(rate),
                    ..contract
                };
                match offer.largest {
                    Some(rate) => {
                        assert!(naive.fits(&with(rate.0)), "{at}: offered {rate}");
                        assert!(
                            !naive.fits(&with(rate.0 + 1)),
                            "{at}: more than {rate} fits"
                        );
                    }
                    None => assert!(!naive.fits(&with(1)), "{at}: something fits"),
                }
            }
            Err(other) => panic!("{at}: {other}"),
        }
    }
    // A session that ends may leave another mix of directions behind, which needs more room aside.
    let over = calendar.overcommitted(Second(0));
    assert!(over.is_empty() || released > 0, "seed {seed}: {over:?}");
    (held, refused)
}

/// Several contracts for one slot: asked about together, and held one after the other.
fn compare_together(seed: u64) -> (usize, usize) {
    let mut dice = Dice::new(seed);
    let mut calendar = calendar();
    for _ in 0..30 {
        let direction = Direction::ALL[dice.below(2) as usize];
        let slot = Slot::new(Second(dice.below(80)), 1 + dice.below(20));
        let contract = Contract::new(BytesPerSec::mb(1 + dice.below(60)), direction, slot);
        let _ = calendar.hold(Second(0), contract, Second(1000));
    }
    let (mut fitted, mut refused) = (0, 0);
    for ask in 0..30 {
        let slot = Slot::new(Second(dice.below(80)), 1 + dice.below(20));
        let ways = 1 + dice.below(2) as usize;
        let contracts = Direction::ALL[..ways].iter().map(|direction| {
            let rate = BytesPerSec::mb(1 + dice.below(90));
            Contract::new(rate, *direction, slot)
        });
        let contracts: Vec<Contract> = contracts.collect();
        let held_at = |slot: Slot| {
            let mut calendar = calendar.clone();
            let mut at = contracts.iter().map(|it| Contract { slot, ..*it });
            at.try_for_each(|it| calendar.hold(Second(0), it, Second(1000)).map(drop))
        };
        let said = calendar.admits(Second(0), &contracts);
        let at = format!("seed {seed} ask {ask}: {contracts:?}");
        assert_eq!(said.is_ok(), held_at(slot).is_ok(), "{at}");
        let Err(Refusal::Full { offer, .. }) = said else {
            fitted += 1;
            continue;
        };
        refused += 1;
        let earliest = (slot.start.0..=SECONDS).map(|at| Slot::new(Second(at), slot.seconds()));
        let earliest = earliest.into_iter().find(|it| held_at(*it).is_ok());
        assert_eq!(offer.earliest, earliest, "{at}");
    }
    (fitted, refused)
}

#[test]
fn what_is_admitted_together_is_held_one_after_the_other() {
    let all: Vec<_> = (0..40).map(compare_together).collect();
    let sum = |of: fn(&(usize, usize)) -> usize| all.iter().map(of).sum::<usize>();
    let (fitted, refused) = (sum(|it| it.0), sum(|it| it.1));
    assert!(fitted > 100 && refused > 100, "{fitted} {refused}");
    let mut full = calendar();
    full.set_bookings_max(1);
    let both =
        Direction::ALL.map(|way| Contract::new(BytesPerSec::mb(1), way, Slot::new(Second(0), 9)));
    assert_eq!(full.admits(Second(0), &both), Err(Refusal::TooMany(1)));
    assert_eq!(full.admits(Second(0), &both[..1]), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_calendar_is_its_list_of_seconds(seed: u64) {
        compare(seed);
    }
}

#[test]
fn the_calendar_is_compared_both_ways() {
    let (held, refused) = compare(7);
    assert!(held > 5 && refused > 5, "{held} {refused}");
}

fn reads(mb: u64, start: u64, seconds: u64) -> Contract {
    let slot = Slot::new(Second(start), seconds);
    Contract::new(BytesPerSec::mb(mb), Direction::Read, slot)
}

#[test]
fn a_refusal_says_when_why_and_what_would_fit() {
    let mut calendar = calendar();
    calendar.set_floors(Share::percent(2));
    calendar
        .hold(Second(0), reads(150, 0, 100), Second(1000))
        .unwrap();
    let refusal = calendar
        .hold(Second(0), reads(100, 50, 100), Second(1000))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "cannot reserve 100 MB/s of reads in seconds 50..150: at second 50 60.0 % of the device is \
         promised to 1 others, 4.0 % must stay free and 2.0 % is for background work, which leaves \
         34.0 % where 40.0 % is needed; ask for seconds 100..200 or for at most 84.905 MB/s"
    );
    let refusal = calendar
        .hold(Second(0), reads(300, 50, 100), Second(1000))
        .unwrap_err();
    let Refusal::Full { offer, .. } = refusal else {
        panic!("{refusal}");
    };
    assert_eq!(offer.earliest, None);
    let refusal = calendar
        .hold(Second(9), reads(1, 5, 4), Second(1000))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "cannot reserve seconds 5..9: it is second 9 now; give it an end after its start and after now"
    );
}

#[test]
fn an_offer_taken_up_is_accepted() {
    let mut calendar = calendar();
    for start in [0, 30, 90] {
        calendar
            .hold(Second(0), reads(180, start, 20), Second(1000))
            .unwrap();
    }
    let asked = reads(100, 10, 35);
    let offer = calendar.offer(&asked);
    let slot = offer.earliest.unwrap();
    assert_eq!(slot, Slot::new(Second(50), 35));
    let rate = offer.largest.unwrap();
    calendar
        .clone()
        .hold(Second(0), Contract { slot, ..asked }, Second(9))
        .unwrap();
    calendar
        .hold(Second(0), Contract { rate, ..asked }, Second(9))
        .unwrap();
}

#[test]
fn what_is_held_and_not_committed_in_time_is_free_again() {
    let mut calendar = calendar();
    let mut asked = reads(200, 100, 50);
    asked.space = Bytes(600);
    let lost = calendar.hold(Second(0), asked, Second(30)).unwrap();
    assert!(calendar.hold(Second(29), asked, Second(60)).is_err());
    let kept = calendar.hold(Second(30), asked, Second(60)).unwrap();
    assert_eq!(calendar.commit(Second(30), lost), Err(NoBooking(lost)));
    calendar.commit(Second(59), kept).unwrap();
    calendar.commit(Second(99), kept).unwrap();
    assert_eq!(calendar.expire(Second(149)), []);
    assert_eq!(calendar.space().reserved(), Bytes(600));
    calendar.space_mut().spend(kept, Bytes(250)).unwrap();
    assert_eq!(calendar.expire(Second(150)), [kept]);
    let space = calendar.space();
    assert_eq!(
        (space.free(), space.reserved(), space.used()),
        (Bytes(750), Bytes(0), Bytes(250))
    );
}

#[test]
fn room_that_is_not_there_is_not_promised_and_time_stays_free() {
    let mut calendar = calendar();
    let mut asked = reads(200, 0, 50);
    asked.space = Bytes(1001);
    let refusal = calendar.hold(Second(0), asked, Second(30)).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Space(SpaceError::Full { .. })),
        "{refusal}"
    );
    asked.space = Bytes(1000);
    calendar.hold(Second(0), asked, Second(30)).unwrap();
}

#[test]
fn a_device_that_became_slower_is_overcommitted_from_then_to_then() {
    let mut calendar = calendar();
    calendar
        .hold(Second(0), reads(100, 0, 100), Second(1000))
        .unwrap();
    calendar
        .hold(Second(0), reads(100, 50, 100), Second(1000))
        .unwrap();
    assert_eq!(calendar.overcommitted(Second(0)), []);
    calendar.set_capacity(Costs::flat(BytesPerSec::mb(150)), headroom());
    let stretches = calendar.overcommitted(Second(0));
    let slots: Vec<Slot> = stretches.iter().map(|it| it.slot).collect();
    assert_eq!(slots, [Slot::new(Second(50), 50)]);
}

#[test]
fn bookings_come_back_after_a_restart() {
    let mut calendar = calendar();
    let booking = Booking {
        contract: reads(100, 0, 100),
        state: State::Committed,
    };
    calendar.adopt(BookingId(7), booking, Bytes(10)).unwrap();
    let next = calendar
        .hold(Second(0), reads(50, 0, 100), Second(10))
        .unwrap();
    assert_eq!(next, BookingId(8));
    assert_eq!(calendar.space().reserved(), Bytes(10));
}

/// What an amendment and its booking come to, second by second: each time the greater of the two.
fn amendments_match_their_seconds(seed: u64) -> (usize, usize) {
    let mut dice = Dice::new(seed);
    let (mut taken, mut refused) = (0, 0);
    let draw = |dice: &mut Dice| {
        let start = dice.below(60);
        let contract = reads(1 + dice.below(150), start, 1 + dice.below(50));
        let window = Nanos::millis([100, 1000][dice.below(2) as usize]);
        Contract { window, ..contract }
    };
    for _ in 0..40 {
        let mut calendar = calendar();
        let mut others = Vec::new();
        for _ in 0..dice.below(4) {
            let contract = draw(&mut dice);
            if calendar.hold(Second(0), contract, Second(90)).is_ok() {
                others.push(contract);
            }
        }
        let before = draw(&mut dice);
        let Ok(booking) = calendar.hold(Second(0), before, Second(90)) else {
            continue;
        };
        let after = draw(&mut dice);
        let naive = Naive {
            contracts: others.clone(),
            floors: Share::NONE,
        };
        let fits = (0..SECONDS).all(|second| {
            let at = |it: &Contract| it.slot.start.0 <= second && second < it.slot.end.0;
            let greater = match (at(&before), at(&after)) {
                (true, true) => Contract {
                    rate: before.rate.max(after.rate),
                    window: before.window.min(after.window),
                    ..before
                },
                (false, true) => after,
                _ => return true,
            };
            let second = Slot::new(Second(second), 1);
            let greater = Contract {
                slot: second,
                ..greater
            };
            Contract {
                slot: second,
                ..before
            }
            .contains(&greater)
                && at(&before)
                || naive.fits_at(second.start.0, &greater)
        });
        match calendar.amend(Second(0), booking, after, Second(90)) {
            Ok(id) => {
                assert!(
                    fits,
                    "seed {seed}: {before:?} -> {after:?} beside {others:?}"
                );
                let demand = calendar.sweep(Slot::new(Second(0), SECONDS));
                let most = others.len() as u32 + 1;
                assert!(
                    demand.iter().all(|it| it.demand.sessions <= most),
                    "{demand:?}"
                );
                calendar.release(booking).unwrap();
                assert_eq!(calendar.get(id).unwrap().contract, after);
                taken += 1;
            }
            Err(_) => {
                assert!(
                    !fits,
                    "seed {seed}: {before:?} -> {after:?} beside {others:?}"
                );
                assert_eq!(calendar.get(booking).unwrap().contract, before);
                refused += 1;
            }
        }
    }
    (taken, refused)
}

#[test]
fn an_amendment_counts_the_greater_at_each_second() {
    let both = (0..60).map(amendments_match_their_seconds);
    let (taken, refused) = both.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(
        taken > 200 && refused > 100,
        "{taken} taken, {refused} refused"
    );
}

#[test]
fn less_is_granted_also_where_more_is_promised_than_fits() {
    let mut calendar = calendar();
    let ask = reads(100, 0, 50);
    let first = calendar.hold(Second(0), ask, Second(9)).unwrap();
    let slow = Costs::flat(BytesPerSec::mb(10));
    calendar.set_capacity(slow, headroom());
    assert!(
        calendar
            .amend(Second(0), first, reads(101, 0, 50), Second(9))
            .is_err()
    );
    let less = calendar
        .amend(Second(0), first, reads(90, 0, 40), Second(9))
        .unwrap();
    // Given up again, all is as it was.
    calendar.release(less).unwrap();
    assert_eq!(calendar.get(first).unwrap().contract, ask);
    assert_eq!(calendar.sweep(ask.slot)[0].demand.reads, ask.rate);
}
