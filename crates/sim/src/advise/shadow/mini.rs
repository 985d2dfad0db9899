//! A miniature of a cache: what would the policy do with the sampled pages?
//!
//! Always true: it decides as the volume's cache does, with a sample's share of its frames.

use hybrid::{Admission as Rule, WriteMode};
use policy::cache::admission::{Admission, Reads};
use policy::cache::{Index, Kind, Replacement, build, build_remembering};

use crate::cache::Mode;

/// What happened in a miniature.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) read_misses: u64,
    pub(super) write_misses: u64,
    pub(super) fills: u64,
    /// Dirty pages that left.
    pub(super) cleaned: u64,
}

/// A cache of sampled pages that decides as the volume's does.
pub(super) struct Mini {
    mode: Mode,
    policy: Box<dyn Replacement>,
    admission: Admission,
    index: Index,
    /// (page, dirty) by frame.
    frames: Vec<(u64, bool)>,
    free: Vec<u32>,
    pub(super) counts: Counts,
}

impl Mini {
    pub(super) fn new(frames: u32, kind: Kind, mode: Mode) -> Mini {
        let (reads, policy) = match mode.admission {
            Rule::Always => (Reads::Always, build(kind, frames)),
            Rule::SecondAccess => (Reads::OnSecondAccess, build_remembering(kind, frames)),
        };
        Mini {
            mode,
            policy,
            admission: Admission::new(reads, frames),
            index: Index::new(frames),
            frames: Vec::with_capacity(frames as usize),
            free: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn frames(&self) -> u64 {
        u64::from(self.policy.capacity())
    }

    pub(super) fn memory(&self) -> usize {
        self.policy.memory()
            + self.admission.memory()
            + self.index.memory()
            + self.frames.capacity() * size_of::<(u64, bool)>()
            + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn access(&mut self, page: u64, write: bool) {
        let frames = &self.frames;
        let found = self.index.find(page, |frame| frames[frame as usize].0);
        let around = write && self.mode.write == WriteMode::Around;
        match found {
            Some(frame) if around => {
                // The copy is out of date now.
                self.policy.remove(frame);
                self.leave(frame);
                self.free.push(frame);
                self.counts.write_misses += 1;
            }
            Some(frame) => {
                self.policy.hit(frame, page);
                self.frames[frame as usize].1 |= write && self.mode.write.keeps_dirty();
            }
            None if write => {
                self.counts.write_misses += 1;
                if !around {
                    self.policy.missed(page);
                    self.insert(page, self.mode.write.keeps_dirty());
                }
            }
            None => {
                self.counts.read_misses += 1;
                let admitted = self.mode.write.fills_on_read()
                    && self.admission.read(page, self.policy.remembers(page));
                self.policy.missed(page);
                if admitted {
                    self.counts.fills += 1;
                    self.insert(page, false);
                }
            }
        }
    }

    /// What was in `frame` is no longer found.
    fn leave(&mut self, frame: u32) {
        let frames = &self.frames;
        let (page, dirty) = frames[frame as usize];
        let known = self
            .index
            .remove(page, frame, |frame| frames[frame as usize].0);
        debug_assert!(known, "frame {frame} is not in the index");
        self.counts.cleaned += u64::from(dirty);
    }

    fn insert(&mut self, page: u64, dirty: bool) {
        let frame = if let Some(frame) = self.free.pop() {
            self.frames[frame as usize] = (page, dirty);
            frame
        } else if (self.frames.len() as u64) < self.frames() {
            self.frames.push((page, dirty));
            self.frames.len() as u32 - 1
        } else {
            let frames = &self.frames;
            let key_of = |frame: u32| frames[frame as usize].0;
            let victim = self.policy.evict(Some(page), &key_of, &mut |_| true);
            let victim = victim.expect("a full cache whose frames may all go has a victim");
            self.leave(victim);
            self.frames[victim as usize] = (page, dirty);
            victim
        };
        let frames = &self.frames;
        self.index
            .insert(page, frame, |frame| frames[frame as usize].0);
        self.policy.insert(frame, page);
    }
}
