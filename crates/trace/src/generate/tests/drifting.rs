//! The workload that was fitted to nothing against its own rules.
//!
//! `cargo test -p trace --lib generate::tests::drifting -- --nocapture` prints what was measured; docs/generator.md
//! has it from there.

use base::{Bytes, Nanos};

use super::super::drifting::{DRIFT_MAX, SPOT, SPOTS, Spot, THETA, spots};
use super::super::plan::REGION;
use super::super::profile::HOUR;
use super::super::{Fingerprint, Generator, Part, Profile, Settings};
use super::{all, each};
use crate::{Op, Request};

const BLOCK: u64 = 4 << 10;
const VOLUME: u64 = SPOTS * REGION;
const MINUTE: Nanos = Nanos::secs(60);
/// Seeds whose spots are looked at without their requests.
const PLANS: std::ops::Range<u64> = 0..40;

/// Off by less than five standard deviations of so many draws?
#[track_caller]
fn near(got: f64, want: f64, draws: usize) {
    let spread = (want * (1.0 - want) / draws as f64).sqrt();
    assert!(
        draws > 0 && (got - want).abs() <= 5.0 * spread,
        "{got:.4}, expected {want:.4} of {draws}"
    );
}

fn share(counted: usize, of: usize) -> f64 {
    counted as f64 / of as f64
}

/// Every rank's spots of every seed.
fn ranks() -> impl Iterator<Item = Vec<Spot>> {
    PLANS.flat_map(|seed| (0..SPOTS).map(move |rank| spots(seed, rank)))
}

/// Which of a rank's spots has it at a moment.
fn at(spots: &[Spot], moment: Nanos) -> usize {
    let spot = spots
        .iter()
        .position(|spot| (spot.begin..spot.end).contains(&moment));
    spot.expect("a rank is never without a spot")
}

/// What tells a place from others.
fn place(spot: &Spot) -> (u64, i64) {
    (spot.place.first, spot.place.drift)
}

/// Zipf's shares of so many ranks.
fn weights(ranks: u64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=ranks).map(|k| (k as f64).powf(-THETA)).collect();
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / all).collect()
}

/// Requests of one moment, each by a spot of its own choice.
fn moment(seed: u64) -> Vec<Request> {
    let settings = Settings {
        seed,
        part: Some(Part::Before),
        requests: Some(300_000),
        iops: Some(1e6),
        burst: Some(1.0),
        ..Settings::default()
    };
    all(Profile::Drifting, &settings)
}

#[test]
fn a_rank_has_one_spot_after_the_other_through_both_hours() {
    for spots in ranks() {
        assert_eq!(spots[0].begin, Nanos(0));
        assert!(spots.windows(2).all(|pair| pair[0].end == pair[1].begin));
        let last = spots.last().expect("there is one");
        assert!(last.begin < HOUR * 2 && last.end >= HOUR * 2);
    }
}

#[test]
fn lifetimes_are_log_normal() {
    // The first spot of a rank is met in the midst of its life.
    let lives: Vec<Nanos> = ranks()
        .flat_map(|spots| spots.into_iter().skip(1))
        .map(|spot| spot.end - spot.begin)
        .collect();
    assert!(lives.len() > 40_000);
    // Minutes, and the normal distribution at ln(minutes / 15).
    let below = [
        (2, 0.021_957),
        (5, 0.135_969),
        (15, 0.5),
        (30, 0.755_891),
        (60, 0.917_171),
        (120, 0.981_212),
    ];
    for (minutes, want) in below {
        let shorter = lives.iter().filter(|life| **life < MINUTE * minutes);
        near(share(shorter.count(), lives.len()), want, lives.len());
    }
}

#[test]
fn one_spot_in_seven_is_there_an_hour_later_whenever_the_hour_begins() {
    // (E max(L - 60, 0)) / E L of the log-normal lifetime L: 0.3496 - 60 / 24.73 * 0.0828.
    const STAY: f64 = 0.148_687;
    for minute in [0, 7, 30, 59] {
        let (mut stay, mut all) = (0, 0);
        for spots in ranks() {
            let now = MINUTE * minute;
            stay += usize::from(at(&spots, now) == at(&spots, now + HOUR));
            all += 1;
        }
        near(share(stay, all), STAY, all);
    }
}

#[test]
fn one_new_spot_in_four_comes_to_a_former_place_and_none_to_the_last_one() {
    let (mut returns, mut could) = (0, 0);
    for spots in ranks() {
        let mut former = vec![place(&spots[0])];
        for pair in spots.windows(2) {
            let (last, next) = (place(&pair[0]), place(&pair[1]));
            assert_ne!(last, next);
            let others = former.iter().filter(|former| **former != last).count();
            let again = former.contains(&next);
            assert!(!again || others > 0);
            could += usize::from(others > 0);
            returns += usize::from(again);
            if !again {
                former.push(next);
            }
        }
    }
    near(share(returns, could), 0.25, could);
}

