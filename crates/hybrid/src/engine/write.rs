//! A write: to the fast device out of place, or past it to the slow one?
//!
//! ```text
//! cached:  lock -> room and slots -> data to free slots -> map them -> (commit at flush or FUA)
//! past:    lock -> intent durable -> forget clean pages -> slow write;  dirty pages take the cached way
//! ```
//!
//! Always true:
//! 1. A dirty page is never bypassed.
//! 2. No slow write is sent over a page that the durable map may have, unless its region is durably marked.
//! 3. A page's slot is complete on the fast device before the map names it.
//!
//! A write runs as a task of its own: a caller that goes away leaves no half-written map.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View, crc::crc32c_of_page};
use device::{Class, DeviceError, WriteFlags};
use env::sync::join_all;

use crate::attach::label::PAGE;
use crate::cache::{Cache, Condition};
use crate::engine::Inner;
use crate::engine::read::{Reader, sector_mask};
use crate::index::extents::Place;
use crate::index::locks::Mode;
use crate::index::page_map::{Entry, FULL};
use crate::settings::Mode as Use;
use crate::settings::WriteMode;
use crate::tier::Asked;

const PAGE_LEN: usize = base::PAGE;
/// Discards are carried out in pieces of 64 MiB.
const DISCARD_PAGES: u64 = 16_384;
/// Zeroes are written to the cache in pieces of this size.
const ZEROES: u64 = 256 << 10;

/// What is to be put on a span.
#[derive(Clone)]
pub(crate) enum Payload {
    Data(View),
    Zeroes,
}

impl Payload {
    /// The payload of bytes `range`, counted from its start.
    pub fn slice(&self, range: Range<u64>) -> Payload {
        match self {
            Payload::Data(view) => {
                let len = (range.end - range.start) as usize;
                Payload::Data(view.slice(range.start as usize, len))
            }
            Payload::Zeroes => Payload::Zeroes,
        }
    }
}

/// One page as it is to be in its new slot.
struct Image {
    page: u64,
    mask: u8,
    data: View,
    /// Where in the request it lies, if it is a piece of it as it came.
    from: Option<usize>,
}

impl Inner {
    /// Writes `data`; see the module's head for the two ways.
    pub(crate) async fn write(
        self: Rc<Self>,
        at: Sector,
        data: View,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let range = at.byte()..at.byte() + data.len() as u64;
        self.put(range, Payload::Data(data), flags).await
    }

    pub(crate) async fn write_zeroes(
        self: Rc<Self>,
        span: Span,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let range = span.start.byte()..span.end().byte();
        self.put(range, Payload::Zeroes, flags).await
    }

    async fn put(
        self: &Rc<Self>,
        range: Range<u64>,
        payload: Payload,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        if range.is_empty() {
            return if flags.fua {
                self.flush().await
            } else {
                Ok(())
            };
        }
        let len = range.end - range.start;
        let stream = self.observe_stream(range.start, len);
        self.counters.write(len, stream.sequential);
        let mut counted = false;
        loop {
            let Some(cache) = self.write_cache().await? else {
                // The last of a cache's cleaning may still be under way.
                let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
                let _held = self.locks.acquire(first, end, Mode::EXCLUSIVE).await;
                self.slow_put(range.clone(), &payload, flags).await?;
                self.written_elsewhere(&range);
                return Ok(());
            };
            if !std::mem::replace(&mut counted, true) {
                let (resident, dirty) = self.look_up(&cache, &range);
                self.note_request(&cache, range.clone(), Asked::Write { resident, dirty });
            }
            let answer = self
                .put_with(&cache, range.clone(), &payload, flags, stream.bypass)
                .await;
            match answer {
                // The fast device failed under this write: once that has settled, it goes the other way.
                Err(_) if !cache.is_running() => cache.settled().await?,
                answer => return answer,
            }
        }
    }

