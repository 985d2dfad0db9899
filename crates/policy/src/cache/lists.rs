//! Which frame is newer, which older? Doubly linked lists over frame numbers, six bytes a frame.
//!
//! ```text
//! list 0   [0] <-> newest <-> ... <-> oldest <-> [0]      node 2 l is the head of list l,
//! list 1   [2] <-> newest <-> ... <-> oldest <-> [2]      node 2 K + f is frame f
//! ```
//!
//! Always true:
//! 1. A frame is in exactly one list or free; a free node points at itself.
//! 2. Walking newer then older ends where it began.

use super::packed::Pairs;

/// `K` lists over the same frames.
#[derive(Clone, Debug)]
pub(crate) struct Lists<const K: usize> {
    /// Of each node its newer and its older neighbour. A head's newer neighbour is the oldest of its
    /// list, its older neighbour the newest. Every other node before the frames is unused: loads of
    /// one head do not meet stores to another.
    links: Pairs,
    frames: u32,
}

/// What a policy thinks of a frame it looks at on the hunt for a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// This one goes.
    Take,
    /// The caller refuses it now: set it aside.
    Aside,
    /// It has earned its place: newest of the given list.
    Keep(usize),
}

/// How many frames set aside are looked at again per victim before the hunt goes on: dirty frames
/// become clean in about the order they were set aside, so a few looks find them.
pub(crate) const RETRIES: u32 = 4;

impl<const K: usize> Lists<K> {
    /// Nodes before the first frame.
    const HEADS: u32 = 2 * K as u32;

    pub(crate) fn new(frames: u32) -> Self {
        assert!(
            frames <= u32::MAX - Self::HEADS,
            "{frames} frames are too many for lists"
        );
        let nodes = frames + Self::HEADS;
        let mut links = Pairs::new(nodes as usize, nodes - 1);
        for node in 0..nodes {
            links.set(node, node, node);
        }
        Lists { links, frames }
    }

    /// Frames the lists can hold in all.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    #[inline(always)]
    fn frame(node: u32) -> Option<u32> {
        node.checked_sub(Self::HEADS)
    }

    /// The frame put into `list` longest ago.
    #[inline(always)]
    pub(crate) fn oldest(&self, list: usize) -> Option<u32> {
        Self::frame(self.links.get(2 * list as u32).0)
    }

    /// The next newer frame of the same list.
    #[inline(always)]
    pub(crate) fn newer(&self, frame: u32) -> Option<u32> {
        Self::frame(self.links.get(frame + Self::HEADS).0)
    }

    /// Is `frame` in no list?
    #[inline(always)]
    pub(crate) fn is_free(&self, frame: u32) -> bool {
        let node = frame + Self::HEADS;
        self.links.get(node).0 == node
    }

    /// Puts the free `frame` in as the newest of `list`.
    #[inline(always)]
    pub(crate) fn push(&mut self, list: usize, frame: u32) {
        assert!(self.is_free(frame), "frame {frame} is in a list already");
        self.link(list, frame + Self::HEADS);
    }

    #[inline(always)]
    fn link(&mut self, list: usize, node: u32) {
        let head = 2 * list as u32;
        let second = self.links.get(head).1;
        self.links.set(node, head, second);
        self.links.set_second(head, node);
        self.links.set_first(second, node);
    }

    #[inline(always)]
    fn unlink(&mut self, node: u32) {
        let (newer, older) = self.links.get(node);
        assert!(newer != node, "frame {} is in no list", node - Self::HEADS);
        self.links.set_second(newer, older);
        self.links.set_first(older, newer);
    }

    /// Takes `frame` out of its list: it is free then.
    #[inline(always)]
    pub(crate) fn take(&mut self, frame: u32) {
        let node = frame + Self::HEADS;
        self.unlink(node);
        self.links.set(node, node, node);
    }

