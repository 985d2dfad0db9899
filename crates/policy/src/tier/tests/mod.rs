//! Tests of the tiering rules: figures as case files, a naive reference model, what they say.

mod cases;
mod naive;
mod twins;

use super::*;

#[test]
fn a_move_says_why() {
    let said = [
        Reason::Streak(3),
        Reason::Joined,
        Reason::Absent(10),
        Reason::Busiest(4),
        Reason::Overtaken,
    ];
    assert_eq!(
        said.map(|why| why.to_string()),
        [
            "its group was hot 3 intervals in a row",
            "it joined a group that was moved before",
            "it was not hot for 10 intervals",
            "it was number 4 of the window before",
            "others were busier in the window before",
        ]
    );
}

/// Regions that had 4,000 requests in an interval of a minute.
fn hot(regions: std::ops::RangeInclusive<u32>) -> Vec<Count> {
    regions
        .map(|region| Count {
            region: Region(region),
            reads: 3_000,
            writes: 1_000,
        })
        .collect()
}

fn reasons(policy: &mut impl TierPolicy, counts: &[Count]) -> Vec<(u32, Reason)> {
    let interval = Interval {
        number: 0,
        length: Nanos::secs(60),
        counts,
    };
    let moves = policy.step(&interval).moves;
    moves.iter().map(|one| (one.region.0, one.why)).collect()
}

#[test]
fn a_region_that_joins_has_another_reason_than_one_that_waited() {
    let mut policy = OnTheFly::new(Parameters::default(), 2);
    reasons(&mut policy, &hot(65..=67));
    reasons(&mut policy, &hot(65..=67));
    let first = reasons(&mut policy, &hot(65..=67));
    assert_eq!(first, [(65, Reason::Streak(3)), (66, Reason::Streak(3))]);
    policy.set_room(9);
    let second = reasons(&mut policy, &hot(65..=68));
    assert_eq!(second, [(67, Reason::Streak(4)), (68, Reason::Joined)]);
}

#[test]
fn parameters_may_change_while_it_runs() {
    let mut policy = OnTheFly::new(Parameters::default(), 9);
    reasons(&mut policy, &hot(1..=1));
    policy.set_parameters(Parameters {
        streak_min: 2,
        timeout: 1,
        ..Parameters::default()
    });
    // The streak so far counts.
    assert_eq!(reasons(&mut policy, &hot(1..=1)), [(1, Reason::Streak(2))]);
    assert_eq!(reasons(&mut policy, &hot(5..=5)), [(1, Reason::Absent(1))]);
    assert_eq!(reasons(&mut policy, &hot(5..=5)), [(5, Reason::Streak(2))]);
    // What was judged to move stays so, though its streak would be too short now.
    policy.set_parameters(Parameters {
        streak_min: 9,
        ..Parameters::default()
    });
    assert_eq!(reasons(&mut policy, &hot(5..=6)), [(6, Reason::Joined)]);
}

#[test]
#[should_panic(expected = "timeout is 0")]
fn parameters_that_make_no_sense_are_not_taken() {
    let parameters = Parameters {
        timeout: 0,
        ..Parameters::default()
    };
    build(Kind::OnTheFly, parameters, 1);
}

#[test]
fn a_whole_window_may_be_given_to_static_tiering_beforehand() {
    let mut policy = StaticTiering::new(Parameters::default(), 2);
    let window = [hot(4..=4), hot(9..=9), hot(4..=4), hot(7..=7)].concat();
    let decision = policy.place(&window);
    assert_eq!(decision.candidates, [Region(4), Region(7)]);
    assert_eq!(policy.residents(), [Region(4), Region(7)]);
    let whys: Vec<Reason> = decision.moves.iter().map(|one| one.why).collect();
    assert_eq!(whys, [Reason::Busiest(1), Reason::Busiest(2)]);
    // An hour is 60 intervals; only at its end it looks again.
    for minute in 1..=60 {
        let moves = reasons(&mut policy, &hot(7..=8));
        assert_eq!(moves.is_empty(), minute < 60, "{minute}: {moves:?}");
    }
    assert_eq!(policy.residents(), [Region(7), Region(8)]);
}

#[test]
fn hystor_looks_every_quarter_of_an_hour() {
    let mut policy = Hystor::new(Parameters::default(), 2);
    for minute in 1..=30 {
        let moves = reasons(&mut policy, &hot(minute..=minute));
        assert_eq!(!moves.is_empty(), minute % 15 == 0, "{minute}: {moves:?}");
    }
}