#[test]
fn spots_begin_anywhere_and_drift_either_way_at_any_speed() {
    let firsts: Vec<Spot> = ranks().map(|spots| spots[0]).collect();
    let of = |wanted: &dyn Fn(&Spot) -> bool| {
        share(
            firsts.iter().filter(|spot| wanted(spot)).count(),
            firsts.len(),
        )
    };
    assert_eq!(DRIFT_MAX * BLOCK, 8 * REGION);
    let places = SPOTS * SPOT - SPOT;
    for tenth in 1..10 {
        let part = tenth as f64 / 10.0;
        let begins = of(&|spot| spot.place.first < places / 10 * tenth);
        near(begins, part, firsts.len());
        let bound = (part * 2.0 - 1.0) * DRIFT_MAX as f64;
        let drifts = of(&|spot| (spot.place.drift as f64) < bound);
        near(drifts, part, firsts.len());
    }
}

#[test]
fn a_spot_moves_at_its_speed_and_turns_round_at_the_volumes_ends() {
    let places = SPOTS * SPOT - SPOT;
    let mut turned = 0;
    for spots in ranks() {
        for spot in &spots {
            let mut last = spot.first(spot.begin);
            assert_eq!(last, spot.place.first);
            for minute in 1..=60 {
                let first = spot.first(spot.begin + MINUTE * minute);
                assert!(first < places);
                let want = spot.place.drift.unsigned_abs() / 60;
                let moved = first.abs_diff(last);
                match moved.abs_diff(want) <= 1 {
                    true => {}
                    // What it lacks it went there and back.
                    false => {
                        assert!(moved < want && first.min(places - 1 - first) <= want);
                        turned += 1;
                    }
                }
                last = first;
            }
        }
    }
    assert!(turned > 100, "{turned} were seen to turn");
}

#[test]
fn blocks_that_stay_within_a_spot_stay_as_hot_as_they_are() {
    let spot = spots(1, 0)
        .into_iter()
        .max_by_key(|spot| spot.place.drift)
        .expect("there is one");
    let (then, now) = (spot.begin, spot.begin + MINUTE * 5);
    let (first, moved) = (spot.first(then), spot.first(now));
    assert!(moved > first && moved < first + SPOT);
    let mut blocks = Vec::new();
    let mut stayed = 0;
    for rank in 0..SPOT {
        let (before, after) = (spot.block(rank, then), spot.block(rank, now));
        match before >= moved {
            true => assert_eq!(before, after),
            false => assert_eq!(before + SPOT, after),
        }
        stayed += u64::from(before == after);
        blocks.push(after);
    }
    assert_eq!(stayed, first + SPOT - moved);
    blocks.sort_unstable();
    assert!(blocks.into_iter().eq(moved..moved + SPOT));
}

#[test]
fn at_a_moment_spots_are_as_popular_as_their_ranks_say() {
    let (by_rank, by_block) = (weights(SPOTS), weights(SPOT));
    assert!((by_rank[0] - 0.1557).abs() < 5e-5);
    assert!((by_rank[..24].iter().sum::<f64>() - 0.5958).abs() < 5e-5);
    for seed in 1..4 {
        let requests = moment(seed);
        assert!(requests.last().is_some_and(|last| last.at < Nanos::secs(1)));
        let spots: Vec<Spot> = (0..SPOTS).map(|rank| spots(seed, rank)[0]).collect();
        for spot in &spots[..6] {
            let span = spot.place.first..spot.place.first + SPOT;
            // What other spots send to this one's blocks comes on top.
            let mut want = 0.0;
            for (other, weight) in spots.iter().zip(&by_rank) {
                if other.place.first.abs_diff(spot.place.first) >= SPOT {
                    continue;
                }
                let shared = (0..SPOT)
                    .filter(|rank| span.contains(&other.block(*rank, Nanos(0))))
                    .map(|rank| by_block[rank as usize]);
                want += weight * shared.sum::<f64>();
            }
            let within = requests
                .iter()
                .filter(|request| span.contains(&(request.offset.0 / BLOCK)));
            near(share(within.count(), requests.len()), want, requests.len());
        }
    }
}