    /// Makes `frame`, from whatever list, the newest of `list`.
    #[inline(always)]
    pub(crate) fn renew(&mut self, list: usize, frame: u32) {
        let node = frame + Self::HEADS;
        self.unlink(node);
        self.link(list, node);
    }

    /// The free frame `to` takes the very place of `from`, which is free then.
    pub(crate) fn replace(&mut self, from: u32, to: u32) {
        assert!(self.is_free(to), "frame {to} is in a list already");
        let (from, to) = (from + Self::HEADS, to + Self::HEADS);
        let (newer, older) = self.links.get(from);
        assert!(newer != from, "frame {} is in no list", from - Self::HEADS);
        self.links.set(to, newer, older);
        self.links.set_second(newer, to);
        self.links.set_first(older, to);
        self.links.set(from, from, from);
    }

    /// Hunts for a victim: a few of the frames in `aside` (refused earlier), then `list` oldest
    /// first, then the rest of `aside`. The victim is taken out. `None`: every frame of both was
    /// refused.
    #[inline]
    pub(crate) fn hunt(
        &mut self,
        list: usize,
        aside: usize,
        mut look: impl FnMut(u32) -> Look,
    ) -> Option<u32> {
        let mut refused = None;
        let again = self.retry(aside, RETRIES, &mut refused, &mut look);
        again
            .or_else(|| self.sweep(list, aside, &mut refused, &mut look))
            .or_else(|| self.retry(aside, u32::MAX, &mut refused, &mut look))
            // Frames of the queue that earned a place in `list` have not been offered yet.
            .or_else(|| self.sweep(list, aside, &mut refused, &mut look))
    }

    /// Looks at up to `most` frames of `aside`, oldest first; a frame refused again goes behind the
    /// others. `refused` is the first frame refused in this hunt: met again, the round is over.
    #[inline(always)]
    pub(crate) fn retry(
        &mut self,
        aside: usize,
        most: u32,
        refused: &mut Option<u32>,
        look: &mut impl FnMut(u32) -> Look,
    ) -> Option<u32> {
        for _ in 0..most {
            let frame = self.oldest(aside)?;
            if *refused == Some(frame) {
                return None;
            }
            match look(frame) {
                Look::Take => {
                    self.take(frame);
                    return Some(frame);
                }
                Look::Aside => {
                    self.renew(aside, frame);
                    refused.get_or_insert(frame);
                }
                Look::Keep(list) => self.renew(list, frame),
            }
        }
        None
    }

    /// Looks at the frames of `list`, oldest first, until one is taken or none is left.
    #[inline(always)]
    pub(crate) fn sweep(
        &mut self,
        list: usize,
        aside: usize,
        refused: &mut Option<u32>,
        look: &mut impl FnMut(u32) -> Look,
    ) -> Option<u32> {
        while let Some(frame) = self.oldest(list) {
            match look(frame) {
                Look::Take => {
                    self.take(frame);
                    return Some(frame);
                }
                Look::Aside => {
                    self.renew(aside, frame);
                    refused.get_or_insert(frame);
                }
                Look::Keep(list) => self.renew(list, frame),
            }
        }
        None
    }

    /// Visits the frames of `list`, oldest first.
    pub(crate) fn visit(&self, list: usize, visit: &mut dyn FnMut(u32)) {
        let mut at = self.oldest(list);
        while let Some(frame) = at {
            visit(frame);
            at = self.newer(frame);
        }
    }

    /// Grows or shrinks to `frames`; frames beyond must be free.
    pub(crate) fn resize(&mut self, frames: u32) {
        let mut new = Lists::<K>::new(frames);
        for list in 0..K {
            self.visit(list, &mut |frame| {
                assert!(
                    frame < frames,
                    "frame {frame} is held: cannot shrink to {frames}"
                );
                new.push(list, frame);
            });
        }
        *self = new;
    }

    pub(crate) fn memory(&self) -> usize {
        self.links.memory()
    }
}
