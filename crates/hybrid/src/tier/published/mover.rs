//! The published mover's task: one region after the other.
//!
//! ```text
//! up:   room for all of it -> slow read, fast write, chunk by chunk -> copies shown -> synchronized -> up
//! down: chunk by chunk: fast read, slow write -> slow flush -> extents demoting, clean pages go
//!       -> buffer and dirty pages synchronized -> slow
//! ```
//!
//! Choice: 2 MiB are read, then written, one such step at a time. With the paper's disks (four at 10,000 rpm,
//! 64 KiB chunks, write cache off) that gives both times of its table 1: a disk gets 512 KiB of each step, reads
//! them ahead on the way up, and loses two turns a step on the way down.
//!
//! Always true:
//! 1. A dirty page leaves the fast device only after it was destaged and the slow device was flushed.
//! 2. No request waits for a copy; a copy that finds no slots leaves its pages where they are.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View, crc::crc32c_of_page};
use device::{Class, DeviceError};
use env::sync::join_all;
use policy::tier::{Region, Way};

use super::sync::{SYNC_WRITE_MAX, Step};
use super::users::Errand;
use super::{Copied, Phase, Published};
use crate::attach::label::PAGE;
use crate::cache::{Cache, Condition, count};
use crate::destage::Run;
use crate::engine::Inner;
use crate::index::extents::Place;
use crate::index::page_map::{Entry, FULL, UNIT_PAGES};
use crate::index::slots::SlotRun;
use crate::settings::{Buffer, CopyBack, Mover};
use crate::tier::direct::Promoted;
use crate::tier::{MoveEnd, is_marked};

const PAGE_LEN: usize = base::PAGE;
/// What is read, then written, in one step.
pub(super) const STEP: Bytes = Bytes::mib(2);
/// Requests of one step under way at once; a device may take shorter ones than a step.
const STEP_DEPTH: usize = 2;
/// Copies are shown so many pages at a time, each durable before the next.
const SHOWN_PAGES: usize = 16_384;
/// After something failed or had to wait.
const REST: Nanos = Nanos::millis(10);
const FAILURE_REST: Nanos = Nanos::secs(1);
/// How often a step asks for slots before it goes on without.
const ASKS_FOR_SLOTS: u32 = 50;

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    /// There was nothing to do, or no room.
    Dropped,
    /// The mover is to halt, or a device failed: to be done again.
    Again,
}

impl Inner {
    /// The task that moves regions as published.
    pub(crate) async fn published_loop(self: Rc<Self>, cache: Rc<Cache>) {
        let tier = Rc::clone(&cache.tier);
        let published = &tier.published;
        while !cache.stopped.get() && cache.is_running() {
            let work = published.work.wait();
            if let Some(wait) = self.opens_in() {
                // Other choices wake it before.
                let _ = env::timeout(wait, work).await;
                continue;
            }
            let next = match published.is_halted() {
                true => None,
                false => published.queue.borrow_mut().pop_front(),
            };
            published.current.set(next);
            let Some((region, way)) = next else {
                work.await;
                continue;
            };
            let ended = match way {
                Way::Up => self.move_up(&cache, region).await,
                Way::Down => self.move_down(&cache, region).await,
            };
            match ended {
                Ended::Again => published.queue.borrow_mut().push_front((region, way)),
                Ended::Dropped => self.end_published(&cache, region, MoveEnd::Cancelled),
                Ended::Done => self.end_published(&cache, region, MoveEnd::Done),
            }
            published.current.set(None);
            published.ended.notify_all();
        }
    }

    fn end_published(&self, cache: &Cache, region: Region, end: MoveEnd) {
        let mut stats = cache.tier.stats.borrow_mut();
        if stats.end_move(env::now(), region, end) && end == MoveEnd::Cancelled {
            count(&cache.tier.counts.cancelled, 1);
        }
    }

    /// Ends the move under way before its time, and lets none begin until the answer is dropped: whatever
    /// users wrote is on a device then.
    pub(crate) async fn halt_moves(&self, cache: &Rc<Cache>) -> Halt {
        let published = &cache.tier.published;
        published.halts.set(published.halts.get() + 1);
        let halt = Halt(Rc::clone(cache));
        while published.current.get().is_some() && !cache.stopped.get() {
            published.ended.wait().await;
        }
        halt
    }

