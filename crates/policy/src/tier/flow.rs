//! How fast may data move without users of the slow device waiting for it?
//!
//! ```text
//! every 200 ms: mean wait of foreground requests --Flow--> bytes a second --Tokens--> when the next chunk may go
//! ```
//!
//! Additive increase, multiplicative decrease: as long as the wait stays below twice the unloaded one the rate
//! grows by a step, else it is halved. So the movers find what the users leave, and yield at once when more come.
//!
//! The unloaded wait is a slowly rising minimum: it falls quickly to what is seen and rises by a tiny part with
//! every sample above it, so that a workload whose requests are dearer is not taken for overload for ever.
//!
//! Pure: samples and moments come in as arguments.
//!
//! Source: AST 4.3 and 6 ("moves should be throttled when the HDD is about to be overloaded").
//!
//! Always true:
//! 1. The rate stays between floor and ceiling.
//! 2. A sample above the limit never raises it, one below never lowers it.

use base::{Bytes, Instant, Nanos};

/// What flow control goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowOptions {
    /// Data move at least this fast, whatever the users suffer, in bytes a second. Else a disk that is always busy
    /// would never lose what makes it busy.
    pub floor: Bytes,
    /// And at most this fast.
    pub ceiling: Bytes,
    /// So much is added after a good sample.
    pub step: Bytes,
    /// A wait above so many times the unloaded one is too long.
    pub overload: f64,
    /// What a foreground request waits on the idle device, if that is known; else it is learned from zero.
    pub unloaded: Option<Nanos>,
}

impl FlowOptions {
    /// How often flow control wants a sample.
    pub const SAMPLE: Nanos = Nanos::millis(200);
}

impl Default for FlowOptions {
    /// 1 to 256 MiB/s, 2 MiB/s more after each good sample: a disk of 113 MB/s is reached in 11 seconds, and in 1.4
    /// when there are no users.
    fn default() -> Self {
        FlowOptions {
            floor: Bytes::mib(1),
            ceiling: Bytes::mib(256),
            step: Bytes::mib(2),
            overload: 2.0,
            unloaded: None,
        }
    }
}

/// What was seen since the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// How many foreground reads the slow device answered.
    pub requests: u64,
    /// What they waited on average; nothing if there were none.
    pub wait: Nanos,
    /// How many foreground writes.
    pub writes: u64,
    /// What those waited.
    pub write_wait: Nanos,
    /// What moved meanwhile, both ways.
    pub moved: Bytes,
}

/// Finds the rate at which data may move.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::tier::flow::{Flow, FlowOptions, Sample};
/// let mut flow = Flow::new(FlowOptions { unloaded: Some(Nanos::millis(5)), ..FlowOptions::default() });
/// let seen = |ms| Sample { requests: 20, wait: Nanos::millis(ms), ..Sample::default() };
/// assert_eq!(flow.sample(&seen(6)), Bytes::mib(3));
/// assert_eq!(flow.sample(&seen(6)), Bytes::mib(5));
/// // 60 ms is more than twice 5.
/// assert_eq!(flow.sample(&seen(60)), Bytes::mib(5) / 2);
/// ```
#[derive(Debug, Clone)]
pub struct Flow {
    options: FlowOptions,
    /// Bytes a second.
    rate: u64,
    /// What a read and a write wait on the idle device, in nanoseconds: a drive with a cache answers a write many
    /// times as fast.
    unloaded: [Option<f64>; 2],
}

impl Flow {
    /// A sample of so many requests counts fully; the mean of fewer is a matter of luck.
    const FULL: u64 = 8;
    /// The unloaded wait goes this part of the way down to a shorter one.
    const FALL: f64 = 1.0 / 8.0;
    /// ... and rises by this part of itself when a longer one is seen while nothing moves: by half in about 3
    /// minutes of five samples a second.
    const RISE: f64 = 0.0005;
    /// ... and by a tenth of that while data move, whose doing the wait may be.
    const RISE_WHILE_MOVING: f64 = Flow::RISE / 10.0;

