//! The published mover: a whole region is copied while a temporary buffer takes what users write.
//!
//! ```text
//! queue of decisions -> copy source -> destination   writes: buffer    reads: buffer, else source
//!                    -> synchronize the buffer       in address order, at most 500 writes a second
//! ```
//!
//! Regions move one at a time, in the order they were decided. The buffer is memory, as published, or the
//! page map itself. There a write to a moving region is a dirty page with its sector mask, as to any extent that
//! is fast. Only the copies are kept apart, and no reader sees them before the synchronization.
//!
//! With a buffer in memory a flush first writes it to the fast device (or, on the way down, to where it belongs by
//! then), and so does a write with FUA. So the contract for durability stays what it is.
//!
//! ```text
//! Slow        -> CopyingUp    move_up        room is reserved, the extents are fast
//! CopyingUp   -> SyncingUp    show_copies    what was copied can be seen
//! SyncingUp   -> Up           end            nothing is marked any more
//! Up          -> CopyingDown  move_down
//! CopyingDown -> SyncingDown  sink           the slow device was flushed, the extents are demoting, clean pages go
//! SyncingDown -> Slow         end            nothing is marked, no page is left on the fast device
//!
//! CopyingUp   -> Up           halt           without the copies; queued again
//! SyncingUp   -> Up           halt           the rest of the buffer goes to the fast device at once
//! CopyingDown -> Up           halt, or the slow device failed: the buffer goes to the fast device; queued again
//! SyncingDown -> demoting     halt           the direct mover's tasks destage the rest
//! any         -> for good     the fast device failed with dirty data out of reach: reads see the buffer
//! ```
//!
//! A crash at any moment leaves what the table of extents and the page map say. A region is then fast with some of
//! its pages there, or it is demoting. Both are whole.
//!
//! Source: AST 3.3.
//!
//! Always true:
//! 1. A copy of a page that was written, or forgotten, since its copy began is never shown.
//! 2. A sector is marked only while its newest contents are in the buffer and nowhere else.

mod buffer;
mod queue;
mod sync;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use base::{Bytes, Instant, Nanos, View};
use policy::tier::Region;

use crate::attach::label::PAGE;
use crate::index::page_map::{Entry, FULL};
use crate::index::slots::SlotRun;
use crate::interpose::Overlay;
use crate::payload::Payload;
use crate::stats::count;
use buffer::{Piece, TemporaryBuffer};
pub(crate) use queue::MoveQueue;
use sync::{Pace, SYNC_IOPS_MAX, Sync};
pub(crate) use sync::{SYNC_WRITE_MAX, Step};

/// Where the moving region stands; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    CopyingUp,
    SyncingUp,
    CopyingDown,
    SyncingDown,
}

/// What is read, then written, in one step.
const STEP: Bytes = Bytes::mib(2);

/// For whom is a marked run written out?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// The synchronization's: it is the next one.
    Sync,
    /// A flush, or the end of a move before its time.
    Drain,
}

/// A page copied upwards that no reader sees yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub page: u64,
    /// `None`: the page was written since, and the slot is free again.
    pub slot: Option<u32>,
    pub crc: u32,
}

/// The region that moves.
pub(crate) struct Moving {
    // Fixed.
    pub region: Region,
    pages: Range<u64>,
    // As the move goes on.
    pub phase: Phase,
    /// `None`: the page map is the buffer.
    pub buffer: Option<TemporaryBuffer>,
    sync: Sync,
    /// The move ends: the buffer takes nothing more.
    pub closing: bool,
    /// In the order they were copied: ascending.
    pub copied: Vec<Copied>,
    /// Pages written or forgotten since the move began: one bit each.
    touched: Vec<u64>,
}

impl Copied {
    /// As the map is to have it: clean and whole.
    pub fn entry(&self, slot: u32) -> Entry {
        Entry {
            slot,
            dirty: false,
            mask: FULL,
            crc: self.crc,
        }
    }
}

impl Moving {
    fn bytes(&self) -> Range<u64> {
        self.pages.start * PAGE..self.pages.end * PAGE
    }

    /// The part of `bytes` that lies in the region.
    fn part(&self, bytes: &Range<u64>) -> Range<u64> {
        let own = self.bytes();
        let start = bytes.start.clamp(own.start, own.end);
        start..bytes.end.clamp(start, own.end)
    }

