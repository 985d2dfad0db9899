//! Figures 4 to 6 of the paper, with ours in them, and the same by the age of states, by load and by what messages cost.
//!
//! Source: COST figures 4 and 5 (large and small readers), 6 (sequential readers, one preferred).

use report::{Axis, Chart, Section, Series, Unit};

use super::Measured;
use super::bed::OURS;
use super::cases::{AGES, READERS, SPLITS};
use super::compare::{load_cases, point};
use super::message_cost;

/// Who is drawn.
const DRAWN: [&str; 6] = ["round-robin", "clbs", "queue-cost", "c3", OURS, "oracle"];

/// A chart with a line for each method: `cases` gives the x of each case.
fn chart(
    measured: &[Measured],
    title: String,
    axes: (Axis, Axis),
    cases: &[(f64, String)],
    metric: &str,
    scale: f64,
) -> Chart {
    let mut chart = Chart::new(title, axes.0, axes.1).wide();
    for method in DRAWN {
        let points = cases.iter().filter_map(|(x, case)| {
            let y = point(measured, case, method, metric)?;
            Some((*x, y * scale))
        });
        chart = chart.series(Series::new(method, points.collect::<Vec<_>>()));
    }
    chart
}

/// Cases by how many of four readers are large ones.
fn splits(age: u64) -> [(f64, String); SPLITS.len()] {
    SPLITS.map(|(large, small)| {
        let case = format!("mix {large}:{small} state-age={age}ms");
        (large as f64, case)
    })
}

/// Cases by how many readers there are.
fn readers(age: u64) -> [(f64, String); READERS.len()] {
    READERS.map(|n| (n as f64, format!("preferred n={n} state-age={age}ms")))
}

/// The case by the age of what is known.
fn ages(case: &str) -> [(f64, String); AGES.len()] {
    AGES.map(|age| {
        let ms = age.0 / 1_000_000;
        (age.0 as f64 / 1e9, format!("{case} state-age={ms}ms"))
    })
}

/// All figures.
pub(super) fn sections(measured: &[Measured]) -> Vec<Section> {
    let rate = |name: &str| Axis::new(name, Unit::BytesPerSecond);
    let mut mix = Section::new("Large and small readers (the paper's figures 4 and 5)");
    let mut alone = Section::new("Sequential readers, one preferred (the paper's figure 6)");
    for age in [5, 100] {
        for (metric, who) in [("large_mb_s", "1 MiB"), ("small_mb_s", "4 KiB")] {
            let axes = (
                Axis::new("of four readers, those of 1 MiB", Unit::Number),
                rate("each of this kind gets"),
            );
            let title = format!("Readers of {who}, states up to {age} ms old");
            mix = mix.put(chart(measured, title, axes, &splits(age), metric, 1e6));
        }
        for (metric, who) in [
            ("preferred_mb_s", "The preferred one"),
            ("mean_mb_s", "The mean"),
        ] {
            let axes = (Axis::new("readers", Unit::Number), rate("it gets"));
            let title = format!("{who}, states up to {age} ms old");
            alone = alone.put(chart(measured, title, axes, &readers(age), metric, 1e6));
        }
    }
    let mut by_age = Section::new("By the age of what is known");
    for (case, metric) in [
        ("mix 2:2", "large_mb_s"),
        ("preferred n=8", "preferred_mb_s"),
    ] {
        let axes = (
            Axis::new("age of states", Unit::Seconds).log(),
            rate("it gets"),
        );
        let title = format!("{case}: {metric}");
        by_age = by_age.put(chart(measured, title, axes, &ages(case), metric, 1e6));
    }
    let axes = (
        Axis::new("asked of what the disks can do", Unit::Share),
        Axis::new("mean wait", Unit::Seconds),
    );
    let cases = load_cases(100);
    let by_load = Section::new("By load").put(chart(
        measured,
        "Random reads of 64 KiB, states up to 100 ms old".to_owned(),
        axes,
        &cases,
        "mean_ms",
        1e-3,
    ));
    vec![mix, alone, by_age, by_load, message_cost::section(measured)]
}
