//! What must show of ours on the product's path, in the metrics of the paper's figures.
//!
//! ```text
//! runs of a case -> ours as a part of the reference's, and its interval -> beyond the bar? -> a row each
//!                   the tuned cases of a claim -> holds | fails      those held out -> holds | fails outside the tuned cells
//! ```

use policy::place::Kind;
use report::{Evidence, Row, Verdict};

use super::super::common::estimate::{difference, estimate};
use super::super::common::row;
use super::scenes::{ProductCase, ProductMethod, Topic};
use super::{Runs, evidence_of};

const TABLE: &str = "product-claims";
/// The method that is judged: what daemons do.
const OURS: &str = "tanada";

/// Ours beside what others have: at least, or at most, so many percent of it.
struct Claim {
    name: &'static str,
    topic: Topic,
    metric: &'static str,
    /// The best of these counts.
    references: References,
    bar: Bar,
    /// In cases at this T alone.
    age_ms: Option<u64>,
}

/// Beside whom.
#[derive(Clone, Copy)]
enum References {
    One(&'static str),
    /// The greedy choice by exact states, in either order of service.
    Oracle,
    /// All but ours and the oracle.
    Baselines,
}

impl References {
    fn has(self, method: &ProductMethod) -> bool {
        match self {
            References::One(name) => method.name == name,
            References::Oracle => method.kind == Kind::Oracle,
            References::Baselines => !matches!(method.kind, Kind::Oracle | Kind::Tanada),
        }
    }

    fn whose(self) -> &'static str {
        match self {
            References::One(name) => name,
            References::Oracle => "the oracle",
            References::Baselines => "the best baseline",
        }
    }
}

enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn percent(&self) -> f64 {
        match self {
            Bar::AtLeast(bar) | Bar::AtMost(bar) => *bar,
        }
    }
}

const CLAIMS: [Claim; 9] = [
    Claim {
        name: "a preferred client among eight has 85 % of the oracle's",
        topic: Topic::Preferred,
        metric: "preferred_mb_s",
        references: References::Oracle,
        bar: Bar::AtLeast(85.0),
        age_ms: Some(100),
    },
    // Source: COST 4.4, figure 6.
    Claim {
        name: "no baseline gives a preferred client more",
        topic: Topic::Preferred,
        metric: "preferred_mb_s",
        references: References::Baselines,
        bar: Bar::AtLeast(100.0),
        age_ms: None,
    },
    // Source: COST 4.3, figure 4.
    Claim {
        name: "no baseline gives large readers more",
        topic: Topic::Mix,
        metric: "large_mb_s",
        references: References::Baselines,
        bar: Bar::AtLeast(100.0),
        age_ms: None,
    },
    // Source: COST 4.3, figure 5.
    Claim {
        name: "no baseline gives small readers more",
        topic: Topic::Mix,
        metric: "small_mb_s",
        references: References::Baselines,
        bar: Bar::AtLeast(100.0),
        age_ms: None,
    },
    Claim {
        name: "small readers have 98 % of queue-cost's throughput",
        topic: Topic::Mix,
        metric: "small_mb_s",
        references: References::One("queue-cost"),
        bar: Bar::AtLeast(98.0),
        age_ms: None,
    },
    Claim {
        name: "small reads' p99 is at most least-outstanding's",
        topic: Topic::Mix,
        metric: "small_p99_ms",
        references: References::One("least-outstanding"),
        bar: Bar::AtMost(100.0),
        age_ms: None,
    },
    Claim {
        name: "with stalls the mean is at most 1.1 times the best baseline's",
        topic: Topic::Stalls,
        metric: "small_mean_ms",
        references: References::Baselines,
        bar: Bar::AtMost(110.0),
        age_ms: None,
    },
    Claim {
        name: "with stalls the p99 is at most 1.1 times the best baseline's",
        topic: Topic::Stalls,
        metric: "small_p99_ms",
        references: References::Baselines,
        bar: Bar::AtMost(110.0),
        age_ms: None,
    },
    Claim {
        name: "fairness is at least the best baseline's",
        topic: Topic::Fair,
        metric: "fairness",
        references: References::Baselines,
        bar: Bar::AtLeast(100.0),
        age_ms: None,
    },
];

