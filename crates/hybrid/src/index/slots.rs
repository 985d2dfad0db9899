//! Which slots of the fast device are free, and when does a freed one become free again?
//!
//! ```text
//! free -> taken (being written, then mapped) -> freed -> [the commit that forgets it is durable]
//!      -> [no reader that may still look at it is under way] -> free
//! ```
//!
//! A long request wants neighbours: a run costs one request of the fast device however long it is. So a want of at least
//! [`LONG`] slots takes the first run that holds it, else the longest one seen, and shorter wants fill the fragments
//! between.
//!
//! Always true:
//! 1. A slot is handed out only when no durable map entry names it and no read of it is under way.
//! 2. Free slots are handed out from a cursor that goes round, in runs, so that data written together lies together.
//! 3. A group counts its free slots.
//!
//! Source: DMSSD 4.2 ("lowest number first"); the commit rule and the runs are ours.

use std::ops::{ControlFlow, Range};

use ledger::{Epoch, Reclaim};

/// A run of neighbouring slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRun {
    pub first: u32,
    pub count: u32,
}

/// A want of so many slots looks for a run that holds it whole. (The small caches of the crate's tests shall have long
/// wants and several groups too.)
pub(crate) const LONG: u32 = if cfg!(test) { 4 } else { 16 };
/// Slots of a group; a power of two from 64 on, or a part of 64.
pub(crate) const GROUP: u32 = if cfg!(test) { 16 } else { 256 };
/// Groups that a search for a long run looks at.
const LONG_SEARCH: u32 = 64;
/// Groups that a search for a fragment looks at.
const SHORT_SEARCH: u32 = 8;

