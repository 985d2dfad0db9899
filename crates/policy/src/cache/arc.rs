//! ARC: how much room do blocks used once deserve, and how much those used again?
//!
//! ```text
//!        B1 (ghosts) <-- T1 used once | T2 used again --> B2 (ghosts)
//! miss in B1: T1 was too small, its target grows      miss in B2: it shrinks
//! ```
//!
//! Source: ARC (FAST 2003), figure 4. With `c` frames: `|T1| + |B1| <= c` and `|T1| + |T2| + |B1| +
//! |B2| <= 2 c`. A ghost is a 32-bit fingerprint.
//!
//! Choice: the target moves when the miss is reported, the ghost leaves when its block comes in, so a
//! miss that is not admitted still teaches. Refused frames count to their own list.

use super::Replacement;
use super::index::{Index, hash};
use super::lists::{Lists, Look, RETRIES};
use super::marks::Marks;

const ONCE: usize = 0;
const AGAIN: usize = 1;
const ASIDE: usize = 2;

/// ARC. 6.2 bytes a frame, and 14.2 for the ghost directory of as many entries.
#[derive(Clone, Debug)]
pub struct Arc {
    /// The length T1 should have (the paper's `p`).
    target: u32,
    lists: Lists<3>,
    /// 1: the frame belongs to T2 (it may be set aside).
    again: Marks<1>,
    held: [u32; 2],
    ghosts: Directory,
}

/// B1 and B2: two LRU lists of fingerprints with an index over both.
#[derive(Clone, Debug)]
struct Directory {
    lists: Lists<3>,
    index: Index,
    prints: Vec<u32>,
    again: Marks<1>,
    held: [u32; 2],
}

/// The third list of the directory holds its free entries.
const FREE: usize = 2;

#[inline(always)]
fn print(key: u64) -> u64 {
    hash(key) & u64::from(u32::MAX)
}

impl Directory {
    fn new(entries: u32) -> Directory {
        let mut lists = Lists::new(entries);
        for entry in 0..entries {
            lists.push(FREE, entry);
        }
        Directory {
            lists,
            index: Index::new(entries),
            prints: vec![0; entries as usize],
            again: Marks::new(entries),
            held: [0; 2],
        }
    }

    #[inline(always)]
    fn entry(&self, key: u64) -> Option<u32> {
        self.index
            .find(print(key), |entry| u64::from(self.prints[entry as usize]))
    }

    /// The list whose ghost `key` is.
    #[inline(always)]
    fn list_of(&self, key: u64) -> Option<usize> {
        self.entry(key)
            .map(|entry| usize::from(self.again.get(entry)))
    }

    fn drop_entry(&mut self, entry: u32) {
        let prints = &self.prints;
        let print = u64::from(prints[entry as usize]);
        let known = self
            .index
            .remove(print, entry, |entry| u64::from(prints[entry as usize]));
        assert!(known, "ghost {entry} is not in the index");
        self.held[usize::from(self.again.get(entry))] -= 1;
        self.lists.renew(FREE, entry);
    }

    fn take(&mut self, key: u64) -> Option<usize> {
        let entry = self.entry(key)?;
        let list = usize::from(self.again.get(entry));
        self.drop_entry(entry);
        Some(list)
    }

    fn drop_oldest(&mut self, list: usize) {
        if let Some(entry) = self.lists.oldest(list) {
            self.drop_entry(entry);
        }
    }

    fn push(&mut self, list: usize, key: u64) {
        // A stranger of the same fingerprint makes room first: one entry each.
        self.take(key);
        if self.lists.oldest(FREE).is_none() {
            self.drop_oldest(if self.held[ONCE] > self.held[AGAIN] {
                ONCE
            } else {
                AGAIN
            });
        }
        let Some(entry) = self.lists.oldest(FREE) else {
            return; // A directory of no entries.
        };
        self.lists.renew(list, entry);
        self.prints[entry as usize] = print(key) as u32;
        self.again.set(entry, list as u8);
        self.held[list] += 1;
        let prints = &self.prints;
        self.index
            .insert(print(key), entry, |entry| u64::from(prints[entry as usize]));
    }

    fn memory(&self) -> usize {
        self.lists.memory()
            + self.index.memory()
            + self.prints.capacity() * size_of::<u32>()
            + self.again.memory()
    }
}

