//! What devices were asked, how busy they are, and what energy modelled ones drew.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, labels, snake};
use super::requests::{Rows, load};
use crate::api::figures::{Counters, Power};
use crate::api::status::{Device, Spindle};

/// All of them.
pub(super) fn devices(
    encoder: &mut DescriptorEncoder<'_>,
    devices: &[Device],
) -> Result<(), Error> {
    let mut rows = Rows::default();
    for device in devices {
        rows.add(&device.figures, |of| {
            let mut labels = labels([("device", &device.name)]);
            labels.push(("op", snake(&of.op)));
            labels.push(("work", snake(&of.class)));
            labels
        });
    }
    rows.write_without("work", encoder, "device")?;
    let loads = devices.iter();
    let loads = loads.map(|device| (labels([("device", &device.name)]), &device.figures));
    let loads: Vec<(Labels<'_>, &Counters)> = loads.collect();
    load(encoder, "device", &loads)?;
    power(encoder, devices)?;
    spindles(encoder, devices)
}

fn spindles(encoder: &mut DescriptorEncoder<'_>, devices: &[Device]) -> Result<(), Error> {
    let all = devices.iter().filter_map(|device| {
        let labels = labels([("device", &device.name)]);
        Some((labels, device.spindle?))
    });
    let all: Vec<(Labels<'_>, Spindle)> = all.collect();
    let help = "1 while the slow device of a hybrid in energy mode sleeps";
    let mut asleep = Family::of_gauges(encoder, "device_asleep", help)?;
    for (labels, spindle) in &all {
        asleep.gauge(labels, f64::from(u8::from(spindle.asleep)))?;
    }
    let help = "When it fell asleep or woke, in seconds since 1970";
    let mut since = Family::of_gauges(encoder, "device_spindle_since_seconds", help)?;
    for (labels, spindle) in &all {
        since.gauge(labels, spindle.since_unix_seconds as f64)?;
    }
    Ok(())
}

fn power(encoder: &mut DescriptorEncoder<'_>, devices: &[Device]) -> Result<(), Error> {
    let modelled = devices.iter().filter_map(|device| {
        let labels = labels([("device", &device.name)]);
        Some((labels, device.power.as_ref()?))
    });
    let modelled: Vec<(Labels<'_>, &Power)> = modelled.collect();
    let help = "Energy a modelled device has drawn";
    let mut joules = Family::of_counters(encoder, "device_joules", help)?;
    for (labels, power) in &modelled {
        joules.counter_f64(labels, power.joules)?;
    }
    let help = "How often a modelled disk was spun up";
    let mut spin_ups = Family::of_counters(encoder, "device_spin_ups", help)?;
    for (labels, power) in &modelled {
        spin_ups.counter(labels, power.spin_ups)?;
    }
    let help = "1 while a modelled disk sleeps";
    let mut standby = Family::of_gauges(encoder, "device_standby", help)?;
    for (labels, power) in &modelled {
        standby.gauge(labels, f64::from(u8::from(power.standby)))?;
    }
    Ok(())
}
