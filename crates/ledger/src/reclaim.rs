//! When may what was freed be used again?
//!
//! ```text
//! release -> cut -> [its commit is durable] -> [readers that entered before have left] -> free
//! ```
//!
//! A reader looks at the state in memory and then reads the device; what it saw must stay meanwhile. Epochs count durable
//! commits that freed anything: a reader of a later epoch cannot have seen what an earlier one freed.
//! Source: epoch-based reclamation, Fraser 2004; the commit before it is ours.
//!
//! Always true:
//! 1. Nothing becomes free before the first commit cut after its release is durable.
//! 2. Nothing becomes free while a reader is inside that entered before that.

use std::collections::VecDeque;

/// When a reader entered; to be given back when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "what was freed since waits until the reader leaves"]
pub struct Epoch(u64);

/// What was freed and cannot be used yet.
#[derive(Debug)]
pub struct Reclaim<T> {
    /// Released since the last cut.
    released: Vec<T>,
    /// Released before it: its commit is under way.
    cut: Vec<T>,
    /// Forgotten durably, with the epoch that ended then.
    durable: VecDeque<(Epoch, Vec<T>)>,
    epoch: Epoch,
    /// How many readers of each epoch are inside; the first of them has one at least.
    readers: VecDeque<(Epoch, u32)>,
}

impl<T> Default for Reclaim<T> {
    fn default() -> Reclaim<T> {
        Reclaim {
            released: Vec::new(),
            cut: Vec::new(),
            durable: VecDeque::new(),
            epoch: Epoch(0),
            readers: VecDeque::new(),
        }
    }
}

impl<T> Reclaim<T> {
    /// Nothing in memory names `one` any longer.
    pub fn release(&mut self, one: T) {
        self.released.push(one);
    }

    /// A commit is cut: it forgets what was released until now.
    pub fn cut(&mut self) {
        self.cut.append(&mut self.released);
    }

    /// The commit of the last cut is durable. Returns what is free now.
    #[must_use = "it is free and must be noted as such"]
    pub fn durable(&mut self) -> Vec<T> {
        let forgotten = std::mem::take(&mut self.cut);
        if !forgotten.is_empty() {
            self.durable.push_back((self.epoch, forgotten));
            self.epoch.0 += 1;
        }
        self.free()
    }

    /// A reader enters: whatever is named now stays until it leaves.
    pub fn enter(&mut self) -> Epoch {
        match self.readers.back_mut() {
            Some((epoch, count)) if *epoch == self.epoch => *count += 1,
            _ => self.readers.push_back((self.epoch, 1)),
        }
        self.epoch
    }

    /// The reader that entered at `epoch` leaves. Returns what is free now.
    ///
    /// # Panics
    /// If no such reader is inside.
    #[must_use = "it is free and must be noted as such"]
    pub fn leave(&mut self, epoch: Epoch) -> Vec<T> {
        let mut readers = self.readers.iter_mut();
        let reader = readers.find(|(entered, count)| *entered == epoch && *count > 0);
        reader.expect("every reader that leaves has entered").1 -= 1;
        while self
            .readers
            .pop_front_if(|(_, count)| *count == 0)
            .is_some()
        {}
        self.free()
    }

    /// Forgets what is not to be used again, whatever it waits for.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let durable = self.durable.iter_mut().map(|(_, list)| list);
        for list in [&mut self.released, &mut self.cut]
            .into_iter()
            .chain(durable)
        {
            list.retain(&mut keep);
        }
    }

    /// How many were released since the last cut: only another commit frees them.
    pub fn uncut(&self) -> usize {
        self.released.len()
    }

    /// How many wait for a commit, begun or not.
    pub fn uncommitted(&self) -> usize {
        self.released.len() + self.cut.len()
    }

    /// How many are not yet free.
    pub fn waiting(&self) -> usize {
        let durable: usize = self.durable.iter().map(|(_, list)| list.len()).sum();
        self.uncommitted() + durable
    }

    fn free(&mut self) -> Vec<T> {
        let oldest = self
            .readers
            .front()
            .map_or(Epoch(u64::MAX), |(epoch, _)| *epoch);
        let mut free = Vec::new();
        while let Some((_, mut list)) = self.durable.pop_front_if(|(epoch, _)| *epoch < oldest) {
            match free.is_empty() {
                true => free = list,
                false => free.append(&mut list),
            }
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_after_the_cut_waits_for_the_next_commit() {
        let mut reclaim = Reclaim::default();
        reclaim.release(1);
        reclaim.cut();
        reclaim.release(2);
        assert_eq!((reclaim.uncut(), reclaim.uncommitted()), (1, 2));
        assert_eq!(reclaim.durable(), [1]);
        assert_eq!(reclaim.durable(), []);
        reclaim.cut();
        assert_eq!((reclaim.uncut(), reclaim.waiting()), (0, 1));
        assert_eq!(reclaim.durable(), [2]);
        assert_eq!(reclaim.waiting(), 0);
    }

    #[test]
    fn only_readers_that_entered_before_hold_what_was_freed() {
        let mut reclaim = Reclaim::default();
        let (one, two) = (reclaim.enter(), reclaim.enter());
        reclaim.release('a');
        reclaim.cut();
        assert_eq!(reclaim.durable(), []);
        let late = reclaim.enter();
        assert_eq!(reclaim.leave(one), []);
        assert_eq!((reclaim.uncommitted(), reclaim.waiting()), (0, 1));
        assert_eq!(reclaim.leave(two), ['a']);
        assert_eq!(reclaim.leave(late), []);
    }

    #[test]
    fn a_late_reader_frees_what_waited_for_it_in_the_order_of_commits() {
        let mut reclaim = Reclaim::default();
        let old = reclaim.enter();
        for one in 1..=3 {
            reclaim.release(one);
            reclaim.cut();
            assert_eq!(reclaim.durable(), []);
            let between = reclaim.enter();
            assert_eq!(reclaim.leave(between), []);
        }
        assert_eq!(reclaim.leave(old), [1, 2, 3]);
    }

    #[test]
    fn what_is_forgotten_never_becomes_free() {
        let mut reclaim = Reclaim::default();
        let reader = reclaim.enter();
        for one in [1, 10] {
            reclaim.release(one);
        }
        reclaim.cut();
        assert_eq!(reclaim.durable(), []);
        for one in [2, 20] {
            reclaim.release(one);
        }
        reclaim.cut();
        for one in [3, 30] {
            reclaim.release(one);
        }
        reclaim.retain(|one| *one < 10);
        assert_eq!(reclaim.waiting(), 3);
        assert_eq!(reclaim.leave(reader), [1]);
        assert_eq!(reclaim.durable(), [2]);
        reclaim.cut();
        assert_eq!(reclaim.durable(), [3]);
    }

    #[test]
    #[should_panic(expected = "every reader that leaves has entered")]
    fn a_reader_leaves_once() {
        let mut reclaim = Reclaim::<u32>::default();
        let reader = reclaim.enter();
        assert_eq!(reclaim.leave(reader), []);
        let _ = reclaim.leave(reader);
    }
}
