//! Judges the results: beside what the paper states, and by the claims that our policy must meet.
//!
//! ```text
//! values by seed -> mean with its interval -> rows
//!      ours less a baseline's, seed by seed -> mean difference with its interval -> "paired" rows -> claims
//! ```
//!
//! Intervals: 95 %, percentiles of 2,000 means of values drawn again from those of the seeds.

use report::{Evidence, Row, Value};

use super::Measured;
use super::bed::OURS;
use super::cases::{Family, LOADS, READERS, SPLITS};
use super::common::estimate::{Estimate, difference, estimate};
use super::common::row;
use super::message_cost;

impl Estimate {
    fn on(self, row: Row) -> Row {
        row.measured(Some(self.mean))
            .between(Some(self.low), Some(self.high))
    }
}

/// Does a difference say better, worse or nothing?
pub(super) fn verdict(difference: &Estimate, more: bool) -> &'static str {
    let (low, high) = match more {
        true => (difference.low, difference.high),
        false => (-difference.high, -difference.low),
    };
    match (low > 0.0, high < 0.0) {
        (true, _) => "better",
        (_, true) => "worse",
        _ => "no difference",
    }
}

/// All figures, then the paired differences.
pub(super) fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for it in measured {
        let table = it.cell.family.name();
        for (metric, values) in it.cell.metrics.iter().zip(&it.values) {
            let (case, method) = (&it.cell.case, it.cell.method.name);
            let empty = row(table, case, method, metric.name, metric.unit, None);
            rows.push(estimate(values).on(empty));
        }
    }
    for it in measured.iter().filter(|it| is_rival(it)) {
        let Some(ours) = counterpart(measured, it) else {
            continue;
        };
        for (n, metric) in it.cell.metrics.iter().enumerate() {
            let difference = difference(&ours.values[n], &it.values[n]);
            let (case, method) = (&it.cell.case, it.cell.method.name);
            let empty = row("paired", case, method, metric.name, metric.unit, None);
            let mut row = difference.on(empty);
            row.note = format!(
                "that of ours less this method's, paired by seed: {}",
                verdict(&difference, metric.more)
            );
            rows.push(row);
        }
    }
    rows
}

/// Another method, in a case that compares methods.
fn is_rival(it: &Measured) -> bool {
    it.cell.method.name != OURS && it.cell.family != Family::Parts
}

/// The default policy in the same case.
fn counterpart<'a>(measured: &'a [Measured], of: &Measured) -> Option<&'a Measured> {
    (measured.iter()).find(|it| {
        it.cell.case == of.cell.case
            && it.cell.family == of.cell.family
            && it.cell.method.name == OURS
    })
}

pub(super) fn values<'a>(
    measured: &'a [Measured],
    case: &str,
    method: &str,
    metric: &str,
) -> Option<&'a [f64]> {
    let it = (measured.iter()).find(|it| {
        it.cell.case == case && it.cell.method.name == method && it.cell.family != Family::Parts
    })?;
    let at = it.cell.metrics.iter().position(|it| it.name == metric)?;
    Some(&it.values[at])
}

pub(super) fn mean(measured: &[Measured], case: &str, method: &str, metric: &str) -> Option<f64> {
    values(measured, case, method, metric).map(|values| estimate(values).mean)
}

// --- what the paper states ------------------------------------------------------------------------------

/// The paper's statements; states 5 ms old, which is less than one seek, and along the cost of messages.
pub(super) fn statements(measured: &[Measured]) -> Vec<Row> {
    let mut all = mixes(measured);
    all.extend(below_round_robin(measured));
    all.extend(as_clients_are_added(measured));
    all.extend(message_cost::statements(measured));
    all
}

/// One reader is preferred, of `n`.
fn preferred(n: usize) -> String {
    format!("preferred n={n} state-age=5ms")
}

/// A statement as a row.
fn statement(
    [case, method, metric, unit]: [&str; 4],
    published: &str,
    ours: Option<f64>,
    holds: bool,
    note: String,
) -> Row {
    let row = row("statements", case, method, metric, unit, ours)
        .beside(Value::Text(published.to_owned()));
    row.against(holds).noted(note)
}

