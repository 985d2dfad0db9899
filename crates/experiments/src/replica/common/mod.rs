//! What the beds of the experiment share: loads, metrics, estimates and rows.

pub mod estimate;
pub mod loads;
pub mod metric;

use report::Row;

/// The experiment's name.
pub const NAME: &str = "replica";

/// A row; all disks are modelled.
pub fn row(
    table: &str,
    case: &str,
    method: &str,
    metric: &str,
    unit: &str,
    ours: Option<f64>,
) -> Row {
    Row::modelled(NAME, table, case, method, metric, unit).measured(ours)
}
