//! Which regions are to move next, one at a time, in the order they were decided?

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;

use env::sync::Event;
use policy::tier::{Region, Way};

/// Decisions that are not yet carried out.
#[derive(Default)]
pub(crate) struct MoveQueue {
    waiting: RefCell<VecDeque<(Region, Way)>>,
    /// What is being carried out.
    current: Cell<Option<(Region, Way)>>,
    /// Management wants no move under way.
    halts: Cell<u32>,
    /// A decision came, or moves may go on.
    work: Event,
    /// A move ended.
    ended: Event,
}

impl MoveQueue {
    /// `region` is to move, after those decided before; nothing new if that is the last that was decided of it.
    pub fn decide(&self, region: Region, way: Way) {
        if self.last_decided(region) != Some(way) {
            self.waiting.borrow_mut().push_back((region, way));
            self.work.notify_all();
        }
    }

    /// Where `region` is going in the end, if it moves or is to move.
    pub fn last_decided(&self, region: Region) -> Option<Way> {
        let queue = self.waiting.borrow();
        let queued = queue.iter().rev().find(|(other, _)| *other == region);
        let current = self.current.get().filter(|(other, _)| *other == region);
        queued.copied().or(current).map(|(_, way)| way)
    }

    /// Nothing is to move any more but what moves already.
    pub fn forget(&self) {
        self.waiting.borrow_mut().clear();
    }

    /// The next move is to be carried out, unless moves are to halt.
    pub fn begin(&self) -> Option<(Region, Way)> {
        let next = match self.is_halted() {
            true => None,
            false => self.waiting.borrow_mut().pop_front(),
        };
        self.current.set(next);
        next
    }

    /// The move that was begun is over; `again`: it comes first next time.
    pub fn end(&self, again: bool) {
        let current = self.current.take().filter(|_| again);
        if let Some(decided) = current {
            self.waiting.borrow_mut().push_front(decided);
        }
        self.ended.notify_all();
    }

    /// Is a move being carried out?
    pub fn is_busy(&self) -> bool {
        self.current.get().is_some()
    }

    /// No move is to begin, and the one under way to end, until as many [`MoveQueue::go_on`].
    pub fn halt(&self) {
        self.halts.set(self.halts.get() + 1);
    }

    pub fn go_on(&self) {
        self.halts.set(self.halts.get() - 1);
        self.work.notify_all();
    }

    pub fn is_halted(&self) -> bool {
        self.halts.get() > 0
    }

    /// Waits for a decision.
    pub fn work(&self) -> impl Future<Output = ()> + '_ {
        self.work.wait()
    }

    /// Waits until a move ends.
    pub fn ended(&self) -> impl Future<Output = ()> + '_ {
        self.ended.wait()
    }

    /// Tasks that wait are to look again.
    pub fn wake(&self) {
        self.work.notify_all();
        self.ended.notify_all();
    }
}
