//! When may a request go on, so that no more passes than a cap allows?
//!
//! ```text
//! request -> Gate of its direction: bytes and requests, a bucket each -> now | at this moment
//!              take -> both buckets lose what it costs, below zero if it is longer than a burst
//! ```
//!
//! A [`Bucket`] holds what may pass at once: at most what its rate lets through in a second. It fills at the rate. A request
//! longer than that goes in pieces of an eighth of it ([`Gate::piece`]), between which others go, so it owes nothing. Where
//! it cannot be cut it goes when the bucket is full, and what it took too much is paid off before the next one.
//!
//! Beside it stands the comparison of caps with what is booked ([`check_booked`]): a booking above the cap could never be had.
//!
//! Pure: time is an argument. `device::cap` makes requests wait.
//!
//! Always true:
//! 1. In any span of time at most `rate * span + burst` passes; a burst is a second of the rate, or the longest request if
//!    that is longer.
//! 2. A request whose turn it is waits no longer than until the bucket is full.
//! 3. Nothing is rounded: units are counted in thousand-millionths, so what passes does not drift.

use base::{Bytes, Instant, Nanos};

use super::Direction;
use crate::rate::BytesPerSec;

/// A bucket holds so much time of its rate.
pub const BURST: Nanos = Nanos::secs(1);
/// A rate below this lets a request of 4 KiB through less than once a second.
pub const BYTES_MIN: BytesPerSec = BytesPerSec(4096);

/// The pieces of a request that is longer than a burst: such a part of one.
const PIECES: u64 = 8;
/// Pieces are so many whole blocks of 4 KiB.
const BLOCK: u64 = 4096;

/// Nanoseconds in a second, and parts in a unit.
const PARTS: i128 = 1_000_000_000;

/// What may pass one way. `None`: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limit {
    /// Bytes per second.
    pub bytes: Option<BytesPerSec>,
    /// Requests per second.
    pub requests: Option<u64>,
}

impl Limit {
    /// Does it let everything pass?
    pub fn is_none(&self) -> bool {
        *self == Limit::default()
    }
}

/// What may pass of reads and of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Caps {
    /// Reads.
    pub read: Limit,
    /// Writes; also what gives room up or makes zeroes.
    pub write: Limit,
}

/// Why something cannot be a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapError {
    /// Less than a block in a second.
    #[error(
        "a cap of {0} lets less than one block of 4 KiB through in a second; write at least 4096B/s, or \"off\""
    )]
    Slow(BytesPerSec),
    /// No request at all.
    #[error("a cap of no request in a second stops everything; write at least 1, or \"off\"")]
    NoRequests,
}

impl Caps {
    /// Does it let everything pass?
    pub fn is_none(&self) -> bool {
        *self == Caps::default()
    }

    /// Those of one direction.
    pub fn of(&self, direction: Direction) -> Limit {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }

    /// Can each of them be?
    ///
    /// # Errors
    /// [`CapError`], of the first that cannot.
    pub fn check(&self) -> Result<(), CapError> {
        for limit in [self.read, self.write] {
            match (limit.bytes, limit.requests) {
                (Some(rate), _) if rate < BYTES_MIN => return Err(CapError::Slow(rate)),
                (_, Some(0)) => return Err(CapError::NoRequests),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A cap and a booking that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cap of {cap} of {direction}s is below the {booked} that are booked; a booking above the cap could never be had"
)]
pub struct BelowBooking {
    /// Which way.
    pub direction: Direction,
    /// The cap, in bytes per second.
    pub cap: BytesPerSec,
    /// The booking.
    pub booked: BytesPerSec,
}

/// Can what is booked (bytes per second of reads, and of writes) be had under these caps? To be asked where caps are set, and
/// where something is booked.
///
/// Choice: caps on requests say nothing about bytes, so they contradict no booking.
///
/// # Errors
/// [`BelowBooking`], of the first direction that cannot.
pub fn check_booked(caps: &Caps, booked: [BytesPerSec; 2]) -> Result<(), BelowBooking> {
    for (direction, booked) in Direction::ALL.into_iter().zip(booked) {
        if let Some(cap) = caps.of(direction).bytes
            && cap < booked
        {
            return Err(BelowBooking {
                direction,
                cap,
                booked,
            });
        }
    }
    Ok(())
}

/// What may pass now of one kind: bytes, or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Units per second.
    rate: u64,
    /// In thousand-millionths of a unit; below zero while a long request is paid off.
    level: i128,
    at: Instant,
}

impl Bucket {
    /// A full one.
    ///
    /// # Panics
    /// If the rate is zero: nothing would ever pass.
    pub fn new(now: Instant, rate: u64) -> Bucket {
        assert!(rate > 0, "a bucket that never fills");
        Bucket {
            rate,
            level: Bucket::full(rate),
            at: now,
        }
    }