    /// Is what is promoted of `extent` copied by the direct mover?
    pub(crate) fn moves_directly(&self, cache: &Cache, extent: u32) -> bool {
        let published = self.settings.borrow().tier.mover == Mover::Published;
        !published || cache.tier.table.borrow().is_pinned(extent)
    }

    /// If pages of `extent`, which is fast, are missing, its region moves up once more, if moves are as published.
    pub(crate) fn move_missing(&self, cache: &Cache, extent: u32) {
        if self.moves_directly(cache, extent) {
            return;
        }
        let table = cache.tier.table.borrow();
        let (pages, region) = (table.pages_of(extent), table.region_of(extent));
        let resident = cache.map.borrow().resident_in(pages.start, pages.end);
        if table.wants_region(region) && resident < pages.end - pages.start {
            cache.tier.published.decide(region, Way::Up);
        }
    }

    fn note_copying(&self, cache: &Cache, region: Region, begun: Instant) {
        let took = env::now().since(begun);
        cache.tier.stats.borrow_mut().copying(region, took);
    }

    fn may_go_on(&self, cache: &Cache) -> bool {
        !cache.tier.published.is_halted() && cache.is_running() && !cache.stopped.get()
    }

    fn buffer_in_memory(&self) -> bool {
        self.settings.borrow().tier.buffer == Buffer::Memory
    }

    // --- up ---------------------------------------------------------------------------------------

    async fn move_up(self: &Rc<Self>, cache: &Rc<Cache>, region: Region) -> Ended {
        let published = &cache.tier.published;
        if !cache.tier.table.borrow().wants_region(region) {
            return Ended::Dropped;
        }
        if !self.promote_whole(cache, region).await {
            return match self.may_go_on(cache) {
                true => Ended::Dropped,
                false => Ended::Again,
            };
        }
        let pages = cache.tier.table.borrow().pages_of_region(region);
        published.begin(
            region,
            pages.clone(),
            Phase::CopyingUp,
            self.buffer_in_memory(),
        );
        let begun = env::now();
        let step = published.step.get().0 / PAGE;
        let mut at = pages.start;
        while at < pages.end && self.may_go_on(cache) {
            let upto = (at + step).min(pages.end);
            self.copy_up(cache, at..upto).await;
            at = upto;
        }
        self.note_copying(cache, region, begun);
        if at < pages.end {
            self.drop_copies(cache);
        } else {
            published.enter(Phase::SyncingUp);
            self.show_copies(cache).await;
            self.complete_pages(cache, pages.clone()).await;
        }
        self.finish(cache).await
    }

    /// Raises every extent of `region` that may be; false if there is no room for all of them.
    async fn promote_whole(self: &Rc<Self>, cache: &Rc<Cache>, region: Region) -> bool {
        let table = &cache.tier.table;
        let (extents, missing) = {
            let table = table.borrow();
            let may = |extent: &u32| !table.is_excluded(*extent);
            let extents: Vec<u32> = table.extents_of(region).filter(may).collect();
            let slow = |extent: &&u32| table.place(**extent) == Place::Slow;
            let pages = extents.iter().filter(slow).map(|it| table.pages_of(*it));
            let missing: u64 = pages.map(|pages| pages.end - pages.start).sum();
            (extents, missing)
        };
        if table.borrow().reserved() + missing > self.tier_room(cache) {
            self.no_room(cache, region);
            return false;
        }
        for extent in extents {
            loop {
                match self.promote_alone(cache, extent) {
                    Promoted::Yes => break,
                    Promoted::Full => {
                        self.no_room(cache, region);
                        return false;
                    }
                    Promoted::Later if !self.may_go_on(cache) => return false,
                    Promoted::Later => {}
                }
                // The cache has to destage dirty blocks first.
                let room = cache.room.wait();
                cache.starving.set(cache.starving.get() + 1);
                cache.clean_work.notify_all();
                let _ = env::timeout(REST, room).await;
                cache.starving.set(cache.starving.get() - 1);
            }
        }
        true
    }

    /// Withdraws `region` from the policy: it is not promoted. No other region is demoted for it.
    fn no_room(&self, cache: &Cache, region: Region) {
        cache.tier.table.borrow_mut().want(region, false);
        cache.tier.policy.borrow_mut().withdrawn(region);
    }