    async fn put_with(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        range: Range<u64>,
        payload: &Payload,
        flags: WriteFlags,
        bypass: bool,
    ) -> Result<(), DeviceError> {
        let (mode, alone) = {
            let settings = self.settings.borrow();
            (settings.write, settings.mode == Use::Tier)
        };
        let len = range.end - range.start;
        let big_zeroes = matches!(payload, Payload::Zeroes) && len > ZEROES;
        let cached = mode.keeps_dirty() && !bypass && !big_zeroes;
        // The incomplete page at the end of a slow device of odd size is never cached.
        let cacheable = self.slow.whole_pages() * PAGE;
        let split = range.end.min(cacheable).max(range.start);
        let (body, tail) = (range.start..split, split..range.end);
        if !tail.is_empty() {
            let piece = payload.slice(tail.start - range.start..len);
            self.slow_put(tail, &piece, flags).await?;
        }
        let any_body = !body.is_empty();
        for (piece, place) in self.by_place(cache, body) {
            let part = payload.slice(piece.start - range.start..piece.end - range.start);
            let cached = match place {
                None => cached,
                // Zeroes of some length are cheaper on the slow device, wherever their extent lives.
                Some(Place::Fast) => !big_zeroes,
                Some(Place::Demoting) => false,
                Some(Place::Slow) => cached && !alone,
            };
            let cached = cached && self.flash_budget_allows(Bytes(piece.end - piece.start));
            let (first, end) = (piece.start / PAGE, piece.end.div_ceil(PAGE));
            let lock = match cached {
                true => Mode::CACHE_WRITE,
                false => Mode::EXCLUSIVE,
            };
            let _held = self.locks.acquire(first, end, lock).await;
            for rest in self.give_to_buffer(cache, &piece, &part, flags) {
                let part = part.slice(rest.start - piece.start..rest.end - piece.start);
                if cached {
                    let (first, end) = (rest.start / PAGE, rest.end.div_ceil(PAGE));
                    cache.map.borrow_mut().touch(first, end);
                    self.put_cached(cache, rest.clone(), &part).await?;
                } else {
                    self.put_past(cache, rest.clone(), &part, flags).await?;
                    if mode == WriteMode::Through && !bypass {
                        self.copy_through(cache, rest.clone(), &part);
                    }
                }
                cache.tier.published.written_elsewhere(rest);
            }
        }
        if flags.fua && any_body {
            cache.committed().await?;
        }
        Ok(())
    }

    /// Cuts `range` (in bytes) where one extent lives elsewhere than the next; `None` without a tier.
    fn by_place(&self, cache: &Cache, range: Range<u64>) -> Vec<(Range<u64>, Option<Place>)> {
        if range.is_empty() {
            return Vec::new();
        }
        if !self.has_tier() {
            return vec![(range, None)];
        }
        let table = cache.tier.table.borrow();
        let extent_bytes = table.extent_pages() * PAGE;
        let mut pieces: Vec<(Range<u64>, Option<Place>)> = Vec::new();
        let mut byte = range.start;
        while byte < range.end {
            let upto = ((byte / extent_bytes + 1) * extent_bytes).min(range.end);
            let place = Some(table.place(table.extent_of(byte / PAGE)));
            match pieces.last_mut() {
                Some((piece, same)) if *same == place => piece.end = upto,
                _ => pieces.push((byte..upto, place)),
            }
            byte = upto;
        }
        pieces
    }

    /// A moving region's buffer takes what it may of a write; returns the rest. The caller holds the pages.
    fn give_to_buffer(
        &self,
        cache: &Cache,
        piece: &Range<u64>,
        part: &Payload,
        flags: WriteFlags,
    ) -> Vec<Range<u64>> {
        match flags.fua {
            // It is to be durable when it ends, and the buffer is not.
            true => vec![piece.clone()],
            false => cache.tier.published.take_write(piece.clone(), part),
        }
    }

    /// Straight to the slow device.
    pub(crate) async fn slow_put(
        &self,
        range: Range<u64>,
        payload: &Payload,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let at = Sector::containing(range.start);
        match payload {
            Payload::Data(view) => {
                let max = self.slow.max_io();
                let mut from = 0;
                while from < view.len() {
                    let len = max.min(view.len() - from);
                    let at = Sector::containing(range.start + from as u64);
                    self.slow.write(at, view.slice(from, len), flags).await?;
                    from += len;
                }
                Ok(())
            }
            Payload::Zeroes => {
                let span = Span::new(at, Bytes(range.end - range.start));
                self.slow.write_zeroes(span, flags).await
            }
        }
    }

    // --- the cached way ---------------------------------------------------------------------------

