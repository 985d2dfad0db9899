//! Caps of exports and volumes as they are open here: who shares one, and what `/v1/status` shows of it.
//!
//! ```text
//! client of an export -> its cap (ours) -> the volume's (the hybrid's, or the cluster's slot's) -> volume
//! ```
//!
//! Always true: all clients of an export share its cap, wherever they come in.

use std::rc::Rc;

use config::ExportConfig;
use device::cap::Passed;
use device::{Capped, Device, Throttle};
use policy::share::BytesPerSec;
use policy::share::cap;

use crate::api::caps as api;

/// The caps of the exports of one data thread.
#[derive(Default)]
pub struct ExportCaps(Vec<(ExportConfig, Rc<Throttle>)>);

impl ExportCaps {
    /// Of these, each with what its configuration says.
    pub fn new(exports: &[ExportConfig]) -> ExportCaps {
        let of = |export: &ExportConfig| (export.clone(), Throttle::new(export.caps));
        ExportCaps(exports.iter().map(of).collect())
    }

    /// That of one, if it has one.
    pub fn of(&self, export: &ExportConfig) -> Option<&Rc<Throttle>> {
        let found = self.0.iter().find(|(known, _)| known == export);
        let throttle = &found?.1;
        (!throttle.caps().is_none()).then_some(throttle)
    }

    /// What waits may go on: the daemon stops, and answers what it took.
    pub fn lift(&self) {
        for (_, throttle) in &self.0 {
            throttle.set(cap::Caps::default());
        }
    }

    /// The device as one client, or all that come in at one place, have it.
    pub fn capped(&self, export: &ExportConfig, device: Rc<dyn Device>) -> Rc<dyn Device> {
        match self.of(export) {
            Some(throttle) => Capped::new(device, throttle),
            None => device,
        }
    }
}

/// For `/v1/status`; nothing where nothing is capped.
pub fn shown(throttle: &Throttle) -> Option<api::Caps> {
    let caps = throttle.caps();
    let figures = throttle.counters();
    (!caps.is_none()).then(|| api::Caps {
        read: Some(passed(figures.read)),
        write: Some(passed(figures.write)),
        ..set(caps)
    })
}

/// As they are set.
pub fn set(caps: cap::Caps) -> api::Caps {
    let rate = |rate: Option<BytesPerSec>| rate.map(|rate| rate.0);
    api::Caps {
        max_read: rate(caps.read.bytes),
        max_write: rate(caps.write.bytes),
        max_read_iops: caps.read.requests,
        max_write_iops: caps.write.requests,
        read: None,
        write: None,
    }
}

fn passed(of: Passed) -> api::Passed {
    api::Passed {
        requests: of.requests,
        bytes: of.bytes.0,
        waited: of.waited,
        waited_seconds: of.wait.secs_f64(),
        waiting: of.waiting,
    }
}
