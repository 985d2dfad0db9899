//! How many requests should be at the device at once?
//!
//! ```text
//! latency of each piece / what it costs by the model -> mean over a batch at this depth
//!   work done per time at depth d: d / mean(d)     (Little's law)
//!   more than at d - 1 by `gain_percent`, or by a quarter of what d could give -> d + 1;  else -> d - 1, for a while
//! ```
//!
//! What waits inside the device is out of the scheduler's hands: there, tags mean nothing. So only as
//! much goes in as makes the device do more. While it can work on more at once, or rests between an answer and the
//! next request, one more is worth it; once it cannot, one more only waits longer.
//!
//! Choice: the paper sends one request at a time. Depth by what it brings, not by latency alone: a device that is busy
//! with large pieces answers later at a greater depth and yet does more, as it never waits for the next one.
//!
//! Always true: `min <= depth <= max`.

use base::Nanos;

/// What bounds and steers the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthOptions {
    /// Never fewer.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// One more is kept if it brings so many percent more work per time, or a quarter of its fair part.
    pub gain_percent: u64,
    /// A batch at a depth is as many completions as the depth, but at least this many.
    pub batch: u32,
    /// After so many batches one more is tried again.
    pub patience: u32,
}

impl Default for DepthOptions {
    /// 1 to 32, 5 %, batches of 16, tried again after 64.
    fn default() -> Self {
        DepthOptions {
            min: 1,
            max: 32,
            gain_percent: 5,
            batch: 16,
            patience: 64,
        }
    }
}

impl DepthOptions {
    /// Always `depth`.
    pub fn fixed(depth: u32) -> DepthOptions {
        DepthOptions {
            min: depth,
            max: depth,
            ..DepthOptions::default()
        }
    }
}

/// What is being found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing, for so many batches more.
    Rest(u32),
    /// How long a piece takes at one less than what will be tried.
    Below,
    /// Is this depth worth it, where at one less a piece took so long (in thousandths of its cost)?
    Above { below: u64, climbing: bool },
}

/// The depth, and what it is judged by.
#[derive(Debug, Clone)]
pub struct DepthControl {
    options: DepthOptions,
    depth: u32,
    phase: Phase,
    /// Pieces that were sent at another depth and are still to come.
    strangers: u32,
    // This batch: latencies in thousandths of the model's cost, of pieces that found the depth used up.
    sum: u64,
    count: u32,
}

impl DepthControl {
    /// Begins at the least depth.
    ///
    /// # Panics
    /// If `min` is zero or above `max`.
    pub fn new(options: DepthOptions) -> DepthControl {
        let DepthOptions { min, max, .. } = options;
        assert!(0 < min && min <= max, "a depth between {min} and {max}");
        DepthControl {
            options,
            depth: min,
            phase: Phase::Below,
            strangers: 0,
            sum: 0,
            count: 0,
        }
    }

    /// Requests that may be at the device at once.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// A piece that costs `cost` by the model took `latency`; `in_flight` were at the device, it included.
    pub fn completed(&mut self, latency: Nanos, cost: Nanos, in_flight: u32) {
        if self.strangers > 0 {
            self.strangers -= 1;
            return;
        }
        // A depth that is not used up says nothing about it.
        if in_flight < self.depth {
            return;
        }
        let stretch = u128::from(latency.0) * 1000 / u128::from(cost.0.max(1));
        self.sum = self.sum.saturating_add(stretch.min(u64::MAX.into()) as u64);
        self.count += 1;
        if self.count >= self.options.batch.max(2 * self.depth) {
            let mean = (self.sum / u64::from(self.count)).max(1);
            (self.sum, self.count) = (0, 0);
            self.learn(mean);
        }
    }

    /// A piece takes `mean` at this depth.
    fn learn(&mut self, mean: u64) {
        let DepthOptions { min, max, .. } = self.options;
        if min == max {
            return;
        }
        let rest = Phase::Rest(self.options.patience);
        match self.phase {
            Phase::Rest(0) => self.go((self.depth - 1).max(min), Phase::Below),
            Phase::Rest(left) => self.phase = Phase::Rest(left - 1),
            Phase::Below => {
                let below = mean;
                let climbing = false;
                self.go(self.depth + 1, Phase::Above { below, climbing });
            }
            Phase::Above { below, .. } if self.is_worth_it(mean, below) => {
                let above = Phase::Above {
                    below: mean,
                    climbing: true,
                };
                match self.depth < max {
                    true => self.go(self.depth + 1, above),
                    false => self.phase = rest,
                }
            }
            // One less was worth it a moment ago.
            Phase::Above { climbing: true, .. } => self.go(self.depth - 1, rest),
            // It may be too much already.
            Phase::Above { .. } if self.depth - 1 > min => self.go(self.depth - 2, Phase::Below),
            Phase::Above { .. } => self.go(min, rest),
        }
    }

