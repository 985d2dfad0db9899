//! Does a block that was missed deserve a place on the fast device?
//!
//! ```text
//! read miss  -> Streams: part of a long stream? -----> bypass
//!            -> Admission: asked for lately? --no----> bypass, but remember
//!            -> FlashBudget: bytes left today? --no--> bypass
//!            -> admit
//! write miss -> Streams, else always admit (and charged to the budget)
//! ```
//!
//! Three small deciders, each usable alone. Pure: time comes in as an argument.

use base::{Bytes, Instant, Nanos, Sector, Span};

use super::Ghost;
use super::lists::Lists;

/// Which read misses come into the cache. Writes always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// Every one.
    Always,
    /// Those asked for a second time while a ghost still remembers the first.
    #[default]
    OnSecondAccess,
}

/// Admission of read misses.
///
/// # Example
/// ```
/// use policy::cache::admission::{Admission, Reads};
/// let mut admission = Admission::new(Reads::OnSecondAccess, 1_000);
/// assert!(!admission.read(7, false), "the first time it is only remembered");
/// assert!(admission.read(7, false), "the second time it comes in");
/// assert!(admission.read(8, true), "a key the policy remembers comes in at once");
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    reads: Reads,
    seen: Ghost,
}

impl Admission {
    /// For a cache of `capacity` blocks: remembers as many missed keys.
    pub fn new(reads: Reads, capacity: u32) -> Admission {
        let keys = match reads {
            Reads::Always => 0,
            Reads::OnSecondAccess => capacity as usize,
        };
        Admission {
            reads,
            seen: Ghost::new(keys),
        }
    }

    /// A read missed `key`: may it come in? `remembered` is what
    /// [`Replacement::remembers`](super::Replacement::remembers) says of it. A key refused is
    /// remembered here; one admitted is forgotten.
    pub fn read(&mut self, key: u64, remembered: bool) -> bool {
        if self.reads == Reads::Always {
            return true;
        }
        if self.seen.take(key) || remembered {
            return true;
        }
        self.seen.push(key);
        false
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        self.seen.memory()
    }
}

/// What a request looks like beside those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Does it continue a stream?
    pub sequential: bool,
    /// How far its stream has come, this request included.
    pub length: Bytes,
    /// Is the stream long enough to go past the cache?
    pub bypass: bool,
}

/// Finds sequential streams among interleaved requests.
///
/// A stream is followed by the sector it is expected to go on at. A request that starts there
/// continues it; one that starts within [`SLACK`](Streams::SLACK) of it (queues reorder) does too, but
/// counts as *out of order*. A stream's length counts only new ground that was asked for. It begins anew when
/// requests out of order outnumber exact continuations: that is no stream. So neither requests that stay
/// in one place nor random ones in a small hot area ever become a stream. The stream unused for
/// longest makes room for a new one.
///
/// # Example
/// ```
/// use base::{Bytes, Span};
/// use policy::cache::admission::Streams;
/// let mut streams = Streams::new(128, Some(Bytes::mib(1)));
/// let last = (0..16).map(|i| streams.see(Span::bytes(i << 16, 1 << 16))).last();
/// assert!(last.is_some_and(|seen| seen.bypass), "16 x 64 KiB in a row");
/// assert!(!streams.see(Span::bytes(1 << 40, 4096)).bypass);
/// ```
#[derive(Clone, Debug)]
pub struct Streams {
    bypass_at: Option<Bytes>,
    /// (where it goes on, stream), sorted by place: short enough to shift, and quicker than a tree.
    expected: Vec<(Sector, u32)>,
    streams: Vec<Stream>,
    /// Streams by last use.
    order: Lists<1>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where it began, until it is known to go on one from elsewhere.
    begun: Option<Sector>,
    /// Where it is expected to go on.
    next: Sector,
    /// New ground it covered.
    length: Bytes,
    exact: u32,
    out_of_order: u32,
}

impl Stream {
    fn at(next: Sector) -> Stream {
        Stream {
            begun: Some(next),
            next,
            length: Bytes(0),
            exact: 0,
            out_of_order: 0,
        }
    }

    /// Goes on with `request`, which starts at or near `next`.
    fn go_on(&mut self, request: Span) {
        if request.start == self.next {
            self.exact += 1;
        } else {
            self.out_of_order += 1;
        }
        if self.out_of_order > self.exact + Streams::OUT_OF_ORDER_FREE {
            *self = Stream::at(request.start);
        }
        let end = self.next.max(request.end());
        let new = Bytes((end.0 - self.next.0) * base::SECTOR);
        // A gap is not ground that was asked for: a request still under way may fill it, or none.
        self.length += new.min(request.len);
        self.next = end;
        // Old behaviour counts less than new.
        if self.exact + self.out_of_order >= 64 {
            (self.exact, self.out_of_order) = (self.exact / 2, self.out_of_order / 2);
        }
    }
}

