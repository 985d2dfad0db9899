//! Which requests hold which bytes of a volume?
//!
//! A write has its range alone, reads share theirs; first come, first served among those that overlap. So copies differ
//! only where a write is under way, and no client reads there. Any copy of any range that can be read holds the same.
//!
//! Choice: the paper does not say what a read sees of a write under way. Here it waits for it.
//!
//! Always true: of two ranges that overlap, and do not share, the later one has its turn when the earlier one has ended.

use std::ops::Range;

/// One holder of a range, or one that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    ticket: Ticket,
    range: Range<u64>,
    alone: bool,
}

/// The ranges in use, and those that are waited for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RangeLocks {
    /// In the order they came.
    all: Vec<Holder>,
    next: u64,
}

impl RangeLocks {
    /// Asks for a range: it has its turn when [`RangeLocks::has_turn`] says so.
    pub fn ask(&mut self, range: Range<u64>, alone: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.all.push(Holder {
            ticket,
            range,
            alone,
        });
        ticket
    }

    /// Has all ended that came before, overlaps, and cannot share? Not of a ticket that was given up.
    pub fn has_turn(&self, ticket: Ticket) -> bool {
        let Some(own) = self.all.iter().position(|it| it.ticket == ticket) else {
            return false;
        };
        let (before, own) = (&self.all[..own], &self.all[own]);
        let mut before = before.iter().filter(|it| it.alone || own.alone);
        !before.any(|it| it.range.start < own.range.end && own.range.start < it.range.end)
    }

    /// A range is given up, whether or not it had its turn.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.all.retain(|it| it.ticket != ticket);
    }

    /// Is none in use, and none waited for?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_range_and_a_writer_has_it_alone() {
        let mut locks = RangeLocks::default();
        let first = locks.ask(0..10, false);
        let second = locks.ask(5..15, false);
        let writer = locks.ask(9..12, true);
        let behind = locks.ask(11..20, false);
        let beside = locks.ask(30..40, true);
        let turns = |locks: &RangeLocks| {
            [first, second, writer, behind, beside].map(|it| locks.has_turn(it))
        };
        assert_eq!(turns(&locks), [true, true, false, false, true]);
        locks.give_up(first);
        assert_eq!(turns(&locks), [false, true, false, false, true]);
        locks.give_up(second);
        assert_eq!(turns(&locks), [false, false, true, false, true]);
        locks.give_up(writer);
        assert_eq!(turns(&locks), [false, false, false, true, true]);
    }

    #[test]
    fn one_that_gives_up_while_it_waits_holds_up_nothing() {
        let mut locks = RangeLocks::default();
        let first = locks.ask(0..1, true);
        let waits = locks.ask(0..1, true);
        let last = locks.ask(0..1, true);
        locks.give_up(waits);
        assert!(!locks.has_turn(last));
        locks.give_up(first);
        assert!(locks.has_turn(last));
        locks.give_up(last);
        assert!(locks.is_empty());
    }
}
