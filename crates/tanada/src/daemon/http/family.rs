//! One family of metrics being written.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

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

/// A figure of a `T`: what it is called behind the prefix, what it says, and where it stands.
pub(super) type Row<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// A family of gauges for each row.
pub(super) fn gauges<T>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    rows: &[Row<T, f64>],
    all: &[(Labels<'_>, &T)],
) -> Result<(), Error> {
    for (name, help, value) in rows {
        let name = format!("{prefix}_{name}");
        let mut family = Family(encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?);
        for (labels, of) in all {
            family.gauge(labels, value(of))?;
        }
    }
    Ok(())
}

/// A family of counters for each row.
pub(super) fn counters<T>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    rows: &[Row<T, u64>],
    all: &[(Labels<'_>, &T)],
) -> Result<(), Error> {
    for (name, help, value) in rows {
        let name = format!("{prefix}_{name}");
        let mut family =
            Family(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?);
        for (labels, of) in all {
            family.counter(labels, value(of))?;
        }
    }
    Ok(())
}