impl Streams {
    /// A request this far before or behind the expected place may continue the stream out of order.
    pub const SLACK: Bytes = Bytes::kib(64);
    /// Requests out of order that are forgiven before any exact continuation.
    const OUT_OF_ORDER_FREE: u32 = 2;

    /// Follows up to `most` streams (at least one); from `bypass_at` on they bypass (`None`: never).
    pub fn new(most: u32, bypass_at: Option<Bytes>) -> Streams {
        let most = most.max(1);
        Streams {
            bypass_at,
            expected: Vec::with_capacity(most as usize),
            streams: Vec::with_capacity(most as usize),
            order: Lists::new(most),
        }
    }

    /// Takes note of a request.
    pub fn see(&mut self, request: Span) -> StreamPosition {
        let found = self.continued(request.start);
        let (number, before) = match found {
            Some(number) => (number, Some(self.streams[number as usize].next)),
            None => self.start(request.start),
        };
        let stream = &mut self.streams[number as usize];
        stream.go_on(request);
        let next = stream.next;
        self.expect(number, before, next);
        let stream = &self.streams[number as usize];
        self.order.renew(0, number);
        StreamPosition {
            sequential: found.is_some() && stream.length > request.len,
            length: stream.length,
            bypass: self.bypass_at.is_some_and(|at| stream.length >= at),
        }
    }

    /// A stream that was followed elsewhere, and is `length` long so far, goes on at `at`, or did so already: where a volume's
    /// addresses are dealt out to several parts, another one told so.
    ///
    /// # Example
    /// ```
    /// use base::{Bytes, Sector, Span};
    /// use policy::cache::admission::Streams;
    /// let mut streams = Streams::new(128, Some(Bytes::mib(1)));
    /// streams.expect_from(Sector(0), Bytes::mib(16));
    /// assert!(streams.see(Span::bytes(0, 4096)).bypass);
    /// ```
    pub fn expect_from(&mut self, at: Sector, length: Bytes) {
        let from = self.expected.partition_point(|(next, _)| *next < at);
        let waiting = self.expected.get(from).filter(|(next, _)| *next == at);
        if let Some(&(_, number)) = waiting {
            let stream = &mut self.streams[number as usize];
            stream.length = stream.length.max(length);
            return;
        }
        let late = self
            .streams
            .iter_mut()
            .find(|stream| stream.begun == Some(at));
        if let Some(stream) = late {
            stream.begun = None;
            stream.length += length;
            return;
        }
        let (number, before) = self.start(at);
        let stream = &mut self.streams[number as usize];
        (stream.begun, stream.length) = (None, length);
        self.expect(number, before, at);
        self.order.renew(0, number);
    }

    /// Streams followed now.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Is none followed?
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The stream expected nearest to `start`, within the slack.
    fn continued(&self, start: Sector) -> Option<u32> {
        let slack = Self::SLACK.sectors();
        let low = Sector(start.0.saturating_sub(slack));
        let high = Sector(start.0.saturating_add(slack));
        let from = self.expected.partition_point(|(next, _)| *next < low);
        self.expected[from..]
            .iter()
            .take_while(|(next, _)| *next <= high)
            .min_by_key(|(next, _)| next.0.abs_diff(start.0))
            .map(|&(_, stream)| stream)
    }

    /// A stream at `at`, new or in place of the one unused for longest; and where that was expected.
    fn start(&mut self, at: Sector) -> (u32, Option<Sector>) {
        if self.streams.len() < self.order.frames() as usize {
            let stream = self.streams.len() as u32;
            self.streams.push(Stream::at(at));
            self.order.push(0, stream);
            return (stream, None);
        }
        let oldest = self
            .order
            .oldest(0)
            .expect("as many streams as allowed, at least one");
        let before = std::mem::replace(&mut self.streams[oldest as usize], Stream::at(at));
        (oldest, Some(before.next))
    }

    /// `stream` is expected at `next` from now on; `before`: where it was.
    fn expect(&mut self, stream: u32, before: Option<Sector>, next: Sector) {
        let new = (next, stream);
        let to = self.expected.partition_point(|old| *old < new);
        let Some(before) = before else {
            self.expected.insert(to, new);
            return;
        };
        let from = self
            .expected
            .binary_search(&(before, stream))
            .expect("every stream is expected somewhere");
        // What lies between the two places moves up or down by one.
        if from < to {
            self.expected.copy_within(from + 1..to, from);
            self.expected[to - 1] = new;
        } else {
            self.expected.copy_within(to..from, to + 1);
            self.expected[to] = new;
        }
    }
}

/// One day.
const DAY: Nanos = Nanos::secs(24 * 60 * 60);

