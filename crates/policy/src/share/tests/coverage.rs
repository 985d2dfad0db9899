//! Are promises built on the estimator kept? Series of speeds, learned from the first part and judged
//! on the rest.

use base::Nanos;

use super::super::capacity::{Drift, Estimator, EstimatorOptions, Interval, Observed};
use super::super::*;
use super::Dice;

const P99: Probability = Probability::percent(99);

/// What one interval of a second is like.
type Series = fn(&mut Dice, &mut f64) -> f64;

/// Roughly normal: twelve dice.
fn normal(dice: &mut Dice) -> f64 {
    let sum: u64 = (0..12).map(|_| dice.below(1 << 20)).sum();
    sum as f64 / (1 << 20) as f64 - 6.0
}

/// No memory: 0.9 and a spread of 3 %.
fn steady(dice: &mut Dice, _: &mut f64) -> f64 {
    0.9 + 0.03 * normal(dice)
}

/// Slow ones come in bunches (first-order autoregressive, 0.8).
fn wandering(dice: &mut Dice, state: &mut f64) -> f64 {
    *state = 0.8 * *state + 0.6 * normal(dice);
    0.85 + 0.05 * *state
}

/// Garbage collection: about every twentieth second it starts, and goes on for three on average.
fn collecting(dice: &mut Dice, state: &mut f64) -> f64 {
    let odds = if *state > 0.0 { 67 } else { 5 };
    *state = f64::from(u8::from(dice.below(100) < odds));
    0.95 - 0.35 * *state + 0.02 * normal(dice)
}

fn interval(speed: f64) -> Interval {
    Interval {
        length: Nanos::secs(1),
        backlogged: Nanos::secs(1),
        active: Nanos::secs(1),
        read_work: Nanos(0),
        write_work: Nanos::from_secs_f64(speed),
    }
}

/// Over `runs` runs: the share of held-out windows that kept what was promised, and the mean of the
/// promised speed, both in percent.
fn coverage(series: Series, learn: usize, window: usize, runs: u64) -> (f64, f64) {
    let (mut kept, mut all, mut promised) = (0u64, 0u64, 0.0);
    for run in 0..runs {
        let mut dice = Dice::new(run * 7919 + learn as u64);
        let mut state = 0.0;
        let mut estimator = Estimator::new(EstimatorOptions {
            seed: run,
            redraws: 60,
            ..EstimatorOptions::default()
        });
        for _ in 0..learn {
            estimator.observe(&interval(series(&mut dice, &mut state)));
        }
        // A false alarm may have left too little to promise anything.
        let Some(guarantee) = estimator.guarantee(Mix::Writes, P99, window) else {
            continue;
        };
        let speed = guarantee.speed.as_percent() / 100.0;
        promised += speed;
        for _ in 0..500 {
            let sum: f64 = (0..window).map(|_| series(&mut dice, &mut state)).sum();
            kept += u64::from(sum / window as f64 >= speed);
            all += 1;
        }
    }
    assert!(all >= runs * 450, "{all} windows of {runs} runs");
    (
        100.0 * kept as f64 / all as f64,
        100.0 * promised / runs as f64,
    )
}

#[test]
fn promised_99_percent_hold_in_99_percent_of_what_was_not_seen() {
    let series: [(&str, Series, f64); 3] = [
        ("steady", steady, 75.0),
        ("wandering", wandering, 55.0),
        ("collecting", collecting, 30.0),
    ];
    for (name, series, useful) in series {
        for (learn, window) in [(120, 1), (600, 1), (2000, 1), (600, 5)] {
            let (kept, promised) = coverage(series, learn, window, 40);
            println!("{name} {learn} x{window}: kept {kept:.2} %, promised {promised:.1} %");
            assert!(kept >= 99.0, "{name} {learn} x{window}: {kept} % kept");
            assert!(
                promised > useful,
                "{name} {learn} x{window}: {promised} % promised"
            );
        }
    }
}