    fn full(rate: u64) -> i128 {
        i128::from(rate) * i128::from(BURST.0)
    }

    fn fill(&mut self, now: Instant) {
        let more = i128::from(self.rate) * i128::from(now.since(self.at).0);
        self.level = (self.level + more).min(Bucket::full(self.rate));
        self.at = self.at.max(now);
    }

    /// When `units` may pass if nothing else does before; `now`, if at once.
    pub fn ready_at(&mut self, now: Instant, units: u64) -> Instant {
        self.fill(now);
        let needed = (i128::from(units) * PARTS).min(Bucket::full(self.rate));
        let missing = needed - self.level;
        if missing <= 0 {
            return now;
        }
        let rate = i128::from(self.rate);
        let wait = (missing + rate - 1) / rate;
        now + Nanos(u64::try_from(wait).unwrap_or(u64::MAX / 2))
    }

    /// Does it hold all that it can?
    fn is_full(mut self, now: Instant) -> bool {
        self.fill(now);
        self.level >= Bucket::full(self.rate)
    }

    /// They pass.
    pub fn take(&mut self, now: Instant, units: u64) {
        self.fill(now);
        self.level -= i128::from(units) * PARTS;
    }

    /// Another rate from now on. What is owed stays; what is saved is at most a burst of the new rate.
    fn set_rate(&mut self, now: Instant, rate: u64) {
        self.fill(now);
        self.rate = rate;
        self.level = self.level.min(Bucket::full(rate));
    }
}

/// A bucket of this rate, made of the one that was there.
fn changed(now: Instant, bucket: Option<Bucket>, rate: Option<u64>) -> Option<Bucket> {
    let rate = rate?;
    let mut bucket = bucket.unwrap_or_else(|| Bucket::new(now, rate));
    bucket.set_rate(now, rate);
    Some(bucket)
}

/// What one direction has to pass: a bucket of bytes and one of requests.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::share::cap::{Gate, Limit};
/// use policy::share::BytesPerSec;
/// let limit = Limit { bytes: Some(BytesPerSec(1 << 20)), requests: None };
/// let mut gate = Gate::new(Instant(0), limit);
/// assert_eq!(gate.ready_at(Instant(0), Bytes::mib(1)), Instant(0), "a burst is a second of the rate");
/// gate.take(Instant(0), Bytes::mib(1));
/// assert_eq!(gate.ready_at(Instant(0), Bytes::kib(512)), Instant(0) + Nanos::millis(500));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    limit: Limit,
    bytes: Option<Bucket>,
    requests: Option<Bucket>,
}

impl Gate {
    /// Nothing has passed yet.
    pub fn new(now: Instant, limit: Limit) -> Gate {
        let mut gate = Gate::default();
        gate.set(now, limit);
        gate
    }

    /// What it lets pass.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// It lets something else pass from now on.
    pub fn set(&mut self, now: Instant, limit: Limit) {
        self.limit = limit;
        self.bytes = changed(now, self.bytes, limit.bytes.map(|rate| rate.0));
        self.requests = changed(now, self.requests, limit.requests);
    }

    /// Would a new one let no more pass at `now`?
    pub fn is_full(&self, now: Instant) -> bool {
        let mut buckets = [self.bytes, self.requests].into_iter().flatten();
        buckets.all(|bucket| bucket.is_full(now))
    }

    /// What of a request passes next, where `rest` of it has not: all of it, unless it is longer than a burst. One that has
    /// `begun` goes on in pieces, so that none of them keeps others waiting for longer than the one before.
    pub fn piece(&self, rest: Bytes, begun: bool) -> Bytes {
        match self.limit.bytes {
            Some(rate) if begun || rest > rate.within(BURST) => {
                let piece = rate.within(BURST).0 / PIECES / BLOCK * BLOCK;
                rest.min(Bytes(piece.max(BLOCK)))
            }
            _ => rest,
        }
    }