/// A cap on the bytes written to flash per day: a token bucket that fills evenly.
///
/// The bucket holds one hour's share, full at the start, so a burst may pass but a day brings at most
/// 25/24 of the cap. What must be written anyway is charged too and may leave a debt, which later
/// admissions wait for.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::cache::admission::FlashBudget;
/// let mut budget = FlashBudget::new(Some(Bytes::gib(24)), Instant(0));
/// assert!(budget.admit(Instant(0), Bytes::gib(1)), "one hour's share at once");
/// assert!(!budget.admit(Instant(0), Bytes(4096)), "then it is used up");
/// assert!(budget.admit(Instant(0) + Nanos::secs(60), Bytes::mib(17)), "17 MiB a minute flow in");
/// ```
#[derive(Clone, Debug)]
pub struct FlashBudget {
    per_day: Option<Bytes>,
    /// Bytes left, in units of one byte / [`DAY`] nanoseconds, so that no fraction is lost.
    left: i128,
    filled: Instant,
}

impl FlashBudget {
    /// At most `per_day` (`None`: no cap).
    pub fn new(per_day: Option<Bytes>, now: Instant) -> FlashBudget {
        let mut budget = FlashBudget {
            per_day,
            left: 0,
            filled: now,
        };
        budget.left = budget.room();
        budget
    }

    /// One hour's share.
    fn room(&self) -> i128 {
        self.per_day
            .map_or(0, |cap| i128::from(cap.0) * i128::from(DAY.0 / 24))
    }

    fn fill(&mut self, now: Instant) {
        let Some(cap) = self.per_day else { return };
        let since = i128::from(now.since(self.filled).0);
        self.left = (self.left + i128::from(cap.0) * since).min(self.room());
        self.filled = self.filled.max(now);
    }

    /// May `len` bytes that need not be written now be written? If so they are charged.
    pub fn admit(&mut self, now: Instant, len: Bytes) -> bool {
        if self.per_day.is_none() {
            return true;
        }
        self.fill(now);
        let cost = i128::from(len.0) * i128::from(DAY.0);
        let enough = cost <= self.left;
        if enough {
            self.left -= cost;
        }
        enough
    }

    /// Charges `len` bytes that must be written.
    pub fn charge(&mut self, now: Instant, len: Bytes) {
        if self.per_day.is_none() {
            return;
        }
        self.fill(now);
        self.left -= i128::from(len.0) * i128::from(DAY.0);
    }

