//! One family of metrics being written.

use std::fmt::Error;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One family of counters or gauges being written.
pub(super) struct Family<'a>(pub MetricEncoder<'a>);

impl Family<'_> {
    pub fn counter(&mut self, labels: &Labels<'_>, value: u64) -> Result<(), Error> {
        self.0
            .encode_family(labels)?
            .encode_counter::<NoLabelSet, u64, u64>(&value, None)
    }

    pub fn counter_f64(&mut self, labels: &Labels<'_>, value: f64) -> Result<(), Error> {
        self.0
            .encode_family(labels)?
            .encode_counter::<NoLabelSet, f64, u64>(&value, None)
    }

    pub fn gauge(&mut self, labels: &Labels<'_>, value: f64) -> Result<(), Error> {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }
}
