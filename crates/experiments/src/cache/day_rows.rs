//! What a sleeping disk saves over a day, and what it costs those who wait for it.
//!
//! ```text
//! days --mean, least, most over the seeds--> "spin-down"
//!      --ratios seed by seed--> energy saved; "claims": energy mode beside timers, and beside no sleep
//! ```
//!
//! Choice: energy mode is worth its name if it takes no more energy than the best of a bare disk with a timer of 20, 60 or
//! 300 s and our cache before a disk with a timer; if it wakes the disk no more often, and answers no later, than a bare
//! disk with a timer of 60 s, its own; and if it takes no more energy, and answers no later, than the same cache always on.
//!
//! Always true: every claim is judged on the day that the times were chosen on and on those held out alike.

use report::Row;

use super::day::{DAYS, Day, Rhythm};
use super::spread::{Spread, ratio, row};
use super::{Measured, OF_DAYS, methods};

/// Energy mode on a disk, and what it is judged beside.
struct Sleeper {
    method: &'static str,
    bare: &'static str,
    /// The same cache always on.
    awake: &'static str,
    /// The bare disk with a timer as long as energy mode's.
    timer: &'static str,
    /// All that sleeps by a timer.
    timers: [&'static str; 4],
}

const SLEEPERS: [Sleeper; 2] = [
    Sleeper {
        method: "tanada-energy",
        bare: "hdd-3.5",
        awake: "tanada-3.5",
        timer: "hdd-3.5-timer",
        timers: [
            "hdd-3.5-timer-20",
            "hdd-3.5-timer",
            "hdd-3.5-timer-300",
            "tanada-3.5-timer",
        ],
    },
    Sleeper {
        method: "tanada-energy-2.5",
        bare: "hdd-2.5",
        awake: "tanada-2.5",
        timer: "hdd-2.5-timer",
        timers: [
            "hdd-2.5-timer-20",
            "hdd-2.5-timer",
            "hdd-2.5-timer-300",
            "tanada-2.5-timer",
        ],
    },
];

/// All that was measured of days.
pub(super) fn figures(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let all = || {
        methods()
            .into_iter()
            .chain(OF_DAYS.map(|setup| setup.method))
    };
    for (rhythm, method) in DAYS
        .iter()
        .flat_map(|rhythm| all().map(move |method| (rhythm, method)))
    {
        let Some(days) = measured.days.get(&(rhythm.name, method)) else {
            continue;
        };
        let how = match method {
            name if name.contains("timer-") => {
                "the bare disk, asleep after so many seconds without a request"
            }
            name if name.starts_with("tanada") && name.ends_with("timer") => {
                "our cache before a disk that is asleep after a minute without a request"
            }
            name if name.ends_with("timer") => {
                "the bare disk, asleep after a minute without a request"
            }
            name if name.contains("energy") => {
                "energy mode: asleep after a minute, dirty data wait half an hour"
            }
            _ => "always on",
        };
        let mut add = |metric, unit, value: fn(&Day) -> f64| {
            let spread = Spread::of(days.iter().map(value));
            let row = row("spin-down", rhythm.name, method, metric, unit, spread);
            rows.push(row.evidence(rhythm.evidence_of(method)).noted(how));
        };
        add("energy", "J", JOULES);
        add("mean power", "W", |day| day.sample.watts());
        add("spin-ups", "times", SPIN_UPS);
        add("requests", "requests", |day| day.requests as f64);
        add("mean answer", "ms", ANSWER);
        add("longest answer", "s", |day| day.longest_s);
    }
    rows
}

/// The energy that energy mode saves.
pub(super) fn savings(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for (rhythm, sleeper) in each() {
        let others = [sleeper.bare, sleeper.awake]
            .into_iter()
            .chain(sleeper.timers);
        for other in others {
            let of = |method| (rhythm.name, method);
            let share = ratio(measured, "joules", of(sleeper.method), of(other));
            let saved = |share: f64| (1.0 - share) * 100.0;
            let saved = Spread {
                mean: saved(share.mean),
                low: saved(share.high),
                high: saved(share.low),
            };
            let note = match saved.mean {
                loss if loss < 0.0 => "a loss of ours",
                _ => "what energy mode spares over the whole day, the SSD's own needs counted",
            };
            let metric = format!("energy saved against {other}");
            let row = row(
                "spin-down",
                rhythm.name,
                sleeper.method,
                &metric,
                "percent",
                saved,
            );
            rows.push(row.evidence(rhythm.evidence_of(sleeper.method)).noted(note));
        }
    }
    rows
}

/// Every day, with each disk.
fn each() -> impl Iterator<Item = (&'static Rhythm, &'static Sleeper)> {
    DAYS.iter()
        .flat_map(|rhythm| SLEEPERS.iter().map(move |sleeper| (rhythm, sleeper)))
}

const JOULES: fn(&Day) -> f64 = |day| day.sample.joules;
const SPIN_UPS: fn(&Day) -> f64 = |day| day.spin_ups as f64;
const ANSWER: fn(&Day) -> f64 = |day| day.mean_ms;

/// What must hold; a short run judges nothing.
pub(super) fn claims(measured: &Measured, quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (rhythm, sleeper) in each() {
        let days = |method| &measured.days[&(rhythm.name, method)];
        let joules = |method: &'static str| {
            let days = days(method);
            days.iter().map(JOULES).sum::<f64>() / days.len() as f64
        };
        let best = sleeper
            .timers
            .into_iter()
            .min_by(|a, b| joules(a).total_cmp(&joules(b)))
            .expect("there are four");
        for (metric, other, value) in [
            ("energy of the best timer's", best, JOULES),
            ("spin-ups of a timer's", sleeper.timer, SPIN_UPS),
            ("mean answer of a timer's", sleeper.timer, ANSWER),
            ("energy of always on", sleeper.awake, JOULES),
            ("mean answer of always on", sleeper.awake, ANSWER),
        ] {
            let pairs = days(sleeper.method).iter().zip(days(other));
            let found = Spread::of(pairs.map(|(ours, other)| 100.0 * value(ours) / value(other)));
            let row = row(
                "claims",
                rhythm.name,
                sleeper.method,
                metric,
                "percent",
                found,
            );
            rows.push(
                row.evidence(rhythm.evidence_of(sleeper.method))
                    .claimed(100.0, found.mean <= 100.0)
                    .unjudged_if(quick)
                    .noted(format!("no more than `{other}`")),
            );
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use report::{Evidence, Verdict};

    use super::super::work::Sample;
    use super::*;

    /// Two seeds of every day: joules, spin-ups and ms of a method as `of` says.
    fn measured(of: impl Fn(&str) -> [f64; 3]) -> Measured {
        let mut measured = Measured::default();
        let all = methods()
            .into_iter()
            .chain(OF_DAYS.map(|setup| setup.method));
        for method in all {
            let [joules, spin_ups, mean_ms] = of(method);
            let day = |times: f64| Day {
                sample: Sample {
                    seconds: 86_400.0,
                    joules: joules * times,
                },
                spin_ups: spin_ups as u64,
                mean_ms,
                ..Day::default()
            };
            for rhythm in &DAYS {
                let days = vec![day(1.0), day(2.0)];
                measured.days.insert((rhythm.name, method), days);
            }
        }
        measured
    }

    #[test]
    fn energy_mode_is_judged_beside_the_best_timer_and_a_loss_by_the_label_of_its_day() {
        // 100 J of 120, the best of the timers; 10 times of 20; 3 ms of 2 and of 1.
        let measured = measured(|method| match method {
            "tanada-energy" | "tanada-energy-2.5" => [100.0, 10.0, 3.0],
            "tanada-3.5-timer" | "tanada-2.5-timer" => [120.0, 20.0, 2.0],
            name if name.contains("timer") => [150.0, 20.0, 2.0],
            _ => [200.0, 1.0, 1.0],
        });
        let rows = claims(&measured, false);
        assert_eq!(rows.len(), 4 * 2 * 5);
        let of = |case: &str, metric: &str| {
            let mut found = rows.iter().filter(|row| {
                (&*row.case, &*row.method, &*row.metric) == (case, "tanada-energy-2.5", metric)
            });
            let row = found.next().unwrap_or_else(|| panic!("no {metric}"));
            let ours = row.ours.as_ref().and_then(report::Value::number);
            (ours.unwrap().round(), row.verdict.unwrap(), &*row.note)
        };
        let held_out = "day of a builder";
        let found = of(held_out, "energy of the best timer's");
        assert_eq!(
            found,
            (83.0, Verdict::Holds, "no more than `tanada-2.5-timer`")
        );
        let found = of(held_out, "spin-ups of a timer's");
        assert_eq!(
            found,
            (50.0, Verdict::Holds, "no more than `hdd-2.5-timer`")
        );
        let found = of(held_out, "mean answer of a timer's");
        assert_eq!(
            found,
            (150.0, Verdict::FailsOutside, "no more than `hdd-2.5-timer`")
        );
        let found = of("day", "mean answer of always on");
        assert_eq!(found, (300.0, Verdict::Fails, "no more than `tanada-2.5`"));
        assert!(
            claims(&measured, true)
                .iter()
                .all(|row| row.verdict == Some(Verdict::NotJudged))
        );
    }

    #[test]
    fn only_energy_mode_was_tuned_and_on_one_day_alone() {
        let rows = figures(&measured(|_| [1.0; 3]));
        for row in &rows {
            let expected = match (&*row.case, row.method.contains("energy")) {
                ("day", true) => Evidence::Calibrated,
                ("day", false) => Evidence::Measured,
                _ => Evidence::HeldOut,
            };
            assert_eq!(row.evidence, expected, "{row:?}");
        }
        assert_eq!(rows.len(), 4 * 17 * 6);
    }
}
