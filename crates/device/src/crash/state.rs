//! What a device that can lose power holds: durable, visible, completed but unflushed, in flight.
//!
//! Always true: the visible contents are the durable ones with the log applied in its order.

use std::collections::{BTreeSet, VecDeque};

use base::{Bytes, SECTOR, Sector, Span, View};
use env::Rng;

use crate::memory::Chunks;

/// A volatile cache holds at most this many unflushed operations; the oldest are then written behind.
const CACHE_OPERATIONS_MAX: usize = 1 << 16;

/// One operation that changes contents.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) span: Span,
    /// None: zeroes.
    pub(super) data: Option<View>,
    /// Survives any crash (FUA).
    pub(super) durable: bool,
}

impl Change {
    /// The sectors of `span` become zeroes.
    pub(super) fn zeroes(span: Span, durable: bool) -> Change {
        Change {
            span,
            data: None,
            durable,
        }
    }

    pub(super) fn apply(&self, contents: &mut Chunks) {
        self.apply_part(contents, 0, self.span.len.sectors());
    }

    /// The operation on `sectors` of its sectors from the `first` one on, volatile.
    pub(super) fn part(&self, first: u64, sectors: u64) -> Change {
        let (from, len) = ((first * SECTOR) as usize, (sectors * SECTOR) as usize);
        Change {
            span: Span::new(Sector(self.span.start.0 + first), Bytes(sectors * SECTOR)),
            data: self.data.as_ref().map(|data| data.slice(from, len)),
            durable: false,
        }
    }

    /// Applies `sectors` sectors from the `first` one of the operation.
    pub(super) fn apply_part(&self, contents: &mut Chunks, first: u64, sectors: u64) {
        let at = self.span.start.byte() + first * SECTOR;
        let from = (first * SECTOR) as usize;
        let len = sectors * SECTOR;
        match &self.data {
            Some(data) => contents.write(at, &data[from..from + len as usize]),
            None => contents.zero(at, len),
        }
    }
}

pub(super) struct State {
    /// What survives for certain; unflushed operations are not in it.
    pub(super) durable: Chunks,
    /// What a read sees.
    pub(super) visible: Chunks,
    /// Completed since the head was flushed, in order of completion.
    pub(super) log: VecDeque<Change>,
    /// The number of the first operation in `log`, counted from the start.
    log_start: u64,
    /// Begun and not completed; the key only distinguishes them.
    pub(super) in_flight: Vec<(u64, Change)>,
    next_key: u64,
    /// Sectors that read as errors until they are written.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) rng: Rng,
}

impl State {
    pub(super) fn new(contents: Chunks, rng: Rng) -> State {
        State {
            durable: contents.clone(),
            visible: contents,
            log: VecDeque::new(),
            log_start: 0,
            in_flight: Vec::new(),
            next_key: 0,
            unreadable: BTreeSet::new(),
            rng,
        }
    }

    /// A change begins; the number it is in flight under.
    pub(super) fn begin(&mut self, change: Change) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.in_flight.push((key, change));
        key
    }

    /// The change in flight under `key` completes.
    pub(super) fn land(&mut self, key: u64) {
        let place = self.in_flight.iter().position(|(own, _)| *own == key);
        let place = place.expect("only its guard takes it out");
        let (_, change) = self.in_flight.swap_remove(place);
        self.complete(change);
    }

    /// A change is visible, and volatile unless it was durable by itself.
    pub(super) fn complete(&mut self, change: Change) {
        change.apply(&mut self.visible);
        heal(&mut self.unreadable, change.span);
        self.log.push_back(change);
        if self.log.len() > CACHE_OPERATIONS_MAX {
            self.settle(self.log_start + 1);
        }
        // A durable head needs no flush to settle.
        while self.log.front().is_some_and(|change| change.durable) {
            self.settle(self.log_start + 1);
        }
    }

    /// The first sector of `span` that reads as an error.
    pub(super) fn unreadable_in(&self, span: Span) -> Option<u64> {
        let mut bad = self.unreadable.range(span.start.0..span.end().0);
        bad.next().copied()
    }

    /// The number the next completed operation will have.
    pub(super) fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Makes operations below `end` durable.
    pub(super) fn settle(&mut self, end: u64) {
        while self.log_start < end
            && let Some(change) = self.log.pop_front()
        {
            self.log_start += 1;
            change.apply(&mut self.durable);
        }
    }
}

/// The sectors of `span` were written: they can be read.
pub(super) fn heal(unreadable: &mut BTreeSet<u64>, span: Span) {
    if !unreadable.is_empty() {
        unreadable.retain(|sector| !(span.start.0..span.end().0).contains(sector));
    }
}
