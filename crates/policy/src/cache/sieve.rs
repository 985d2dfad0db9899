//! SIEVE: a hand moves from old to new; frames used since it last came by stay where they are.
//!
//! New frames come in at the newest end, which the hand reaches last. So a frame that is not used again is
//! sifted out soon while used ones keep their places.
//!
//! Source: SIEVE (NSDI 2024), algorithm 1.

use super::Replacement;
use super::lists::{Lists, Look, RETRIES};
use super::marks::Marks;

const MAIN: usize = 0;
const ASIDE: usize = 1;

/// SIEVE. 6.2 bytes a frame.
#[derive(Clone, Debug)]
pub struct Sieve {
    lists: Lists<2>,
    used: Marks<1>,
    /// The frame the hand looks at next; `None`: the oldest.
    hand: Option<u32>,
    held: usize,
}

impl Sieve {
    /// For frames `0..capacity`.
    pub fn new(capacity: u32) -> Sieve {
        Sieve {
            lists: Lists::new(capacity),
            used: Marks::new(capacity),
            hand: None,
            held: 0,
        }
    }

    /// The hand goes its round until it finds a frame to take.
    #[inline(always)]
    fn sweep(
        &mut self,
        refused: &mut Option<u32>,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        loop {
            // Ends: each step clears a bit, takes a frame out of the list, or wraps around once.
            let frame = self.hand.or_else(|| self.lists.oldest(MAIN))?;
            self.hand = self.lists.newer(frame);
            if self.used.get(frame) == 1 {
                self.used.set(frame, 0);
            } else if may(frame) {
                self.lists.take(frame);
                return Some(frame);
            } else {
                self.lists.renew(ASIDE, frame);
                refused.get_or_insert(frame);
            }
        }
    }
}

impl Replacement for Sieve {
    #[inline]
    fn missed(&mut self, _key: u64) {}

    #[inline]
    fn hit(&mut self, frame: u32, _key: u64) {
        assert!(!self.lists.is_free(frame), "frame {frame} is not held");
        self.used.set(frame, 1);
    }

    #[inline]
    fn insert(&mut self, frame: u32, _key: u64) {
        self.lists.push(MAIN, frame);
        self.used.set(frame, 0);
        self.held += 1;
    }

    #[inline]
    fn evict(
        &mut self,
        _incoming: Option<u64>,
        _key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut refused = None;
        let mut victim = self.again(RETRIES, &mut refused, may);
        if victim.is_none() {
            victim = self.sweep(&mut refused, may);
        }
        if victim.is_none() {
            victim = self.again(u32::MAX, &mut refused, may);
        }
        if victim.is_none() {
            // Frames of the queue that earned a place in the list have not been offered yet.
            victim = self.sweep(&mut refused, may);
        }
        self.held -= usize::from(victim.is_some());
        victim
    }

    fn remove(&mut self, frame: u32) {
        self.leave(frame);
        self.lists.take(frame);
        self.held -= 1;
    }

    fn is_unused(&self, frame: u32) -> bool {
        self.used.get(frame) == 0
    }

    #[inline]
    fn moved(&mut self, from: u32, to: u32) {
        self.lists.replace(from, to);
        self.used.set(to, self.used.get(from));
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    fn remembers(&self, _key: u64) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.held
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        // As the hand would come by: unused ones first, from the hand to the newest, then the rest.
        for round in [0, 1] {
            let mut pass = |frame| {
                if self.used.get(frame) == round {
                    visit(frame);
                }
            };
            self.lists.visit(ASIDE, &mut pass);
            let mut at = self.hand;
            while let Some(frame) = at {
                pass(frame);
                at = self.lists.newer(frame);
            }
            let mut at = self.lists.oldest(MAIN);
            while let Some(frame) = at
                && at != self.hand
            {
                pass(frame);
                at = self.lists.newer(frame);
            }
        }
    }

    fn capacity(&self) -> u32 {
        self.lists.frames()
    }

    fn resize(&mut self, capacity: u32) {
        self.lists.resize(capacity);
        self.used.resize(capacity);
    }

    fn memory(&self) -> usize {
        self.lists.memory() + self.used.memory()
    }
}

impl Sieve {
    /// The hand moves on if it points at `frame`.
    fn leave(&mut self, frame: u32) {
        if self.hand == Some(frame) {
            self.hand = self.lists.newer(frame);
        }
    }

    /// Looks again at frames set aside: a used one goes back to the newest end.
    #[inline(always)]
    fn again(
        &mut self,
        most: u32,
        refused: &mut Option<u32>,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let used = &mut self.used;
        self.lists.retry(ASIDE, most, refused, &mut |frame| {
            if used.get(frame) == 1 {
                used.set(frame, 0);
                Look::Keep(MAIN)
            } else if may(frame) {
                Look::Take
            } else {
                Look::Aside
            }
        })
    }
}