    /// Writes to free slots and maps them, in pieces that leave room for others. The caller holds the
    /// pages at least for a cache write.
    pub(crate) async fn put_cached(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        range: Range<u64>,
        payload: &Payload,
    ) -> Result<(), DeviceError> {
        let chunk = (cache.chunk_pages() * PAGE).min(ZEROES);
        let mut from = range.start;
        while from < range.end {
            // Pieces end on page bounds.
            let upto = ((from / PAGE * PAGE) + chunk).min(range.end);
            let data = match payload.slice(from - range.start..upto - range.start) {
                Payload::Data(view) => view,
                Payload::Zeroes => Buf::zeroed((upto - from) as usize).freeze(),
            };
            self.put_chunk(cache, from, data).await?;
            from = upto;
        }
        Ok(())
    }

    async fn put_chunk(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        at: u64,
        data: View,
    ) -> Result<(), DeviceError> {
        let end_byte = at + data.len() as u64;
        let (first, end) = (at / PAGE, end_byte.div_ceil(PAGE));
        cache.cancel_fills(first, end);
        let _room = cache.reserve(first, end).await?;
        let runs = cache.take((end - first) as u32).await?;
        let images = match self.images(cache, at, &data).await {
            Ok(images) => images,
            Err(error) => {
                cache.give_back(&runs);
                return Err(error);
            }
        };
        // Neighbouring pages that are neighbours in memory too go in one write.
        let mut writes = Vec::with_capacity(runs.len());
        let mut slots = Vec::with_capacity(images.len());
        let mut next = 0;
        for run in &runs {
            let mut left = run.count as usize;
            let mut slot = run.first;
            while left > 0 {
                let len = whole_run(&images[next..next + left]);
                let view = joined(&images[next..next + len], &data);
                writes.push(cache.write_slots(slot, view, Class::Foreground));
                slots.extend(slot..slot + len as u32);
                slot += len as u32;
                next += len;
                left -= len;
            }
        }
        let answers = if writes.len() == 1 {
            vec![writes.pop().expect("one").await]
        } else {
            join_all(writes).await
        };
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            // The slots may hold anything; they stay taken, and the fast device is out.
            cache.fail(error.clone()).await;
            return Err(error);
        }
        if !cache.is_running() {
            return Err(cache.not_running());
        }
        cache.cancel_fills(first, end);
        for (image, slot) in images.iter().zip(slots) {
            let crc = crc32c_of_page(&image.data, image.data.is_known_zero());
            cache.map_page(image.page, slot, true, image.mask, crc);
        }
        cache.clean_work.notify_all();
        Ok(())
    }

    /// Each page of `data` as it is to be written: whole pages as they are, parts merged with what the
    /// cache holds of the page.
    async fn images(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        at: u64,
        data: &View,
    ) -> Result<Vec<Image>, DeviceError> {
        let end = at + data.len() as u64;
        let mut images = Vec::with_capacity((data.len() / PAGE_LEN) + 2);
        let mut byte = at;
        while byte < end {
            let page = byte / PAGE;
            let within = (byte % PAGE) as usize;
            let len = (PAGE_LEN - within).min((end - byte) as usize);
            let piece = data.slice((byte - at) as usize, len);
            images.push(if len == PAGE_LEN {
                Image {
                    page,
                    mask: FULL,
                    data: piece,
                    from: Some((byte - at) as usize),
                }
            } else {
                self.merged(cache, page, within, &piece).await?
            });
            byte += len as u64;
        }
        Ok(images)
    }

    async fn merged(
        &self,
        cache: &Rc<Cache>,
        page: u64,
        within: usize,
        piece: &View,
    ) -> Result<Image, DeviceError> {
        let mut mask = sector_mask(within, piece.len());
        let entry = cache.map.borrow().get(page);
        let mut whole = match entry {
            None => Buf::zeroed(PAGE_LEN),
            Some(entry) => {
                let _reader = Reader::enter(cache);
                match cache.read_page(entry.slot, Class::Foreground).await {
                    Ok(old) => {
                        mask |= entry.mask;
                        old
                    }
                    Err(error) if entry.dirty => return Err(error),
                    // A clean page is on the slow device too: what we have of it is given up.
                    Err(_) => {
                        cache.drop_bad(page, &entry);
                        Buf::zeroed(PAGE_LEN)
                    }
                }
            }
        };
        whole[within..within + piece.len()].copy_from_slice(piece);
        Ok(Image {
            page,
            mask,
            data: whole.freeze(),
            from: None,
        })
    }

    /// Takes the missing sectors of a partly cached page from the slow device for good, unless the page was
    /// written since `token` was given out.
    pub(crate) async fn adopt_whole(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        token: u64,
        page: u64,
        entry: Entry,
        whole: View,
    ) {
        let _held = self.locks.acquire(page, page + 1, Mode::CACHE_WRITE).await;
        // Cleaned meanwhile counts as changed: what is dirty here must be dirty there.
        let unchanged = || {
            cache.is_running()
                && cache.fill_stands(token, page)
                && cache.map.borrow().get(page) == Some(entry)
        };
        if unchanged()
            && let Some(run) = cache.try_take(1).first().copied()
        {
            let crc = crc32c_of_page(&whole, whole.is_known_zero());
            match cache.write_slots(run.first, whole, Class::Background).await {
                Err(error) => cache.fail(error).await,
                Ok(()) if unchanged() => cache.map_page(page, run.first, entry.dirty, FULL, crc),
                Ok(()) => cache.give_back(&[run]),
            }
        }
    }

    /// Takes the missing sectors of `page`, if some are missing, from the slow device for good.
    pub(crate) async fn complete_for_good(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        page: u64,
    ) -> Result<(), DeviceError> {
        let Some(token) = cache.begin_fill(page, page + 1) else {
            return Ok(());
        };
        let entry = cache.map.borrow().get(page);
        let answer = match entry.filter(|entry| entry.mask != FULL) {
            None => Ok(()),
            Some(entry) => {
                let reader = Reader::enter(cache);
                let whole = self
                    .complete_page(cache, page, entry, Class::Background)
                    .await;
                drop(reader);
                match whole {
                    Ok(whole) => {
                        let whole = whole.freeze();
                        self.adopt_whole(cache, token, page, entry, whole).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
        };
        cache.forget_fill(token, page, page + 1);
        answer
    }

    // --- past the cache ---------------------------------------------------------------------------

    /// To the slow device, but for dirty pages, which are overwritten where they are. The caller holds
    /// the pages exclusively.
    pub(crate) async fn put_past(
        self: &Rc<Self>,
        cache: &Rc<Cache>,
        range: Range<u64>,
        payload: &Payload,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let mut from = range.start;
        while from < range.end {
            // Looked up anew each time, since what was dirty may have been destaged meanwhile. A page that needs new room
            // must not wait for a cleaner that waits for this lock.
            let (mut piece, dirty) = dirty_runs(cache, from..range.end).swap_remove(0);
            if dirty {
                piece.end = piece.end.min((from / PAGE + cache.chunk_pages()) * PAGE);
            }
            let part = payload.slice(piece.start - range.start..piece.end - range.start);
            from = piece.end;
            if dirty {
                self.put_cached(cache, piece, &part).await?;
                continue;
            }
            let (first, end) = (piece.start / PAGE, piece.end.div_ceil(PAGE));
            let _marked = self.leave_cache(cache, first, end).await?;
            let answer = self.slow_put(piece, &part, flags).await;
            cache.forget_pages(first, end);
            answer?;
        }
        Ok(())
    }

    /// Forgets the clean pages `first..end` (to be done once more when the slow device has changed: a read
    /// meanwhile may have copied the old contents) and marks their regions, durably where that matters, so that the
    /// slow device may change beneath.
    async fn leave_cache(
        &self,
        cache: &Rc<Cache>,
        first: u64,
        end: u64,
    ) -> Result<crate::cache::SlowWrite, DeviceError> {
        cache.forget_pages(first, end);
        match cache.begin_unrecorded_write(first, end) {
            Some(write) => Ok(write),
            None => cache.begin_slow_write(first, end).await,
        }
    }

    /// The copy of a write-through: made after the user has the answer. The caller still holds the pages.
    fn copy_through(&self, cache: &Rc<Cache>, range: Range<u64>, payload: &Payload) {
        let Payload::Data(data) = payload else { return };
        let first = range.start.div_ceil(PAGE);
        let end = range.end / PAGE;
        let any_cached = (first..end).any(|page| cache.map.borrow().find(page).is_some());
        if first >= end || any_cached || !self.flash_budget_allows(Bytes((end - first) * PAGE)) {
            return;
        }
        if let Some(token) = cache.begin_fill(first, end) {
            let from = (first * PAGE - range.start) as usize;
            let data = data.slice(from, ((end - first) * PAGE) as usize);
            let cache = Rc::clone(cache);
            env::spawn(async move {
                cache.fill(token, first, data).await;
                cache.forget_fill(token, first, end);
            });
        }
    }

    // --- discard ----------------------------------------------------------------------------------

    /// Gives up whole pages that are not dirty. Dirty pages stay as they are: to forget one would uncover
    /// the slow device's older contents.
    pub(crate) async fn discard(self: Rc<Self>, span: Span) -> Result<(), DeviceError> {
        let cache = match self.write_cache().await? {
            Some(cache) => cache,
            None => {
                let (first, end) = (span.start.byte() / PAGE, span.end().byte().div_ceil(PAGE));
                let _held = self.locks.acquire(first, end, Mode::EXCLUSIVE).await;
                return self.slow.discard(span).await;
            }
        };
        let cacheable = self.slow.whole_pages();
        let first = span.start.byte().div_ceil(PAGE);
        let end = (span.end().byte() / PAGE).min(cacheable);
        if first >= end {
            return Ok(());
        }
        // In pieces, so that others have their turn.
        for first in (first..end).step_by(DISCARD_PAGES as usize) {
            let end = end.min(first + DISCARD_PAGES);
            self.discard_pages(&cache, first, end).await?;
            env::yield_now().await;
        }
        Ok(())
    }

    async fn discard_pages(
        &self,
        cache: &Rc<Cache>,
        first: u64,
        end: u64,
    ) -> Result<(), DeviceError> {
        let _held = self.locks.acquire(first, end, Mode::EXCLUSIVE).await;
        // Advice is not followed while it could meet a copy.
        if cache.tier.published.moves(first, end) {
            return Ok(());
        }
        for (piece, dirty) in dirty_runs(cache, first * PAGE..end * PAGE) {
            if dirty {
                continue;
            }
            let (first, end) = (piece.start / PAGE, piece.end / PAGE);
            let marked = self.leave_cache(cache, first, end).await;
            let _marked = match marked {
                Ok(marked) => marked,
                // Advice need not be followed by a cache in trouble.
                Err(_) if !cache.is_running() => return Ok(()),
                Err(error) => return Err(error),
            };
            let span = Span::bytes(piece.start, piece.end - piece.start);
            let answer = self.slow.discard(span).await;
            cache.forget_pages(first, end);
            answer?;
        }
        Ok(())
    }

    // --- flush ------------------------------------------------------------------------------------

    /// Everything completed before this call is durable when it ends.
    pub(crate) async fn flush(self: &Rc<Self>) -> Result<(), DeviceError> {
        self.drain_buffer().await?;
        let Some(cache) = self.live_cache() else {
            return self.slow.flush().await;
        };
        let mut answers = join_all([
            Box::pin(cache.committed()) as device::Pending<'_, ()>,
            Box::pin(self.slow.flush()),
        ])
        .await;
        let slow = answers.pop().expect("two were asked");
        let fast = answers.pop().expect("two were asked");
        match fast {
            // A fast device that failed with nothing dirty leaves the slow one in charge.
            Err(error) => {
                if !matches!(*cache.condition.borrow(), Condition::PassThrough(_)) {
                    return Err(error);
                }
                self.slow.flush().await
            }
            Ok(()) => slow,
        }
    }
}

/// How many of `images`, from the first on, are whole pages of the request itself (at least one image).
fn whole_run(images: &[Image]) -> usize {
    let whole = images.iter().take_while(|image| image.from.is_some());
    whole.count().max(1)
}

/// The images of a run as one view.
fn joined(images: &[Image], data: &View) -> View {
    match images[0].from {
        Some(from) => data.slice(from, images.len() * PAGE_LEN),
        None => images[0].data.clone(),
    }
}

/// Cuts a range of bytes into runs of dirty pages and of others, in order.
fn dirty_runs(cache: &Rc<Cache>, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
    let map = cache.map.borrow();
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    if map.dirty() == 0 {
        return vec![(range, false)];
    }
    let mut byte = range.start;
    while byte < range.end {
        let page = byte / PAGE;
        let upto = ((page + 1) * PAGE).min(range.end);
        let dirty = map.is_dirty(page);
        match runs.last_mut() {
            Some((run, same)) if *same == dirty => run.end = upto,
            _ => runs.push((byte..upto, dirty)),
        }
        byte = upto;
    }
    runs
}
