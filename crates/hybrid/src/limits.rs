//! What does a lane of several tell of itself, and what may it use of what is counted for all lanes together?
//!
//! ```text
//! LaneUse -> lanes::divide -> LaneLimits        both are values: a lane may be on another thread
//! ```
//!
//! Always true: the only lane of a hybrid has no limits but its settings.

use std::cell::{Cell, RefCell};

use base::{Bytes, Nanos};
use policy::cache::allowance::{Allowance, Spent};
use policy::tier::Parameters;

use crate::slow::SlowDevice;
use crate::stats::UserRequests;

/// What one lane did since it was asked last, and where it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LaneUse {
    /// Of the flash budget.
    pub flash: Spent,
    /// Requests of users.
    pub requests: u64,
    /// What is dirty now.
    pub dirty: Bytes,
    /// What became dirty.
    pub dirtied: Bytes,
    /// What its cache holds at most; nothing if it has none.
    pub capacity: Bytes,
    /// What the slow device did for its users.
    pub slow: SlowUse,
}

/// Requests of users that the slow device answered, and how long it was busy with such.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SlowUse {
    pub requests: u64,
    pub busy: Nanos,
}

/// What one lane may use until it is told again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LaneLimits {
    /// So many bytes more or fewer of the flash budget; `None`: there is no cap.
    pub flash: Option<i64>,
    /// The marks of the cleaner, in percent of the lane's cache.
    pub dirty: DirtyMarks,
    pub slow: SlowPart,
    /// Of [`Parameters::iops_min`].
    pub iops_min: f64,
    /// Of [`Parameters::sub_luns_max`].
    pub sub_luns_max: u32,
}

/// Shares of a cache that may be dirty, in percent: below `low` the cleaner rests, above `high` it hurries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DirtyMarks {
    pub low: f64,
    pub high: f64,
}

/// What a lane's cleaner may have of the slow device, and what the others' users have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlowPart {
    /// What it may write in a second where the device is left alone.
    pub bytes_per_second: Bytes,
    /// The share of the device's time that users of other lanes had, 0 to 1.
    pub others_busy: f64,
    /// So seldom do they come that the device counts as idle between them.
    pub others_idle: bool,
}

/// The limits of one lane in force.
#[derive(Default)]
pub(crate) struct Limited {
    limits: Cell<Option<LaneLimits>>,
    allowance: RefCell<Allowance>,
    /// What was reported already, of all there was.
    reported: Cell<Totals>,
    /// More was asked for since it was told last.
    asked: Cell<bool>,
}

/// Since the disk was opened.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    requests: u64,
    /// What is dirty, and what was destaged so far.
    dirtied: Bytes,
    slow: SlowUse,
}

impl Totals {
    fn of(users: &UserRequests, slow: &SlowDevice, dirtied: Bytes) -> Totals {
        let reads = users.reads();
        let read = reads.requests_fast + reads.requests_slow + reads.requests_both;
        Totals {
            requests: read + users.random_writes.requests + users.sequential_writes.requests,
            dirtied,
            slow: SlowUse {
                requests: slow.reads().requests + slow.written().requests,
                busy: slow.foreground_busy(),
            },
        }
    }
}

impl Limited {
    /// `limits` hold from now on.
    pub fn set(&self, limits: LaneLimits) {
        self.limits.set(Some(limits));
        self.asked.set(false);
        if let Some(change) = limits.flash {
            self.allowance.borrow_mut().grant(change);
        }
    }

    /// May more be asked for? Once since it was told last.
    pub fn may_ask(&self) -> bool {
        !self.asked.replace(true)
    }

    /// May `bytes` be written to the fast device, as far as all lanes go? `None`: nothing is limited here.
    pub fn admits(&self, bytes: Bytes) -> Option<bool> {
        let limits = self.limits.get()?;
        Some(limits.flash.is_none() || self.allowance.borrow_mut().admit(bytes))
    }

    /// The marks of the cleaner, if they are limited.
    pub fn dirty(&self) -> Option<DirtyMarks> {
        Some(self.limits.get()?.dirty)
    }

    /// What the cleaner may have of the slow device, if that is limited.
    pub fn slow(&self) -> Option<SlowPart> {
        Some(self.limits.get()?.slow)
    }

    /// Of `own`, what the tier's policy goes by; `None`: nothing is limited here.
    pub fn parameters(&self, own: Parameters) -> Option<Parameters> {
        let limits = self.limits.get()?;
        Some(Parameters {
            iops_min: limits.iops_min,
            sub_luns_max: limits.sub_luns_max,
            ..own
        })
    }

    /// What users did since it was asked last, where `dirty` bytes are dirty now and `destaged` are no more; how much the
    /// cache holds is left out.
    pub fn take_use(
        &self,
        users: &UserRequests,
        slow: &SlowDevice,
        dirty: Bytes,
        destaged: Bytes,
    ) -> LaneUse {
        let now = Totals::of(users, slow, dirty + destaged);
        let before = self.reported.replace(now);
        LaneUse {
            flash: self.allowance.borrow_mut().report(),
            requests: now.requests - before.requests,
            dirty,
            // Less where another fast device was attached, or dirty pages were discarded.
            dirtied: Bytes(now.dirtied.0.saturating_sub(before.dirtied.0)),
            slow: SlowUse {
                requests: now.slow.requests - before.slow.requests,
                busy: now.slow.busy.saturating_sub(before.slow.busy),
            },
            ..LaneUse::default()
        }
    }
}
