//! The volatile write cache of a disk: what waits in it, and who waits for it?
//!
//! ```text
//! write -> room? -> joins the run before it, or becomes a run -> taken by the medium
//!            no  -> stalled, until a run is on the medium
//! flush -> waits for the runs with writes that came before it
//! ```
//!
//! Always true:
//! 1. The runs, and the one that the medium writes, hold as many sectors as are counted.
//! 2. A flush completes after every write that was acknowledged before it is on the medium.

use std::collections::VecDeque;

use base::{Instant, Nanos, Span};

use super::super::Request;
use super::super::parameters::Buffers;
use super::geometry::{Geometry, Place};

/// The longest run written from the cache at once: longer ones would keep readers waiting.
const RUN_SECTORS: u64 = 2_048;

/// A run of sectors that waits in the write cache.
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) place: Place,
    /// The earliest acknowledged write it holds, and when that came.
    pub(super) sequence: u64,
    since: Instant,
}

impl Run {
    fn joins(&self, span: Span) -> bool {
        self.end == span.start.0 && self.end - self.start + span.len.sectors() <= RUN_SECTORS
    }
}

/// A flush that waits.
pub(super) struct Flush {
    pub(super) id: u64,
    /// Waits for runs up to this one.
    sequence: u64,
    pub(super) eligible: Instant,
}

/// The cache, with what waits for room in it or for its contents to be on the medium.
pub(super) struct WriteCache {
    enabled: bool,
    sectors_max: u64,
    runs_max: usize,

    runs: Vec<Run>,
    sectors: u64,
    /// Acknowledged writes so far.
    sequence: u64,
    stalled: VecDeque<(Request, Instant)>,
    flushes: Vec<Flush>,
}

impl WriteCache {
    pub(super) fn new(spec: &Buffers) -> WriteCache {
        WriteCache {
            enabled: spec.write_cache,
            sectors_max: spec.write_cache_size.sectors(),
            runs_max: spec.write_cache_runs as usize,
            runs: Vec::new(),
            sectors: 0,
            sequence: 0,
            stalled: VecDeque::new(),
            flushes: Vec::new(),
        }
    }

    /// Does this write go into the cache at all?
    #[inline]
    pub(super) fn wants(&self, request: &Request) -> bool {
        let direct = request.fua || request.span.len.sectors() > self.sectors_max / 2;
        self.enabled && !direct
    }

    /// Can this write go in now, before none that came earlier?
    #[inline]
    pub(super) fn takes(&self, span: Span) -> bool {
        self.stalled.is_empty() && self.has_room(span)
    }

    #[inline]
    fn has_room(&self, span: Span) -> bool {
        let joins = self.runs.iter().any(|run| run.joins(span));
        (joins || self.runs.len() < self.runs_max)
            && self.sectors + span.len.sectors() <= self.sectors_max
    }

    /// Is all of `span` in one run?
    #[inline]
    pub(super) fn holds(&self, span: Span) -> bool {
        let (start, end) = (span.start.0, span.end().0);
        let mut runs = self.runs.iter();
        runs.any(|run| run.start <= start && end <= run.end)
    }

    /// Puts an acknowledged write in.
    #[inline]
    pub(super) fn put(&mut self, span: Span, geometry: &Geometry, now: Instant) {
        self.sequence += 1;
        if self.holds(span) {
            return; // Written over while it waits.
        }
        self.sectors += span.len.sectors();
        let (start, end) = (span.start.0, span.end().0);
        if let Some(run) = self.runs.iter_mut().find(|run| run.joins(span)) {
            run.end = end;
            return;
        }
        self.runs.push(Run {
            start,
            end,
            place: geometry.place(start),
            sequence: self.sequence,
            since: now,
        });
    }

    /// A write waits for room.
    pub(super) fn stall(&mut self, request: Request, eligible: Instant) {
        self.stalled.push_back((request, eligible));
    }

    /// The first stalled write, if there is room for it now.
    pub(super) fn unstall(&mut self) -> Option<(Request, Instant)> {
        let (request, _) = self.stalled.front()?;
        if !self.has_room(request.span) {
            return None;
        }
        self.stalled.pop_front()
    }

    /// A flush waits for what is acknowledged by now.
    pub(super) fn flush(&mut self, id: u64, eligible: Instant) {
        self.flushes.push(Flush {
            id,
            sequence: self.sequence,
            eligible,
        });
    }

    /// The earliest acknowledged write that is not on the medium, where a flush waits; `under_way` is the earliest
    /// of the run that the medium writes.
    #[inline]
    pub(super) fn oldest_awaited(&self, under_way: Option<u64>) -> Option<u64> {
        if self.flushes.is_empty() {
            return None;
        }
        let waiting = self.runs.iter().map(|run| run.sequence).min();
        let under_way = under_way.unwrap_or(u64::MAX);
        Some(waiting.unwrap_or(u64::MAX).min(under_way))
    }

    /// The next flush, from `index` on, that waits for nothing from `oldest` on; `index` is then behind those that
    /// stay.
    pub(super) fn take_flush(&mut self, index: &mut usize, oldest: u64) -> Option<Flush> {
        while self.flushes.get(*index)?.sequence >= oldest {
            *index += 1;
        }
        Some(self.flushes.remove(*index))
    }

    /// Has the cache to be emptied even while readers wait?
    #[inline]
    pub(super) fn presses(&self, now: Instant, age_limit: Nanos) -> bool {
        let mut runs = self.runs.iter();
        self.is_awaited()
            || self.sectors * 4 > self.sectors_max * 3
            || self.runs.len() * 4 > self.runs_max * 3
            || runs.any(|run| now.since(run.since) > age_limit)
    }

    /// Does a write or a flush wait?
    pub(super) fn is_awaited(&self) -> bool {
        !self.stalled.is_empty() || !self.flushes.is_empty()
    }

    /// What waits for the medium.
    #[inline]
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The medium takes a run.
    #[inline]
    pub(super) fn take_run(&mut self, index: usize) -> Run {
        self.runs.swap_remove(index)
    }

    /// So many sectors of a run are on the medium.
    #[inline]
    pub(super) fn written(&mut self, sectors: u64) {
        self.sectors -= sectors;
    }
}
