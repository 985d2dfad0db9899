//! What the beds of the experiment share: loads, metrics, estimates and rows.

pub mod estimate;
pub mod loads;
pub mod metric;

/// The experiment's name.
pub const NAME: &str = "replica";

crate::experiment::row_of!(pub, NAME);
