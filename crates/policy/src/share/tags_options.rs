//! What the tags are run with, and what follows from that on a device.
//!
//! Pure: parameters, and the lengths of pieces they give.

use base::{Bytes, Nanos};

use super::{BytesPerSec, Costs, DepthControl, DepthOptions, Direction, Priority};

/// The parameters of the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagsOptions {
    /// What promises are reckoned in, and the longest piece while there is time, on a device that is not fast.
    pub quantum: Bytes,
    /// On a fast one the longest piece has as many quanta as it does in so long.
    pub piece_time: Nanos,
    /// But no piece has more, nor where time is short, unless a quantum has.
    pub piece_most: Bytes,
    /// The longest while there is not: so many quanta.
    pub quanta_max: u64,
    /// The shortest, of sessions with little promised.
    pub piece_min: Bytes,
    /// How far back in time a session may begin that was idle.
    pub burst: Nanos,
    /// How far a promise may lag before what is older is forgiven.
    pub debt: Nanos,
    /// Serve promises a piece per window faster where there is time?
    pub cushion: bool,
    /// Is spare time shared by the weights of accounts first? Else by those of sessions alone.
    pub by_account: bool,
    /// Does spare time stay with a session that reads or writes on, for as long as a seek takes?
    pub stay: bool,
    /// So much device time a session of high priority may save up while it asks for less than its part of the spare time.
    pub lead: Nanos,
    /// Pieces at the device.
    pub depth: DepthOptions,
    /// Ask for a commit after so much was written.
    pub commit_bytes: Bytes,
    /// Ask for a commit so long after the first write not committed.
    pub commit_after: Nanos,
}

impl Default for TagsOptions {
    /// Pieces of 32 to 256 KiB (on a fast device of a millisecond), four times as long when time is short, 4 MiB at most; 20 ms of
    /// credit, a second of debt, commits after 64 MiB or a second.
    fn default() -> Self {
        TagsOptions {
            quantum: Bytes::kib(256),
            piece_time: Nanos::millis(1),
            piece_most: Bytes::mib(4),
            quanta_max: 4,
            piece_min: Bytes::kib(32),
            burst: Nanos::millis(20),
            debt: Nanos::secs(1),
            cushion: true,
            by_account: true,
            stay: true,
            lead: Nanos::millis(400),
            depth: DepthOptions::default(),
            commit_bytes: Bytes::mib(64),
            commit_after: Nanos::secs(1),
        }
    }
}

impl TagsOptions {
    /// The longest piece on this device while there is time: as many quanta as it does in `piece_time`.
    pub(super) fn quantum_on(&self, costs: &Costs, direction: Direction) -> Bytes {
        let cost = costs.direction(direction);
        // A fixed cost of that much is no fast device's, whatever rate was found beside it.
        let fast = cost.rate.within(self.piece_time.saturating_sub(cost.fixed));
        let times = fast.min(self.piece_most).0 / self.quantum.0;
        self.quantum * times.max(1)
    }

    /// By how much a session of this weight, in quarters, is ahead of others of its account in the spare time, in the unit of
    /// its tag.
    pub(super) fn lead_of(&self, priority: Priority, weight: u64) -> u128 {
        match priority {
            Priority::High => u128::from(self.lead.0) * 4000 / u128::from(weight.max(1)),
            Priority::Normal | Priority::Low => 0,
        }
    }

    /// Spare time stays with a session for so many bytes: what passes in the time of a seek. Where there are no seeks, none.
    pub(super) fn stay_on(&self, rate: BytesPerSec, seek: Nanos) -> Bytes {
        let of_seek = rate.within(seek);
        match self.stay {
            true => of_seek.min(self.quantum * self.quanta_max),
            false => Bytes(0),
        }
    }

    /// Pieces at the device to begin with.
    pub(super) fn depth_on(&self, costs: &Costs) -> DepthControl {
        let longer = |direction| self.quantum_on(costs, direction) > self.quantum;
        match Direction::ALL.into_iter().all(longer) {
            true => DepthControl::beginning_at(self.depth.fast, self.depth),
            false => DepthControl::new(self.depth),
        }
    }
}
