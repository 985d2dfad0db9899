//! How many requests should be at the device at once?
//!
//! ```text
//! latency of each piece / what it costs by the model -> mean over a batch -> compared with the best seen
//!   below `stretch` times the best, and the depth was used -> one more;  above -> a quarter less
//! ```
//!
//! What waits inside the device is out of the scheduler's hands: there, tags mean nothing. So only as
//! much goes in as makes the device faster. While it can work on more at once, one more leaves latency
//! as it is; once it cannot, one more only waits longer.
//!
//! Choice: the paper sends one request at a time; what is published for congestion control of SSDs by
//! delay (Gimbal, SIGCOMM 2021) and of networks (Vegas) is the model here.
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
    /// Latency may be so many percent of the best seen.
    pub stretch_percent: u64,
    /// A batch at a depth is as many completions as the depth, but at least this many.
    pub batch: u32,
    /// The best is forgotten after so many batches, so that a device that aged is not judged by its youth.
    pub memory: u32,
}

impl Default for DepthOptions {
    /// 1 to 32, half as much again as the best, batches of 16, the best of the last 256 to 512 batches.
    fn default() -> Self {
        DepthOptions {
            min: 1,
            max: 32,
            stretch_percent: 150,
            batch: 16,
            memory: 256,
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

/// The depth, and what it is judged by.
#[derive(Debug, Clone)]
pub struct DepthControl {
    options: DepthOptions,
    depth: u32,
    // This batch: latencies in thousandths of the model's cost.
    sum: u64,
    count: u32,
    /// Was the depth used up during this batch?
    full: bool,
    // The best means of this memory and of the one before.
    best: u64,
    best_before: u64,
    batches: u32,
}

impl DepthControl {
    /// Begins at the least depth.
    ///
    /// # Panics
    /// If `min` is zero or above `max`, or `stretch_percent` below 100.
    pub fn new(options: DepthOptions) -> DepthControl {
        let DepthOptions { min, max, .. } = options;
        assert!(0 < min && min <= max, "a depth between {min} and {max}");
        assert!(options.stretch_percent >= 100, "less than the best");
        DepthControl {
            options,
            depth: min,
            sum: 0,
            count: 0,
            full: false,
            best: u64::MAX,
            best_before: u64::MAX,
            batches: 0,
        }
    }

    /// Requests that may be at the device at once.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// A piece that costs `cost` by the model took `latency`; `in_flight` were at the device, it included.
    pub fn completed(&mut self, latency: Nanos, cost: Nanos, in_flight: u32) {
        let stretch = u128::from(latency.0) * 1000 / u128::from(cost.0.max(1));
        self.sum = self.sum.saturating_add(stretch.min(u64::MAX.into()) as u64);
        self.count += 1;
        self.full |= in_flight >= self.depth;
        if self.count >= self.options.batch.max(self.depth) {
            self.close_batch();
        }
    }

    fn close_batch(&mut self) {
        let mean = self.sum / u64::from(self.count);
        let full = self.full;
        (self.sum, self.count, self.full) = (0, 0, false);
        self.best = self.best.min(mean);
        self.batches += 1;
        if self.batches >= self.options.memory {
            self.batches = 0;
            self.best_before = self.best;
            self.best = mean;
        }
        let best = self.best.min(self.best_before);
        let bound = u128::from(best) * u128::from(self.options.stretch_percent) / 100;
        if u128::from(mean) > bound {
            self.depth = (self.depth - self.depth.div_ceil(4)).max(self.options.min);
        } else if full {
            self.depth = (self.depth + 1).min(self.options.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches against a device that works on `wide` pieces at once, 1 ms each.
    fn settle(control: &mut DepthControl, wide: u32, batches: u32) -> u32 {
        let mut highest = 0;
        for _ in 0..batches * 40 {
            let depth = control.depth();
            let latency = Nanos::micros(1000 * u64::from(depth.div_ceil(wide)));
            control.completed(latency, Nanos::micros(1000), depth);
            highest = highest.max(depth);
        }
        highest
    }

    #[test]
    fn a_device_that_does_one_thing_at_a_time_gets_little_more() {
        let mut control = DepthControl::new(DepthOptions::default());
        assert!(settle(&mut control, 1, 40) <= 2);
    }

    #[test]
    fn a_wide_device_gets_as_much_as_it_can_work_on_at_once() {
        let mut control = DepthControl::new(DepthOptions::default());
        let highest = settle(&mut control, 8, 100);
        assert!((8..=9).contains(&highest), "{highest}");
        assert!((6..=9).contains(&control.depth()));
    }

    #[test]
    fn a_stall_shrinks_the_depth_and_it_comes_back() {
        let mut control = DepthControl::new(DepthOptions::default());
        settle(&mut control, 16, 100);
        let before = control.depth();
        for _ in 0..200 {
            control.completed(Nanos::millis(20), Nanos::micros(1000), control.depth());
        }
        assert!(
            control.depth() <= before / 2,
            "{} of {before}",
            control.depth()
        );
        settle(&mut control, 16, 100);
        assert!(control.depth() >= 12, "{}", control.depth());
    }

    #[test]
    fn a_depth_nobody_uses_does_not_grow() {
        let mut control = DepthControl::new(DepthOptions::fixed(4));
        settle(&mut control, 8, 10);
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
