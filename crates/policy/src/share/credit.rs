//! How much of what is promised at one device has not been asked for yet?
//!
//! ```text
//! promised rate -> credit grows, up to a burst -> a request takes its length -> none left: others are asked first
//! ```
//!
//! A client with promises at several devices that hold the same data asks where credit is left: what goes beyond a promise
//! stands in line with all others there, while the promise of another device lapses.
//!
//! Choice: a burst is what a session of [`Tags`](super::Tags) has that was idle, 20 ms of its rate. Where the credit is used
//! up, so much is owed at most, or the last request if that is longer.
//!
//! Pure: time is an argument.

use base::{Bytes, Instant, Nanos};

use super::BytesPerSec;

const BURST: Nanos = Nanos::millis(20);
/// Parts of a byte that are counted.
const PARTS: i128 = 1_000_000_000;

/// What is left of one promise.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::share::{BytesPerSec, Credit};
/// let mut credit = Credit::default();
/// let now = Instant(0);
/// assert!(!credit.is_left(now, BytesPerSec(0)), "nothing is promised");
/// assert!(credit.is_left(now, BytesPerSec::mb(100)));
/// credit.take(Bytes(4_000_000));
/// assert!(!credit.is_left(now + Nanos::millis(19), BytesPerSec::mb(100)));
/// assert!(credit.is_left(now + Nanos::millis(21), BytesPerSec::mb(100)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    rate: BytesPerSec,
    /// In thousand-millionths of a byte; below zero: owed.
    level: i128,
    at: Instant,
}

impl Credit {
    /// Is some left now, where `rate` is promised?
    pub fn is_left(&mut self, now: Instant, rate: BytesPerSec) -> bool {
        let burst = |rate: BytesPerSec| i128::from(rate.0) * i128::from(BURST.0);
        if self.rate != rate {
            *self = Credit {
                rate,
                level: burst(rate),
                at: now,
            };
        }
        let grown = i128::from(rate.0) * i128::from(now.since(self.at).0);
        self.level = (self.level + grown).min(burst(rate));
        self.at = self.at.max(now);
        self.level > 0
    }

    /// So much is asked for.
    pub fn take(&mut self, bytes: Bytes) {
        let asked = i128::from(bytes.0) * PARTS;
        let burst = i128::from(self.rate.0) * i128::from(BURST.0);
        self.level = (self.level - asked).max(-asked.max(burst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_while_credit_is_left_adds_up_to_the_rate() {
        let rate = BytesPerSec::mb(50);
        let mut credit = Credit::default();
        let mut asked = 0;
        for step in 0..10_000 {
            let now = Instant(0) + Nanos::millis(step);
            while credit.is_left(now, rate) {
                credit.take(Bytes(65_536));
                asked += 65_536;
            }
        }
        assert!((500_000_000..502_000_000).contains(&asked), "{asked}");
        // What was asked beyond it is not owed for long.
        for _ in 0..1000 {
            credit.take(Bytes(65_536));
        }
        let now = Instant(0) + Nanos::secs(10);
        assert!(!credit.is_left(now + Nanos::millis(19), rate));
        assert!(credit.is_left(now + Nanos::millis(21), rate));
        assert!(!credit.is_left(now + Nanos::secs(9), BytesPerSec(0)));
    }
}
