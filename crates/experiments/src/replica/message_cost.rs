//! Is round robin's higher mean what messages cost? Sequential readers, one preferred, by the cost of a message.
//!
//! ```text
//! preferred cells x what a message costs x T -> "messages" -> is round robin's mean the higher one? -> "statements"
//! ```
//!
//! Source: COST 4.4, figure 6 (round robin has the higher mean; multicasts are blamed). The costs are ours: the paper has
//! no figure for what a message took on its nodes.

use base::Nanos;
use policy::place::Kind;
use report::{Axis, Chart, Row, Section, Series, Unit, Value};

use super::Measured;
use super::bed::Method;
use super::cases::{Cell, Draft, Family, READERS, cells_of, preferred};
use super::common::estimate::difference;
use super::common::row;
use super::compare::{mean, values, verdict};

/// What a node's processor takes for each message: from nothing to a tenth of a millisecond.
const COSTS: [Nanos; 4] = [
    Nanos(0),
    Nanos::micros(20),
    Nanos::micros(50),
    Nanos::micros(100),
];
/// How old states may be: T.
const AGES: [Nanos; 3] = [Nanos::millis(1), Nanos::millis(5), Nanos::millis(20)];
/// Those of the paper's figure 6, and ours.
const KINDS: [Kind; 4] = [Kind::RoundRobin, Kind::Clbs, Kind::QueueCost, Kind::Tanada];

/// More than one reader: a mean of one is that of the preferred.
fn readers() -> impl Iterator<Item = usize> {
    READERS.into_iter().filter(|n| *n > 1)
}

fn draft(readers: usize, cost: Nanos) -> Draft {
    let mut draft = preferred(readers);
    draft.family = Family::Messages;
    draft.case = format!("{} message={}us", draft.case, cost.0 / 1_000);
    draft.scene.message = cost;
    draft
}

/// The case of so many readers, as the rows have it.
fn case(readers: usize, cost: Nanos, age: Nanos) -> String {
    let (us, ms) = (cost.0 / 1_000, age.0 / 1_000_000);
    format!("preferred n={readers} message={us}us state-age={ms}ms")
}

/// Every cell along the axis.
pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for age in AGES {
        for cost in COSTS {
            for n in readers() {
                cells.extend(cells_of(draft(n, cost), age, &KINDS.map(Method::of)));
            }
        }
    }
    cells
}

/// The paper's statement at each cost and each T, over all numbers of readers.
pub(super) fn statements(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for age in AGES {
        for cost in COSTS {
            let of = ["queue-cost", "clbs"].map(|method| statement(measured, method, cost, age));
            rows.extend(of);
        }
    }
    rows
}

/// Is `method`'s mean below round robin's with two, four, six and eight readers?
fn statement(measured: &[Measured], method: &str, cost: Nanos, age: Nanos) -> Row {
    let (mut parts, mut below, mut notes) = (Vec::new(), 0, Vec::new());
    for n in readers() {
        let case = case(n, cost, age);
        let get = |method| values(measured, &case, method, "mean_mb_s");
        let means = |method| mean(measured, &case, method, "mean_mb_s");
        let both = get("round-robin").zip(get(method));
        let (Some((robin, other)), Some(robin_mean), Some(other_mean)) =
            (both, means("round-robin"), means(method))
        else {
            continue;
        };
        below += usize::from(verdict(&difference(robin, other), true) == "better");
        parts.push(100.0 * other_mean / robin_mean.max(1e-9));
        notes.push(format!("n={n}: {other_mean:.1} of {robin_mean:.1}"));
    }
    let (us, ms) = (cost.0 / 1_000, age.0 / 1_000_000);
    row(
        "statements",
        &format!("preferred n=2 to 8 message={us}us state-age={ms}ms"),
        method,
        "mean_of_round_robins",
        "percent",
        parts.iter().copied().reduce(f64::max),
    )
    .over(&parts)
    .beside(Value::Text("below round robin".to_owned()))
    .against(below > 0 && below == readers().count())
    .noted(format!(
        "4.4, figure 6: below round robin with {below} of {} numbers of readers; MB/s each, {}",
        readers().count(),
        notes.join(", ")
    ))
}

/// The mean of eight readers by what a message costs.
pub(super) fn section(measured: &[Measured]) -> Section {
    let mut section = Section::new("By what a message costs a node's processor");
    for age in AGES {
        let axes = (
            Axis::new("each message", Unit::Seconds),
            Axis::new("each of eight gets", Unit::BytesPerSecond),
        );
        let title = format!(
            "Eight sequential readers, states up to {} ms old",
            age.0 / 1_000_000
        );
        let mut chart = Chart::new(title, axes.0, axes.1).wide();
        for kind in KINDS {
            let points = COSTS.iter().filter_map(|cost| {
                let y = mean(measured, &case(8, *cost, age), kind.name(), "mean_mb_s")?;
                Some((cost.secs_f64(), y * 1e6))
            });
            chart = chart.series(Series::new(kind.name(), points.collect::<Vec<_>>()));
        }
        section = section.put(chart);
    }
    section
}