    fn go(&mut self, depth: u32, phase: Phase) {
        self.strangers = self.depth.max(depth);
        self.depth = depth;
        self.phase = phase;
    }

    /// Does this depth do enough more than one less? `depth / mean` pieces are done per time.
    fn is_worth_it(&self, mean: u64, below: u64) -> bool {
        let depth = u128::from(self.depth);
        // In ten-thousandths: the fair part of one more is 1 / (depth - 1).
        let fair = 10_000 / (depth - 1);
        let least = (u128::from(self.options.gain_percent) * 100).min(fair / 4);
        depth * u128::from(below) * 10_000 >= (depth - 1) * u128::from(mean) * (10_000 + least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of 1 ms on a device that takes `latency(depth)` microseconds; the highest depth on the way.
    fn settle(control: &mut DepthControl, latency: impl Fn(u64) -> u64, pieces: u32) -> u32 {
        let mut highest = 0;
        for _ in 0..pieces {
            let depth = control.depth();
            let took = Nanos::micros(latency(depth.into()));
            control.completed(took, Nanos::micros(1000), depth);
            highest = highest.max(depth);
        }
        highest
    }

    /// Works on so many at once.
    fn wide(wide: u64) -> impl Fn(u64) -> u64 {
        move |depth| 1000 * depth.max(wide) / wide
    }

    #[test]
    fn a_device_that_does_one_thing_at_a_time_gets_little_more() {
        let mut control = DepthControl::new(DepthOptions::default());
        assert_eq!(settle(&mut control, wide(1), 40_000), 2);
        let tried = (0..10_000).filter(|_| settle(&mut control, wide(1), 1) == 2);
        assert!(tried.count() < 400, "one more is tried now and then");
    }

    #[test]
    fn a_wide_device_gets_as_much_as_it_can_work_on_at_once() {
        let mut control = DepthControl::new(DepthOptions::default());
        let highest = settle(&mut control, wide(8), 10_000);
        assert!((8..=9).contains(&highest), "{highest}");
        assert!((7..=9).contains(&control.depth()));
    }

    #[test]
    fn a_device_that_rests_between_requests_gets_one_more() {
        // 1 ms of work and 100 us on the way: the second hides the way, the third only waits.
        let mut control = DepthControl::new(DepthOptions::default());
        let rests = |depth: u64| (1000 * depth).max(1100);
        assert_eq!(settle(&mut control, rests, 10_000), 3);
        let at = |control: &mut DepthControl, depth| {
            (0..10_000)
                .filter(|_| settle(control, rests, 1) == depth)
                .count()
        };
        assert!(at(&mut control, 2) > 9_000);
    }

    #[test]
    fn a_device_that_gets_narrow_gets_less_and_a_wide_one_more_again() {
        let mut control = DepthControl::new(DepthOptions::default());
        settle(&mut control, wide(16), 20_000);
        assert!((15..=17).contains(&control.depth()), "{}", control.depth());
        settle(&mut control, wide(2), 20_000);
        assert!(control.depth() <= 3, "{}", control.depth());
        settle(&mut control, wide(16), 20_000);
        assert!((15..=17).contains(&control.depth()), "{}", control.depth());
    }

    #[test]
    fn a_depth_nobody_uses_does_not_grow() {
        let mut control = DepthControl::new(DepthOptions::fixed(4));
        settle(&mut control, wide(8), 1000);
        assert_eq!(control.depth(), 4);
        let mut control = DepthControl::new(DepthOptions {
            min: 2,
            ..DepthOptions::default()
        });
        for _ in 0..1000 {
            control.completed(Nanos::micros(1000), Nanos::micros(1000), 1);
        }
        assert_eq!(control.depth(), 2);
    }
}