impl Claim {
    fn is_about(&self, case: &ProductCase) -> bool {
        let age = case.age.0 / 1_000_000;
        case.topic == self.topic && self.age_ms.is_none_or(|it| it == age)
    }

    /// The values of the best reference of a case, and its name.
    fn reference<'a>(&self, all: &'a [Runs], case: &str) -> Option<(&'a [f64], &'static str)> {
        let found = all
            .iter()
            .filter(|it| it.case.name == case && self.references.has(&it.method));
        let values = found.filter_map(|it| Some((it.of(self.metric)?, it.method.name)));
        let by_mean = |a: &(&[f64], _), b: &(&[f64], _)| mean(a.0).total_cmp(&mean(b.0));
        match self.bar {
            Bar::AtLeast(_) => values.max_by(by_mean),
            Bar::AtMost(_) => values.min_by(by_mean),
        }
    }

    /// Ours in percent of the reference's, and is that within the bar?
    fn judged(&self, ours: f64, reference: f64) -> (f64, bool) {
        let percent = 100.0 * ours / reference.max(1e-9);
        let holds = match self.bar {
            Bar::AtLeast(bar) => percent >= bar,
            Bar::AtMost(bar) => percent <= bar,
        };
        (percent, holds)
    }
}

fn mean(values: &[f64]) -> f64 {
    estimate(values).mean
}

/// A row for each case of each claim, and one each for its tuned cases and those that are held out.
pub(super) fn claims(all: &[Runs]) -> Vec<Row> {
    let mut rows = Vec::new();
    for claim in &CLAIMS {
        let judged: Vec<(&Runs, Row)> = all
            .iter()
            .filter(|it| it.method.name == OURS && claim.is_about(&it.case))
            .filter_map(|ours| Some((ours, of_case(claim, all, ours)?)))
            .collect();
        for held_out in [false, true] {
            let here = judged.iter().filter(|it| it.0.case.held_out == held_out);
            let (runs, these): (Vec<&Runs>, Vec<Row>) = here.cloned().unzip();
            let Some(first) = runs.first() else { continue };
            let whole = whole(claim, &these, evidence_of(&first.case, &first.method));
            rows.extend(these);
            rows.push(whole);
        }
    }
    rows
}

/// One case of a claim, with the interval of ours in percent of the reference's, paired by seed.
fn of_case(claim: &Claim, all: &[Runs], ours: &Runs) -> Option<Row> {
    let case = &ours.case;
    let values = ours.of(claim.metric)?;
    let (reference, whose) = claim.reference(all, &case.name)?;
    let (mean, beside) = (mean(values), mean(reference));
    let (percent, holds) = claim.judged(mean, beside);
    let apart = difference(values, reference);
    let of = |apart: f64| Some(100.0 * (beside + apart) / beside.max(1e-9));
    let metric = format!("{} of {}", claim.metric, claim.references.whose());
    let row = row(TABLE, &case.name, OURS, &metric, "percent", Some(percent));
    let row = row.between(of(apart.low), of(apart.high));
    let note = format!("{}; {mean:.3} beside {whose}'s {beside:.3}", claim.name);
    let row = row.evidence(evidence_of(case, &ours.method));
    Some(row.claimed(claim.bar.percent(), holds).noted(note))
}

/// The claim over these cases of it.
fn whole(claim: &Claim, cases: &[Row], evidence: Evidence) -> Row {
    let fails = |row: &&Row| row.verdict != Some(Verdict::Holds);
    let failed: Vec<&str> = cases
        .iter()
        .filter(fails)
        .map(|row| row.case.as_str())
        .collect();
    let row = row(
        TABLE,
        claim.name,
        OURS,
        match evidence {
            Evidence::HeldOut => "held_out_cells_failed",
            _ => "tuned_cells_failed",
        },
        "cells",
        Some(failed.len() as f64),
    );
    row.evidence(evidence)
        .claimed(0.0, failed.is_empty())
        .noted(format!("of {}: {}", cases.len(), failed.join("; ")))
}