impl Arc {
    /// For frames `0..capacity`.
    pub fn new(capacity: u32) -> Arc {
        Arc {
            target: 0,
            lists: Lists::new(capacity),
            again: Marks::new(capacity),
            held: [0; 2],
            // One more: a victim becomes a ghost before the ghost it makes room for has left.
            ghosts: Directory::new(capacity + 1),
        }
    }

    /// The length T1 is steered to, in frames (the paper's `p`).
    pub fn target(&self) -> u32 {
        self.target
    }
}

impl Replacement for Arc {
    #[inline]
    fn missed(&mut self, key: u64) {
        let Some(list) = self.ghosts.list_of(key) else {
            return;
        };
        let [once, again] = self.ghosts.held;
        // Source: ARC figure 4, cases II and III, with whole steps as in the authors' code.
        if list == ONCE {
            let step = (again / once).max(1);
            self.target = self.target.saturating_add(step).min(self.lists.frames());
        } else {
            self.target = self.target.saturating_sub((once / again).max(1));
        }
    }

    #[inline]
    fn hit(&mut self, frame: u32, _key: u64) {
        self.lists.renew(AGAIN, frame);
        if self.again.get(frame) == 0 {
            self.again.set(frame, 1);
            self.held[ONCE] -= 1;
            self.held[AGAIN] += 1;
        }
    }

    #[inline]
    fn insert(&mut self, frame: u32, key: u64) {
        let list = if self.ghosts.take(key).is_some() {
            AGAIN
        } else {
            ONCE
        };
        self.lists.push(list, frame);
        self.again.set(frame, list as u8);
        self.held[list] += 1;
    }

    #[inline]
    fn evict(
        &mut self,
        incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let frames = self.lists.frames();
        let ghost = incoming.and_then(|key| self.ghosts.list_of(key));
        let [once, again] = self.held;
        // Source: ARC figure 4, REPLACE.
        let from_once =
            once > 0 && (once > self.target || (ghost == Some(AGAIN) && once == self.target));
        let mut remember = true;
        let mut first = if from_once { ONCE } else { AGAIN };
        if ghost.is_none() {
            // Source: ARC figure 4, case IV: the directory makes room for a stranger.
            let [ghosts_once, ghosts_again] = self.ghosts.held;
            if once + ghosts_once >= frames {
                if ghosts_once > 0 {
                    self.ghosts.drop_oldest(ONCE);
                } else {
                    (first, remember) = (ONCE, false);
                }
            } else if u64::from(once) + u64::from(again) + u64::from(ghosts_once + ghosts_again)
                >= 2 * u64::from(frames)
            {
                self.ghosts.drop_oldest(AGAIN);
            }
        }
        let look = &mut |frame| if may(frame) { Look::Take } else { Look::Aside };
        let (lists, refused) = (&mut self.lists, &mut None);
        let victim = lists
            .retry(ASIDE, RETRIES, refused, look)
            .or_else(|| lists.sweep(first, ASIDE, refused, look))
            .or_else(|| lists.sweep(ONCE + AGAIN - first, ASIDE, refused, look))
            .or_else(|| lists.retry(ASIDE, u32::MAX, refused, look))?;
        let list = usize::from(self.again.get(victim));
        self.held[list] -= 1;
        if remember || list == AGAIN {
            self.ghosts.push(list, key_of(victim));
        }
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        self.lists.take(frame);
        self.held[usize::from(self.again.get(frame))] -= 1;
    }

    #[inline]
    fn moved(&mut self, from: u32, to: u32) {
        self.lists.replace(from, to);
        self.again.set(to, self.again.get(from));
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghosts.entry(key).is_some()
    }

    fn len(&self) -> usize {
        self.held[ONCE] as usize + self.held[AGAIN] as usize
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        for list in [ASIDE, ONCE, AGAIN] {
            self.lists.visit(list, visit);
        }
    }

    fn capacity(&self) -> u32 {
        self.lists.frames()
    }

    fn resize(&mut self, capacity: u32) {
        self.lists.resize(capacity);
        self.again.resize(capacity);
        self.target = self.target.min(capacity);
        self.ghosts = Directory::new(capacity + 1);
    }

    fn memory(&self) -> usize {
        self.lists.memory() + self.again.memory() + self.ghosts.memory()
    }
}
