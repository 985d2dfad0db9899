//! Which device answers a read of clean data that both have?
//!
//! ```text
//! mean waits of both --Either::sample--> share for the slow device --Either::next--> Fast | Slow, evenly spread
//! ```
//!
//! As long as the fast device is the quicker one everything goes there. When it waits longer than the slow one (it
//! is saturated, or cleaning up) a growing share of the reads goes to the slow one, until both wait alike.
//!
//! Source: Colloid (SOSP 2024) and MOST (FAST 2026), whose balance of waits this is.
//!
//! Always true:
//! 1. With a share of 0 nothing goes to the slow device.
//! 2. Of any n reads in a row the slow device gets the share times n, to the next whole number.

use base::Nanos;

/// What one device did since the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Requests it answered.
    pub requests: u64,
    /// What they waited on average; nothing if there were none.
    pub wait: Nanos,
}

/// A device of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The fast one.
    Fast,
    /// The slow one.
    Slow,
}

/// Spreads reads over two devices.
///
/// # Example
/// ```
/// use base::Nanos;
/// use policy::tier::either::{Either, Side, Waits};
/// let mut either = Either::default();
/// assert_eq!(either.next(), Side::Fast);
/// let fast = Waits { requests: 900, wait: Nanos::millis(20) };
/// let slow = Waits { requests: 50, wait: Nanos::millis(6) };
/// (0..25).for_each(|_| either.sample(fast, slow));
/// assert_eq!([either.next(), either.next()], [Side::Fast, Side::Slow]);
/// ```
#[derive(Debug, Clone)]
pub struct Either {
    /// In parts of [`Self::WHOLE`].
    share: u32,
    credit: u32,
    /// The slow device's wait when it was last seen.
    slow: Option<Nanos>,
}

impl Default for Either {
    /// Everything to the fast device.
    fn default() -> Self {
        Either {
            share: 0,
            credit: 0,
            slow: None,
        }
    }
}

impl Either {
    const WHOLE: u32 = 1_000;
    /// So much more after a sample that says so.
    const STEP: u32 = 20;
    /// The slow device gets half of such reads at most: it has others to serve.
    const MOST: u32 = 500;
    /// Waits closer than a quarter are alike, so nothing changes.
    const ALIKE: (u64, u64) = (5, 4);
    /// Fewer requests decide nothing.
    const TELLING: u64 = 4;

    /// Takes a sample, every 200 ms or so.
    ///
    /// Choice: a step at a time towards the slow device, by halves back. A slow device that was not used yet gets
    /// nothing: how long it takes is not known.
    pub fn sample(&mut self, fast: Waits, slow: Waits) {
        if slow.requests >= Self::TELLING {
            self.slow = Some(slow.wait);
        }
        let (Some(slow), true) = (self.slow, fast.requests >= Self::TELLING) else {
            // An idle fast device needs no help.
            self.share /= 2;
            return;
        };
        let (over, of) = Self::ALIKE;
        let longer = |a: Nanos, b: Nanos| {
            u128::from(a.0) * u128::from(of) > u128::from(b.0) * u128::from(over)
        };
        if longer(fast.wait, slow) {
            self.share = (self.share + Self::STEP).min(Self::MOST);
        } else if longer(slow, fast.wait) {
            self.share /= 2;
        }
    }

    /// Which device answers the next read of data that both have.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is no iterator: it never ends"
    )]
    pub fn next(&mut self) -> Side {
        self.credit += self.share;
        match self.credit >= Self::WHOLE {
            true => {
                self.credit -= Self::WHOLE;
                Side::Slow
            }
            false => Side::Fast,
        }
    }

    /// The share of such reads that goes to the slow device, 0 to 1.
    pub fn share(&self) -> f64 {
        f64::from(self.share) / f64::from(Self::WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waits(requests: u64, micros: u64) -> Waits {
        Waits {
            requests,
            wait: Nanos::micros(micros),
        }
    }

    #[test]
    fn a_quick_fast_device_answers_everything() {
        let mut either = Either::default();
        for _ in 0..100 {
            either.sample(waits(1_000, 150), waits(100, 6_000));
            assert_eq!(either.next(), Side::Fast);
        }
    }

    #[test]
    fn nothing_goes_to_a_device_of_which_nothing_is_known() {
        let mut either = Either::default();
        either.sample(waits(1_000, 90_000), waits(0, 0));
        either.sample(waits(1_000, 90_000), waits(3, 1));
        assert_eq!(either.share(), 0.0);
    }

    #[test]
    fn waits_that_are_nearly_alike_change_nothing() {
        let mut either = Either::default();
        (0..10).for_each(|_| either.sample(waits(1_000, 9_000), waits(100, 6_000)));
        let before = either.share();
        assert!(before > 0.0);
        either.sample(waits(1_000, 7_000), waits(100, 6_000));
        either.sample(waits(1_000, 6_000), waits(100, 7_000));
        assert_eq!(either.share(), before);
    }

    #[test]
    fn it_settles_where_both_wait_alike() {
        // A fast device for 1000 reads a second of which 1200 come; a slow one for 300, on which 100 others come.
        let mut either = Either::default();
        let wait = |rate: f64, most: f64| (1e6 / most / (1.0 - (rate / most).min(0.999))) as u64;
        for _ in 0..200 {
            let away = 1_200.0 * either.share();
            let fast = waits(240, wait(1_200.0 - away, 1_000.0));
            let slow = waits(20, wait(100.0 + away, 300.0));
            either.sample(fast, slow);
        }
        assert!((0.10..0.20).contains(&either.share()), "{}", either.share());
    }

    #[test]
    fn an_idle_fast_device_gets_its_reads_back() {
        let mut either = Either::default();
        (0..50).for_each(|_| either.sample(waits(1_000, 90_000), waits(100, 6_000)));
        assert_eq!(either.share(), 0.5);
        (0..10).for_each(|_| either.sample(waits(0, 0), waits(100, 6_000)));
        assert_eq!(either.share(), 0.0);
    }

    proptest! {
        #[test]
        fn reads_are_spread_evenly(ups in 0u32..30, skip in 0usize..50, n in 1usize..400) {
            let mut either = Either::default();
            (0..ups).for_each(|_| either.sample(waits(1_000, 90_000), waits(100, 6_000)));
            (0..skip).for_each(|_| { either.next(); });
            let slow = (0..n).filter(|_| either.next() == Side::Slow).count() as f64;
            prop_assert!((slow - either.share() * n as f64).abs() < 1.0 + 1e-9);
        }
    }
}