    /// One step upwards: pages that are not whole on the fast device are copied to slots that no reader sees.
    async fn copy_up(self: &Rc<Self>, cache: &Rc<Cache>, pages: Range<u64>) {
        let published = &cache.tier.published;
        let missing: Vec<u64> = {
            let (map, table) = (cache.map.borrow(), cache.tier.table.borrow());
            // Excluded extents are no part of what was promoted.
            let up = pages.filter(|page| table.place(table.extent_of(*page)) == Place::Fast);
            let missing = up.filter(|page| map.find(*page).is_none());
            missing
                .filter(|page| !published.with(|moving| moving.is_touched(*page)))
                .collect()
        };
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
            return;
        };
        let (first, end) = (*first, *last + 1);
        let data = match self.read_slow(first, end).await {
            Ok(data) => data,
            Err(error) => {
                // What cannot be read stays where it is.
                tracing::warn!(volume = %self.name, %error, "a part of a region was not copied to the fast device");
                return;
            }
        };
        let runs = self.slots_for_copy(cache, missing.len() as u32).await;
        let mut writes = Vec::new();
        let mut copied = Vec::new();
        let mut places = runs.iter().flat_map(|run| run.first..run.first + run.count);
        let mut run: Option<(u32, u64, usize)> = None;
        let piece = |first_slot: u32, page: u64, count: usize| {
            let from = ((page - first) * PAGE) as usize;
            cache.write_slots(
                first_slot,
                data.slice(from, count * PAGE_LEN),
                Class::Background,
            )
        };
        for (page, slot) in missing.iter().copied().zip(&mut places) {
            let from = ((page - first) * PAGE) as usize;
            let crc = crc32c_of_page(&data[from..from + PAGE_LEN], data.is_known_zero());
            copied.push(Copied {
                page,
                slot: Some(slot),
                crc,
            });
            run = match run {
                Some((at, start, count))
                    if at + count as u32 == slot && start + count as u64 == page =>
                {
                    Some((at, start, count + 1))
                }
                other => {
                    writes.extend(other.map(|(at, start, count)| piece(at, start, count)));
                    Some((slot, page, 1))
                }
            };
        }
        writes.extend(run.map(|(at, start, count)| piece(at, start, count)));
        let failed = join_all(writes).await.into_iter().find_map(Result::err);
        if let Some(error) = failed {
            // The slots may hold anything; they stay taken, and the fast device is out.
            cache.fail(error).await;
            return;
        }
        let bytes = copied.len() as u64 * PAGE;
        count(&cache.tier.counts.bytes_promoted, bytes);
        let region = published.with(|moving| moving.region);
        cache.tier.stats.borrow_mut().copied(region, Bytes(bytes));
        let out_of_date = published.with(|moving| moving.keep_copies(copied));
        cache.give_back(&out_of_date);
    }

    /// Pages `first..end` of the slow device.
    async fn read_slow(&self, first: u64, end: u64) -> Result<View, DeviceError> {
        let mut rest = Buf::for_read(((end - first) * PAGE) as usize);
        let mut reads = Vec::new();
        let mut byte = first * PAGE;
        while !rest.is_empty() {
            let len = self.slow.max_io().min(rest.len());
            let tail = rest.split_off(len);
            let piece = std::mem::replace(&mut rest, tail);
            reads.push(
                self.slow
                    .read(Sector::containing(byte), piece, Class::Background),
            );
            byte += len as u64;
        }
        let mut whole: Option<Buf> = None;
        for piece in join_all(reads).await {
            let piece = piece?;
            match &mut whole {
                None => whole = Some(piece),
                Some(whole) => whole.join(piece),
            }
        }
        Ok(whole.expect("at least one page").freeze())
    }

    /// Slots for `wanted` copies, fewer if there are not so many; writers keep some.
    async fn slots_for_copy(&self, cache: &Rc<Cache>, wanted: u32) -> Vec<SlotRun> {
        for _ in 0..ASKS_FOR_SLOTS {
            let free = cache.slots.borrow().free_count();
            if free >= wanted + cache.spare_slots() / 4 {
                return cache.try_take(wanted);
            }
            let room = cache.room.wait();
            cache.want_commit();
            let _ = env::timeout(REST, room).await;
            if !self.may_go_on(cache) {
                return Vec::new();
            }
        }
        Vec::new()
    }

    /// Shows what was copied, but for pages that users wrote meanwhile.
    async fn show_copies(&self, cache: &Rc<Cache>) {
        let published = &cache.tier.published;
        loop {
            let some: Vec<Copied> = published.with(|moving| {
                let upto = moving.copied.len().min(SHOWN_PAGES);
                moving.copied.drain(..upto).collect()
            });
            let (Some(first), Some(last)) = (some.first(), some.last()) else {
                return;
            };
            // What was copied may not be for good on the slow device.
            cache.record_intents(first.page, last.page + 1);
            for copy in some {
                let Some(slot) = copy.slot else { continue };
                let stands = cache.is_running()
                    && cache.map.borrow().find(copy.page).is_none()
                    && !published.with(|moving| moving.is_touched(copy.page));
                #[cfg(test)]
                let stands = stands || cache.planted(crate::mutation::Mutation::StaleCopy);
                match stands {
                    true => cache.map_page(copy.page, slot, false, FULL, copy.crc),
                    false => cache.give_back(&[SlotRun {
                        first: slot,
                        count: 1,
                    }]),
                }
            }
            // A commit that fails is the cache's to deal with.
            let _ = cache.committed().await;
        }
    }

    /// Gives back the slots of copies that no reader has seen.
    fn drop_copies(&self, cache: &Cache) {
        let slots = cache.tier.published.with(|moving| {
            let slots = moving.take_copies(0, u64::MAX);
            moving.copied.clear();
            slots
        });
        cache.give_back(&slots);
    }

    /// Where the page map is the buffer: pages of which users wrote a part get the rest, in address order,
    /// at the pace of the synchronization.
    async fn complete_pages(self: &Rc<Self>, cache: &Rc<Cache>, pages: Range<u64>) {
        if cache.tier.published.with(|moving| moving.buffer.is_some()) {
            return;
        }
        for page in pages {
            let partial = |entry: &Entry| entry.mask != FULL;
            if cache.map.borrow().get(page).filter(partial).is_none() {
                continue;
            }
            if !self.turn(cache).await {
                return;
            }
            if let Err(error) = self.complete_for_good(cache, page).await {
                tracing::warn!(volume = %self.name, %error, "a page stays in part on the slow device");
            }
        }
    }

    /// Waits for the next write that the pace allows; false: the move is to end.
    async fn turn(&self, cache: &Cache) -> bool {
        let published = &cache.tier.published;
        loop {
            if !self.may_go_on(cache) {
                return false;
            }
            let now = env::now();
            match published.pace.get().wait(now) {
                Nanos(0) => {
                    published.take_turn(now);
                    return true;
                }
                wait => env::sleep(wait).await,
            }
        }
    }

    // --- down -------------------------------------------------------------------------------------

    async fn move_down(self: &Rc<Self>, cache: &Rc<Cache>, region: Region) -> Ended {
        let tier = &cache.tier;
        let published = &tier.published;
        let any = !self.sinking_part(cache, region).is_empty();
        if tier.table.borrow().wants_region(region) || !any {
            return Ended::Dropped;
        }
        let pages = tier.table.borrow().pages_of_region(region);
        let copy_back = self.settings.borrow().tier.copy_back;
        let in_memory = self.buffer_in_memory();
        published.begin(region, pages.clone(), Phase::CopyingDown, in_memory);
        let begun = env::now();
        let mut all_destaged = Vec::new();
        // What is copied down must be durable where it is, or a crash would leave newer contents beneath older ones.
        // The move has begun before: what is written from here on counts as touched and is not copied.
        let mut copied = cache.committed().await;
        let mut at = pages.start;
        while at < pages.end && copied.is_ok() && self.may_go_on(cache) {
            let upto = (at + published.step.get().0 / PAGE).min(pages.end);
            if copy_back != CopyBack::Nothing {
                copied = self
                    .copy_down(cache, at..upto, copy_back, &mut all_destaged)
                    .await;
            }
            at = upto;
        }
        if copied.is_ok() && self.may_go_on(cache) {
            copied = self.note_destaged(cache, &all_destaged).await;
        }
        self.note_copying(cache, region, begun);
        if let Err(error) = &copied {
            tracing::error!(volume = %self.name, %error, "a region could not be copied to the slow device");
            env::sleep(FAILURE_REST).await;
        }
        if copied.is_ok() && self.may_go_on(cache) {
            published.enter(Phase::SyncingDown);
            self.sink(cache, region).await;
            self.synchronize_down(cache, region).await;
        }
        match (self.finish(cache).await, copied) {
            (Ended::Done, Err(_)) => Ended::Again,
            (ended, _) => ended,
        }
    }

    /// Extents of `region` that go down with it.
    fn sinking_part(&self, cache: &Cache, region: Region) -> Vec<u32> {
        let table = cache.tier.table.borrow();
        let extents = table.extents_of(region);
        extents
            .filter(|extent| table.place(*extent) != Place::Slow && !table.is_pinned(*extent))
            .collect()
    }

    /// One step downwards. Pages that users wrote since the move began are left for the synchronization.
    async fn copy_down(
        &self,
        cache: &Rc<Cache>,
        pages: Range<u64>,
        copy_back: CopyBack,
        all_destaged: &mut Vec<(u64, Entry)>,
    ) -> Result<(), DeviceError> {
        let published = &cache.tier.published;
        let mut runs = Vec::new();
        {
            let map = cache.map.borrow();
            for page in pages {
                let all = copy_back == CopyBack::All && !is_marked(cache, page);
                let untouched = !published.with(|moving| moving.is_touched(page));
                if let Some(entry) = map.get(page).filter(|entry| entry.dirty || all)
                    && untouched
                {
                    Run::add(&mut runs, page, entry, self.run_max(cache));
                }
            }
        }
        let _turn = cache.cleaning.acquire(1).await;
        for step in runs.chunks(STEP_DEPTH) {
            if cache.stopped.get() {
                return Ok(());
            }
            let destaged = match self.destage_together(cache, step).await {
                Ok(destaged) => destaged,
                Err(_) => self.destage_one_by_one(cache, step).await?,
            };
            let bytes = Bytes(destaged.len() as u64 * PAGE);
            count(&cache.tier.counts.bytes_demoted, bytes.0);
            let region = published.with(|moving| moving.region);
            cache.tier.stats.borrow_mut().copied(region, bytes);
            all_destaged.extend(destaged);
        }
        Ok(())
    }

    /// After an error: as far as it goes. A clean page that cannot be read is on the slow device anyway.
    async fn destage_one_by_one(
        &self,
        cache: &Rc<Cache>,
        runs: &[Run],
    ) -> Result<Vec<(u64, Entry)>, DeviceError> {
        let mut all = Vec::new();
        for run in runs {
            let (destaged, error) = self.destage_run(cache, run, false).await;
            let missing_dirty = run
                .entries()
                .any(|(page, entry)| entry.dirty && !destaged.iter().any(|(at, _)| *at == page));
            match error {
                Some(error) if missing_dirty => return Err(error),
                _ => all.extend(destaged),
            }
        }
        Ok(all)
    }

    /// The slow device has `all_destaged` for good: what was not written meanwhile is clean.
    async fn note_destaged(
        &self,
        cache: &Rc<Cache>,
        all_destaged: &[(u64, Entry)],
    ) -> Result<(), DeviceError> {
        let _turn = cache.cleaning.acquire(1).await;
        #[cfg(test)]
        if cache.planted(crate::mutation::Mutation::DroppedEarly) {
            self.note_clean(cache, all_destaged).await;
            return Ok(());
        }
        self.slow.flush().await?;
        self.note_clean(cache, all_destaged).await;
        Ok(())
    }

    /// The extents of `region` are demoting: clean pages go at once; with nothing copied back, dirty ones too.
    async fn sink(&self, cache: &Rc<Cache>, region: Region) {
        for extent in self.sinking_part(cache, region) {
            if cache.tier.table.borrow().place(extent) == Place::Fast {
                self.begin_demoting(cache, extent);
            }
            // The slow device has all of it by now but for what users wrote since.
            self.drop_all_clean(cache, extent).await;
        }
    }

    /// Destages what users wrote since the copy began, in address order.
    async fn synchronize_down(self: &Rc<Self>, cache: &Rc<Cache>, region: Region) {
        let tier = &cache.tier;
        if self.settings.borrow().tier.copy_back == CopyBack::Nothing {
            tier.published.forget_buffer();
        }
        let pages = tier.table.borrow().pages_of_region(region);
        let mut cursor = pages.start;
        loop {
            // What users write goes on to the buffer above the position.
            if !self.synchronize(cache).await {
                return;
            }
            let Some(run) = self.next_dirty(cache, pages.clone(), cursor) else {
                if cursor > pages.start {
                    cursor = pages.start;
                    continue;
                }
                for extent in self.sinking_part(cache, region) {
                    self.drop_all_clean(cache, extent).await;
                    if cache.tier.table.borrow().place(extent) == Place::Demoting {
                        self.note_emptied(cache, extent);
                    }
                }
                return;
            };
            if !self.turn(cache).await {
                return;
            }
            cursor = run.end();
            match self.destage_runs(cache, &[run], false).await {
                Ok(destaged) if destaged.is_empty() => env::sleep(Nanos::millis(1)).await,
                Ok(destaged) => {
                    count(&tier.counts.bytes_demoted, destaged.len() as u64 * PAGE);
                    self.drop_destaged(cache, &destaged);
                }
                Err(error) => {
                    tracing::error!(volume = %self.name, %error, "a region could not be demoted");
                    env::sleep(FAILURE_REST).await;
                }
            }
        }
    }

    /// Pages that were destaged and not written since leave the fast device.
    fn drop_destaged(&self, cache: &Cache, destaged: &[u64]) {
        for page in destaged {
            let clean = cache
                .map
                .borrow()
                .get(*page)
                .is_some_and(|entry| !entry.dirty);
            if clean && cache.tier.place(*page) == Place::Demoting {
                cache.unmap_page(*page);
            }
        }
    }

    /// The first run of dirty pages among `pages`, from page `from` on, that are to be destaged.
    fn next_dirty(&self, cache: &Cache, pages: Range<u64>, from: u64) -> Option<Run> {
        let (map, table) = (cache.map.borrow(), cache.tier.table.borrow());
        let most = self.run_max(cache);
        let mut runs = Vec::new();
        let mut unit = from / UNIT_PAGES * UNIT_PAGES;
        while unit < pages.end && runs.len() < 2 {
            let end = unit + UNIT_PAGES;
            let is_demoting = table.place(table.extent_of(unit)) == Place::Demoting;
            if is_demoting && map.resident_in(unit, end) > 0 {
                for page in unit.max(from)..end.min(pages.end) {
                    if let Some(entry) = map.get(page).filter(|entry| entry.dirty) {
                        Run::add(&mut runs, page, entry, most);
                    }
                }
            }
            if !runs.is_empty() && runs.last().is_some_and(|run: &Run| run.end() < end) {
                break;
            }
            unit = end;
        }
        runs.into_iter().next()
    }

    // --- both -------------------------------------------------------------------------------------

    /// Synchronizes a buffer in memory; false: the move is to end before its time.
    async fn synchronize(self: &Rc<Self>, cache: &Rc<Cache>) -> bool {
        let published = &cache.tier.published;
        loop {
            if !self.may_go_on(cache) {
                return false;
            }
            let now = env::now();
            match published.next_step(now) {
                Step::Done => return true,
                Step::Wait(wait) => env::sleep(wait).await,
                Step::Write(run) => {
                    published.take_turn(now);
                    debug_assert!(run.end - run.start <= SYNC_WRITE_MAX.0);
                    if let Err(error) = self.bring_away(cache, run, Errand::Sync).await {
                        tracing::error!(volume = %self.name, %error, "a region's buffer could not be written");
                        env::sleep(FAILURE_REST).await;
                    }
                }
            }
        }
    }

    /// The end of a move: synchronized, or before its time with the buffer written out at once.
    async fn finish(self: &Rc<Self>, cache: &Rc<Cache>) -> Ended {
        let done = match cache.tier.published.phase() {
            Some(Phase::SyncingUp) => self.synchronize(cache).await,
            Some(Phase::SyncingDown) => self.may_go_on(cache),
            _ => false,
        };
        // Or users could go on behind the drain's back for ever.
        cache.tier.published.with(|moving| moving.closing = true);
        while let Err(error) = self.drain_buffer_of(cache).await {
            if cache.stopped.get() {
                // No request comes any more, and no flush has called it durable.
                cache.tier.published.forget_buffer();
                break;
            }
            if matches!(*cache.condition.borrow(), Condition::Failed(_)) {
                // The buffer has the only copy of writes that were acknowledged: reads see it until the end, and
                // every flush fails.
                return Ended::Again;
            }
            tracing::error!(volume = %self.name, %error, "what users wrote could not be brought away");
            env::sleep(FAILURE_REST).await;
        }
        cache.tier.published.end();
        cache.tier.demote_work.notify_all();
        if done { Ended::Done } else { Ended::Again }
    }
}

/// No move begins until this is dropped.
pub(crate) struct Halt(Rc<Cache>);

impl Drop for Halt {
    fn drop(&mut self) {
        let published: &Published = &self.0.tier.published;
        published.halts.set(published.halts.get() - 1);
        published.work.notify_all();
    }
}