    fn touch(&mut self, first: u64, end: u64) {
        for page in first.max(self.pages.start)..end.min(self.pages.end) {
            let at = page - self.pages.start;
            self.touched[(at / 64) as usize] |= 1 << (at % 64);
        }
    }

    /// The slots of copies of pages `first..end`, which are never shown.
    pub fn take_copies(&mut self, first: u64, end: u64) -> Vec<SlotRun> {
        let from = self.copied.partition_point(|copy| copy.page < first);
        let copies = self.copied[from..].iter_mut();
        let copies = copies.take_while(|copy| copy.page < end);
        let slots = copies.filter_map(|copy| copy.slot.take());
        slots.map(|first| SlotRun { first, count: 1 }).collect()
    }

    /// Keeps copies that were just made, in address order; returns the slots of those that are out of date already.
    pub fn keep_copies(&mut self, copied: Vec<Copied>) -> Vec<SlotRun> {
        let mut out_of_date = Vec::new();
        for copy in copied {
            match copy.slot {
                Some(first) if self.is_touched(copy.page) => {
                    out_of_date.push(SlotRun { first, count: 1 });
                }
                _ => self.copied.push(copy),
            }
        }
        out_of_date
    }

    pub fn is_touched(&self, page: u64) -> bool {
        let at = page - self.pages.start;
        self.touched[(at / 64) as usize] >> (at % 64) & 1 == 1
    }
}

/// The region that moves.
pub(crate) struct Published {
    moving: RefCell<Option<Moving>>,
    /// Pages of the moving region, for a quick look; empty while none moves.
    area: Cell<(u64, u64)>,
    /// What is copied in one step; tests take less.
    pub step: Cell<Bytes>,
    pace: Cell<Pace>,
    /// Writes of the synchronization since the fast device was attached.
    pub sync_writes: Cell<u64>,
}

impl Default for Published {
    fn default() -> Published {
        Published {
            moving: RefCell::default(),
            area: Cell::new((0, 0)),
            step: Cell::new(STEP),
            pace: Cell::new(Pace::new(SYNC_IOPS_MAX)),
            sync_writes: Cell::new(0),
        }
    }
}

impl Published {
    /// Bytes of memory of the buffer.
    pub fn memory(&self) -> usize {
        let moving = self.moving.borrow();
        let buffer = moving.as_ref().and_then(|moving| moving.buffer.as_ref());
        buffer.map_or(0, TemporaryBuffer::memory)
    }

    /// Is a region on its way?
    #[cfg(test)]
    pub fn is_moving(&self) -> bool {
        self.moving.borrow().is_some()
    }

    /// Does one of pages `first..end` belong to the region that moves?
    pub fn moves(&self, first: u64, end: u64) -> bool {
        let (from, to) = self.area.get();
        first < to && from < end
    }

    /// Where the region that moves stands.
    pub fn phase(&self) -> Option<Phase> {
        self.moving.borrow().as_ref().map(|moving| moving.phase)
    }

