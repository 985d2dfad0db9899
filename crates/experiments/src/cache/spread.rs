//! Means and ratios over the seeds.
//!
//! Always true: ratios are taken seed by seed: both sides had the same file in the same place.

use report::Row;

use super::work::Sample;
use super::{LISTING, Measured};

/// A mean with its spread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "there is at least one seed");
        Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A row; the devices are modelled.
pub(super) fn row(
    table: &str,
    case: &str,
    method: &str,
    metric: &str,
    unit: &str,
    spread: Spread,
) -> Row {
    Row::modelled(LISTING.name, table, case, method, metric, unit)
        .measured(Some(spread.mean))
        .between(Some(spread.low), Some(spread.high))
}

pub(super) fn metric_of(sample: &Sample, metric: &str) -> f64 {
    match metric {
        "seconds" => sample.seconds,
        "watts" => sample.watts(),
        "joules" => sample.joules,
        other => unreachable!("no metric {other}"),
    }
}

/// The samples of one (case, method), one for each seed.
pub(super) fn of<'a>(
    measured: &'a Measured,
    case: &'static str,
    method: &'static str,
) -> &'a [Sample] {
    &measured.main[&(case, method)]
}

/// `metric` of one (case, method) divided by that of another, seed by seed.
pub(super) fn ratio(
    measured: &Measured,
    metric: &str,
    (case, method): (&'static str, &'static str),
    (other_case, other): (&'static str, &'static str),
) -> Spread {
    let pairs = of(measured, case, method)
        .iter()
        .zip(of(measured, other_case, other));
    Spread::of(pairs.map(|(a, b)| metric_of(a, metric) / metric_of(b, metric)))
}
