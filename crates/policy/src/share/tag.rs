//! One session's tags: what it is entitled to, and when.
//!
//! Pure: what a piece costs moves them on.

use base::{Bytes, Instant, Nanos};

use super::Share;

/// What one session's tags are, and how fast they run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tag {
    // By terms and costs.
    /// The longest piece, and what it may grow to when time is short.
    pub piece: Bytes,
    pub piece_max: Bytes,
    /// The promised part of the device's time, and with the cushion.
    pub share: Share,
    pub share_cushioned: Share,
    pub limit_share: Option<Share>,
    /// In quarters.
    pub weight: u64,
    /// From the start of one piece's entitlement to the next.
    pub period: Nanos,
    pub period_cushioned: Nanos,
    // As it goes.
    /// When the entitlement to the next piece begins.
    pub due: Instant,
    /// When it would be with the cushion.
    pub cushioned: Instant,
    /// Before this it is at its limit.
    pub free: Instant,
    /// Device time it got by its weight, in thousandths.
    pub spare: u128,
}

/// `time` at a share of the device: how long that takes by the clock.
pub(super) fn stretched(time: Nanos, share: Share) -> Nanos {
    let clock = u128::from(time.0) * u128::from(Share::WHOLE.0) / u128::from(share.0.max(1));
    Nanos(u64::try_from(clock).unwrap_or(u64::MAX))
}

impl Tag {
    /// The session was served what costs `charge`. At most `burst` of what its limit leaves unused is saved up, and
    /// `cushion_debt` of what its cushion lags.
    pub fn move_on(&mut self, now: Instant, charge: Nanos, (burst, cushion_debt): (Nanos, Nanos)) {
        if self.share.0 > 0 {
            self.due = self.due.min(now) + stretched(charge, self.share);
            let cushioned = self.cushioned.clamp(now - cushion_debt, now);
            self.cushioned = cushioned + stretched(charge, self.share_cushioned);
        }
        if let Some(share) = self.limit_share {
            self.free = self.free.max(now - burst) + stretched(charge, share);
        }
        self.spare += u128::from(charge.0) * 4000 / u128::from(self.weight);
    }
}