    /// Pages `first..end` were written or forgotten: copies of them are out of date. Returns the slots of the copies
    /// that no reader has seen, to be given back. So a page written while its region is promoted takes one slot, not two.
    #[must_use]
    pub fn touched(&self, first: u64, end: u64) -> Vec<SlotRun> {
        if !self.moves(first, end) {
            return Vec::new();
        }
        let mut moving = self.moving.borrow_mut();
        let Some(moving) = moving.as_mut() else {
            return Vec::new();
        };
        moving.touch(first, end);
        moving.take_copies(first, end)
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Moving) -> T) -> T {
        look(self.moving.borrow_mut().as_mut().expect("a region moves"))
    }

    pub fn begin(&self, region: Region, pages: Range<u64>, phase: Phase, in_memory: bool) {
        let len = pages.end - pages.start;
        let moving = Moving {
            region,
            phase,
            buffer: in_memory.then(|| TemporaryBuffer::new(Bytes(len * PAGE))),
            sync: Sync::default(),
            closing: false,
            copied: Vec::new(),
            touched: vec![0; len.div_ceil(64) as usize],
            pages: pages.clone(),
        };
        let before = self.moving.borrow_mut().replace(moving);
        assert!(before.is_none(), "regions move one at a time");
        self.area.set((pages.start, pages.end));
    }

    pub fn enter(&self, phase: Phase) {
        self.with(|moving| moving.phase = phase);
    }

    pub fn end(&self) {
        let moving = self.moving.borrow_mut().take().expect("a region moves");
        let marked = moving.buffer.map_or(Bytes(0), |buffer| buffer.marked());
        assert_eq!(marked, Bytes(0), "what users wrote is where it belongs");
        assert!(moving.copied.is_empty(), "copies are shown or given back");
        self.area.set((0, 0));
    }

    // --- the buffer -------------------------------------------------------------------------------

    /// Calls `act` with the buffer in memory and the sectors of it that `bytes` names, if it has any.
    pub fn buffered<T>(
        &self,
        bytes: &Range<u64>,
        act: impl FnOnce(&mut TemporaryBuffer, Range<u64>) -> T,
    ) -> Option<T> {
        let mut moving = self.moving.borrow_mut();
        let moving = moving.as_mut()?;
        let part = moving.part(bytes);
        let base = moving.bytes().start;
        let sectors = (part.start - base) / base::SECTOR..(part.end - base) / base::SECTOR;
        let buffer = moving.buffer.as_mut()?;
        (!part.is_empty()).then(|| act(buffer, sectors))
    }

    /// The first marked run of the buffer from byte `from` of the volume on, in bytes of the volume.
    pub fn next_marked(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let moving = self.moving.borrow();
        let moving = moving.as_ref()?;
        let base = moving.bytes().start;
        let first = from.max(base) - base;
        let sectors = first / base::SECTOR;
        if first >= moving.bytes().end - base {
            return None;
        }
        let run = moving
            .buffer
            .as_ref()?
            .next_run(sectors, most / base::SECTOR)?;
        Some(base + run.start * base::SECTOR..base + run.end * base::SECTOR)
    }

    /// `bytes` were written elsewhere than to the buffer: what it holds of them is out of date.
    pub fn written_elsewhere(&self, bytes: Range<u64>) {
        self.buffered(&bytes, |buffer, sectors| buffer.clear(sectors));
    }

    /// What users wrote since the move began is given up.
    pub fn forget_buffer(&self) {
        self.with(|moving| {
            let sectors = (moving.pages.end - moving.pages.start) * PAGE / base::SECTOR;
            if let Some(buffer) = &mut moving.buffer {
                buffer.clear_below(sectors);
            }
        });
    }

    /// What `bytes` hold, all of which are marked.
    pub fn contents(&self, bytes: &Range<u64>) -> View {
        let contents = self.buffered(bytes, |buffer, sectors| buffer.contents(sectors));
        contents.expect("it was found in the buffer")
    }

    /// The next step of the synchronization; runs are in bytes of the volume.
    pub fn next_step(&self, now: Instant) -> Step {
        self.with(|moving| {
            let base = moving.bytes().start;
            let Some(buffer) = &moving.buffer else {
                return Step::Done;
            };
            match moving.sync.next(buffer, &self.pace.get(), now) {
                Step::Write(run) => {
                    Step::Write(base + run.start * base::SECTOR..base + run.end * base::SECTOR)
                }
                step => step,
            }
        })
    }

    /// How long until the next write of the synchronization may begin.
    pub fn wait(&self, now: Instant) -> Nanos {
        self.pace.get().wait(now)
    }

    /// A write of the synchronization begins.
    pub fn take_turn(&self, now: Instant) {
        let mut pace = self.pace.get();
        pace.take(now);
        self.pace.set(pace);
        count(&self.sync_writes, 1);
    }

    // --- users ------------------------------------------------------------------------------------

    /// What the buffer holds of `range` (bytes of the volume); `None`: nothing.
    pub fn overlay(&self, range: &Range<u64>) -> Option<Overlay> {
        if !self.moves(range.start / PAGE, range.end.div_ceil(PAGE)) {
            return None;
        }
        let inside = self.moving.borrow().as_ref()?.part(range);
        let len = (range.end - range.start) as usize;
        let offset = (inside.start - range.start) as usize;
        self.buffered(range, |buffer, sectors| {
            if !buffer.touches(sectors.clone()) {
                return None;
            }
            let first = sectors.start;
            let place = |sector: u64| offset + ((sector - first) * base::SECTOR) as usize;
            let behind = (inside.end - range.start) as usize;
            let mut held = Vec::new();
            let mut gaps: Vec<Range<usize>> = Vec::new();
            gaps.push(0..offset);
            for piece in buffer.pieces(sectors) {
                match piece {
                    Piece::Buffered(part, view) => held.push((place(part.start), view)),
                    Piece::Beneath(part) => gaps.push(place(part.start)..place(part.end)),
                }
            }
            gaps.push(behind..len);
            gaps.retain(|gap| !gap.is_empty());
            let beneath = match (gaps.first(), gaps.last()) {
                (Some(first), Some(last)) => first.start..last.end,
                _ => 0..0,
            };
            Some(Overlay { held, beneath })
        })
        .flatten()
    }

    /// Is a request for `range` served by the buffer? `resident`: the page map has all of it.
    pub fn serves(&self, range: &Range<u64>, write: bool, resident: bool) -> bool {
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        if !self.moves(first, end) {
            return false;
        }
        let moving = self.moving.borrow();
        let Some(moving) = moving.as_ref() else {
            return false;
        };
        let part = moving.part(range);
        let base = moving.bytes().start;
        let sectors = (part.start - base) / base::SECTOR..(part.end - base) / base::SECTOR;
        match (&moving.buffer, write) {
            (Some(_), true) if moving.closing => false,
            (Some(_), true) => part == *range && moving.sync.cut(sectors.clone()).above == sectors,
            (Some(buffer), false) => part == *range && buffer.covers(sectors),
            (None, true) => true,
            (None, false) => resident && moving.phase == Phase::CopyingUp,
        }
    }

    /// The part of a write of `range` that goes to the buffer; the caller holds its pages.
    fn part_for_buffer(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if !self.moves(range.start / PAGE, range.end.div_ceil(PAGE)) {
            return None;
        }
        let moving = self.moving.borrow();
        let moving = moving.as_ref()?;
        if moving.buffer.is_none() || moving.closing {
            return None;
        }
        let base = moving.bytes().start;
        let part = moving.part(range);
        let sectors = (part.start - base) / base::SECTOR..(part.end - base) / base::SECTOR;
        let cut = moving.sync.cut(sectors);
        assert!(
            cut.under_way.is_empty(),
            "the pages of a write under way are held"
        );
        let above = base + cut.above.start * base::SECTOR..base + cut.above.end * base::SECTOR;
        (!above.is_empty()).then_some(above)
    }

    /// Takes what belongs in the buffer of a write of `payload` to `range`; returns what does not. The caller
    /// holds the pages.
    pub fn take_write(&self, range: Range<u64>, payload: &Payload) -> Vec<Range<u64>> {
        let Some(part) = self.part_for_buffer(&range) else {
            return vec![range];
        };
        let within = part.start - range.start..part.end - range.start;
        self.buffered(&part, |buffer, sectors| match payload.slice(within) {
            Payload::Data(view) => buffer.write(sectors.start, &view),
            Payload::Zeroes => buffer.write_zeroes(sectors),
        });
        let rest = [range.start..part.start, part.end..range.end];
        rest.into_iter().filter(|range| !range.is_empty()).collect()
    }

    // --- what is written out ----------------------------------------------------------------------

    /// What of `run`, whose pages the caller holds, is to be written out now.
    pub fn begin_errand(&self, run: &Range<u64>, errand: Errand) -> Option<Range<u64>> {
        // All of the pages that are held: a page that was written as a whole meanwhile goes as a whole.
        let run = run.start / PAGE * PAGE..run.end.next_multiple_of(PAGE);
        match errand {
            Errand::Drain => {
                let part = self.next_marked(run.start, run.end - run.start)?;
                (part.start < run.end).then(|| part.start..part.end.min(run.end))
            }
            Errand::Sync => self.with(|moving| {
                let base = moving.bytes().start;
                let sectors = (run.start - base) / base::SECTOR..(run.end - base) / base::SECTOR;
                let part = moving.sync.begin(moving.buffer.as_ref()?, &sectors)?;
                Some(base + part.start * base::SECTOR..base + part.end * base::SECTOR)
            }),
        }
    }

    pub fn end_errand(&self, part: &Range<u64>, errand: Errand, done: bool) {
        match (errand, done) {
            (Errand::Drain, true) => self.written_elsewhere(part.clone()),
            (Errand::Drain, false) => {}
            (Errand::Sync, true) => self.with(|moving| {
                let buffer = moving.buffer.as_mut().expect("it was synchronized");
                moving.sync.written(buffer);
            }),
            (Errand::Sync, false) => self.with(|moving| moving.sync.failed()),
        }
    }
}
