//! What a sleeping disk saves over a day, and what it costs those who wait for it.
//!
//! ```text
//! days --mean, least, most over the seeds--> "spin-down"
//!      --ratios seed by seed--> energy saved; "claims": energy mode beside a timer and beside no sleep, `both` beside `cache`
//! ```
//!
//! Choice: energy mode is worth its words if it takes no more energy than the bare disk with a standby timer and wakes the
//! disk no more often, and less energy than the same cache that never sleeps; `both` is the default mode as long as it
//! answers no more than 2 % later than `cache`.
//!
//! Always true: every claim is judged on the day that the times were chosen on and on those held out alike.

use report::{Evidence, Row};

use super::day::{DAYS, Day, Rhythm};
use super::spread::{Spread, ratio, row};
use super::{Measured, OF_DAYS, methods};

/// Energy mode on a disk, that disk with a timer, and with the cache that never sleeps.
const SLEEPERS: [[&str; 3]; 2] = [
    ["tanada-energy", "hdd-3.5-timer", "tanada-3.5"],
    ["tanada-energy-2.5", "hdd-2.5-timer", "tanada-2.5"],
];
/// `both`, and the cache alone.
const BOTH: [[&str; 2]; 2] = [
    ["tanada-both-3.5", "tanada-3.5"],
    ["tanada-both-2.5", "tanada-2.5"],
];
/// `both` may take so many per cent of what the cache alone takes.
const WORSE_MAX: f64 = 102.0;

impl Rhythm {
    /// What stands behind a figure of `method`: the tuned day was tuned for energy mode alone.
    fn evidence_of(&self, method: &str) -> Evidence {
        match self.evidence {
            Evidence::Calibrated if !method.contains("energy") => Evidence::Measured,
            evidence => evidence,
        }
    }
}

/// All that was measured of days.
pub(super) fn figures(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let all = || methods().into_iter().chain(OF_DAYS.map(|it| it.method));
    for (rhythm, method) in DAYS
        .iter()
        .flat_map(|rhythm| all().map(move |it| (rhythm, it)))
    {
        let Some(days) = measured.days.get(&(rhythm.name, method)) else {
            continue;
        };
        let how = match method {
            name if name.ends_with("-timer") => {
                "the bare disk, asleep after a minute without a request"
            }
            name if name.contains("energy") => {
                "energy mode: asleep after a minute, dirty data wait half an hour"
            }
            name if name.contains("both") => "cache and tier together, always on",
            _ => "always on",
        };
        let mut add = |metric, unit, value: fn(&Day) -> f64| {
            let spread = Spread::of(days.iter().map(value));
            let row = row("spin-down", rhythm.name, method, metric, unit, spread);
            rows.push(row.evidence(rhythm.evidence_of(method)).noted(how));
        };
        add("energy", "J", |day| day.sample.joules);
        add("mean power", "W", |day| day.sample.watts());
        add("spin-ups", "times", |day| day.spin_ups as f64);
        add("mean answer", "ms", |day| day.mean_ms);
        add("longest answer", "s", |day| day.longest_s);
    }
    rows
}

/// The energy that energy mode saves.
pub(super) fn savings(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for rhythm in &DAYS {
        for ([sleeper, timer, awake], bare) in SLEEPERS.into_iter().zip(["hdd-3.5", "hdd-2.5"]) {
            for other in [bare, awake, timer] {
                let name = rhythm.name;
                let share = ratio(measured, "joules", (name, sleeper), (name, other));
                let saved = |share: f64| (1.0 - share) * 100.0;
                let saved = Spread {
                    mean: saved(share.mean),
                    low: saved(share.high),
                    high: saved(share.low),
                };
                let note = match saved.mean {
                    loss if loss < 0.0 => {
                        "a loss of ours: sleeping and the SSD take more than they spare"
                    }
                    _ => "what energy mode spares over the whole day, the SSD's own needs counted",
                };
                let metric = format!("energy saved against {other}");
                let row = row("spin-down", name, sleeper, &metric, "percent", saved);
                rows.push(row.evidence(rhythm.evidence_of(sleeper)).noted(note));
            }
        }
    }
    rows
}

/// One figure of a day in per cent of another system's, seed by seed.
fn percent(
    measured: &Measured,
    case: &'static str,
    ours: &'static str,
    other: &'static str,
    value: fn(&Day) -> f64,
) -> Spread {
    let days = |method| measured.days[&(case, method)].iter().map(value);
    let pairs = days(ours).zip(days(other));
    Spread::of(pairs.map(|(ours, other)| 100.0 * ours / other))
}

/// A figure of a day, and its name beside another system's.
type Figure = (&'static str, fn(&Day) -> f64);

const JOULES: fn(&Day) -> f64 = |day| day.sample.joules;
const ANSWER: fn(&Day) -> f64 = |day| day.mean_ms;
const BESIDE_TIMER: [Figure; 3] = [
    ("energy of a timer's", JOULES),
    ("spin-ups of a timer's", |day| day.spin_ups as f64),
    ("mean answer of a timer's", ANSWER),
];

/// What must hold; a short run judges nothing.
pub(super) fn claims(measured: &Measured, quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for rhythm in &DAYS {
        let name = rhythm.name;
        let mut add = |[ours, other]: [&'static str; 2], figure: Figure, bar, note: &str| {
            let found = percent(measured, name, ours, other, figure.1);
            let row = row("claims", name, ours, figure.0, "percent", found)
                .evidence(rhythm.evidence_of(ours))
                .noted(format!("{note} `{other}`"));
            rows.push(judged(row, found, bar, quick));
        };
        for [ours, timer, awake] in SLEEPERS {
            for figure in BESIDE_TIMER {
                let note = "no more than the bare disk with a standby timer,";
                add([ours, timer], figure, 100.0, note);
            }
            let figure = ("energy of always on", JOULES);
            add(
                [ours, awake],
                figure,
                100.0,
                "no more than the same cache always on,",
            );
        }
        for pair in BOTH {
            let figure = ("mean answer of the cache's", ANSWER);
            let note = "cache and tier together: at most 2 % above the cache alone,";
            add(pair, figure, WORSE_MAX, note);
        }
    }
    rows.extend(streams(measured, quick));
    rows
}

/// The streams as they come, cache and tier together beside the cache alone.
fn streams(measured: &Measured, quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for ([ours, cache], case) in BOTH
        .into_iter()
        .flat_map(|pair| ["read", "reread", "write", "rewrite"].map(|case| (pair, case)))
    {
        let samples = |method| measured.as_it_comes[&(case, method)].iter();
        let pairs = samples(ours).zip(samples(cache));
        let found = Spread::of(pairs.map(|(ours, cache)| 100.0 * ours.seconds / cache.seconds));
        let row = row(
            "claims",
            case,
            ours,
            "seconds of the cache's",
            "percent",
            found,
        )
        .noted(format!(
            "as they come, cache and tier together: at most 2 % above the cache alone, `{cache}`"
        ));
        rows.push(judged(row, found, WORSE_MAX, quick));
    }
    rows
}

/// `row`, judged: at most `bar`.
fn judged(row: Row, found: Spread, bar: f64, quick: bool) -> Row {
    row.claimed(bar, found.mean <= bar).unjudged_if(quick)
}