/// Queue cost is effective where large and small readers are mixed.
fn mixes(measured: &[Measured]) -> Vec<Row> {
    let mut all = Vec::new();
    for (large, small) in SPLITS {
        let case = format!("mix {large}:{small} state-age=5ms");
        for metric in ["large_mb_s", "small_mb_s"] {
            let get = |method| values(measured, &case, method, metric);
            let pair = get("queue-cost").zip(get("round-robin"));
            let difference = pair.map(|(ours, other)| difference(ours, other));
            all.push(statement(
                [&case, "queue-cost", metric, "MB/s"],
                "effective",
                mean(measured, &case, "queue-cost", metric),
                difference.is_some_and(|it| verdict(&it, true) == "better"),
                difference_text("4.3, figures 4 and 5: above round robin by", difference),
            ));
        }
    }
    all
}

/// With one preferred reader the mean of all is less than with round robin.
fn below_round_robin(measured: &[Measured]) -> Vec<Row> {
    let mut all = Vec::new();
    for other in ["queue-cost", "clbs"] {
        for n in READERS.into_iter().filter(|n| *n > 1) {
            let case = preferred(n);
            let get = |method| values(measured, &case, method, "mean_mb_s");
            let pair = get("round-robin").zip(get(other));
            let difference = pair.map(|(ours, other)| difference(ours, other));
            all.push(statement(
                [&case, other, "mean_mb_s", "MB/s"],
                "below round robin",
                mean(measured, &case, other, "mean_mb_s"),
                difference.is_some_and(|it| verdict(&it, true) == "better"),
                difference_text("4.4, figure 6: round robin is above by", difference),
            ));
        }
    }
    all
}

/// Round robin falls as clients come; the preferred one keeps what it has.
fn as_clients_are_added(measured: &[Measured]) -> [Row; 2] {
    let round_robin = READERS.map(|n| mean(measured, &preferred(n), "round-robin", "mean_mb_s"));
    let falls = round_robin.windows(2).all(|two| two[1] < two[0]);
    let kept = |method: &'static str| {
        let of = |n| mean(measured, &preferred(n), method, "preferred_mb_s");
        of(8)
            .zip(of(1))
            .map(|(with, alone)| 100.0 * with / alone.max(1e-9))
    };
    let share = kept("queue-cost");
    [
        statement(
            [
                "preferred n=1 to 8 state-age=5ms",
                "round-robin",
                "mean_mb_s",
                "MB/s",
            ],
            "falls as clients are added",
            round_robin[READERS.len() - 1],
            falls,
            format!("4.4; with 1, 2, 4, 6 and 8: {}", listed(&round_robin)),
        ),
        statement(
            [
                "preferred n=8 state-age=5ms, of n=1",
                "queue-cost",
                "kept_percent",
                "percent",
            ],
            "about what it has alone",
            share,
            share.is_some_and(|it| it >= 75.0),
            format!(
                "4.4; agrees from 75 % on; ours keeps {}, the oracle {}",
                percent(kept(OURS)),
                percent(kept("oracle"))
            ),
        ),
    ]
}

fn difference_text(what: &str, difference: Option<Estimate>) -> String {
    match difference {
        Some(it) => format!("{what} {:.2} ({:.2} to {:.2})", it.mean, it.low, it.high),
        None => "nothing to compare with".to_owned(),
    }
}

fn listed(values: &[Option<f64>]) -> String {
    let shown = values.iter().map(|it| match it {
        Some(value) => format!("{value:.1}"),
        None => "-".to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |it| format!("{it:.0} %"))
}

// --- what must show of ours -----------------------------------------------------------------------------

/// A family's cells on one metric: where does a baseline beat ours?
struct Bar {
    case: &'static str,
    family: Family,
    metrics: &'static [&'static str],
}

/// What must show, and what else is worth knowing.
pub(super) fn claims(measured: &[Measured]) -> Vec<Row> {
    let bars = [
        Bar {
            case: "mix: no baseline is better",
            family: Family::Mix,
            // Source: COST 4.3, figure 5 (the throughput of the small readers); their p99 is ours.
            metrics: &["large_mb_s", "small_mb_s", "small_p99_ms"],
        },
        Bar {
            case: "preferred: no baseline is better",
            family: Family::Preferred,
            metrics: &["preferred_mb_s"],
        },
    ];
    let mut all: Vec<Row> = (bars.iter())
        .flat_map(|bar| {
            let judged = |metric: &&'static str| judged(measured, bar, metric);
            bar.metrics.iter().map(judged).collect::<Vec<_>>()
        })
        .collect();
    all.push(total_kept(measured));
    all.push(beside_oracle(measured));
    // Ours was made on these very cells.
    all = all
        .into_iter()
        .map(|row| row.evidence(Evidence::Calibrated))
        .collect();
    let reported = [
        (Family::Uneven, "small_p99_ms"),
        (Family::Stalls, "small_p99_ms"),
        (Family::Load, "mean_ms"),
        (Family::Load, "p99_ms"),
        (Family::Fair, "fairness"),
    ];
    for (family, metric) in reported {
        let bar = Bar {
            case: "",
            family,
            metrics: &[],
        };
        let mut row = judged(measured, &bar, metric);
        row.case = format!("{}: baselines that are better", family.name());
        row.verdict = None;
        all.push(row);
    }
    all
}

