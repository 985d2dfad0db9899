//! CLOCK: FIFO with a second chance. A frame used since the hand last came by stays for another round.

use super::Replacement;
use super::lists::{Lists, Look};
use super::marks::Marks;

const MAIN: usize = 0;
const ASIDE: usize = 1;

/// CLOCK with one bit. 6.2 bytes a frame.
#[derive(Clone, Debug)]
pub struct Clock {
    lists: Lists<2>,
    used: Marks<1>,
    held: usize,
}

impl Clock {
    /// For frames `0..capacity`.
    pub fn new(capacity: u32) -> Clock {
        Clock {
            lists: Lists::new(capacity),
            used: Marks::new(capacity),
            held: 0,
        }
    }
}

impl Replacement for Clock {
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
        let used = &mut self.used;
        let victim = self.lists.hunt(MAIN, ASIDE, |frame| {
            if used.get(frame) == 1 {
                used.set(frame, 0);
                Look::Keep(MAIN)
            } else if may(frame) {
                Look::Take
            } else {
                Look::Aside
            }
        })?;
        self.held -= 1;
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
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
    }

    fn remembers(&self, _key: u64) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.held
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        // Used frames outlive the unused of the same round.
        for round in [0, 1] {
            for list in [ASIDE, MAIN] {
                self.lists.visit(list, &mut |frame| {
                    if self.used.get(frame) == round {
                        visit(frame);
                    }
                });
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
