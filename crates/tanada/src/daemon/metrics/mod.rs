//! Metrics for Prometheus: what the daemon knows at one moment, as a page of text.
//!
//! ```text
//! Page: status, cluster, process -> families, each file its own -> OpenMetrics | Prometheus text 0.0.4 (`format`)
//! ```
//!
//! Names end in their unit; `_total` marks counters that only grow. docs/metrics.md lists every family.
//!
//! Always true:
//! 1. A part that is not known costs its own families, not the page.
//! 2. No two series of a family have equal labels.

mod caches;
mod caps;
mod cluster;
mod devices;
mod exports;
mod family;
pub mod format;
mod health;
pub mod page;
pub mod process;
mod requests;
mod reservations;
mod s3;
mod stores;
#[cfg(test)]
mod tests;
mod threads;
mod tiers;
mod volumes;

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use family::Family;
use format::Format;
use page::{Page, ProcessSnapshot};

/// Writes `page` down.
///
/// # Errors
/// If the library cannot; it writes to memory.
pub fn encode(page: Page, format: Format) -> Result<String, Error> {
    let mut registry = Registry::default();
    if let Some(process) = page.process {
        registry.register_collector(Box::new(OfProcess(process)));
    }
    let own = registry.sub_registry_with_prefix("tanada");
    own.register_collector(Box::new(OfDaemon(page)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Text => format::text_of(&text),
    })
}

#[derive(Debug)]
struct OfProcess(ProcessSnapshot);

impl Collector for OfProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        process::process(&mut encoder, &self.0)
    }
}

#[derive(Debug)]
struct OfDaemon(Page);

impl Collector for OfDaemon {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (encoder, page, status) = (&mut encoder, &self.0, &self.0.status);
        encoder
            .encode_descriptor("build", "The running program", None, MetricType::Info)?
            .encode_info(&vec![("version", status.version.as_str())])?;
        let help = "Time since the start";
        Family::of_gauges(encoder, "uptime_seconds", help)?.single(status.uptime_seconds)?;
        health::health(encoder, &status.machine.health)?;
        threads::threads(encoder, status)?;
        cluster::cluster(encoder, &page.cluster)?;
        devices::devices(encoder, &status.devices)?;
        volumes::volumes(encoder, page)?;
        caches::caches(encoder, &status.volumes)?;
        tiers::tiers(encoder, &status.volumes)?;
        stores::stores(encoder, &status.stores)?;
        reservations::reservations(encoder, &status.stores)?;
        exports::exports(encoder, &status.exports)?;
        exports::nbd(encoder, &status.nbd)?;
        s3::s3(encoder, &page.gateways)?;
        caps::caps(encoder, page)
    }
}
