//! FIFO: the frame filled longest ago goes, used or not.

use super::Replacement;
use super::lists::{Lists, Look};

const MAIN: usize = 0;
const ASIDE: usize = 1;

/// First in, first out. Six bytes a frame.
#[derive(Clone, Debug)]
pub struct Fifo {
    lists: Lists<2>,
    held: usize,
}

impl Fifo {
    /// For frames `0..capacity`.
    pub fn new(capacity: u32) -> Fifo {
        Fifo {
            lists: Lists::new(capacity),
            held: 0,
        }
    }
}

impl Replacement for Fifo {
    #[inline]
    fn missed(&mut self, _key: u64) {}

    #[inline]
    fn hit(&mut self, frame: u32, _key: u64) {
        assert!(!self.lists.is_free(frame), "frame {frame} is not held");
    }

    #[inline]
    fn insert(&mut self, frame: u32, _key: u64) {
        self.lists.push(MAIN, frame);
        self.held += 1;
    }

    #[inline]
    fn evict(
        &mut self,
        _incoming: Option<u64>,
        _key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let look = |frame| if may(frame) { Look::Take } else { Look::Aside };
        let victim = self.lists.hunt(MAIN, ASIDE, look)?;
        self.held -= 1;
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        self.lists.take(frame);
        self.held -= 1;
    }

    #[inline]
    fn moved(&mut self, from: u32, to: u32) {
        self.lists.replace(from, to);
    }

    fn remembers(&self, _key: u64) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.held
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        self.lists.visit(ASIDE, visit);
        self.lists.visit(MAIN, visit);
    }

    fn capacity(&self) -> u32 {
        self.lists.frames()
    }

    fn resize(&mut self, capacity: u32) {
        self.lists.resize(capacity);
    }

    fn memory(&self) -> usize {
        self.lists.memory()
    }
}
