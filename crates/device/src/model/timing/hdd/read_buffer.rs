//! What a disk holds of what it read, and what its head reads on after a read.
//!
//! ```text
//! read ends -> the head reads on (stream) -> next service -> what it has read becomes a segment
//! ```
//!
//! Always true: at most one stream is under way, and only while the medium does nothing else.

use std::collections::VecDeque;

use base::{Instant, Nanos, Span};

use super::super::parameters::Buffers;
use super::geometry::{Geometry, Place};
use super::interface::Interface;
use super::queue::Queued;

/// Reading on after a read, into the buffer.
struct Stream {
    /// First sector in the buffer.
    start: u64,
    /// The head passed this sector ...
    from: u64,
    place: Place,
    /// ... at this moment.
    since: Instant,
    /// It stops before this sector.
    limit: u64,
}

/// The read buffer.
pub(super) struct ReadBuffer {
    ahead: u64,
    segments_max: usize,

    stream: Option<Stream>,
    segments: VecDeque<(u64, u64)>,
}

impl ReadBuffer {
    pub(super) fn new(spec: &Buffers) -> ReadBuffer {
        ReadBuffer {
            ahead: spec.read_ahead_size.sectors(),
            segments_max: spec.read_segments as usize,
            stream: None,
            segments: VecDeque::new(),
        }
    }

    /// Is all of `span` in one segment?
    #[inline]
    pub(super) fn holds(&self, span: Span) -> bool {
        let (start, end) = (span.start.0, span.end().0);
        let mut segments = self.segments.iter();
        segments.any(|&(from, to)| from <= start && end <= to)
    }

    /// Drops what is buffered of sectors that are written.
    #[inline]
    pub(super) fn forget(&mut self, span: Span) {
        let (start, end) = (span.start.0, span.end().0);
        let clear = |from: u64, to: u64| end <= from || to <= start;
        self.segments.retain(|&(from, to)| clear(from, to));
        if let Some(stream) = &mut self.stream
            && !clear(stream.start, stream.limit)
        {
            stream.start = stream.from.max(end);
            stream.limit = stream.limit.max(stream.start);
        }
    }

    /// A buffer segment that reaches up to sector `end` holds as much behind the head as before it: this
    /// is its first sector.
    fn oldest_kept(&self, end: u64) -> u64 {
        end.saturating_sub(2 * self.ahead)
    }

    /// When the read-ahead under way will have passed the whole of a queued read; `None` if it does not.
    #[inline]
    pub(super) fn passes(
        &self,
        queued: &Queued,
        now: Instant,
        geometry: &Geometry,
        interface: &Interface,
    ) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        let end = queued.start + queued.sectors;
        if queued.write || queued.start < stream.start || queued.start > stream.limit {
            return None;
        }
        let passed = stream.since.max(now);
        if end <= stream.from {
            let moved = interface.time(queued.sectors);
            return Some((queued.eligible + moved).max(passed));
        }
        if end > stream.limit {
            // Reading ahead stops at its limit; what lies behind needs a service of its own then.
            let stopped = geometry.pass(stream.place, stream.limit - stream.from);
            if stream.since + Nanos(stopped as u64) < now {
                return None;
            }
        }
        let nanos = geometry.pass(stream.place, end - stream.from);
        let at = stream.since + Nanos(nanos.round() as u64);
        let moved = interface.time(queued.sectors);
        Some(at.max(queued.eligible + moved))
    }

    /// After a read up to sector `behind` that ended at `since` the head reads on. Returns until when.
    pub(super) fn begin(
        &mut self,
        start: u64,
        behind: u64,
        since: Instant,
        geometry: &Geometry,
    ) -> Instant {
        let limit = (behind + self.ahead).min(geometry.sectors);
        let next = geometry.place(behind.min(geometry.sectors.max(1) - 1));
        let until = since + Nanos(geometry.pass(next, limit - behind) as u64);
        self.stream = Some(Stream {
            start,
            from: behind,
            place: next,
            since,
            limit,
        });
        until
    }

    /// A read that the stream under way serves: the stream simply goes on further. Returns until when.
    pub(super) fn read_on(&mut self, queued: &Queued, geometry: &Geometry) -> Option<Instant> {
        let limit = (queued.start + queued.sectors + self.ahead).min(geometry.sectors);
        let oldest = self.oldest_kept(limit);
        let stream = self.stream.as_mut()?;
        let last = queued.start + queued.sectors;
        if last > stream.from {
            let nanos = geometry.pass(stream.place, last - stream.from);
            stream.since = stream.since + Nanos(nanos.round() as u64);
            stream.from = last;
            stream.place = geometry.place(last.min(geometry.sectors.max(1) - 1));
        }
        stream.limit = stream.limit.max(limit);
        // What the head reads next overwrites the oldest of the segment.
        stream.start = stream.start.max(oldest);
        let ahead = geometry.pass(stream.place, stream.limit - stream.from.min(stream.limit));
        Some(stream.since + Nanos(ahead as u64))
    }

    /// Ends the read-ahead and keeps what it has read. Returns before which sector the head stands; `None` if
    /// nothing was read ahead.
    pub(super) fn end(&mut self, at: Instant, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream.take()?;
        let passed = geometry.passed(stream.place, at.since(stream.since).0 as f64);
        let reached = (stream.from + passed).min(stream.limit);
        let start = stream.start.max(self.oldest_kept(reached));
        if reached > start {
            if self.segments.len() == self.segments_max {
                self.segments.pop_front();
            }
            self.segments.push_back((start, reached));
        }
        Some(reached)
    }
}
