//! Families of metrics being written: counters, gauges and histograms, each with its help once.
//!
//! ```text
//! rows (name, help, where it stands) x things (labels, value) -> one family a row, one series a thing
//! ```
//!
//! Always true: label values that are words of ours are in snake_case; names that users gave stay as they are.

use std::borrow::Cow;
use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Keys and values of one series.
pub(super) type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// A figure of a `T`: what it is called behind the prefix, what it says, and where it stands.
pub(super) type Row<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// These keys and values.
pub(super) fn labels<'a, const N: usize>(all: [(&'static str, &'a str); N]) -> Labels<'a> {
    let cow = |(key, value)| (key, Cow::Borrowed(value));
    all.into_iter().map(cow).collect()
}

/// The same and one more.
pub(super) fn with<'a>(labels: &Labels<'a>, key: &'static str, value: &'a str) -> Labels<'a> {
    let mut labels = labels.clone();
    labels.push((key, Cow::Borrowed(value)));
    labels
}

/// A word of ours as a label value: `pass-through` is `pass_through`.
pub(super) fn snake(word: &str) -> Cow<'_, str> {
    match word.contains(['-', ' ']) {
        true => Cow::Owned(word.replace(['-', ' '], "_")),
        false => Cow::Borrowed(word),
    }
}

/// One family being written.
pub(super) struct Family<'a>(MetricEncoder<'a>);

impl<'a> Family<'a> {
    /// Begins a family of counters; `name` without `_total`.
    pub fn of_counters(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, Error> {
        let kind = MetricType::Counter;
        Ok(Family(encoder.encode_descriptor(name, help, None, kind)?))
    }

    /// Begins a family of gauges.
    pub fn of_gauges(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, Error> {
        let kind = MetricType::Gauge;
        Ok(Family(encoder.encode_descriptor(name, help, None, kind)?))
    }

    /// Begins a family of histograms.
    pub fn of_histograms(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Family<'a>, Error> {
        let kind = MetricType::Histogram;
        Ok(Family(encoder.encode_descriptor(name, help, None, kind)?))
    }

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

    /// The only series, without labels.
    pub fn single(&mut self, value: f64) -> Result<(), Error> {
        self.0.encode_gauge(&value)
    }

    /// The same of counters.
    pub fn single_counter(&mut self, value: f64) -> Result<(), Error> {
        self.0.encode_counter::<NoLabelSet, f64, u64>(&value, None)
    }

    /// `buckets`: the upper bound of each and what is in it alone, the last without a bound.
    pub fn histogram(
        &mut self,
        labels: &Labels<'_>,
        (sum, count): (f64, u64),
        buckets: &[(f64, u64)],
    ) -> Result<(), Error> {
        self.0
            .encode_family(labels)?
            .encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }

    /// 1 for the state that it is in, 0 for the others.
    pub fn states(
        &mut self,
        labels: &Labels<'_>,
        key: &'static str,
        all: &[&str],
        now: &str,
    ) -> Result<(), Error> {
        for state in all {
            let mut labels = labels.clone();
            labels.push((key, snake(state)));
            self.gauge(&labels, f64::from(u8::from(*state == now)))?;
        }
        Ok(())
    }
}

/// A family of gauges for each row.
pub(super) fn gauges<T>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    rows: &[Row<T, f64>],
    all: &[(Labels<'_>, &T)],
) -> Result<(), Error> {
    for (name, help, value) in rows {
        let name = format!("{prefix}_{name}");
        let mut family = Family::of_gauges(encoder, &name, help)?;
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
        let mut family = Family::of_counters(encoder, &name, help)?;
        for (labels, of) in all {
            family.counter(labels, value(of))?;
        }
    }
    Ok(())
}

/// A family of counters of seconds for each row.
pub(super) fn seconds<T>(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    rows: &[Row<T, f64>],
    all: &[(Labels<'_>, &T)],
) -> Result<(), Error> {
    for (name, help, value) in rows {
        let name = format!("{prefix}_{name}");
        let mut family = Family::of_counters(encoder, &name, help)?;
        for (labels, of) in all {
            family.counter_f64(labels, value(of))?;
        }
    }
    Ok(())
}
