//! The figures of data threads as OpenMetrics text.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Family, Row};
use crate::api::status::Thread;

/// How data threads waited for work.
pub(super) fn threads(
    encoder: &mut DescriptorEncoder<'_>,
    threads: &[&Thread],
) -> Result<(), Error> {
    let rows: [Row<Thread, f64>; 2] = [
        (
            "thread_spun_seconds",
            "Time a data thread looked for work without sleeping",
            |thread| thread.spun_seconds,
        ),
        (
            "thread_spun_in_vain_seconds",
            "Of it, time in which nothing came",
            |thread| thread.spun_in_vain_seconds,
        ),
    ];
    for (name, help, value) in rows {
        let mut family =
            Family(encoder.encode_descriptor(name, help, None, MetricType::Counter)?);
        for thread in threads {
            let names = thread.names.join(",");
            let labels = vec![("thread", names.as_str()), ("poll", thread.poll.as_str())];
            family.counter_f64(&labels, value(thread))?;
        }
    }
    Ok(())
}