    /// Starts at the floor.
    ///
    /// # Panics
    /// If the floor is zero or above the ceiling, or `overload` is not above 1.
    pub fn new(options: FlowOptions) -> Flow {
        let FlowOptions { floor, ceiling, .. } = options;
        assert!(
            floor.0 > 0 && floor <= ceiling,
            "flow control needs 0 < floor <= ceiling: {floor} and {ceiling}"
        );
        assert!(options.overload > 1.0, "overload {}", options.overload);
        Flow {
            options,
            rate: floor.0,
            unloaded: [options.unloaded.map(|wait| wait.0 as f64), None],
        }
    }

    /// One sample in, bytes a second out.
    ///
    /// Choice: without users the rate doubles: no request suffers.
    pub fn sample(&mut self, sample: &Sample) -> Bytes {
        let FlowOptions {
            floor,
            ceiling,
            step,
            overload,
            ..
        } = self.options;
        // How many times as long as on the idle device they waited, in the mean over both kinds.
        let kinds = [
            (sample.requests, sample.wait),
            (sample.writes, sample.write_wait),
        ];
        let (mut known, mut times) = (0.0, 0.0);
        for (kind, (requests, wait)) in kinds.into_iter().enumerate() {
            let least = self.unloaded[kind].filter(|least| *least > 0.0);
            if let Some(least) = least {
                known += requests as f64;
                times += requests as f64 * wait.0 as f64 / least;
            }
            self.learn(kind, requests, wait, sample.moved);
        }
        let rate = match sample.requests + sample.writes {
            0 => self.rate.saturating_mul(2),
            _ if times > overload * known => self.rate / 2,
            _ => self.rate.saturating_add(step.0),
        };
        self.rate = rate.clamp(floor.0, ceiling.0);
        self.rate()
    }

    /// Bytes a second.
    pub fn rate(&self) -> Bytes {
        Bytes(self.rate)
    }

    /// What a foreground read is taken to wait on the idle device; none before the first.
    pub fn unloaded(&self) -> Option<Nanos> {
        self.unloaded[0].map(|wait| Nanos(wait as u64))
    }

    fn learn(&mut self, kind: usize, requests: u64, wait: Nanos, moved: Bytes) {
        if requests == 0 {
            return;
        }
        let wait = wait.0 as f64;
        let weight = requests.min(Self::FULL) as f64 / Self::FULL as f64;
        let rise = match moved {
            Bytes(0) => Self::RISE,
            _ => Self::RISE_WHILE_MOVING,
        };
        self.unloaded[kind] = Some(match self.unloaded[kind] {
            None => wait,
            Some(least) if wait < least => least - (least - wait) * Self::FALL * weight,
            Some(least) => (least * (1.0 + rise * weight)).min(wait),
        });
    }
}

/// A token bucket: when may the next chunk go?
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::tier::flow::Tokens;
/// let mut tokens = Tokens::new(Bytes::mib(1), Bytes::mib(1), Instant(0));
/// assert_eq!(tokens.wait(Instant(0), Bytes::mib(1)), Nanos(0));
/// tokens.take(Instant(0), Bytes::mib(1));
/// assert_eq!(tokens.wait(Instant(0), Bytes::mib(1)), Nanos::secs(1));
/// ```
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Bytes a second.
    rate: u64,
    /// The bucket holds so many.
    burst: u64,
    /// What is in it, in billionths of a byte; below zero after a chunk larger than the bucket.
    level: i128,
    at: Instant,
}

impl Tokens {
    const NANO: i128 = 1_000_000_000;

    /// A full bucket that holds `burst` and fills at `rate` bytes a second.
    ///
    /// # Panics
    /// If one of them is zero.
    pub fn new(rate: Bytes, burst: Bytes, now: Instant) -> Tokens {
        assert!(rate.0 > 0 && burst.0 > 0, "rate {rate}, burst {burst}");
        Tokens {
            rate: rate.0,
            burst: burst.0,
            level: i128::from(burst.0) * Self::NANO,
            at: now,
        }
    }

