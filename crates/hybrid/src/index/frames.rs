//! The order in which blocks are evicted: the policy, and the block frames it knows.
//!
//! With blocks of one page the policy's frames *are* the slots, so nothing is stored twice; with bigger blocks a small
//! table of block frames stands beside.
//!
//! Always true: a block's frame is in the policy exactly while a page of it is resident and not pinned.

use std::ops::Range;

use policy::cache::{Index, Kind, Replacement};

use super::entries::Entries;

struct Blocks {
    shift: u32,
    index: Index,
    keys: Vec<u64>,
    resident: Vec<u16>,
    dirty: Vec<u16>,
    /// Blocks with a dirty page.
    dirty_blocks: usize,
    free: Vec<u32>,
}

/// The policy and its frames.
pub(crate) struct Frames {
    policy: Box<dyn Replacement>,
    blocks: Option<Blocks>,
}

impl Frames {
    /// For `slots` slots and blocks of so many pages, with nothing resident.
    pub fn new(slots: u32, kind: Kind, pages_per_block: u64) -> Frames {
        if pages_per_block == 1 {
            return Frames {
                policy: policy::cache::build(kind, slots),
                blocks: None,
            };
        }
        // A few more than fit, so that a block may come in before another has left.
        let frames = (u64::from(slots) / pages_per_block) as u32 + 64;
        Frames {
            policy: policy::cache::build(kind, frames),
            blocks: Some(Blocks::new(pages_per_block, frames)),
        }
    }

    /// Blocks the policy has.
    pub fn len(&self) -> u32 {
        self.policy.len() as u32
    }

    /// Bytes of memory in total.
    pub fn memory(&self) -> usize {
        let blocks = self.blocks.as_ref().map_or(0, |blocks| {
            blocks.index.memory() + blocks.keys.capacity() * 12 + blocks.free.capacity() * 4
        });
        self.policy.memory() + blocks
    }

    /// Pages of a block, as a power of two.
    pub fn shift(&self) -> u32 {
        self.blocks.as_ref().map_or(0, |blocks| blocks.shift)
    }

    /// The frame of block `key`, if it is resident.
    pub fn find(&self, key: u64, entries: &Entries) -> Option<u32> {
        match &self.blocks {
            None => entries.find(key),
            Some(blocks) => blocks.find(key),
        }
    }

    /// The policy notes a hit of block `key`, or a miss.
    pub fn note(&mut self, key: u64, frame: Option<u32>) {
        match frame {
            Some(frame) => self.policy.hit(frame, key),
            None => self.policy.missed(key),
        }
    }

    /// Has block `key` been seen lately though it is not resident?
    pub fn remembers(&self, key: u64) -> bool {
        self.policy.remembers(key)
    }

    /// `page` is resident from now on, in `slot`.
    pub fn page_came(&mut self, page: u64, slot: u32) {
        match &mut self.blocks {
            None => self.policy.insert(slot, page),
            Some(blocks) => blocks.page_came(page, self.policy.as_mut()),
        }
    }

    /// `page` is resident no more, in `slot`.
    pub fn page_left(&mut self, page: u64, slot: u32) {
        match &mut self.blocks {
            None => self.policy.remove(slot),
            Some(blocks) => {
                if let Some(frame) = blocks.page_left(page) {
                    self.policy.remove(frame);
                }
            }
        }
    }

    /// A page moved from slot `old` to `new`.
    pub fn moved(&mut self, old: u32, new: u32) {
        if self.blocks.is_none() {
            self.policy.moved(old, new);
        }
    }

    /// A page of the block of `page` became dirty (1) or clean (-1).
    pub fn count_dirty(&mut self, page: u64, by: i16) {
        if let Some(blocks) = &mut self.blocks {
            blocks.count_dirty(page, by);
        }
    }

    /// Blocks with a dirty page; `None` where a block is a page.
    pub fn dirty_blocks(&self) -> Option<usize> {
        self.blocks.as_ref().map(|blocks| blocks.dirty_blocks)
    }

    /// Takes one clean block out of the policy to make room for block `incoming` (`None`: ahead of need). Returns its
    /// pages; the caller lets each go with [`Frames::evicted`].
    pub fn evict(&mut self, incoming: Option<u64>, entries: &Entries) -> Option<Range<u64>> {
        let Frames { policy, blocks } = self;
        let frame = match blocks {
            None => policy.evict(incoming, &|slot| entries.page_of(slot), &mut |slot| {
                !entries.is_dirty(slot)
            }),
            Some(blocks) => policy.evict(
                incoming,
                &|frame| blocks.keys[frame as usize],
                &mut |frame| blocks.dirty[frame as usize] == 0,
            ),
        }?;
        Some(match blocks {
            None => {
                let page = entries.page_of(frame);
                page..page + 1
            }
            Some(blocks) => {
                let key = blocks.keys[frame as usize];
                key << blocks.shift..(key + 1) << blocks.shift
            }
        })
    }