#[test]
fn requests_follow_the_spots_of_their_moment_through_the_measured_hour() {
    let by_rank = weights(SPOTS);
    let want: f64 = by_rank[..3].iter().sum();
    for seed in 2..5 {
        let lines: Vec<Vec<Spot>> = (0..3).map(|rank| spots(seed, rank)).collect();
        let settings = Settings {
            seed,
            burst: Some(1.0),
            iops: Some(50.0),
            ..Settings::default()
        };
        let requests = all(Profile::Drifting, &settings);
        let is_in = |request: &&Request| {
            let now = HOUR + request.at;
            lines.iter().any(|spots| {
                let first = spots[at(spots, now)].first(now);
                (first..first + SPOT).contains(&(request.offset.0 / BLOCK))
            })
        };
        let got = share(requests.iter().filter(is_in).count(), requests.len());
        // Beside five standard deviations: what other spots send to the same blocks, or takes from both.
        assert!(
            requests.len() > 170_000 && (-0.006..0.05).contains(&(got - want)),
            "{got:.4}, expected {want:.4} or a little more"
        );
    }
}

#[test]
fn within_a_spot_blocks_are_as_popular_as_their_ranks_say() {
    let by_block = weights(SPOT);
    let head: f64 = by_block[..2_621].iter().sum();
    assert!((head - 0.632).abs() < 5e-4);
    for seed in 1..4 {
        let hottest = spots(seed, 0)[0];
        let first = hottest.place.first;
        let requests = moment(seed);
        let small: Vec<u64> = requests
            .iter()
            .filter(|request| request.size == Bytes(BLOCK))
            .map(|request| request.offset.0 / BLOCK)
            .filter(|block| (first..first + SPOT).contains(block))
            .collect();
        let block = hottest.block(0, Nanos(0));
        let got = small.iter().filter(|other| **other == block).count();
        // Six in ten go anywhere; the others go on, away from it.
        let spread = 0.06 * 0.6 * by_block[0];
        let want = 0.6 * by_block[0];
        let got = share(got, small.len());
        assert!(small.len() > 20_000 && (got - want).abs() < 5.0 * spread);
    }
}

#[test]
fn requests_go_on_read_and_have_the_sizes_of_the_mix() {
    let settings = Settings {
        requests: Some(300_000),
        ..Settings::default()
    };
    let requests = all(Profile::Drifting, &settings);
    let (mut ends, mut onward) = (base::Map::default(), 0);
    for request in &requests {
        let key = |offset| (offset, request.size.0, request.op == Op::Read);
        onward += usize::from(ends.remove(&key(request.offset.0)).is_some());
        ends.insert(key(request.offset.0 + request.size.0), ());
    }
    let of = |wanted: &dyn Fn(&Request) -> bool| {
        let wanted = requests.iter().filter(|request| wanted(request)).count();
        share(wanted, requests.len())
    };
    // Five standard deviations and the few that meet an end by accident.
    let onward = share(onward, requests.len());
    assert!((onward - 0.4).abs() < 0.01, "{onward:.4}");
    // What goes on repeats operation and size: 0.6 as many draws, less their spread.
    let draws = requests.len() / 3;
    near(of(&|request| request.op == Op::Read), 0.4, draws);
    for (kib, parts) in [(4, 8.0), (8, 3.0), (16, 3.0), (64, 2.0)] {
        near(
            of(&|request| request.size == Bytes::kib(kib)),
            parts / 16.0,
            draws,
        );
    }
    let reads = Settings {
        read_share: Some(0.9),
        ..settings.clone()
    };
    let reads = all(Profile::Drifting, &reads);
    let read = reads.iter().filter(|request| request.op == Op::Read);
    near(share(read.count(), reads.len()), 0.9, draws);
}

#[test]
fn the_second_hour_is_the_same_whatever_is_asked_for_beside_it() {
    let of = |part| Settings {
        part: Some(part),
        iops: Some(10.0),
        ..Settings::default()
    };
    let both = all(Profile::Drifting, &of(Part::Both));
    let before = all(Profile::Drifting, &of(Part::Before));
    let mut window = all(Profile::Drifting, &of(Part::Window));
    assert!(before.len() > 30_000 && window.len() > 30_000);
    assert!(
        before
            .iter()
            .chain(&window)
            .all(|request| request.at < HOUR)
    );
    assert!(both[..before.len()] == before[..]);
    for request in &mut window {
        request.at += HOUR;
    }
    assert!(both[before.len()..] == window[..]);
}

#[test]
fn it_says_its_window_and_takes_no_size() {
    let origin =
        Generator::new(Profile::Drifting, &Settings::default()).map(|trace| trace.origin());
    assert_eq!(origin, Ok("generated: drifting, window, seed 1".to_owned()));
    let sized = Settings {
        size: Some(Bytes::gib(1)),
        ..Settings::default()
    };
    let error = Generator::new(Profile::Drifting, &sized).map(|_| ());
    assert_eq!(
        error.map_err(|error| error.to_string()),
        Err("profile drifting has no size; it has seed, requests, for, part, iops, burst, read-share".to_owned())
    );
}