pub(crate) struct SlotAllocator {
    /// One bit a slot, set while it is free.
    free: Vec<u64>,
    /// Free slots of each group.
    groups: Vec<u16>,
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
            groups: Vec::new(),
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
        self.groups[(slot / GROUP) as usize] += 1;
        self.free_count += 1;
    }

    fn set_taken(&mut self, slot: u32) {
        assert!(self.is_free(slot), "slot {slot} is taken once");
        self.free[slot as usize / 64] &= !(1 << (slot % 64));
        self.groups[(slot / GROUP) as usize] -= 1;
        self.free_count -= 1;
    }

    /// Free slots of the group of `slot`.
    pub fn free_beside(&self, slot: u32) -> u32 {
        u32::from(self.groups[(slot / GROUP) as usize])
    }

    /// The slots of the group of `slot`.
    pub fn group_of(&self, slot: u32) -> Range<u32> {
        let first = slot / GROUP * GROUP;
        first..(first + GROUP).min(self.total)
    }

    /// Takes this very slot (recovery).
    pub fn adopt(&mut self, slot: u32) {
        self.set_taken(slot);
    }

    /// Takes up to `wanted` slots; fewer, or none, if fewer are free.
    pub fn take(&mut self, wanted: u32) -> Vec<SlotRun> {
        let mut runs = Vec::new();
        let mut missing = wanted;
        // Once there is no long run near, the rest is taken as it comes: a search for each fragment would cost more
        // than the requests it saves.
        let mut near = true;
        while missing > 0 {
            let Some(run) = self.take_run(missing, near) else {
                break;
            };
            near &= run.count >= LONG.min(missing);
            missing -= run.count;
            runs.push(run);
        }
        runs
    }

    /// Gives back at once a slot that no durable entry ever named and no reader holds (recovery, failed writes).
    pub fn give_back(&mut self, slot: u32) {
        self.set_free(slot);
    }

    /// Takes up to `wanted` neighbouring slots, the next ones or (`search`) such as suit; `None` if none is free.
    fn take_run(&mut self, wanted: u32, search: bool) -> Option<SlotRun> {
        let run = match search {
            false => None,
            true if wanted < LONG => self.find_fragment(wanted),
            true => self.find_long(wanted),
        };
        let run = run.or_else(|| self.first_free(wanted))?;
        let count = run.count.min(wanted);
        let end = run.first + count;
        (run.first..end).for_each(|slot| self.set_taken(slot));
        self.cursor = if end >= self.total { 0 } else { end };
        Some(SlotRun { count, ..run })
    }

    /// The first run that holds `wanted` slots, else the longest one seen. A want of whole groups rather takes such.
    fn find_long(&self, wanted: u32) -> Option<SlotRun> {
        let mut longest: Option<SlotRun> = None;
        let mut found: Option<SlotRun> = None;
        self.free_runs(LONG_SEARCH, |run| {
            if longest.is_none_or(|longest| run.count > longest.count) {
                longest = Some(run);
            }
            let run = if wanted >= GROUP { on_groups(run) } else { run };
            found = (run.count >= wanted).then_some(run);
            match found {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        found.or(longest)
    }

    /// Of the next runs that hold `wanted` slots the shortest: long ones are left whole.
    fn find_fragment(&self, wanted: u32) -> Option<SlotRun> {
        let mut shortest: Option<SlotRun> = None;
        self.free_runs(SHORT_SEARCH, |run| {
            if run.count >= wanted && shortest.is_none_or(|found| run.count < found.count) {
                shortest = Some(run);
            }
            match shortest {
                Some(run) if run.count < LONG => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        shortest
    }

    /// The first free slot from the cursor on, with up to `wanted` neighbours.
    fn first_free(&self, wanted: u32) -> Option<SlotRun> {
        let first = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
        let end = self.total.min(first.saturating_add(wanted));
        let free = (first..end).take_while(|slot| self.is_free(*slot));
        let count = free.count() as u32;
        Some(SlotRun { first, count })
    }

    /// Calls `visit` with each free run of the next `groups` groups, from the cursor on and round the end.
    fn free_runs(&self, groups: u32, mut visit: impl FnMut(SlotRun) -> ControlFlow<()>) {
        let bound = self.cursor.saturating_add(groups * GROUP).min(self.total);
        let left = groups * GROUP - (bound - self.cursor);
        for part in [self.cursor..bound, 0..left.min(self.cursor)] {
            if self.runs_within(part, &mut visit).is_break() {
                return;
            }
        }
    }

    fn runs_within(
        &self,
        part: Range<u32>,
        visit: &mut impl FnMut(SlotRun) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = part.start;
        while at < part.end {
            let taken = self.stretch(at, false).min(part.end - at);
            at += taken;
            let mut count = 0;
            while at + count < part.end {
                let free = self.stretch(at + count, true);
                if free == 0 {
                    break;
                }
                count += free;
            }
            let count = count.min(part.end - at);
            if count > 0 {
                visit(SlotRun { first: at, count })?;
            }
            at += count;
        }
        ControlFlow::Continue(())
    }

    /// How many slots from `at` on are free, or taken: as far as its word shows, or its group where that is uniform.
    fn stretch(&self, at: u32, free: bool) -> u32 {
        let whole = if free { GROUP as u16 } else { 0 };
        if at.is_multiple_of(GROUP) && self.groups[(at / GROUP) as usize] == whole {
            return GROUP;
        }
        let word = self.free[at as usize / 64] >> (at % 64);
        let same = match free {
            true => word.trailing_ones(),
            false => word.trailing_zeros(),
        };
        same.min(64 - at % 64)
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
        self.groups.resize(total.div_ceil(GROUP) as usize, 0);
        let before = std::mem::replace(&mut self.total, total);
        (before..total).for_each(|slot| self.set_free(slot));
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
        self.groups.truncate(total.div_ceil(GROUP) as usize);
        self.reclaim.retain(|slot| *slot < total);
        if self.cursor >= total {
            self.cursor = 0;
        }
    }
}

/// What of `run` begins on the bound of a group; perhaps nothing.
fn on_groups(run: SlotRun) -> SlotRun {
    let first = run.first.next_multiple_of(GROUP);
    let count = (run.first + run.count).saturating_sub(first);
    SlotRun { first, count }
}

#[cfg(test)]
mod tests {
    use env::Rng;

    use super::*;

    #[test]
    fn runs_come_lowest_first_and_go_round() {
        let mut slots = SlotAllocator::new(100);
        assert_eq!(slots.take(60), [run(0, 60)]);
        assert_eq!(slots.take(60), [run(60, 40)]);
        assert_eq!(slots.take(1), []);
        for slot in [3, 4, 70] {
            slots.release(slot);
        }
        slots.cut();
        slots.durable();
        assert_eq!(slots.take(9), [run(3, 2), run(70, 1)]);
        assert_eq!(slots.free_count(), 0);
    }

    /// Slots `0..total`, of which those of `taken` are taken.
    fn all_but(total: u32, taken: impl IntoIterator<Item = u32>) -> SlotAllocator {
        let mut slots = SlotAllocator::new(total);
        taken.into_iter().for_each(|slot| slots.adopt(slot));
        slots
    }

    fn run(first: u32, count: u32) -> SlotRun {
        SlotRun { first, count }
    }

    // Here a want of 4 is long, and a group has 16.
    #[test]
    fn a_long_want_takes_the_first_run_that_holds_it() {
        // Runs of 5 from 1, of 8 from 7 across the bound of a group, of 20 from 17.
        let mut slots = all_but(40, [0, 6, 15, 16, 37]);
        assert_eq!(slots.take(6), [run(7, 6)]);
        assert_eq!(
            slots.take(16),
            [run(17, 16)],
            "none on the bounds of a group"
        );
        assert_eq!(slots.take(4), [run(33, 4)]);
        assert_eq!(slots.take(5), [run(1, 5)], "round the end");
        let mut slots = all_but(80, [0]);
        assert_eq!(slots.take(16), [run(16, 16)], "on the bounds of a group");
        assert_eq!(slots.take(4), [run(32, 4)]);
        assert_eq!(slots.take(17), [run(48, 17)]);
    }

    #[test]
    fn a_long_want_that_no_run_holds_takes_the_longest_ones() {
        let mut slots = all_but(30, [4, 11, 12, 22]);
        assert_eq!(slots.take(20), [run(13, 9), run(23, 7), run(0, 4)]);
        // Only fragments are left: the next ones.
        let mut slots = all_but(30, (0..30).filter(|slot| slot % 3 == 0));
        assert_eq!(slots.take(5), [run(1, 2), run(4, 2), run(7, 1)]);
    }

    #[test]
    fn a_short_want_fills_a_fragment_and_leaves_the_long_run_whole() {
        let mut slots = all_but(60, [30, 34, 40]);
        assert_eq!(slots.take(2), [run(31, 2)]);
        assert_eq!(slots.take(1), [run(33, 1)]);
        assert_eq!(slots.take(3), [run(35, 3)]);
        assert_eq!(slots.take(25), [run(0, 25)]);
    }

    #[test]
    fn runs_agree_with_a_plain_search() {
        let mut rng = Rng::from_seed(7);
        for _ in 0..300 {
            let total = 1 + rng.below(1500) as u32;
            let odds = 1 + rng.below(12);
            let taken: Vec<u32> = (0..total).filter(|_| rng.below(odds) == 0).collect();
            let mut slots = all_but(total, taken.iter().copied());
            slots.cursor = rng.below(u64::from(total)) as u32;
            let mut found = Vec::new();
            slots.free_runs(u32::MAX / GROUP, |run| {
                found.push(run);
                ControlFlow::Continue(())
            });
            let mut plain: Vec<SlotRun> = Vec::new();
            for slot in (slots.cursor..total).chain(0..slots.cursor) {
                match plain.last_mut() {
                    _ if !slots.is_free(slot) => {}
                    Some(last) if last.first + last.count == slot && slot != slots.cursor => {
                        last.count += 1
                    }
                    _ => plain.push(run(slot, 1)),
                }
            }
            assert_eq!(found, plain, "{total} slots from {}", slots.cursor);
            // Whatever is wanted, all that is free can be had, each slot once.
            let mut seen = vec![false; total as usize];
            while slots.free_count() > 0 {
                let wanted = 1 + rng.below(40) as u32;
                let before = slots.free_count();
                let runs = slots.take(wanted);
                let count: u32 = runs.iter().map(|run| run.count).sum();
                assert_eq!(count, wanted.min(before));
                for slot in runs.iter().flat_map(|run| run.first..run.first + run.count) {
                    assert!(!std::mem::replace(&mut seen[slot as usize], true));
                }
            }
            let groups = slots.groups.iter().all(|free| *free == 0);
            assert!(
                groups && seen.iter().filter(|seen| **seen).count() + taken.len() == total as usize
            );
        }
    }

    #[test]
    fn a_freed_slot_waits_for_its_commit_and_for_its_readers() {
        let mut slots = SlotAllocator::new(1);
        slots.take(1);
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
        assert_eq!(slots.take(5), [run(0, 5)]);
        slots.shrink(64);
        assert_eq!((slots.total(), slots.free_count()), (64, 59));
    }
}
