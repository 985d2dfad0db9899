//! All that a calibration found, as it is kept and shown.

use base::{Bytes, Nanos};
use device::{Device, Info};
use policy::share::{
    BytesPerSec, Cost, Costs, Headroom, Kind, Mix, Point, Probability, Second, Share,
};
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::qos::book::record::Calibration;

/// Which device was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name in the configuration.
    pub name: String,
    /// How much it holds.
    pub bytes: u64,
    /// What the maker calls it, where that is known.
    pub model: Option<String>,
    /// And this one of them.
    pub serial: Option<String>,
}

/// What requests of one direction cost, and what one access alone gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Every request.
    pub fixed_ns: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Bytes per second of a single session that reads or writes in sequence.
    pub alone: u64,
}

/// Which ways, as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ways {
    Reads,
    Writes,
    Mixed,
}

/// Under these conditions so much had to be set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    mix: Ways,
    /// Concurrent sessions.
    pub sessions: u32,
    /// Judged by this window.
    pub window_ns: u64,
    /// In parts per million: this share of windows is to be kept.
    pub probability_ppm: u32,
    /// In parts per billion of the device's time, the margin included; all of it: nothing that was tried was enough.
    pub overhead_ppb: u64,
    /// Windows that were judged a step below it, and violated ones among them.
    pub windows: u64,
    /// See `windows`.
    pub violated: u64,
}

impl Found {
    /// Under the conditions of `plan`.
    pub(super) fn new(
        plan: &Plan,
        (mix, sessions): (Mix, u32),
        overhead: Share,
        (windows, violated): (u64, u64),
    ) -> Found {
        Found {
            mix: match mix {
                Mix::Reads => Ways::Reads,
                Mix::Writes => Ways::Writes,
                Mix::Mixed => Ways::Mixed,
            },
            sessions,
            window_ns: plan.window.0,
            probability_ppm: plan.probability.0,
            overhead_ppb: overhead.0,
            windows,
            violated,
        }
    }

    /// Which ways the bytes went.
    pub fn mix(&self) -> Mix {
        match self.mix {
            Ways::Reads => Mix::Reads,
            Ways::Writes => Mix::Writes,
            Ways::Mixed => Mix::Mixed,
        }
    }
}

/// All that a calibration found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// Of which device.
    pub device: Identity,
    /// When it ended, in seconds since 1970.
    pub measured: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Which scheduler it holds for.
    pub scheduler: String,
    /// Pieces at the device at once, at the end.
    pub depth: u32,
    /// Reads.
    pub read: Measured,
    /// Writes.
    pub write: Measured,
    /// The headroom, point by point.
    pub points: Vec<Found>,
    /// What must stay free where no point was measured, in parts per billion.
    pub beyond_ppb: u64,
    /// Was it cut short by its budget?
    pub cut: bool,
}

impl Surface {
    /// Costs alone: no point was measured yet.
    pub(super) fn begun(
        info: Info,
        kind: Kind,
        [read, write]: [Measured; 2],
        plan: &Plan,
    ) -> Surface {
        Surface {
            device: Identity {
                name: info.name,
                bytes: info.size.0,
                model: None,
                serial: None,
            },
            measured: 0,
            took_ns: 0,
            scheduler: kind.name().to_owned(),
            depth: 0,
            read,
            write,
            points: Vec::new(),
            beyond_ppb: plan.most.0,
            cut: false,
        }
    }

    /// What requests cost.
    pub fn costs(&self) -> Costs {
        let of = |measured: &Measured| Cost {
            fixed: Nanos(measured.fixed_ns),
            jump: Nanos(0),
            rate: BytesPerSec(measured.rate),
        };
        Costs {
            read: of(&self.read),
            write: of(&self.write),
        }
    }

    /// What must stay unpromised.
    pub fn headroom(&self) -> Headroom {
        Headroom::new(self.points(), Share(self.beyond_ppb))
    }

    fn points(&self) -> Vec<Point> {
        let point = |found: &Found| Point {
            mix: found.mix(),
            sessions: found.sessions,
            window: Nanos(found.window_ns),
            probability: Probability(found.probability_ppm),
            overhead: Share(found.overhead_ppb),
        };
        self.points.iter().map(point).collect()
    }

    /// How old it is, in seconds.
    pub fn age(&self, now: Second) -> u64 {
        now.0.saturating_sub(self.measured)
    }

    /// Was it this device, as far as name and size show?
    pub fn is_of(&self, device: &dyn Device) -> bool {
        let info = device.info();
        (self.device.name == info.name) && self.device.bytes == info.size.0
    }

    /// As a manager keeps it.
    pub fn calibration(&self) -> Calibration {
        Calibration {
            costs: self.costs(),
            points: self.points(),
            beyond: Share(self.beyond_ppb),
            measured: Second(self.measured),
            device: (self.device.name.clone(), Bytes(self.device.bytes)),
            identity: None,
            surface: serde_json::to_value(self).expect("numbers and names"),
        }
    }
}
