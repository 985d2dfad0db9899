//! What users' requests meet in a moving region: the temporary buffer in memory.
//!
//! ```text
//! read:  marked sectors from the buffer, as they are when it comes; the rest from beneath
//! write: to the buffer, but below the position of the synchronization, or with FUA: where it belongs
//! flush: the buffer is written to where it belongs, then as ever
//! ```
//!
//! Source: AST 3.3.2.
//!
//! Always true:
//! 1. A task that writes to the buffer, or writes a part of it out, holds the pages.
//! 2. What is marked is cleared only after it is where it belongs, its pages held all the while.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, View};
use device::{Class, DeviceError, WriteFlags};

use super::buffer::Piece;
use super::sync::SYNC_WRITE_MAX;
use super::{Phase, Published};
use crate::attach::label::PAGE;
use crate::cache::{Cache, Condition};
use crate::engine::Inner;
use crate::engine::write::Payload;
use crate::index::extents::Place;
use crate::index::locks::Mode as Lock;
use crate::tier::Asked;

/// What the buffer holds of a read.
pub(crate) struct Overlay {
    /// Byte of the request, contents.
    held: Vec<(usize, View)>,
    /// Bytes of the request from the first to the last that the buffer does not hold.
    ///
    /// Choice: what it holds between them is read as well and laid over; one request costs a disk less than two.
    pub beneath: Range<usize>,
}

impl Overlay {
    /// Lays the buffer's contents over what was read from beneath.
    pub fn lay_over(&self, buf: &mut Buf) {
        for (at, view) in &self.held {
            if !(view.is_known_zero() && buf.is_known_zero()) {
                buf[*at..*at + view.len()].copy_from_slice(view);
            }
        }
    }
}

/// For whom is a marked run written out?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// The synchronization's: it is the next one.
    Sync,
    /// A flush, or the end of a move before its time.
    Drain,
}

impl Published {
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
    pub(crate) fn take_write(&self, range: Range<u64>, payload: &Payload) -> Vec<Range<u64>> {
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
}

impl Inner {
    /// What a buffer in memory holds of `range`, whatever became of the fast device.
    pub(crate) fn overlay(&self, range: &Range<u64>) -> Option<Overlay> {
        let cache = self.cache.borrow();
        cache.as_ref()?.tier.published.overlay(range)
    }

    /// A user reads `range`, all of which the buffer holds.
    pub(crate) fn note_buffered(self: &Rc<Self>, range: &Range<u64>, class: Class) {
        self.counters.read(range.end - range.start, 0, false);
        if let Some(cache) = self.live_cache().filter(|_| class != Class::Background) {
            let (resident, _) = self.look_up(&cache, range);
            self.note_request(&cache, range.clone(), Asked::Read { resident });
        }
    }

    /// `range` was written, and not to the buffer: what that holds of it is out of date.
    pub(crate) fn written_elsewhere(&self, range: &Range<u64>) {
        if let Some(cache) = &*self.cache.borrow() {
            cache.tier.published.written_elsewhere(range.clone());
        }
    }

    /// Writes all that is marked now to where it belongs, as a task of its own. A caller that goes away leaves no
    /// write under way whose pages are not locked.
    pub(crate) async fn drain_buffer(self: &Rc<Self>) -> Result<(), DeviceError> {
        let cache = self.cache.borrow().clone();
        let marked = |cache: &Rc<Cache>| cache.tier.published.next_marked(0, SYNC_WRITE_MAX.0);
        let Some(cache) = cache.filter(|cache| marked(cache).is_some()) else {
            return Ok(());
        };
        let inner = Rc::clone(self);
        env::spawn(async move { inner.drain_buffer_of(&cache).await }).await
    }

    pub(super) async fn drain_buffer_of(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
    ) -> Result<(), DeviceError> {
        let mut from = 0;
        while let Some(run) = cache.tier.published.next_marked(from, SYNC_WRITE_MAX.0) {
            from = run.end;
            self.bring_away(cache, run, Errand::Drain).await?;
        }
        Ok(())
    }

    /// Writes what is marked of `run` from the buffer to where it belongs. That is the fast device while the region's
    /// extents are fast, else the slow one.
    pub(super) async fn bring_away(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        run: Range<u64>,
        errand: Errand,
    ) -> Result<(), DeviceError> {
        let published = &cache.tier.published;
        loop {
            // With a fast device in trouble no request may be kept waiting for these pages.
            cache.settled().await?;
            let (first, end) = (run.start / PAGE, run.end.div_ceil(PAGE));
            let _held = self.locks.acquire(first, end, Lock::EXCLUSIVE).await;
            // It may have failed meanwhile. Past a dead one nothing goes to the slow device: a dirty page may cover it.
            let settled = matches!(
                *cache.condition.borrow(),
                Condition::Running | Condition::PassThrough(_)
            );
            if !settled {
                continue;
            }
            let Some(part) = published.begin_errand(&run, errand) else {
                return Ok(());
            };
            let contents = published
                .buffered(&part, |buffer, sectors| buffer.contents(sectors))
                .expect("it was found in the buffer");
            #[cfg(test)]
            let skipped =
                errand == Errand::Sync && cache.planted(crate::mutation::Mutation::IgnoredMark);
            #[cfg(not(test))]
            let skipped = false;
            let was_running = cache.is_running();
            let answer = match skipped {
                true => Ok(()),
                false => self.put_home(cache, part.clone(), contents).await,
            };
            published.end_errand(&part, errand, answer.is_ok());
            match (answer, errand) {
                // The fast device failed under it: once that has settled, the other way. There is none behind that.
                (Err(_), Errand::Drain) if was_running && !cache.is_running() => {}
                // There may be another part of the run.
                (Ok(()), Errand::Drain) => {}
                (answer, _) => return answer,
            }
        }
    }

    async fn put_home(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        part: Range<u64>,
        contents: View,
    ) -> Result<(), DeviceError> {
        let payload = Payload::Data(contents);
        let flags = WriteFlags::BACKGROUND;
        if !cache.is_running() {
            return self.slow_put(part, &payload, flags).await;
        }
        match cache.tier.place(part.start / PAGE) {
            Place::Fast => self.put_cached(cache, part, &payload).await,
            Place::Demoting | Place::Slow => {
                let answer = self.put_past(cache, part.clone(), &payload, flags).await;
                match answer {
                    // A bad place of the slow device: better dirty on the fast one than in memory for ever.
                    Err(_) if cache.is_running() => self.put_cached(cache, part, &payload).await,
                    answer => answer,
                }
            }
        }
    }
}

impl Published {
    /// What of `run`, whose pages the caller holds, is to be written out now.
    fn begin_errand(&self, run: &Range<u64>, errand: Errand) -> Option<Range<u64>> {
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

    fn end_errand(&self, part: &Range<u64>, errand: Errand, done: bool) {
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
