//! Clocks beside the one that timers go by: one that goes on while the machine is suspended, and the wall clock.
//!
//! ```text
//!                          runs   suspended   a virtual machine that its host stopped
//! `now` and timers         yes    no          no
//! `Clocks::boot`           yes    yes         no
//! `Clocks::wall`           yes    yes         as soon as it is set right
//! ```
//!
//! What counts on time that others count too looks at both: `boot` for the time that has passed, and whether the two have jumped
//! against each other.

use base::Nanos;

use crate::executor::with_current;
use crate::time::wall_clock;

/// Two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Since the machine was started, suspended or not.
    pub boot: Nanos,
    /// Since 1970.
    pub wall: Nanos,
}

impl Clocks {
    fn apart(&self) -> i128 {
        i128::from(self.wall.0) - i128::from(self.boot.0)
    }

    /// How far one of them jumped against the other since `before`, whichever way.
    ///
    /// # Example
    /// ```
    /// use base::Nanos;
    /// use env::Clocks;
    /// let before = Clocks { boot: Nanos::secs(10), wall: Nanos::secs(1_000) };
    /// let after = Clocks { boot: Nanos::secs(12), wall: Nanos::secs(1_007) };
    /// assert_eq!(after.jumped_since(&before), Nanos::secs(5));
    /// assert_eq!(before.jumped_since(&after), Nanos::secs(5));
    /// ```
    pub fn jumped_since(&self, before: &Clocks) -> Nanos {
        let jump = (self.apart() - before.apart()).unsigned_abs();
        Nanos(u64::try_from(jump).unwrap_or(u64::MAX))
    }
}

/// What the clocks of this host show now.
pub fn clocks() -> Clocks {
    let simulated = with_current(|core| core.is_simulated().then(|| (core.now(), core.ahead())));
    let boot = match simulated {
        Some((now, ahead)) => Nanos(now.0 + ahead.boot.0),
        None => {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
        }
    };
    let wall = wall_clock();
    Clocks { boot, wall }
}