    /// When a request of `bytes` may pass if nothing else does before; `now`, if at once.
    pub fn ready_at(&mut self, now: Instant, bytes: Bytes) -> Instant {
        self.part_ready_at(now, bytes, 1)
    }

    /// The same of `bytes` that count as so many requests: none, where the first piece of one has passed.
    pub fn part_ready_at(&mut self, now: Instant, bytes: Bytes, requests: u64) -> Instant {
        let buckets = [(&mut self.bytes, bytes.0), (&mut self.requests, requests)];
        let ready = buckets.into_iter().filter_map(|(bucket, units)| {
            let bucket = bucket.as_mut()?;
            (units > 0).then(|| bucket.ready_at(now, units))
        });
        ready.max().unwrap_or(now)
    }

    /// It passes.
    pub fn take(&mut self, now: Instant, bytes: Bytes) {
        self.take_part(now, bytes, 1);
    }

    /// `bytes` pass that count as so many requests.
    pub fn take_part(&mut self, now: Instant, bytes: Bytes, requests: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(now, bytes.0);
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(now, requests);
        }
    }

    /// The time of the cap that a request of `bytes` takes: by whichever of the two caps it takes more.
    pub fn time_of(&self, bytes: Bytes) -> Nanos {
        let by_bytes = self.limit.bytes.map(|rate| rate.time_for(bytes));
        let by_requests = self.limit.requests.map(|rate| Nanos(PARTS as u64 / rate));
        by_bytes.max(by_requests).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(bytes: u64, requests: u64) -> Limit {
        Limit {
            bytes: Some(BytesPerSec(bytes)),
            requests: Some(requests),
        }
    }

    #[test]
    fn a_request_longer_than_a_burst_waits_for_a_full_bucket_and_is_paid_off() {
        let mut gate = Gate::new(Instant(0), limit(1_000_000, 1_000));
        let second = Nanos::secs(1);
        assert_eq!(gate.ready_at(Instant(0), Bytes(5_000_000)), Instant(0));
        gate.take(Instant(0), Bytes(5_000_000));
        // Four seconds of debt, and then it fills for as long as the next one is.
        let at = gate.ready_at(Instant(0), Bytes(500_000));
        assert_eq!(at, Instant(0) + second * 4 + Nanos::millis(500));
        let full = gate.ready_at(Instant(0), Bytes(5_000_000));
        assert_eq!(full, Instant(0) + second * 5);
        assert_eq!(gate.ready_at(full, Bytes(u64::MAX)), full, "never starved");
    }

    #[test]
    fn a_request_longer_than_a_burst_goes_in_eighths_of_one_that_owe_nothing() {
        let mut gate = Gate::new(Instant(0), limit(1 << 20, 10));
        let mib = Bytes::mib(1);
        assert_eq!(gate.piece(mib, false), mib, "a burst is no longer than one");
        let (mut rest, mut now, mut begun) = (Bytes::mib(5), Instant(0), false);
        let mut pieces = 0;
        while rest.0 > 0 {
            let piece = gate.piece(rest, begun);
            assert_eq!(piece, Bytes::kib(128));
            let requests = u64::from(!begun);
            now = gate.part_ready_at(now, piece, requests);
            gate.take_part(now, piece, requests);
            (rest, begun) = (rest - piece, true);
            pieces += 1;
        }
        // A second's worth was there; and nothing is owed.
        assert_eq!((pieces, now), (40, Instant(0) + Nanos::secs(4)));
        assert_eq!(gate.ready_at(now, Bytes(4096)), now + Nanos(3_906_250));
        // The least cap has pieces of a block; where only requests are capped nothing is cut.
        let least = Gate::new(now, limit(4096, 1));
        assert_eq!(least.piece(Bytes(8192), false), Bytes(4096));
        let requests = Limit {
            bytes: None,
            requests: Some(1),
        };
        assert_eq!(Gate::new(now, requests).piece(mib, false), mib);
    }

    #[test]
    fn the_stricter_of_both_caps_counts() {
        let mut gate = Gate::new(Instant(0), limit(1_000_000, 10));
        for _ in 0..10 {
            gate.take(Instant(0), Bytes(1));
        }
        let at = gate.ready_at(Instant(0), Bytes(1));
        assert_eq!(at, Instant(0) + Nanos::millis(100));
        assert_eq!(gate.time_of(Bytes(1)), Nanos::millis(100));
        assert_eq!(gate.time_of(Bytes(500_000)), Nanos::millis(500));
    }

    #[test]
    fn a_cap_that_is_changed_keeps_its_debt_and_saves_no_more_than_its_burst() {
        let now = Instant(7);
        let mut gate = Gate::new(now, limit(1_000_000, 1_000));
        gate.take(now, Bytes(2_000_000));
        gate.set(now, limit(2_000_000, 1_000));
        assert_eq!(gate.ready_at(now, Bytes(1)), now + Nanos(500_000_500));
        let mut full = Gate::new(now, limit(1_000_000, 1_000));
        full.set(now, limit(1_000, 1_000));
        full.take(now, Bytes(1_000));
        assert_eq!(full.ready_at(now, Bytes(1)), now + Nanos::millis(1));
        full.set(now, Limit::default());
        assert_eq!(full.ready_at(now, Bytes(u64::MAX)), now);
        assert_eq!(full.time_of(Bytes(u64::MAX)), Nanos(0));
    }

    #[test]
    fn a_cap_below_what_is_booked_is_refused_with_both() {
        let mb = BytesPerSec::mb;
        let caps = Caps {
            read: limit(50_000_000, 10),
            write: Limit::default(),
        };
        assert_eq!(check_booked(&caps, [mb(50), mb(500)]), Ok(()));
        let refused = check_booked(&caps, [mb(51), mb(0)])
            .unwrap_err()
            .to_string();
        assert_eq!(
            refused,
            "a cap of 50 MB/s of reads is below the 51 MB/s that are booked; a booking above the cap could never be had"
        );
    }

    #[test]
    fn a_cap_that_stops_everything_is_none() {
        let mut caps = Caps::default();
        assert!(caps.is_none() && caps.check().is_ok());
        caps.write.requests = Some(0);
        assert_eq!(caps.check(), Err(CapError::NoRequests));
        caps.read.bytes = Some(BytesPerSec(4095));
        assert_eq!(caps.check(), Err(CapError::Slow(BytesPerSec(4095))));
    }

    proptest! {
        /// Requests as they come; each goes as soon as it may. Every span of time is looked at.
        #[test]
        fn no_span_of_time_lets_more_pass_than_rate_and_burst(
            rate in 1_u64..100_000_000,
            requests in 1_u64..5_000,
            asked in prop::collection::vec((0_u64..400_000_000, 1_u64..3_000_000), 1..80),
        ) {
            let mut gate = Gate::new(Instant(0), limit(rate, requests));
            let (mut now, mut passed) = (Instant(0), Vec::new());
            let mut longest = rate;
            for (after, bytes) in asked {
                let came = now + Nanos(after);
                let at = gate.ready_at(came, Bytes(bytes));
                prop_assert!(at >= came);
                let mut early = gate;
                prop_assert_eq!(gate.ready_at(at, Bytes(bytes)), at, "no longer than it said");
                if at > came {
                    let before = Instant(at.0 - 1);
                    prop_assert!(early.ready_at(before, Bytes(bytes)) > before, "and no shorter");
                }
                gate.take(at, Bytes(bytes));
                passed.push((at, bytes));
                longest = longest.max(bytes);
                now = at;
            }
            for from in 0..passed.len() {
                let (mut bytes, mut count) = (0_u128, 0_u128);
                for &(at, length) in &passed[from..] {
                    bytes += u128::from(length);
                    count += 1;
                    let span = u128::from(at.since(passed[from].0).0);
                    let parts = |rate: u64, burst: u64| {
                        u128::from(rate) * span + u128::from(burst) * 1_000_000_000
                    };
                    prop_assert!(bytes * 1_000_000_000 <= parts(rate, longest));
                    prop_assert!(count * 1_000_000_000 <= parts(requests, requests));
                }
            }
        }
    }
}