#[test]
fn only_intervals_in_which_requests_waited_are_samples() {
    let mut estimator = Estimator::new(EstimatorOptions::default());
    let idle = Interval {
        backlogged: Nanos::millis(900),
        ..interval(0.4)
    };
    assert_eq!(estimator.observe(&idle), Observed::NotBacklogged);
    let short = Interval {
        length: Nanos::millis(10),
        ..interval(0.01)
    };
    assert_eq!(estimator.observe(&short), Observed::WrongLength);
    assert_eq!(estimator.observe(&interval(30.0)), Observed::TooFast);
    assert_eq!(estimator.samples(Mix::Writes), 0);
    assert_eq!(
        estimator.observe(&interval(0.9)),
        Observed::Taken(Mix::Writes)
    );
    let both = Interval {
        read_work: Nanos::millis(400),
        ..interval(0.5)
    };
    assert_eq!(estimator.observe(&both), Observed::Taken(Mix::Mixed));
}

#[test]
fn a_device_that_slows_down_is_noticed_and_the_past_forgotten() {
    let mut estimator = Estimator::new(EstimatorOptions::default());
    let (mut dice, mut state) = (Dice::new(3), 0.0);
    for _ in 0..600 {
        estimator.observe(&interval(steady(&mut dice, &mut state)));
    }
    let before = estimator.guarantee(Mix::Writes, P99, 1).unwrap().speed;
    let mut noticed = None;
    for n in 0..300 {
        let seen = estimator.observe(&interval(0.7 * steady(&mut dice, &mut state)));
        if let Observed::Drifted(mix, drift) = seen {
            assert_eq!((mix, drift), (Mix::Writes, Drift::Down));
            noticed.get_or_insert(n);
        }
    }
    assert!(noticed.is_some_and(|n| n <= 60), "{noticed:?}");
    let after = estimator.guarantee(Mix::Writes, P99, 1).unwrap();
    assert!(after.speed < Share::percent(60) && before > Share::percent(75));
    assert!(after.samples <= 300, "{after:?}");
}

#[test]
fn a_device_that_stays_as_it_is_seldom_alarms() {
    for (series, most) in [(steady as Series, 1), (wandering, 4), (collecting, 4)] {
        let mut alarms = 0;
        for run in 0..20 {
            let mut estimator = Estimator::new(EstimatorOptions::default());
            let (mut dice, mut state) = (Dice::new(run), 0.0);
            for _ in 0..1000 {
                let seen = estimator.observe(&interval(series(&mut dice, &mut state)));
                alarms += u32::from(matches!(seen, Observed::Drifted(..)));
            }
        }
        assert!(alarms <= most, "{alarms} in 20000 intervals");
    }
}

#[test]
fn the_guarantee_stays_within_its_bounds() {
    let mut estimator = Estimator::new(EstimatorOptions::default());
    for _ in 0..400 {
        estimator.observe(&interval(0.01));
    }
    let guarantee = estimator.guarantee(Mix::Writes, P99, 1).unwrap();
    assert_eq!(
        (guarantee.speed, guarantee.bounded),
        (Share::percent(10), true)
    );
    assert_eq!(estimator.guarantee(Mix::Reads, P99, 1), None);
}

/// Little to do: so much work in a tenth of a second of activity.
fn light(speed: f64) -> Interval {
    Interval {
        backlogged: Nanos(0),
        active: Nanos::millis(100),
        ..interval(speed / 10.0)
    }
}

#[test]
fn a_device_that_is_fast_with_little_to_do_is_trusted_again() {
    let mut estimator = Estimator::new(EstimatorOptions::default());
    for _ in 0..100 {
        estimator.observe(&interval(0.25));
    }
    for _ in 0..4 {
        assert_eq!(estimator.observe(&light(0.95)), Observed::NotBacklogged);
    }
    let seen = estimator.observe(&light(0.95));
    assert!(
        matches!(seen, Observed::Recovered(Mix::Writes, speed) if speed > Share::percent(94)),
        "{seen:?}"
    );
    assert_eq!(estimator.samples(Mix::Writes), 0);
}

#[test]
fn a_device_that_is_as_slow_with_little_to_do_is_not() {
    let mut estimator = Estimator::new(EstimatorOptions::default());
    for _ in 0..100 {
        estimator.observe(&interval(0.5));
    }
    for _ in 0..100 {
        assert_eq!(estimator.observe(&light(0.52)), Observed::NotBacklogged);
    }
    assert_eq!(estimator.samples(Mix::Writes), 100);
}
