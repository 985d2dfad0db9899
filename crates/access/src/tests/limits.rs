//! Limits beside a plain sum, second by second.

use crate::quota::{Commitment, Limit, Quota, fits};
use crate::usage::Usage;

const DAY: u64 = 86_400;
const MB: u64 = 1_000_000;

fn booking(id: u128, rate: u64, from: u64, until: u64) -> Commitment {
    Commitment {
        id,
        rate,
        from,
        until,
        space: 0,
    }
}

fn usage(all: &[Commitment]) -> Usage {
    all.iter()
        .fold(Usage::default(), |usage, it| usage.with(it, 0))
}

#[test]
fn at_once_counts_who_overlaps_and_not_who_only_touches() {
    let quota = Quota {
        rate: Some(500 * MB),
        ..Quota::default()
    };
    let there = usage(&[
        booking(1, 300 * MB, 100, 200),
        booking(2, 300 * MB, 200, 300),
        booking(3, 100 * MB, 150, 250),
    ]);
    let excess = fits(&quota, &there, &booking(9, 200 * MB, 100, 300), 0).unwrap_err();
    assert_eq!(
        (excess.limit, excess.used, excess.left()),
        (Limit::Rate, 400 * MB, 100 * MB)
    );
    assert_eq!(
        excess.to_string(),
        "it asks for 200 MB/s, and of 500 MB/s at once 400 MB/s are booked in that time; ask for at most 100 MB/s"
    );
    assert_eq!(
        fits(&quota, &there, &booking(9, 100 * MB, 100, 300), 0),
        Ok(())
    );
    assert_eq!(
        fits(&quota, &there, &booking(9, 200 * MB, 100, 150), 0),
        Ok(())
    );
}

#[test]
fn each_limit_refuses_in_its_own_words() {
    let none = Usage::default();
    let asked = Commitment {
        space: 10 * MB,
        ..booking(1, 10 * MB, 3 * DAY, 4 * DAY)
    };
    let limit =
        |quota: &Quota, there: &Usage| fits(quota, there, &asked, 0).unwrap_err().to_string();
    let quota = Quota::default();
    let ahead = limit(
        &Quota {
            ahead: Some(2 * DAY),
            ..quota
        },
        &none,
    );
    assert_eq!(
        ahead,
        "it begins in 3 days, and 2 days ahead is the most; ask for an earlier slot"
    );
    let length = limit(
        &Quota {
            length: Some(3600),
            ..quota
        },
        &none,
    );
    assert_eq!(
        length,
        "it lasts 24 h, and 60 min is the most; ask for less"
    );
    let one = usage(&[booking(7, 1, 0, 9 * DAY)]);
    let count = limit(
        &Quota {
            count: Some(1),
            ..quota
        },
        &one,
    );
    assert_eq!(
        count,
        "it would be one more, and 1 of 1 bookings are there; cancel one, or wait until one is over"
    );
    let room = limit(
        &Quota {
            room: Some(MB),
            ..quota
        },
        &none,
    );
    assert_eq!(
        room,
        "it asks for 10 MB of room, and of 1 MB at once 0 B are taken in that time; ask for at most 1 MB"
    );
    let booked = limit(
        &Quota {
            booked: Some(MB * DAY),
            ..quota
        },
        &none,
    );
    assert_eq!(
        booked,
        "it comes to 864 GB, and of 86.4 GB in 30 days 0 B are booked; ask for at most 86.4 GB"
    );
    assert_eq!(fits(&quota, &one, &asked, 0), Ok(()), "no quota, no limit");
}

#[test]
fn bytes_of_thirty_days_come_back_when_they_are_over_for_so_long() {
    let quota = Quota {
        booked: Some(10 * MB * DAY),
        ..Quota::default()
    };
    let there = usage(&[booking(1, 10 * MB, DAY, 2 * DAY)]);
    let next = |from: u64, now: u64| {
        let there = there.at(now);
        fits(&quota, &there, &booking(2, MB, from, from + DAY), now).is_ok()
    };
    assert!(!next(2 * DAY, 0));
    assert!(!next(30 * DAY, 0));
    assert!(
        next(31 * DAY, 0) || next(32 * DAY, 0),
        "thirty days behind its end"
    );
    // Over, and so counted by days.
    assert!(!next(3 * DAY, 3 * DAY));
    assert!(!next(20 * DAY, 20 * DAY));
    assert!(next(32 * DAY, 32 * DAY));
}

#[test]
fn a_slot_that_is_over_counts_as_any_other() {
    let quota = Quota {
        booked: Some(10 * MB),
        ..Quota::default()
    };
    let fits = |rate| fits(&quota, &Usage::default(), &booking(1, rate, 98, 99), 100).is_ok();
    assert!(fits(10 * MB) && !fits(10 * MB + 1) && !fits(u64::MAX));
}

#[test]
fn what_was_promised_before_a_change_stays_counted() {
    let quota = Quota {
        booked: Some(1000 * MB),
        ..Quota::default()
    };
    // 10 MB/s for 50 of 100 s, then cancelled: 500 MB were promised.
    let there = usage(&[booking(1, 10 * MB, 0, 100)]).without(1, 50);
    assert_eq!(there.count(), 0);
    assert!(fits(&quota, &there, &booking(2, 10 * MB, 50, 100), 50).is_ok());
    assert!(fits(&quota, &there, &booking(2, 10 * MB, 50, 101), 50).is_err());
    // One that never began gives all of it back.
    let there = usage(&[booking(1, 10 * MB, 60, 160)]).without(1, 50);
    assert!(there.is_empty());
    // Changed in the middle: 500 MB, then 5 MB/s.
    let there = usage(&[booking(1, 10 * MB, 0, 100)]).with(&booking(1, 5 * MB, 0, 100), 50);
    assert!(fits(&quota, &there, &booking(2, 25 * MB, 60, 70), 50).is_ok());
    assert!(fits(&quota, &there, &booking(2, 26 * MB, 60, 70), 50).is_err());
}

