//! What must show of ours on the product's path, in the metrics of the paper's figures.
//!
//! ```text
//! runs of a case -> ours as a part of the reference's -> beyond the bar? -> a row each
//!                   all cases of a claim, tuned and held out -> holds | fails | fails outside the tuned cells
//! ```

use report::{Evidence, Row};

use super::super::common::estimate::estimate;
use super::super::common::row;
use super::scenes::{ProductCase, Topic};
use super::{Runs, evidence_of};

/// Ours beside what others have: at least, or at most, so many percent of it.
struct Claim {
    name: &'static str,
    topic: Topic,
    metric: &'static str,
    /// The best of these counts.
    references: &'static [&'static str],
    bar: Bar,
    /// In cases at this T alone.
    age_ms: Option<u64>,
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

const BASELINES: &[&str] = &["queue-cost", "least-outstanding", "round-robin"];

const CLAIMS: [Claim; 6] = [
    Claim {
        name: "a preferred client among eight has 85 % of the oracle's",
        topic: Topic::Preferred,
        metric: "preferred_mb_s",
        references: &["oracle", "oracle-fifo"],
        bar: Bar::AtLeast(85.0),
        age_ms: Some(100),
    },
    Claim {
        name: "small reads' p99 is at most least-outstanding's",
        topic: Topic::Mix,
        metric: "small_p99_ms",
        references: &["least-outstanding"],
        bar: Bar::AtMost(100.0),
        age_ms: None,
    },
    Claim {
        name: "small readers have 98 % of queue-cost's throughput",
        topic: Topic::Mix,
        metric: "small_mb_s",
        references: &["queue-cost"],
        bar: Bar::AtLeast(98.0),
        age_ms: None,
    },
    Claim {
        name: "with stalls the mean is at most 1.1 times the best baseline's",
        topic: Topic::Stalls,
        metric: "small_mean_ms",
        references: BASELINES,
        bar: Bar::AtMost(110.0),
        age_ms: None,
    },
    Claim {
        name: "with stalls the p99 is at most 1.1 times the best baseline's",
        topic: Topic::Stalls,
        metric: "small_p99_ms",
        references: BASELINES,
        bar: Bar::AtMost(110.0),
        age_ms: None,
    },
    Claim {
        name: "fairness is at least the best baseline's",
        topic: Topic::Fair,
        metric: "fairness",
        references: BASELINES,
        bar: Bar::AtLeast(100.0),
        age_ms: None,
    },
];

impl Claim {
    fn is_about(&self, case: &ProductCase) -> bool {
        let age = case.age.0 / 1_000_000;
        case.topic == self.topic && self.age_ms.is_none_or(|it| it == age)
    }

    /// The mean of the best reference of a case, and its name.
    fn reference(&self, all: &[Runs], case: &str) -> Option<(f64, &'static str)> {
        let found = all
            .iter()
            .filter(|it| it.case.name == case && self.references.contains(&it.method.name));
        let means =
            found.filter_map(|it| Some((estimate(it.of(self.metric)?).mean, it.method.name)));
        match self.bar {
            Bar::AtLeast(_) => means.max_by(|a, b| a.0.total_cmp(&b.0)),
            Bar::AtMost(_) => means.min_by(|a, b| a.0.total_cmp(&b.0)),
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

/// A row for each case of each claim, and one for the claim.
pub(super) fn claims(all: &[Runs]) -> Vec<Row> {
    let mut rows = Vec::new();
    for claim in &CLAIMS {
        let mut failed = [Vec::new(), Vec::new()];
        for ours in all.iter().filter(|it| it.method.name == "tanada") {
            let case = &ours.case;
            let found = claim
                .reference(all, &case.name)
                .filter(|_| claim.is_about(case));
            let (Some((reference, whose)), Some(values)) = (found, ours.of(claim.metric)) else {
                continue;
            };
            let mean = estimate(values).mean;
            let (percent, holds) = claim.judged(mean, reference);
            if !holds {
                failed[usize::from(case.held_out)].push(format!("{} ({percent:.1} %)", case.name));
            }
            let metric = format!("{} of the reference's", claim.metric);
            let row = row(
                "product-claims",
                &case.name,
                "tanada",
                &metric,
                "percent",
                Some(percent),
            );
            let note = format!("{}; {mean:.3} beside {whose}'s {reference:.3}", claim.name);
            let row = row.evidence(evidence_of(case));
            rows.push(row.claimed(claim.bar.percent(), holds).noted(note));
        }
        rows.push(whole(claim, &failed));
    }
    rows
}

/// The claim over all its cases.
fn whole(claim: &Claim, [tuned, held_out]: &[Vec<String>; 2]) -> Row {
    let failed = tuned.len() + held_out.len();
    let row = row(
        "product-claims",
        claim.name,
        "tanada",
        "cells_failed",
        "cells",
        Some(failed as f64),
    );
    let cells: Vec<&str> = tuned.iter().chain(held_out).map(String::as_str).collect();
    // It fails outside the tuned cells if it fails there alone.
    let evidence = match tuned.is_empty() {
        true => Evidence::HeldOut,
        false => Evidence::Measured,
    };
    row.evidence(evidence)
        .claimed(0.0, failed == 0)
        .noted(cells.join("; "))
}