    /// From `now` on it fills at `rate`.
    ///
    /// # Panics
    /// If that is zero.
    pub fn set_rate(&mut self, now: Instant, rate: Bytes) {
        assert!(rate.0 > 0, "a rate of zero never lets a chunk go");
        self.fill(now);
        self.rate = rate.0;
    }

    /// How long a chunk of `size` has to wait from `now` on; zero: it may go. One larger than the bucket goes when the
    /// bucket is full, and those behind it pay for it.
    pub fn wait(&self, now: Instant, size: Bytes) -> Nanos {
        let need = i128::from(size.0.min(self.burst)) * Self::NANO;
        let missing = (need - self.level_at(now)).max(0);
        let nanos = missing.div_euclid(i128::from(self.rate))
            + i128::from(missing.rem_euclid(i128::from(self.rate)) > 0);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A chunk of `size` goes.
    pub fn take(&mut self, now: Instant, size: Bytes) {
        self.fill(now);
        self.level -= i128::from(size.0) * Self::NANO;
    }

    fn fill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.at = self.at.max(now);
    }

    fn level_at(&self, now: Instant) -> i128 {
        let grown = i128::from(now.0.saturating_sub(self.at.0)) * i128::from(self.rate);
        (self.level + grown).min(i128::from(self.burst) * Self::NANO)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(requests: u64, wait_ms: u64) -> Sample {
        Sample {
            requests,
            wait: Nanos::millis(wait_ms),
            ..Sample::default()
        }
    }

    fn known(unloaded_ms: u64) -> Flow {
        Flow::new(FlowOptions {
            unloaded: Some(Nanos::millis(unloaded_ms)),
            ..FlowOptions::default()
        })
    }

    #[test]
    fn without_users_the_ceiling_is_reached_in_eight_samples() {
        let mut flow = Flow::new(FlowOptions::default());
        let rates: Vec<Bytes> = (0..9).map(|_| flow.sample(&Sample::default())).collect();
        assert_eq!(rates[0], Bytes::mib(2));
        assert_eq!(rates[7..], [Bytes::mib(256); 2]);
        assert_eq!(flow.unloaded(), None);
    }

    #[test]
    fn overload_brings_it_to_the_floor_and_it_comes_back() {
        let mut flow = known(5);
        for _ in 0..50 {
            flow.sample(&seen(20, 6));
        }
        assert_eq!(flow.rate(), Bytes::mib(101));
        for _ in 0..7 {
            flow.sample(&seen(20, 100));
        }
        assert_eq!(flow.rate(), Bytes::mib(1));
        assert_eq!(flow.sample(&seen(20, 6)), Bytes::mib(3));
    }

    #[test]
    fn the_unloaded_wait_is_learned_and_one_lucky_request_hardly_moves_it() {
        let mut flow = Flow::new(FlowOptions::default());
        for _ in 0..100 {
            flow.sample(&seen(20, 8));
        }
        let before = flow.unloaded().unwrap();
        assert_eq!(before, Nanos::millis(8));
        flow.sample(&seen(1, 0));
        let after = flow.unloaded().unwrap();
        assert!(after > Nanos::micros(7_800), "{after}");
        for _ in 0..100 {
            flow.sample(&seen(20, 4));
        }
        let fallen = flow.unloaded().unwrap();
        assert!(fallen < Nanos::micros(4_100), "{fallen}");
    }

    #[test]
    fn a_dearer_workload_is_no_lasting_overload_and_moves_are_not_the_norm() {
        let (mut alone, mut moving) = (known(5), known(5));
        for _ in 0..5 * 600 {
            alone.sample(&seen(20, 20));
            let sample = Sample {
                moved: Bytes::mib(1),
                ..seen(20, 20)
            };
            moving.sample(&sample);
        }
        assert!(alone.rate() > Bytes::mib(1), "{:?}", alone.unloaded());
        assert_eq!(moving.rate(), Bytes::mib(1));
        assert!(moving.unloaded().unwrap() < Nanos::millis(7));
    }

    #[test]
    fn it_settles_where_the_users_wait_about_twice_as_long() {
        // A disk of 100 MiB/s that serves users in 5 ms alone, as a queue of which moves take their share.
        let mut flow = known(5);
        let mut waits = Vec::new();
        for _ in 0..500 {
            let busy = (flow.rate().0 as f64 / Bytes::mib(100).0 as f64).min(0.99);
            let wait = Nanos::from_secs_f64(0.005 / (1.0 - busy));
            let sample = Sample {
                requests: 20,
                wait,
                moved: Bytes(flow.rate().0 / 5),
                ..Sample::default()
            };
            flow.sample(&sample);
            waits.push(wait.secs_f64() * 1e3);
        }
        let mean = waits[100..].iter().sum::<f64>() / 400.0;
        assert!((7.0..11.0).contains(&mean), "{mean:.1} ms");
    }

    #[test]
    fn a_large_chunk_waits_for_a_full_bucket_and_is_paid_for_afterwards() {
        let mut tokens = Tokens::new(Bytes(1000), Bytes(100), Instant(0));
        assert_eq!(tokens.wait(Instant(0), Bytes(500)), Nanos(0));
        tokens.take(Instant(0), Bytes(500));
        assert_eq!(tokens.wait(Instant(0), Bytes(1)), Nanos::millis(401));
        tokens.set_rate(Instant(0), Bytes(10_000));
        assert_eq!(tokens.wait(Instant(0), Bytes(500)), Nanos::millis(50));
    }

    proptest! {
        #[test]
        fn the_rate_stays_in_bounds_and_moves_the_right_way(
            samples in prop::collection::vec((0u64..40, 1u64..200, 0u64..2), 1..300),
        ) {
            let mut flow = Flow::new(FlowOptions::default());
            for (requests, wait, moved) in samples {
                let (before, least) = (flow.rate(), flow.unloaded());
                let sample = Sample { moved: Bytes(moved), ..seen(requests, wait) };
                let after = flow.sample(&sample);
                prop_assert!((Bytes::mib(1)..=Bytes::mib(256)).contains(&after));
                let limit = least.map(|least| least * 2);
                let long = requests > 0 && limit.is_some_and(|limit| sample.wait > limit + Nanos(2));
                let short = requests == 0 || limit.is_none_or(|limit| sample.wait < limit);
                prop_assert!(!long || after <= before);
                prop_assert!(!short || after >= before);
            }
        }

        #[test]
        fn what_goes_never_exceeds_rate_and_bucket_and_waits_are_exact(
            chunks in prop::collection::vec((1u64..300, 0u64..2_000_000_000), 1..100),
        ) {
            let (rate, burst) = (Bytes(100), Bytes(150));
            let mut tokens = Tokens::new(rate, burst, Instant(0));
            let (mut now, mut gone, mut last) = (Instant(0), 0u64, 0u64);
            for (size, idle) in chunks {
                now = now + Nanos(idle);
                let wait = tokens.wait(now, Bytes(size));
                if wait > Nanos(0) {
                    prop_assert!(tokens.wait(now + Nanos(wait.0 - 1), Bytes(size)) > Nanos(0));
                }
                now = now + wait;
                prop_assert_eq!(tokens.wait(now, Bytes(size)), Nanos(0));
                tokens.take(now, Bytes(size));
                gone += size;
                last = size;
                // Everything but what the last chunk ran up as debt.
                let may = burst.0 + (u128::from(now.0) * 100 / 1_000_000_000) as u64 + 1;
                prop_assert!(gone - last.saturating_sub(burst.0) <= may);
            }
            prop_assert!(last > 0);
        }
    }

    #[test]
    fn quick_writes_do_not_make_reads_look_slow() {
        let mut flow = Flow::new(FlowOptions::default());
        for _ in 0..50 {
            flow.sample(&seen(20, 7));
        }
        for _ in 0..200 {
            // The drive's cache takes them.
            let sample = Sample {
                writes: 500,
                write_wait: Nanos::micros(200),
                ..Sample::default()
            };
            flow.sample(&sample);
        }
        let before = flow.rate();
        assert_eq!(flow.unloaded(), Some(Nanos::millis(7)));
        assert!(flow.sample(&seen(20, 8)) >= before);
        assert!(flow.sample(&seen(20, 80)) < before);
    }
}
