//! Copies of clean pages to the fast device: after a read miss, after a write through the cache, ahead of need.
//!
//! ```text
//! begin: registered, intents recorded -> (read) -> copy: room, slots, write -> mapped, unless written meanwhile
//! ```
//!
//! Always true:
//! 1. Nothing waits for a copy, and a copy never waits for room.
//! 2. A page is mapped only if it was not written since its copy began.

use std::rc::Rc;

use base::{View, crc::crc32c_of_page};
use device::{Class, DeviceError};

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::hold::{Reserved, try_take};
use crate::index::page_map::{Entry, FULL, Pinned};
use crate::index::slots::SlotRun;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::stats::count_in;

/// A copy of pages under way; given up when dropped.
pub(crate) struct FillToken {
    cache: Rc<Cache>,
    token: u64,
    pub first: u64,
    pub end: u64,
}

impl FillToken {
    /// Registers a copy of pages `first..end` to come; `None` if one of them is coming already or too
    /// much is under way.
    pub fn begin(cache: &Rc<Cache>, first: u64, end: u64) -> Option<FillToken> {
        let bytes = (end - first) * PAGE;
        let may = cache.is_running() && !cache.stopped.get() && cache.fills.have_room(bytes);
        if !may {
            count_in(&cache.upkeep, |counts| counts.fills_dropped += 1);
            return None;
        }
        if cache.fills.has_any(first, end) {
            return None;
        }
        cache.record_intents(first, end);
        Some(FillToken {
            token: cache.fills.begin(first, end, bytes),
            cache: Rc::clone(cache),
            first,
            end,
        })
    }

    /// Is the copy of `page` still up to date?
    pub fn stands(&self, page: u64) -> bool {
        #[cfg(test)]
        if self.cache.volume.planted(Mutation::StaleFill) {
            return true;
        }
        self.cache.fills.stands(self.token, page)
    }

    /// Copies its pages, whose contents are `data`, to the fast device, unless they were written meanwhile.
    /// Never waits for room.
    pub async fn copy(&self, data: View) {
        if let Err(error) = self.try_copy(data).await {
            self.cache.fail(error).await;
        }
    }

    async fn try_copy(&self, data: View) -> Result<(), DeviceError> {
        let (cache, first, end) = (&self.cache, self.first, self.end);
        if !cache.is_running() {
            return Ok(());
        }
        // Writers come first: a fill leaves them some free slots, and evicts nothing it cannot use.
        let free = cache.state.slots().free_count();
        if free < (end - first) as u32 + cache.room.spare() / 4 {
            count_in(&cache.upkeep, |counts| counts.fills_dropped += 1);
            let pinned = cache.state.map().pins().of(first);
            match pinned {
                Pinned::No => self.make_free_soon(),
                // The room is there: it waits for a commit.
                Pinned::Hot | Pinned::Cold => cache.commit.want(),
            }
            return Ok(());
        }
        let Some(_room) = Reserved::try_new(cache, first, end) else {
            count_in(&cache.upkeep, |counts| counts.fills_dropped += 1);
            return Ok(());
        };
        let mut page = first;
        for run in try_take(cache, (end - first) as u32) {
            let from = ((page - first) * PAGE) as usize;
            let piece = data.slice(from, run.count as usize * PAGE as usize);
            cache
                .write_slots(run.first, piece, Class::Background)
                .await?;
            for slot in run.first..run.first + run.count {
                self.adopt(page, slot, &data);
                page += 1;
            }
        }
        Ok(())
    }

    /// Maps `page` to `slot`, which has its copy, unless it was written meanwhile.
    fn adopt(&self, page: u64, slot: u32, data: &View) {
        let cache = &self.cache;
        #[cfg(test)]
        let over = cache.volume.planted(Mutation::StaleFill);
        #[cfg(not(test))]
        let over = false;
        let free = over || cache.state.map().find(page).is_none();
        if !(self.stands(page) && cache.is_running() && free) {
            cache.give_back(&[SlotRun {
                first: slot,
                count: 1,
            }]);
            return;
        }
        let from = ((page - self.first) * PAGE) as usize;
        let page_data = &data[from..from + PAGE as usize];
        let entry = Entry {
            slot,
            dirty: false,
            mask: FULL,
            crc: crc32c_of_page(page_data, data.is_known_zero()),
        };
        cache.map_page(page, &entry);
        count_in(&cache.upkeep, |counts| counts.fills += 1);
    }

    /// This one found too few free slots: the next ones shall find more.
    fn make_free_soon(&self) {
        let cache = &self.cache;
        let awaiting = cache.state.slots().awaiting_commit();
        let missing = (cache.room.spare() / 4).saturating_sub(awaiting);
        cache.evict(Some(self.first), missing);
        cache.commit.want();
    }
}

impl Drop for FillToken {
    fn drop(&mut self) {
        let bytes = (self.end - self.first) * PAGE;
        if self
            .cache
            .fills
            .end(self.token, self.first, self.end, bytes)
        {
            self.cache.room.notify_all();
        }
    }
}

/// Waits until no copy is under way; none begins until the pause ends.
pub(crate) async fn pause(cache: &Cache) {
    cache.fills.pause(true);
    while !cache.fills.is_idle() {
        cache.room.wait().await;
    }
}