    /// Is the page in `slot`, which is resident and not pinned, unused as far as the policy knows? Not known of larger
    /// blocks.
    pub fn is_unused(&self, slot: u32) -> bool {
        self.blocks.is_none() && self.policy.is_unused(slot)
    }

    /// `page`, in `slot`, is evicted though others come before it.
    pub fn leave(&mut self, page: u64, slot: u32) {
        debug_assert!(self.blocks.is_none());
        self.policy.leave(slot, page);
    }

    /// `page` of a block that was evicted is resident no more.
    pub fn evicted(&mut self, page: u64) {
        if let Some(blocks) = &mut self.blocks {
            blocks.page_left(page);
        }
    }

    /// Calls `visit` with the pages of blocks, the coldest first; some of a block may not be resident.
    pub fn coldest_first(&self, entries: &Entries, visit: &mut dyn FnMut(u64)) {
        match &self.blocks {
            None => self
                .policy
                .coldest_first(&mut |slot| visit(entries.page_of(slot))),
            Some(blocks) => self.policy.coldest_first(&mut |frame| {
                let first = blocks.keys[frame as usize] << blocks.shift;
                (first..first + (1 << blocks.shift)).for_each(&mut *visit);
            }),
        }
    }

    /// Checks against `resident` pages that are not pinned.
    #[cfg(test)]
    pub fn check(&self, resident: usize) {
        match &self.blocks {
            None => assert_eq!(self.policy.len(), resident),
            Some(blocks) => {
                let counted: usize = blocks.resident.iter().map(|count| *count as usize).sum();
                assert_eq!(counted, resident);
                assert_eq!(blocks.index.len(), self.policy.len());
            }
        }
    }
}

impl Blocks {
    fn new(pages_per_block: u64, frames: u32) -> Blocks {
        Blocks {
            shift: pages_per_block.trailing_zeros(),
            index: Index::new(frames),
            keys: vec![0; frames as usize],
            resident: vec![0; frames as usize],
            dirty: vec![0; frames as usize],
            dirty_blocks: 0,
            free: (0..frames).rev().collect(),
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.index.find(key, |frame| self.keys[frame as usize])
    }

    fn frame_of(&self, page: u64) -> u32 {
        self.find(page >> self.shift)
            .expect("a resident page's block has a frame")
    }

    fn page_came(&mut self, page: u64, policy: &mut dyn Replacement) {
        let key = page >> self.shift;
        let frame = match self.find(key) {
            Some(frame) => frame,
            None => {
                let frame = self.free_frame(policy);
                self.index
                    .insert(key, frame, |frame| self.keys[frame as usize]);
                self.keys[frame as usize] = key;
                policy.insert(frame, key);
                frame
            }
        };
        self.resident[frame as usize] += 1;
    }

    fn free_frame(&mut self, policy: &mut dyn Replacement) -> u32 {
        if self.free.is_empty() {
            // Blocks that came in while others were being evicted: rare, and bounded by the slots.
            let old = self.keys.len() as u32;
            let new = old * 2;
            policy.resize(new);
            let keys = &self.keys;
            self.index.resize(new, |frame| keys[frame as usize]);
            self.keys.resize(new as usize, 0);
            self.resident.resize(new as usize, 0);
            self.dirty.resize(new as usize, 0);
            self.free.extend((old..new).rev());
        }
        self.free.pop().expect("grown just now")
    }

    /// Returns the frame if that was its last page.
    fn page_left(&mut self, page: u64) -> Option<u32> {
        let frame = self.frame_of(page);
        self.resident[frame as usize] -= 1;
        if self.resident[frame as usize] > 0 {
            return None;
        }
        let key = page >> self.shift;
        self.index
            .remove(key, frame, |frame| self.keys[frame as usize]);
        self.free.push(frame);
        Some(frame)
    }

    fn count_dirty(&mut self, page: u64, by: i16) {
        let frame = self.frame_of(page);
        let count = &mut self.dirty[frame as usize];
        let before = *count;
        *count = before
            .checked_add_signed(by)
            .expect("dirty pages are counted");
        match (before, *count) {
            (0, _) => self.dirty_blocks += 1,
            (_, 0) => self.dirty_blocks -= 1,
            _ => {}
        }
    }
}
