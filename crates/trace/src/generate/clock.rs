//! When do requests come? In bursts, at a mean rate.
//!
//! ```text
//! burst of k requests -> a gap, exponential with the mean of k requests at the rate -> next burst ...
//! ```
//!
//! The gap runs from the beginning of a burst, so that the rate holds whatever the sizes of bursts. Bursts
//! of one request make a Poisson process.
//!
//! Always true: time does not go back, and begins at 0.

use base::Nanos;
use env::Rng;

use super::chance::{self, Burst};

/// The moment at hand, and where in a burst it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    now: u64,
    began: u64,
    sent: u64,
    left: u64,
}

impl Clock {
    /// Now, in whole microseconds, as traces count time.
    pub(super) fn now(&self) -> Nanos {
        Nanos(self.now / 1_000 * 1_000)
    }

    /// Is the burst at hand over?
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Goes on to where the next burst begins, at this mean rate of requests per second.
    pub(super) fn next_burst(&mut self, rng: &mut Rng, rate: f64) {
        if self.sent > 0 {
            let gap = chance::exponential(rng, self.sent as f64 / rate * 1e9);
            self.now = self.now.max(self.began.saturating_add(gap));
        }
        self.began = self.now;
        self.sent = 0;
    }

    /// How many requests the burst that begins now has.
    pub(super) fn begin(&mut self, requests: u64) {
        self.left = requests;
    }

    /// Goes on to the next request of the burst; `spacing` is the mean between two.
    pub(super) fn step(&mut self, rng: &mut Rng, spacing: Nanos) {
        self.now = self.now.saturating_add(rng.below(2 * spacing.0 + 1));
    }

    /// A request has been sent.
    pub(super) fn send(&mut self) {
        self.sent += 1;
        self.left -= 1;
    }
}

/// Requests of a burst follow each other ten times as fast as the mean rate, at least every 100 us.
fn spacing(iops: f64) -> Nanos {
    Nanos(((1e9 / iops / 10.0) as u64).min(100_000))
}

/// Bursts at one mean rate, to the end of the trace.
pub(super) struct Arrivals {
    // fixed
    iops: f64,
    burst: Burst,
    spacing: Nanos,
    // as time goes
    clock: Clock,
    times: Rng,
}

impl Arrivals {
    /// `iops` requests per second, `burst` of them in a burst, on the average.
    pub(super) fn new(iops: f64, burst: f64, times: Rng) -> Arrivals {
        Arrivals {
            iops,
            burst: Burst::new(burst),
            spacing: spacing(iops),
            clock: Clock::default(),
            times,
        }
    }

    /// Goes on to the next request.
    #[inline]
    pub(super) fn step(&mut self) {
        if self.clock.is_over() {
            self.clock.next_burst(&mut self.times, self.iops);
            self.clock.begin(self.burst.draw(&mut self.times));
        } else {
            self.clock.step(&mut self.times, self.spacing);
        }
        self.clock.send();
    }

    /// Is the request at hand the first of a burst?
    pub(super) fn begins_burst(&self) -> bool {
        self.clock.sent == 1
    }

    /// Now.
    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }
}
