//! Is a disk slower than it should be?
//!
//! ```text
//! each answer: how often longer than predicted? -> mean -> beyond `factor` times the peers' median -> avoided
//! nothing back for `overdue` and eight times the prediction                                       -> avoided
//! after `sentence`: used again, with a clean record
//! ```
//!
//! A disk that is merely slow is predicted to be slow, once its weights are measured; a disk that is avoided here does not do what
//! it is known to do.
//!
//! Choice: all of it; the paper leaves faults open (section 6).

use base::{Instant, Nanos};

use super::Permille;

/// When a disk is avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EjectOptions {
    /// Answers take so many times the prediction, against the peers'.
    pub factor: Permille,
    /// Judged by at least so many answers.
    pub answers_min: u32,
    /// Avoided for so long.
    pub sentence: Nanos,
    /// An answer so late says as much as many.
    pub overdue: Nanos,
}

impl Default for EjectOptions {
    /// Four times the peers, by 16 answers, for 5 s; at once after a second without an answer.
    fn default() -> Self {
        EjectOptions {
            factor: Permille(4_000),
            answers_min: 16,
            sentence: Nanos::secs(5),
            overdue: Nanos::secs(1),
        }
    }
}

/// One disk's record.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspicion {
    /// Answer time over prediction, averaged.
    ratio: f64,
    answers: u32,
    until: Option<Instant>,
}

impl Suspicion {
    /// Of the newest.
    const NEWEST: f64 = 0.125;
    /// Predictions are no finer.
    const FINEST: Nanos = Nanos::millis(1);
    /// One answer says no more than this.
    const MOST: f64 = 100.0;
    /// A fault counts as an answer so many times too late.
    const FAULT: f64 = 16.0;

    pub(super) fn answered(&mut self, took: Nanos, predicted: Nanos) {
        let predicted = predicted.max(Self::FINEST);
        self.learn(took.0 as f64 / predicted.0 as f64);
    }

    pub(super) fn fault(&mut self) {
        self.learn(Self::FAULT);
    }

    fn learn(&mut self, ratio: f64) {
        let newest = Self::NEWEST.max(1.0 / f64::from(self.answers + 1));
        self.ratio += newest * (ratio.min(Self::MOST) - self.ratio);
        self.answers = self.answers.saturating_add(1);
    }

    /// Its mean, once there is enough to judge by.
    pub(super) fn ratio(&self, options: &EjectOptions) -> Option<f64> {
        (self.answers >= options.answers_min).then_some(self.ratio)
    }

    /// Avoids it if it is that much worse than `peers`.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        options: &EjectOptions,
        peers: impl FnOnce() -> Vec<f64>,
    ) {
        self.acquit(now);
        let factor = options.factor.as_f64();
        let Some(ratio) = self.ratio(options).filter(|ratio| *ratio > factor) else {
            return;
        };
        let mut peers = peers();
        peers.sort_by(f64::total_cmp);
        let Some(median) = peers.get(peers.len() / 2) else {
            return;
        };
        if self.until.is_none() && ratio > factor * median.max(1.0) {
            self.until = Some(now + options.sentence);
        }
    }

    /// Is it avoided now?
    pub(super) fn ejected(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn acquit(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            *self = Suspicion::default();
        }
    }
}
