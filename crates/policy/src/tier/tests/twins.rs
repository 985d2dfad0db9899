//! The published decision against its naive reference model on random counts.

use std::collections::BTreeMap;

use base::Nanos;
use proptest::prelude::*;

use super::naive::{Letters, Naive, Outcome};
use crate::tier::{Count, Interval, OnTheFly, Parameters, Region, TierPolicy, Way};

/// What happens between two intervals besides.
#[derive(Debug, Clone, Copy)]
enum Event {
    Nothing,
    Room(u32),
    Withdrawn(u32),
}

/// An interval: its counts from those before, and what comes after it.
#[derive(Debug, Clone)]
enum Load {
    /// The same again.
    Same,
    /// Everything has moved to the neighbour.
    Drift,
    /// Others.
    Fresh(Vec<u64>),
    /// A few have changed.
    Changed(Vec<(usize, u64)>),
}

fn letters(n: usize) -> impl Strategy<Value = Letters> {
    (1u64..4, 0u64..30, 1..=n, 0u64..=100, 1u32..5, 1u32..5)
        .prop_map(|(t, i, n, m, c, o)| Letters { t, i, n, m, c, o })
}

/// Mostly a few values, so that there are ties; many regions without a request.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0u64), 4 => 0u64..4, 2 => 10u64..14, 1 => 0u64..200]
}

fn loads(regions: usize, most: usize) -> impl Strategy<Value = Vec<(Load, Event)>> {
    let load = prop_oneof![
        3 => Just(Load::Same),
        2 => Just(Load::Drift),
        2 => prop::collection::vec(count(), regions).prop_map(Load::Fresh),
        3 => prop::collection::vec((0..regions, count()), 0..4).prop_map(Load::Changed),
    ];
    let event = prop_oneof![
        12 => Just(Event::Nothing),
        1 => (0u32..12).prop_map(Event::Room),
        1 => (1..=regions as u32).prop_map(Event::Withdrawn),
    ];
    prop::collection::vec((load, event), 1..most)
}

/// Both on the same intervals; answers how many moves there were.
fn compare(
    letters: Letters,
    regions: usize,
    mut room: u32,
    loads: &[(Load, Event)],
) -> Result<usize, TestCaseError> {
    let parameters = Parameters {
        period: Nanos::secs(letters.t),
        iops_min: letters.i as f64,
        sub_luns_max: letters.n as u32,
        share_min: letters.m as f64,
        streak_min: letters.c,
        timeout: letters.o,
        window: None,
    };
    let mut policy = OnTheFly::new(parameters, room);
    let mut naive = Naive::default();
    let mut requests = vec![0u64; regions];
    let mut moves = 0;
    for (number, (load, event)) in loads.iter().enumerate() {
        match load {
            Load::Same => {}
            Load::Drift => requests.rotate_right(1),
            Load::Fresh(fresh) => requests.clone_from(fresh),
            Load::Changed(changes) => {
                changes
                    .iter()
                    .for_each(|(region, count)| requests[*region] = *count);
            }
        }
        let count = |region: usize| Count {
            region: Region::at(region as u64),
            reads: requests[region] / 2,
            writes: requests[region] - requests[region] / 2,
        };
        let counts: Vec<Count> = (0..regions)
            .filter(|at| requests[*at] > 0)
            .map(count)
            .collect();
        let decision = policy.step(&Interval {
            number: number as u64,
            length: parameters.period,
            counts: &counts,
        });
        let all: BTreeMap<u32, u64> = (1..).zip(requests.iter().copied()).collect();
        let expected = naive.interval(letters, room as usize, &all);
        let of = |way: Way| {
            let some = decision.moves.iter().filter(|one| one.way == way);
            some.map(|one| one.region.0).collect::<Vec<u32>>()
        };
        let got = Outcome {
            candidates: decision.candidates.iter().map(|one| one.0).collect(),
            down: of(Way::Down),
            up: of(Way::Up),
        };
        prop_assert_eq!(&got, &expected, "interval {} of {:?}", number, requests);
        prop_assert!(
            decision.moves.is_sorted_by_key(|one| one.way == Way::Up),
            "down first"
        );
        let residents: Vec<u32> = policy.residents().iter().map(|one| one.0).collect();
        prop_assert_eq!(&residents, &naive.up.keys().copied().collect::<Vec<u32>>());
        moves += decision.moves.len();
        match event {
            Event::Nothing => {}
            Event::Room(regions) => {
                room = *regions;
                policy.set_room(room);
            }
            Event::Withdrawn(region) => {
                naive.up.remove(region);
                policy.withdrawn(Region(*region));
            }
        }
    }
    Ok(moves)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn small_volumes_are_decided_as_the_naive_twin_does(
        letters in letters(8),
        (regions, loads) in (1usize..16).prop_flat_map(|n| (Just(n), loads(n, 40))),
        room in 0u32..12,
    ) {
        compare(letters, regions, room, &loads)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn large_volumes_are_decided_as_the_naive_twin_does(
        letters in letters(120),
        loads in loads(400, 25),
        room in 0u32..150,
    ) {
        compare(letters, 400, room, &loads)?;
    }
}

/// The comparison is worth nothing if nothing ever moves.
#[test]
fn random_counts_move_many_regions() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = (letters(8), loads(12, 40));
    let mut moves = 0;
    for _ in 0..100 {
        let Ok(tree) = strategy.new_tree(&mut runner) else {
            continue;
        };
        let (letters, loads) = proptest::strategy::ValueTree::current(&tree);
        moves += compare(letters, 12, 8, &loads).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(moves > 500, "{moves}");
}
