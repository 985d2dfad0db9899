//! How many requests should be at the device at once?
//!
//! ```text
//! pieces under way / latency of each over what it costs by the model = work per time, batch by batch
//!   trial: depth, one more, one more, depth ... -> enough gained? stay there, and try the next
//!   and after a rest: depth, one less ...       -> little lost?   stay there
//! latency beyond `stretch` times the best -> a quarter less at once
//! ```
//!
//! What waits inside the device is out of the scheduler's hands: there, tags mean nothing. So only as
//! much goes in as makes the device faster by something worth the wait. Two depths are compared side by side, batch
//! after batch, so that a change of the load between them does not pass for a gain.
//!
//! Choice: the paper sends one request at a time; what is published for congestion control of SSDs by
//! delay (Gimbal, SIGCOMM 2021) and of networks (Vegas) is the model for the stop. Latency alone does not show what
//! one more is worth. A device that sets one request up while it transfers another answers each later and all sooner.
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
    /// So many to begin with on a device so fast that this many take little time.
    pub fast: u32,
    /// One more must make the device faster by so many percent.
    pub gain_percent: u64,
    /// Latency may be so many percent of the best seen; beyond, the device is stalled.
    pub stretch_percent: u64,
    /// A batch at a depth is as many completions as the depth, but at least this many.
    pub batch: u32,
    /// Batches at each of the two depths of a trial, unless fewer decide.
    pub trial: u32,
    /// So many batches at most between a trial that changed nothing and the next.
    pub rest_max: u32,
    /// The best is forgotten after so many batches, so that a device that aged is not judged by its youth.
    pub memory: u32,
}

impl Default for DepthOptions {
    /// 1 to 32 (4 to begin with on a fast device), each worth 4 %, stalled at eight times the best, batches of 16, four of them at each depth, trials 256
    /// batches apart at most, the best of the last 256 to 512 batches.
    fn default() -> Self {
        DepthOptions {
            min: 1,
            max: 32,
            fast: 4,
            gain_percent: 4,
            stretch_percent: 800,
            batch: 16,
            trial: 4,
            rest_max: 256,
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

/// What a batch at one depth came to, summed over the batches of a trial.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// Pieces under way, and latencies in thousandths of the model's cost.
    under_way: u64,
    stretch: u64,
    batches: u32,
}

impl Side {
    /// Work per time, by Little's law: a million times as much as the model's.
    fn speed(&self) -> u128 {
        u128::from(self.under_way) * 1_000_000_000 / u128::from(self.stretch.max(1))
    }
}

/// Two neighbouring depths side by side.
#[derive(Debug, Clone, Copy)]
struct Trial {
    lower: u32,
    less: Side,
    more: Side,
}

/// The depth, and what it is judged by.
#[derive(Debug, Clone)]
pub struct DepthControl {
    options: DepthOptions,
    /// What was found best, and what is used now: the same but during a trial.
    settled: u32,
    depth: u32,
    // This batch.
    sum: u64,
    under_way: u64,
    count: u32,
    /// Completions for which the depth was used up.
    full: u32,
    /// Completions to come of pieces that were sent at another depth: they count for neither.
    unsettled: u32,
    // The best means of this memory and of the one before.
    best: u64,
    best_before: u64,
    batches: u32,
    // Trials.
    trial: Option<Trial>,
    up_next: bool,
    /// Batches until the next, and how many there will be after it if it changes nothing.
    rest: u32,
    rest_next: u32,
}

impl DepthControl {
    /// Begins at the least depth.
    ///
    /// # Panics
    /// If `min` is zero or above `max`, `stretch_percent` below 100, or `trial` zero.
    pub fn new(options: DepthOptions) -> DepthControl {
        DepthControl::beginning_at(options.min, options)
    }

    /// Begins at `depth`, or as near as the bounds let; above the least it is tried first whether one less is enough.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn beginning_at(depth: u32, options: DepthOptions) -> DepthControl {
        let DepthOptions { min, max, .. } = options;
        assert!(0 < min && min <= max, "a depth between {min} and {max}");
        assert!(options.stretch_percent >= 100, "less than the best");
        assert!(options.trial > 0, "a trial of nothing");
        let depth = depth.clamp(min, max);
        DepthControl {
            options,
            settled: depth,
            depth,
            sum: 0,
            under_way: 0,
            count: 0,
            full: 0,
            unsettled: 0,
            best: u64::MAX,
            best_before: u64::MAX,
            batches: 0,
            trial: None,
            up_next: depth == min,
            rest: 0,
            rest_next: options.trial,
        }
    }

    /// Requests that may be at the device at once.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// A piece that costs `cost` by the model took `latency`; `in_flight` were at the device, it included.
    pub fn completed(&mut self, latency: Nanos, cost: Nanos, in_flight: u32) {
        if self.unsettled > 0 {
            self.unsettled -= 1;
            return;
        }
        let stretch = u128::from(latency.0) * 1000 / u128::from(cost.0.max(1));
        self.sum = self.sum.saturating_add(stretch.min(u64::MAX.into()) as u64);
        self.under_way += u64::from(in_flight);
        self.count += 1;
        self.full += u32::from(in_flight >= self.depth);
        if self.count >= self.options.batch.max(self.depth) {
            self.close_batch();
        }
    }

    fn close_batch(&mut self) {
        let mean = self.sum / u64::from(self.count);
        let batch = Side {
            under_way: self.under_way * 1000 / u64::from(self.count),
            stretch: mean,
            batches: 1,
        };
        // A depth that was hardly used says nothing.
        let full = self.full * 4 >= self.count * 3;
        (self.sum, self.under_way, self.count, self.full) = (0, 0, 0, 0);
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
            self.trial = None;
            self.up_next = true;
            (self.rest, self.rest_next) = (0, self.options.trial);
            self.settle((self.settled - self.settled.div_ceil(4)).max(self.options.min));
        } else if full {
            self.try_on(batch);
        } else {
            self.trial = None;
            self.settle(self.settled);
        }
    }

