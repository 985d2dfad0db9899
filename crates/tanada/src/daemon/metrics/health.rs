//! The verdict on the daemon, and what it goes by.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, labels};
use crate::api::health::{Health, Severity};

/// 0 well, 1 a warning, 2 an error; and each code that is found and not muted.
pub(super) fn health(encoder: &mut DescriptorEncoder<'_>, health: &Health) -> Result<(), Error> {
    let help = "0: HEALTH_OK, 1: HEALTH_WARN, 2: HEALTH_ERR";
    Family::of_gauges(encoder, "health_status", help)?.single(f64::from(health.status as u8))?;
    let mut found: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for check in health.checks.iter().filter(|it| !it.muted) {
        let severity = match check.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        *found.entry((&check.code, severity)).or_default() += 1;
    }
    let help = "How many volumes, stores, nodes or threads a check finds something wrong with; muted ones are left out";
    let mut checks = Family::of_gauges(encoder, "health_check", help)?;
    for ((check, severity), count) in found {
        let labels = labels([("check", check), ("severity", severity)]);
        checks.gauge(&labels, f64::from(count))?;
    }
    Ok(())
}
