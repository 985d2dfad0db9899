//! Slots and room held for a while: by readers, by writers, by fills.
//!
//! Always true: a slot that a reader may look at is not used again before the reader leaves.

use std::rc::Rc;

use device::DeviceError;
use ledger::Epoch;

use crate::cache::Cache;
use crate::index::slots::SlotRun;
use crate::stats::count_in;

/// Keeps the slots it may look at from being used again.
pub(crate) struct Reader {
    cache: Rc<Cache>,
    epoch: Epoch,
}

impl Reader {
    pub fn enter(cache: &Rc<Cache>) -> Reader {
        Reader {
            epoch: cache.state.slots_mut().enter(),
            cache: Rc::clone(cache),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let freed = {
            let mut slots = self.cache.state.slots_mut();
            let before = slots.free_count();
            slots.leave(self.epoch);
            slots.free_count() > before
        };
        if freed {
            self.cache.room.notify_all();
        }
    }
}

/// Block frames held ready; given back when dropped.
pub(crate) struct Reserved {
    cache: Rc<Cache>,
    frames: u32,
}

impl Reserved {
    /// Makes room for the blocks of pages `first..end` without waiting; `None` if all is dirty.
    pub fn try_new(cache: &Rc<Cache>, first: u64, end: u64) -> Option<Reserved> {
        loop {
            let (needed, frames) = {
                let map = cache.state.map();
                (map.frames_needed(first, end), map.frames())
            };
            let held = frames + cache.room.reserved();
            if needed == 0 || held + needed <= cache.room.frames_max() || held == 0 {
                cache.room.reserve(needed);
                return Some(Reserved {
                    cache: Rc::clone(cache),
                    frames: needed,
                });
            }
            let missing = held + needed - cache.room.frames_max();
            if !cache.evict(Some(first), missing) {
                return None;
            }
        }
    }

    /// Makes room for the blocks of pages `first..end`, waiting for the cleaner if all is dirty.
    ///
    /// # Errors
    /// The fast device is out, or the cleaner gets nowhere.
    pub async fn new(cache: &Rc<Cache>, first: u64, end: u64) -> Result<Reserved, DeviceError> {
        loop {
            if !cache.is_running() {
                return Err(cache.health.not_running());
            }
            if let Some(reserved) = Reserved::try_new(cache, first, end) {
                return Ok(reserved);
            }
            count_in(&cache.upkeep, |counts| counts.waits_for_room += 1);
            wait_for_cleaner(cache).await;
            if let Some(error) = cache.destaging.error.borrow().clone() {
                return Err(error);
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let cache = &self.cache;
        cache.room.unreserve(self.frames);
        if cache.destaging.starving.get() > 0 {
            cache.room.notify_all();
        }
    }
}

async fn wait_for_cleaner(cache: &Cache) {
    let starving = &cache.destaging.starving;
    starving.set(starving.get() + 1);
    cache.destaging.work.notify_all();
    cache.room.wait().await;
    starving.set(starving.get() - 1);
}

/// Evicts what would not fit beside `held` slots for extents. False if dirty blocks are in the way.
pub(crate) fn make_room_beside(cache: &Cache, held: u64) -> bool {
    let most = cache.room.frames_beside(held);
    while cache.state.map().frames() + cache.room.reserved() > most {
        if !cache.evict(None, 1) {
            return false;
        }
    }
    true
}

/// Takes up to `wanted` slots without waiting; fewer, or none, if fewer are free.
pub(crate) fn try_take(cache: &Cache, wanted: u32) -> Vec<SlotRun> {
    let mut slots = cache.state.slots_mut();
    let runs = slots.take(wanted);
    // Reclaim freed slots before the last free one is taken.
    if slots.free_count() < cache.room.spare() / 2 && slots.awaiting_commit() > 0 {
        drop(slots);
        cache.commit.want();
    }
    runs
}

/// Takes `wanted` slots, all at once and in turn, waiting for commits and readers to free them.
/// (Writers that each held a few and waited for more could wait for each other for ever.)
///
/// # Errors
/// The fast device is out.
pub(crate) async fn take(cache: &Cache, wanted: u32) -> Result<Vec<SlotRun>, DeviceError> {
    let turn = cache.room.line_up();
    loop {
        if !cache.is_running() {
            return Err(cache.health.not_running());
        }
        if turn.is_first() && cache.state.slots().free_count() >= wanted {
            let runs = try_take(cache, wanted);
            // There may be enough left for the next in line.
            cache.room.notify_all();
            return Ok(runs);
        }
        count_in(&cache.upkeep, |counts| counts.waits_for_room += 1);
        if cache.state.map().frames() > cache.room.frames_max() {
            cache.evict(None, 1);
        }
        if cache.state.slots().awaiting_commit() > 0 {
            cache.commit.want();
        }
        wait_for_cleaner(cache).await;
    }
}