    fn settle(&mut self, depth: u32) {
        self.settled = depth;
        self.go(depth);
    }

    fn go(&mut self, depth: u32) {
        if depth != self.depth {
            self.unsettled = 2 * depth.max(self.depth);
            self.depth = depth;
        }
    }

    /// One batch further in a trial, or nearer to the next.
    fn try_on(&mut self, batch: Side) {
        let Some(mut trial) = self.trial.take() else {
            if self.rest > 0 {
                self.rest -= 1;
                return;
            }
            return self.begin_trial();
        };
        let side = match self.depth == trial.lower {
            true => &mut trial.less,
            false => &mut trial.more,
        };
        side.under_way += batch.under_way;
        side.stretch += batch.stretch;
        side.batches += 1;
        let (less, more) = (trial.less.batches, trial.more.batches);
        let (slow, fast) = (trial.less.speed(), trial.more.speed());
        let gain = u128::from(self.options.gain_percent);
        // Where the difference is five times what it takes, the first pair decides.
        let clear = less == more && slow.abs_diff(fast) * 100 >= slow * 5 * gain;
        if less.min(more) < self.options.trial && !clear {
            // Less, more, more, less, less ...: what drifts falls on both.
            let lower = matches!((less + more) % 4, 0 | 3);
            self.go(trial.lower + u32::from(!lower));
            self.trial = Some(trial);
            return;
        }
        let found = trial.lower + u32::from(fast * 100 >= slow * (100 + gain));
        let changed = found != self.settled;
        self.settle(found);
        if changed {
            // On in the same direction as long as it pays.
            self.rest_next = self.options.trial;
            self.begin_trial();
        } else {
            // Else the other way, after a rest that grows while nothing changes.
            self.up_next = !self.up_next;
            self.rest = self.rest_next;
            self.rest_next = (2 * self.rest_next).min(self.options.rest_max);
        }
    }

    fn begin_trial(&mut self) {
        let DepthOptions { min, max, .. } = self.options;
        if min == max {
            return;
        }
        if self.settled == max {
            self.up_next = false;
        } else if self.settled == min {
            self.up_next = true;
        }
        let lower = self.settled - u32::from(!self.up_next);
        self.go(lower);
        self.trial = Some(Trial {
            lower,
            less: Side::default(),
            more: Side::default(),
        });
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
        let tried = (0..40_000).filter(|_| settle(&mut control, wide(1), 1) == 2);
        assert!(tried.count() < 1600, "one more is tried now and then");
    }

    #[test]
    fn a_wide_device_gets_as_much_as_it_can_work_on_at_once() {
        let mut control = DepthControl::new(DepthOptions::default());
        let highest = settle(&mut control, wide(8), 10_000);
        assert!((8..=9).contains(&highest), "{highest}");
        assert!((7..=9).contains(&control.depth()));
    }

    #[test]
    fn what_was_too_many_to_begin_with_is_soon_taken_back() {
        let mut control = DepthControl::beginning_at(4, DepthOptions::default());
        settle(&mut control, wide(1), 600);
        assert_eq!(control.settled, 1);
        let mut control = DepthControl::beginning_at(4, DepthOptions::default());
        let fewest = (0..10_000).map(|_| settle(&mut control, wide(4), 1)).min();
        assert_eq!((fewest, control.depth()), (Some(3), 4), "one less is tried");
        let bounded = DepthControl::beginning_at(4, DepthOptions::fixed(2));
        assert_eq!(bounded.depth(), 2);
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
    fn what_one_request_does_while_another_is_set_up_is_worth_a_longer_wait() {
        // 0.6 ms to set up and 1 ms to transfer; a sixth of the time, in spells of 500 pieces, it is half as fast.
        let mut control = DepthControl::new(DepthOptions::default());
        let mut two = 0;
        for piece in 0..60_000 {
            let slow = if piece % 3000 < 500 { 2 } else { 1 };
            settle(&mut control, |depth| slow * (1000 * depth).max(1600), 1);
            two += u32::from(control.depth() == 2);
        }
        assert!(two > 50_000, "{two}");
    }

    #[test]
    fn a_stall_shrinks_the_depth_and_it_comes_back() {
        let mut control = DepthControl::new(DepthOptions::default());
        settle(&mut control, wide(16), 20_000);
        let before = control.depth();
        settle(&mut control, |_| 20_000, 200);
        assert!(
            control.depth() <= before / 2,
            "{} of {before}",
            control.depth()
        );
        settle(&mut control, wide(16), 20_000);
        assert!((15..=17).contains(&control.depth()), "{}", control.depth());
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
