//! Which lane is this, of a hybrid of several?
//!
//! ```text
//! fast device: | lane 0: label, ledger, slots | lane 1: ... | ... | lane L-1 |      `len` bytes each
//! volume:      unit u belongs to lane u mod L, as its unit u / L
//! ```
//!
//! Each lane is a whole hybrid of its part of both devices. Its label says which one it is; the label of a hybrid of one lane
//! says nothing of lanes, and is what it was before there were any.
//!
//! Always true: what is in a label is what a hybrid could have: a power of two of lanes, in units of whole pages.

use base::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most lanes of a hybrid.
pub(crate) const LANES_MAX: u32 = 64;
/// Labels of lanes have this version; programs before it refuse them.
pub(crate) const LANES_VERSION: u32 = 3;

/// One of the lanes of a hybrid. See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    /// How many there are: a power of two.
    pub lanes: u32,
    /// Which one this is, from 0.
    pub lane: u32,
    /// What is dealt out to the lanes in turn; no bytes if there is one.
    pub unit: Bytes,
    /// How much of the fast device each has; no bytes if there is one.
    pub len: Bytes,
}

impl Lane {
    /// The only lane of a hybrid.
    pub const ONLY: Lane = Lane {
        lanes: 1,
        lane: 0,
        unit: Bytes(0),
        len: Bytes(0),
    };

    /// Is it the only one?
    pub fn is_only(&self) -> bool {
        self.lanes == 1
    }
}

/// A lane in its label.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawLane {
    lanes: U32,
    lane: U32,
    unit: U64,
    len: U64,
}

impl RawLane {
    /// Zeroes for the only one.
    pub fn of(lane: Lane) -> RawLane {
        let lanes = if lane.is_only() { 0 } else { lane.lanes };
        RawLane {
            lanes: lanes.into(),
            lane: lane.lane.into(),
            unit: lane.unit.0.into(),
            len: lane.len.0.into(),
        }
    }

    /// What a label of `version` says; none if it cannot be.
    pub fn lane(&self, version: u32) -> Option<Lane> {
        if version < LANES_VERSION {
            return Some(Lane::ONLY);
        }
        let lane = Lane {
            lanes: self.lanes.get(),
            lane: self.lane.get(),
            unit: Bytes(self.unit.get()),
            len: Bytes(self.len.get()),
        };
        let pages = |bytes: Bytes| bytes.0 > 0 && bytes.0.is_multiple_of(base::PAGE as u64);
        let sound = lane.lanes.is_power_of_two()
            && (2..=LANES_MAX).contains(&lane.lanes)
            && lane.lane < lane.lanes
            && lane.unit.0.is_power_of_two()
            && pages(lane.unit)
            && pages(lane.len)
            && lane.len.0.checked_mul(u64::from(lane.lanes)).is_some();
        sound.then_some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: Lane = Lane {
        lanes: 4,
        lane: 2,
        unit: Bytes::mib(16),
        len: Bytes::mib(1),
    };

    #[test]
    fn a_lane_is_read_back_and_the_only_one_leaves_zeroes() {
        assert_eq!(RawLane::of(THIRD).lane(3), Some(THIRD));
        let only = RawLane::of(Lane::ONLY);
        assert_eq!(only.as_bytes(), [0; 24]);
        assert_eq!(only.lane(2), Some(Lane::ONLY));
    }

    #[test]
    fn lanes_that_cannot_be_are_refused() {
        let bad: [fn(&mut Lane); 7] = [
            |lane| (lane.lanes, lane.lane) = (3, 2),
            |lane| (lane.lanes, lane.lane) = (1, 0),
            |lane| lane.lanes = 128,
            |lane| lane.lane = 4,
            |lane| lane.unit = Bytes(3 << 12),
            |lane| lane.unit = Bytes(2048),
            |lane| lane.len = Bytes(u64::MAX - 4095),
        ];
        for change in bad {
            let mut lane = THIRD;
            change(&mut lane);
            assert_eq!(RawLane::of(lane).lane(3), None, "{lane:?}");
        }
    }
}
