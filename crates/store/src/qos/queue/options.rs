//! How a device's queue is run.

use policy::share::{BytesPerSec, Costs, Kind, Options};

/// How a device's queue is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// Which scheduler.
    pub kind: Kind,
    /// What it is built with.
    pub share: Options,
    /// Background work gets at least this much.
    pub floor: BytesPerSec,
    /// And at most this much.
    pub ceiling: BytesPerSec,
    /// Does what gives room up or makes zeroes wait as well? A store does so itself, where nothing waits for it.
    pub discards: bool,
}

impl QueueOptions {
    /// Reservation tags on a device that costs this; background work gets a twentieth at least and a half at most.
    pub fn new(costs: Costs) -> QueueOptions {
        let least = costs.read.rate.min(costs.write.rate).0;
        QueueOptions {
            kind: Kind::default(),
            share: Options::new(costs),
            floor: BytesPerSec(least / 20),
            ceiling: BytesPerSec(least / 2),
            discards: false,
        }
    }
}