fn judged(measured: &[Measured], bar: &Bar, metric: &str) -> Row {
    let (mut compared, mut lost) = (0, Vec::new());
    let rivals = measured.iter().filter(|it| {
        let ours = it.cell.method.name.starts_with("tanada");
        it.cell.family == bar.family && !ours && it.cell.method.name != "oracle"
    });
    for rival in rivals {
        let Some(ours) = counterpart(measured, rival) else {
            continue;
        };
        let Some(at) = (rival.cell.metrics.iter()).position(|it| it.name == metric) else {
            continue;
        };
        compared += 1;
        let difference = difference(&ours.values[at], &rival.values[at]);
        if verdict(&difference, rival.cell.metrics[at].more) == "worse" {
            let (case, method) = (&rival.cell.case, rival.cell.method.name);
            let of = estimate(&rival.values[at]).mean;
            lost.push(format!(
                "{case}, {method}: by {:.3} of {of:.3}",
                difference.mean.abs()
            ));
        }
    }
    let row = row(
        "claims",
        bar.case,
        OURS,
        metric,
        "cells",
        Some(lost.len() as f64),
    );
    let cells = format!("of {compared} comparisons with a baseline, beyond the paired interval");
    let holds = lost.is_empty() && compared > 0;
    let notes: Vec<String> = [cells].into_iter().chain(lost).collect();
    row.claimed(0.0, holds).noted(notes.join("; "))
}

/// In the preferred cells the total stays at 90 % of round robin's.
fn total_kept(measured: &[Measured]) -> Row {
    let cells = measured
        .iter()
        .filter(|it| it.cell.family == Family::Preferred && it.cell.method.name == OURS);
    let shares: Vec<(f64, String)> = cells
        .filter_map(|it| {
            let total = |method| mean(measured, &it.cell.case, method, "total_mb_s");
            let share = 100.0 * total(OURS)? / total("round-robin")?;
            Some((share, it.cell.case.clone()))
        })
        .collect();
    let least = shares.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (share, case) = least.map_or((None, String::new()), |(share, case)| (Some(share), case));
    let holds = share.is_some_and(|it| it >= 90.0);
    let row = row(
        "claims",
        "preferred: the total stays at 90 % of round robin's",
        OURS,
        "share_percent",
        "percent",
        share,
    );
    row.claimed(90.0, holds)
        .noted(format!("the least of all cells, in {case}"))
}

/// The preferred client among eight, states 100 ms old, beside the oracle's.
fn beside_oracle(measured: &[Measured]) -> Row {
    let case = "preferred n=8 state-age=100ms";
    let of = |method| mean(measured, case, method, "preferred_mb_s");
    let share = (of(OURS).zip(of("oracle"))).map(|(ours, oracle)| 100.0 * ours / oracle);
    let holds = share.is_some_and(|it| it >= 80.0);
    let row = row(
        "claims",
        "preferred n=8 state-age=100ms: at least 80 % of the oracle's",
        OURS,
        "share_percent",
        "percent",
        share,
    );
    row.claimed(80.0, holds).noted(format!(
        "{:.1} of {:.1} MB/s",
        of(OURS).unwrap_or(0.0),
        of("oracle").unwrap_or(0.0)
    ))
}

/// For the report: the names of the cases of a load sweep.
pub(super) fn load_cases(age_ms: u64) -> Vec<(f64, String)> {
    let case = |load: f64| (load, format!("load={load} state-age={age_ms}ms"));
    LOADS.map(case).to_vec()
}

/// For the report: a method's mean in a case.
pub(super) fn point(measured: &[Measured], case: &str, method: &str, metric: &str) -> Option<f64> {
    mean(measured, case, method, metric)
}