/// The traces of the held-out seeds: seed, window before, window.
const HASHES: [(u64, &str, &str); 5] = [
    (
        2,
        "befdd7a9bda83af0f97676a4c4e4e5e83891a0659a6976b8d2a93bb3ae9a806b",
        "a84957c93d6db27de7f56dc44b8de37d12ad4aedc6d6fbb23574488d0917d562",
    ),
    (
        3,
        "eef353de24dce383f21c6e7c7ffdc59f30107c8c82d6d816c0729e54b4a81fff",
        "836245c7460a70385c54248ceae448b361d5121c3beab5195633199c8e9e5254",
    ),
    (
        4,
        "ab5342c9a468a2bf7ba92a7ef42c96b833b1618e54febd5118a9de8234212d81",
        "413ef7352056c49a4556e80c249a9788022de62b99270b6173df74bc03a951ac",
    ),
    (
        5,
        "36c4e3e929a32a2eb8be5fb9eb0f9ea4336d8c07cf0ff7530e7061d345d5cda9",
        "5be019e10398e8d3240690e8c1af6f4aa59a5be26253ee8a79d88d05e1f2d014",
    ),
    (
        6,
        "87caeea66439c7e5f4e04bf73a002f4dd9b95dcd97f7136f8496e34f7d2f301d",
        "3fee5fae39fce3ddfa84da894cfe02b71f553ea303e31fb16765ad1145f3ee1a",
    ),
];

/// One hour as a whole.
struct Account {
    hash: String,
    requests: u64,
    bytes: u64,
    by_region: Vec<u64>,
}

fn account(seed: u64, part: Part) -> Account {
    let settings = Settings {
        seed,
        part: Some(part),
        ..Settings::default()
    };
    let mut hash = Fingerprint::default();
    let (mut requests, mut bytes) = (0, 0);
    let mut by_region = vec![0; SPOTS as usize];
    each(Profile::Drifting, &settings, |batch| {
        hash.update(batch);
        for request in batch {
            assert!(request.offset.0 + request.size.0 <= VOLUME);
            assert!(request.offset.is_multiple_of(BLOCK));
            requests += 1;
            bytes += request.size.0;
            by_region[(request.offset.0 / REGION) as usize] += 1;
        }
    });
    Account {
        hash: hash.finish(),
        requests,
        bytes,
        by_region,
    }
}

/// The 24 busiest regions.
fn busiest(account: &Account) -> Vec<usize> {
    let mut regions: Vec<usize> = (0..SPOTS as usize).collect();
    regions.sort_by_key(|region| (std::cmp::Reverse(account.by_region[*region]), *region));
    regions.truncate(24);
    regions
}

#[test]
fn hours_keep_their_load_and_change_at_least_half_of_their_hot_set() {
    let mut fixed = true;
    for (seed, before, window) in HASHES {
        let (first, second) = (account(seed, Part::Before), account(seed, Part::Window));
        let (old, new) = (busiest(&first), busiest(&second));
        let changed = new.iter().filter(|region| !old.contains(region)).count();
        let on = |regions: &[usize]| {
            let on: u64 = regions.iter().map(|region| second.by_region[*region]).sum();
            on as f64 / second.requests as f64
        };
        println!(
            "drifting, seed {seed}: {} and {} requests, {:.1} and {:.1} GB; {changed} of 24 regions are others, \
             the former 24 take {:.1} %, the new ones {:.1} %\n  {}\n  {}",
            first.requests,
            second.requests,
            first.bytes as f64 / 1e9,
            second.bytes as f64 / 1e9,
            on(&old) * 100.0,
            on(&new) * 100.0,
            first.hash,
            second.hash,
        );
        assert!((12..24).contains(&changed), "{changed}");
        for hour in [&first, &second] {
            // 112,500 bursts whose lengths in time vary by 1.7 times their mean: five standard errors are 2.5 %.
            let requests = hour.requests as f64 / 900_000.0;
            assert!((requests - 1.0).abs() < 0.025, "{requests:.3}");
            let kib = hour.bytes as f64 / hour.requests as f64 / 1024.0;
            assert!((kib - 14.5).abs() < 0.3, "{kib:.2}");
        }
        fixed &= (&*first.hash, &*second.hash) == (before, window);
    }
    assert!(
        fixed,
        "the traces of the held-out seeds do not change; see what is printed"
    );
}
