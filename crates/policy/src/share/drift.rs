//! Has the mean of a series moved?

/// Which way the device changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// Faster.
    Up,
    /// Slower.
    Down,
}

/// Has the mean moved? A cumulative sum over the means of ten samples each (so that a bunch of slow
/// ones is one), against the mean and spread of the first twenty such means.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    // The ten that run.
    sum: f64,
    count: u32,
    // What it was, from the first twenty: mean, spread.
    first: Vec<f64>,
    reference: Option<(f64, f64)>,
    // How far it is from that, and for how many means.
    up: f64,
    down: f64,
    up_for: usize,
    down_for: usize,
}

impl Watch {
    const TEN: u32 = 10;
    const TWENTY: usize = 20;
    /// Deviations below this many spreads do not count.
    const SLACK: f64 = 0.75;
    /// One mean counts for at most this many.
    const STEP_MAX: f64 = 4.0;
    /// So many spreads in all are a drift.
    const ALARM: f64 = 8.0;

    /// Takes a sample; a drift comes with the number of samples since it began.
    pub(super) fn push(&mut self, speed: f64) -> Option<(Drift, usize)> {
        self.sum += speed;
        self.count += 1;
        if self.count < Self::TEN {
            return None;
        }
        let mean = self.sum / f64::from(self.count);
        (self.sum, self.count) = (0.0, 0);
        let Some((usual, spread)) = self.reference else {
            self.first.push(mean);
            if self.first.len() == Self::TWENTY {
                self.reference = Some(mean_and_spread(&self.first));
            }
            return None;
        };
        let off = ((mean - usual) / spread).clamp(-Self::STEP_MAX, Self::STEP_MAX);
        self.up = (self.up + off - Self::SLACK).max(0.0);
        self.down = (self.down - off - Self::SLACK).max(0.0);
        self.up_for = if self.up > 0.0 { self.up_for + 1 } else { 0 };
        self.down_for = if self.down > 0.0 {
            self.down_for + 1
        } else {
            0
        };
        let ten = Self::TEN as usize;
        if self.down > Self::ALARM {
            Some((Drift::Down, self.down_for * ten))
        } else if self.up > Self::ALARM {
            Some((Drift::Up, self.up_for * ten))
        } else {
            None
        }
    }
}

/// The mean, and the spread but at least one percent of it.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt().max(mean.abs() * 0.01).max(1.0))
}