#[test]
fn less_is_always_granted_and_more_only_within_a_smaller_quota() {
    let there = usage(&[booking(1, 300 * MB, 10, 100)]);
    let quota = Quota {
        rate: Some(100 * MB),
        ahead: Some(0),
        length: Some(1),
        count: Some(0),
        room: Some(0),
        booked: Some(0),
        ..Quota::default()
    };
    assert_eq!(
        fits(&quota, &there, &booking(1, 250 * MB, 10, 90), 0),
        Ok(())
    );
    assert!(fits(&quota, &there, &booking(1, 250 * MB, 10, 101), 0).is_err());
    assert!(fits(&quota, &there, &booking(1, 301 * MB, 10, 100), 0).is_err());
}

/// The limits again, by looking at each second.
fn fits_plainly(quota: &Quota, there: &[Commitment], new: &Commitment, now: u64) -> bool {
    let earlier = there.iter().find(|it| it.id == new.id);
    if earlier.is_some_and(|it| new.is_within(it)) {
        return true;
    }
    let mut all: Vec<Commitment> = there.iter().filter(|it| it.id != new.id).copied().collect();
    all.push(*new);
    let begins = earlier.map_or(new.from, |it| it.from.min(new.from));
    let seconds = || new.from..new.until;
    let sum = |at: u64, of: fn(&Commitment) -> u64| -> u64 {
        let there = all.iter().filter(|it| (it.from..it.until).contains(&at));
        there.map(of).sum()
    };
    let below = |most: Option<u64>, is: u64| most.is_none_or(|most| is <= most);
    below(quota.ahead, new.from.saturating_sub(now))
        && below(quota.length, new.until - begins)
        && below(quota.count, all.len() as u64)
        && seconds().all(|at| below(quota.rate, sum(at, |it| it.rate)))
        && seconds().all(|at| below(quota.room, sum(at, |it| it.space)))
        // All of it is within 30 days, so the fullest stretch has all.
        && below(
            quota.booked,
            all.iter().map(|it| it.rate * (it.until - it.from)).sum(),
        )
}

#[test]
fn limits_agree_with_a_sum_of_every_second() {
    let mut rng = env::Rng::from_seed(7);
    let (mut refused, mut granted) = (0, 0);
    for _ in 0..3_000 {
        let mut draw = |most: u64| rng.below(most);
        let mut there: Vec<Commitment> = Vec::new();
        for id in 0..draw(6) {
            let from = 10 + draw(40);
            there.push(Commitment {
                id: u128::from(id),
                rate: 1 + draw(9),
                from,
                until: from + 1 + draw(30),
                space: draw(9),
            });
        }
        let mut limit = |most: u64| (draw(2) == 0).then(|| draw(most));
        let quota = Quota {
            rate: limit(40),
            booked: limit(900),
            ahead: limit(50),
            length: limit(40),
            count: limit(8),
            room: limit(40),
            ..Quota::default()
        };
        let from = 10 + draw(40);
        let new = Commitment {
            id: u128::from(draw(8)),
            rate: 1 + draw(9),
            from,
            until: from + 1 + draw(30),
            space: draw(9),
        };
        let now = draw(10);
        let expected = fits_plainly(&quota, &there, &new, now);
        let found = fits(&quota, &usage(&there), &new, now);
        assert_eq!(
            found.is_ok(),
            expected,
            "{quota:?} {there:?} {new:?} {now} {found:?}"
        );
        match expected {
            true => granted += 1,
            false => refused += 1,
        }
    }
    assert!(refused > 500 && granted > 500, "{refused} {granted}");
}

#[test]
fn the_fullest_thirty_days_are_those_of_a_plain_search() {
    // All slots are whole days: the fullest stretch begins with a day, or where it just touches the new slot.
    let mut rng = env::Rng::from_seed(3);
    for _ in 0..300 {
        let mut there = Vec::new();
        for id in 1..=rng.below(7) {
            let from = 40 + rng.below(90);
            let until = from + 1 + rng.below(25);
            there.push(booking(
                u128::from(id),
                1 + rng.below(5),
                from * DAY,
                until * DAY,
            ));
        }
        let from = 40 + rng.below(90);
        let until = from + 1 + rng.below(40);
        let new = booking(0, 1 + rng.below(5), from * DAY, until * DAY);
        let all: Vec<Commitment> = there.iter().chain([&new]).copied().collect();
        let within = |begin: u64| -> u64 {
            let end = begin + 30 * DAY;
            let shared = |it: &Commitment| it.until.min(end).saturating_sub(it.from.max(begin));
            all.iter().map(|it| it.rate * shared(it)).sum()
        };
        let (first, last) = (new.from + 1 - 30 * DAY, new.until - 1);
        let days = (0..200).map(|day| day * DAY);
        let begins = days.filter(|at| (first..=last).contains(at));
        let fullest = begins.chain([first, last]).map(within).max().unwrap();
        let quota = |booked| Quota {
            booked: Some(booked),
            ..Quota::default()
        };
        let there = usage(&there);
        assert_eq!(
            fits(&quota(fullest), &there, &new, 0),
            Ok(()),
            "{there:?} {new:?}"
        );
        assert!(
            fits(&quota(fullest - 1), &there, &new, 0).is_err(),
            "{there:?} {new:?}"
        );
    }
}
