//! Which slots of the fast device are free, and when does a freed one become free again?
//!
//! ```text
//! free -> taken (being written, then mapped) -> freed -> [the commit that forgets it is durable]
//!      -> [no reader that may still look at it is under way] -> free
//! ```
//!
//! Always true:
//! 1. A slot is handed out only when no durable map entry names it and no read of it is under way.
//! 2. Free slots are handed out lowest number first from a cursor that goes round, in runs, so that data
//!    written together lies together.
//!
//! Source: DMSSD 4.2 ("lowest number first"); the commit rule is ours.

use ledger::{Epoch, Reclaim};

/// A run of neighbouring slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRun {
    pub first: u32,
    pub count: u32,
}

pub(crate) struct SlotAllocator {
    /// One bit a slot, set while it is free.
    free: Vec<u64>,
    free_count: u32,
    total: u32,
    cursor: u32,
    /// Freed, and waiting for a commit or for readers.
    reclaim: Reclaim<u32>,
}

impl SlotAllocator {
    /// `total` slots, all free.
    pub fn new(total: u32) -> SlotAllocator {
        let mut slots = SlotAllocator {
            free: Vec::new(),
            free_count: 0,
            total: 0,
            cursor: 0,
            reclaim: Reclaim::default(),
        };
        slots.grow(total);
        slots
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Freed slots that only a commit can make free again.
    pub fn awaiting_commit(&self) -> u32 {
        self.reclaim.uncommitted() as u32
    }

    fn is_free(&self, slot: u32) -> bool {
        self.free[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn set_free(&mut self, slot: u32) {
        assert!(!self.is_free(slot), "slot {slot} is freed once");
        self.free[slot as usize / 64] |= 1 << (slot % 64);
        self.free_count += 1;
    }

    fn set_taken(&mut self, slot: u32) {
        assert!(self.is_free(slot), "slot {slot} is taken once");
        self.free[slot as usize / 64] &= !(1 << (slot % 64));
        self.free_count -= 1;
    }

    /// Takes this very slot (recovery).
    pub fn adopt(&mut self, slot: u32) {
        self.set_taken(slot);
    }

    /// Takes up to `wanted` slots; fewer, or none, if fewer are free.
    pub fn take(&mut self, wanted: u32) -> Vec<SlotRun> {
        let mut runs = Vec::new();
        let mut missing = wanted;
        while missing > 0 {
            let Some(run) = self.take_run(missing) else {
                break;
            };
            missing -= run.count;
            runs.push(run);
        }
        runs
    }

    /// Gives back at once a slot that no durable entry ever named and no reader holds (recovery, failed writes).
    pub fn give_back(&mut self, slot: u32) {
        self.set_free(slot);
    }

    /// Takes up to `wanted` neighbouring slots; `None` if none is free.
    fn take_run(&mut self, wanted: u32) -> Option<SlotRun> {
        let first = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
        let mut count = 0;
        while count < wanted && first + count < self.total && self.is_free(first + count) {
            self.set_taken(first + count);
            count += 1;
        }
        self.cursor = if first + count >= self.total {
            0
        } else {
            first + count
        };
        Some(SlotRun { first, count })
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.free.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            word += 1;
            bits = *self.free.get(word)?;
        }
    }

    /// The map names `slot` no longer.
    pub fn release(&mut self, slot: u32) {
        debug_assert!(!self.is_free(slot));
        self.reclaim.release(slot);
    }

    /// A batch of map changes is cut: what was freed until now waits for its commit.
    pub fn cut(&mut self) {
        self.reclaim.cut();
    }

    /// The batch of the last cut is durable.
    pub fn durable(&mut self) {
        let freed = self.reclaim.durable();
        self.set_all_free(freed);
    }

    /// A read of mapped slots begins; give the answer back to [`SlotAllocator::leave`].
    pub fn enter(&mut self) -> Epoch {
        self.reclaim.enter()
    }

    /// The read that entered at `epoch` is over.
    pub fn leave(&mut self, epoch: Epoch) {
        let freed = self.reclaim.leave(epoch);
        self.set_all_free(freed);
    }

    fn set_all_free(&mut self, freed: Vec<u32>) {
        for slot in freed {
            self.set_free(slot);
        }
    }

    /// More slots, all free.
    pub fn grow(&mut self, total: u32) {
        assert!(total >= self.total);
        self.free.resize((total as usize).div_ceil(64), 0);
        for slot in self.total..total {
            self.free[slot as usize / 64] |= 1 << (slot % 64);
        }
        self.free_count += total - self.total;
        self.total = total;
    }

    /// Withdraws the free slots from `total` on from use, ahead of [`SlotAllocator::shrink`].
    pub fn withdraw(&mut self, total: u32) {
        for slot in total..self.total {
            if self.is_free(slot) {
                self.set_taken(slot);
            }
        }
    }

    /// Fewer slots: those from `total` on are gone; none of them may be mapped.
    pub fn shrink(&mut self, total: u32) {
        self.withdraw(total);
        self.total = total;
        self.free.truncate((total as usize).div_ceil(64));
        self.reclaim.retain(|slot| *slot < total);
        if self.cursor >= total {
            self.cursor = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_lowest_first_and_go_round() {
        let mut slots = SlotAllocator::new(100);
        assert_eq!(
            slots.take_run(60),
            Some(SlotRun {
                first: 0,
                count: 60
            })
        );
        assert_eq!(
            slots.take_run(60),
            Some(SlotRun {
                first: 60,
                count: 40
            })
        );
        assert_eq!(slots.take_run(1), None);
        for slot in [3, 4, 70] {
            slots.release(slot);
        }
        slots.cut();
        slots.durable();
        assert_eq!(slots.take_run(9), Some(SlotRun { first: 3, count: 2 }));
        assert_eq!(
            slots.take_run(9),
            Some(SlotRun {
                first: 70,
                count: 1
            })
        );
        assert_eq!(slots.free_count(), 0);
    }

    #[test]
    fn a_freed_slot_waits_for_its_commit_and_for_its_readers() {
        let mut slots = SlotAllocator::new(1);
        slots.take_run(1).unwrap();
        let reader = slots.enter();
        slots.release(0);
        slots.durable();
        assert_eq!(
            slots.free_count(),
            0,
            "freed after the cut: the next commit counts"
        );
        slots.cut();
        slots.durable();
        assert_eq!(slots.free_count(), 0, "a reader is still under way");
        let late = slots.enter();
        slots.leave(reader);
        assert_eq!(
            slots.free_count(),
            1,
            "a reader that came later cannot see the slot"
        );
        slots.leave(late);
    }

    #[test]
    fn growing_and_shrinking_keep_count() {
        let mut slots = SlotAllocator::new(10);
        slots.grow(130);
        assert_eq!(slots.free_count(), 130);
        assert_eq!(slots.take_run(5), Some(SlotRun { first: 0, count: 5 }));
        slots.shrink(64);
        assert_eq!((slots.total(), slots.free_count()), (64, 59));
    }
}
