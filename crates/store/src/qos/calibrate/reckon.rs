//! What do figures of a calibration come to? Costs from times, promises from costs, the least overhead from trials.
//!
//! Pure: no clock, no device.

use base::Bytes;
use policy::share::{BytesPerSec, Costs, Direction, Mix, Share, load};

use super::plan::Plan;

/// What each of so many sessions is promised by equation (1), if `overhead` of the device's time is set aside: its
/// direction and rate. Of both directions each has every second session.
pub fn promises(
    costs: &Costs,
    mix: Mix,
    sessions: u32,
    overhead: Share,
) -> Vec<(Direction, BytesPerSec)> {
    // Shares of time, in the place of rates.
    let shares = load(BytesPerSec(Share::WHOLE.0), overhead, sessions);
    let directed = shares.iter().enumerate().map(|(at, share)| {
        let direction = match mix {
            Mix::Reads => Direction::Read,
            Mix::Writes => Direction::Write,
            Mix::Mixed => Direction::ALL[at % 2],
        };
        (
            direction,
            costs.rate(direction, Share(share.0), Bytes::kib(256)),
        )
    });
    directed.collect()
}

/// The line through points, by least squares of relative differences; neither part is below zero.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(*x, *y)).sum::<f64>();
    // Each difference counts by its part of what was measured.
    let weight = |y: f64| 1.0 / (y * y).max(1e-18);
    let all = sum(&|_, y| weight(y));
    let mean_x = sum(&|x, y| weight(y) * x) / all;
    let mean_y = sum(&|_, y| weight(y) * y) / all;
    let slope = sum(&|x, y| weight(y) * (x - mean_x) * (y - mean_y))
        / sum(&|x, y| weight(y) * (x - mean_x).powi(2));
    let through_nothing = mean_y / mean_x;
    let slope = slope.clamp(through_nothing / 1000.0, through_nothing);
    (mean_y - slope * mean_x, slope)
}

/// The search for the least overhead that keeps the promise: halved, then tried for twice as long, since what was found
/// just enough may have been luck.
pub(super) struct Search {
    low: u64,
    high: u64,
    steps: u64,
    step: Share,
    windows: u64,
    /// Windows of the last trial, and violated ones among them.
    pub seen: (u64, u64),
    found: Option<Share>,
}

/// What a search does next.
pub(super) enum Turn {
    /// Sets so much aside for so many windows.
    Try(Share, u64),
    /// So much must be set aside.
    Found(Share),
}

impl Search {
    pub fn new(plan: &Plan) -> Search {
        let steps = plan.most.0 / plan.step.0;
        Search {
            low: 0,
            high: steps,
            steps,
            step: plan.step,
            windows: plan.windows,
            seen: (0, 0),
            found: None,
        }
    }

    pub fn turn(&self) -> Turn {
        if let Some(found) = self.found {
            return Turn::Found(found);
        }
        if self.is_sure() && self.high >= self.steps {
            // Nothing that was tried was enough: no promise of this kind.
            return Turn::Found(Share::WHOLE);
        }
        let windows = if self.is_sure() { 2 } else { 1 } * self.windows;
        Turn::Try(Share(self.step.0 * self.middle()), windows)
    }

    /// What was tried last was enough, or not.
    pub fn tried(&mut self, seen: (u64, u64), enough: bool) {
        self.seen = seen;
        let (middle, sure) = (self.middle(), self.is_sure());
        match (enough, sure) {
            // And a step.
            (true, true) => self.found = Some(Share(self.step.0 * (self.high + 1))),
            (true, false) => self.high = middle,
            (false, true) => (self.low, self.high) = (self.high + 1, self.high + 1),
            (false, false) => self.low = middle + 1,
        }
    }

    fn middle(&self) -> u64 {
        (self.low + self.high) / 2
    }

    /// Is nothing left to halve?
    fn is_sure(&self) -> bool {
        self.low >= self.high
    }
}