    /// Bytes left now, zero in debt; `None` without a cap.
    pub fn left(&mut self, now: Instant) -> Option<Bytes> {
        self.per_day?;
        self.fill(now);
        Some(Bytes((self.left.max(0) / i128::from(DAY.0)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(n: u64) -> Span {
        Span::bytes(n * 4096, 4096)
    }

    #[test]
    fn a_read_comes_in_the_second_time_unless_all_do() {
        let mut second = Admission::new(Reads::OnSecondAccess, 100);
        assert!(!second.read(1, false));
        assert!(second.read(1, false));
        assert!(!second.read(1, false), "admitted means forgotten");
        assert!(second.read(2, true));
        let mut always = Admission::new(Reads::Always, 100);
        assert!(always.read(1, false));
        assert_eq!(always.memory(), 0);
    }

    #[test]
    fn a_first_access_long_ago_is_no_first_access() {
        let mut admission = Admission::new(Reads::OnSecondAccess, 160);
        assert!(!admission.read(1, false));
        for key in 1_000..3_000 {
            admission.read(key, false);
        }
        assert!(!admission.read(1, false));
    }

    #[test]
    fn a_stream_from_elsewhere_is_as_long_as_it_was_there() {
        const ELSEWHERE: Bytes = Bytes::mib(3);
        let noted_first = |streams: &mut Streams| {
            streams.expect_from(Sector(80), ELSEWHERE);
            streams.see(page(10))
        };
        let noted_late = |streams: &mut Streams| {
            streams.see(page(10));
            streams.expect_from(Sector(80), ELSEWHERE);
            streams.see(page(11))
        };
        let noted_beside_its_own = |streams: &mut Streams| {
            streams.see(page(9));
            streams.expect_from(Sector(80), ELSEWHERE);
            streams.see(page(10))
        };
        for (note, here) in [
            (noted_first as fn(&mut Streams) -> StreamPosition, 4096),
            (noted_late, 8192),
            (noted_beside_its_own, 4096),
        ] {
            let mut streams = Streams::new(128, Some(ELSEWHERE));
            let seen = note(&mut streams);
            assert!(seen.bypass && seen.sequential);
            assert_eq!(seen.length, ELSEWHERE + Bytes(here));
            assert_eq!(streams.len(), 1);
        }
    }

    #[test]
    fn a_stream_bypasses_once_it_is_long_enough() {
        let mut streams = Streams::new(128, Some(Bytes::mib(1)));
        for n in 0..255 {
            let seen = streams.see(page(n));
            assert_eq!((seen.sequential, seen.bypass), (n > 0, false), "page {n}");
        }
        let seen = streams.see(page(255));
        assert_eq!(
            seen,
            StreamPosition {
                sequential: true,
                length: Bytes::mib(1),
                bypass: true
            }
        );
    }

    #[test]
    fn one_request_as_long_as_a_stream_bypasses_at_once() {
        let mut streams = Streams::new(128, Some(Bytes::mib(1)));
        let seen = streams.see(Span::bytes(1 << 30, 1 << 20));
        assert_eq!(
            seen,
            StreamPosition {
                sequential: false,
                length: Bytes::mib(1),
                bypass: true
            }
        );
        let mut never = Streams::new(128, None);
        assert!(!never.see(Span::bytes(1 << 30, 1 << 30)).bypass);
    }

    #[test]
    fn interleaved_and_reordered_streams_are_kept_apart() {
        let mut streams = Streams::new(128, Some(Bytes::mib(1)));
        let mut bypassed = [0; 100];
        for step in 0..512u64 {
            for stream in 0..100u64 {
                // Two of eight arrive swapped: 0, 1, 2, 3, 5, 4, 6, 7, ...
                let swapped = if matches!(step % 8, 4 | 5) {
                    step ^ 1
                } else {
                    step
                };
                let at = stream * (1 << 20) + swapped;
                bypassed[stream as usize] += usize::from(streams.see(page(at)).bypass);
            }
        }
        assert_eq!(streams.len(), 100);
        for count in bypassed {
            // A page overtaken by its neighbour covers no new ground, so a bypass comes a little later.
            assert!(
                (150..=257).contains(&count),
                "{count} of 512 pages, 256 are behind 1 MiB"
            );
        }
    }

    #[test]
    fn random_requests_in_a_small_hot_area_are_no_stream() {
        let mut streams = Streams::new(128, Some(Bytes::mib(1)));
        let mut state = 1u64;
        let mut bypassed = 0;
        for _ in 0..100_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // 4 KiB requests anywhere in 8 MiB.
            bypassed += u32::from(streams.see(page((state >> 33) % 2048)).bypass);
        }
        assert!(bypassed < 100, "{bypassed} of 100,000");
    }

    #[test]
    fn requests_that_stay_in_one_place_are_no_stream() {
        let mut streams = Streams::new(128, Some(Bytes::mib(1)));
        for round in 0..10_000u64 {
            let seen = streams.see(page(round * 7 % 16));
            assert!(!seen.bypass, "round {round}: {:?}", seen.length);
        }
    }

    #[test]
    fn the_stream_unused_for_longest_makes_room() {
        let mut streams = Streams::new(2, Some(Bytes::mib(1)));
        let far = 1 << 20;
        streams.see(page(0));
        streams.see(page(far));
        streams.see(page(1));
        streams.see(page(2 * far));
        assert_eq!(streams.len(), 2);
        assert!(streams.see(page(2)).sequential, "used last but one");
        assert!(!streams.see(page(far + 1)).sequential, "forgotten");
    }

    #[test]
    fn a_day_of_writing_stays_within_the_cap_and_an_hour() {
        let cap = Bytes::gib(10);
        let mut budget = FlashBudget::new(Some(cap), Instant(0));
        let mut written = Bytes(0);
        for second in 0..24 * 60 * 60 {
            for _ in 0..64 {
                if budget.admit(Instant(0) + Nanos::secs(second), Bytes::kib(64)) {
                    written += Bytes::kib(64);
                }
            }
        }
        assert!(written <= cap + cap / 24, "{written}");
        assert!(written >= cap, "{written}: not a byte less than may be");
    }

    #[test]
    fn what_must_be_written_leaves_a_debt_that_admissions_wait_for() {
        let mut budget = FlashBudget::new(Some(Bytes::gib(24)), Instant(0));
        budget.charge(Instant(0), Bytes::gib(3));
        assert_eq!(budget.left(Instant(0)), Some(Bytes(0)));
        let hours = |n: u64| Instant(0) + Nanos::secs(n * 3600);
        assert!(
            !budget.admit(hours(2), Bytes(4096)),
            "the debt of 2 GiB is just paid"
        );
        assert!(budget.admit(hours(3), Bytes::gib(1)));
        assert_eq!(
            budget.left(hours(100)),
            Some(Bytes::gib(1)),
            "no more than an hour is saved"
        );
    }

    #[test]
    fn without_a_cap_everything_may_be_written() {
        let mut budget = FlashBudget::new(None, Instant(0));
        budget.charge(Instant(0), Bytes::gib(1000));
        assert!(budget.admit(Instant(0), Bytes::gib(1000)));
        assert_eq!(budget.left(Instant(5)), None);
    }
}
