//! Which changes are under way, under which stamps?
//!
//! ```text
//! a change begins -> stamp: the generation now    floor: the least stamp under way then -> until it ends
//! ```
//!
//! Of two changes that run together the older stamp may be the one that an object shows in the end. So what a change may have left
//! is bounded by the floors of those under way, not by their stamps.
//!
//! Always true: no change under way, or still to be begun, leaves a stamp that is as small as [`Stamps::complete`] answers.

use std::collections::BTreeMap;

use crate::names::Generation;

/// A change under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnderWay {
    /// What it is stamped with.
    pub stamp: Generation,
    /// The least stamp that was under way when it began, its own among them.
    pub floor: Generation,
}

/// Changes under way, and how many there were.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stamps {
    under_way: BTreeMap<Generation, u64>,
    floors: BTreeMap<Generation, u64>,
    changes: u64,
}

impl Stamps {
    /// A change begins in this generation.
    pub fn begin(&mut self, stamp: Generation) -> UnderWay {
        self.due();
        *self.under_way.entry(stamp).or_default() += 1;
        let floor = *self.under_way.keys().next().expect("one was added");
        *self.floors.entry(floor).or_default() += 1;
        UnderWay { stamp, floor }
    }

    /// It is over, whatever became of it.
    pub fn end(&mut self, change: UnderWay) {
        self.due();
        remove_one(&mut self.under_way, change.stamp);
        remove_one(&mut self.floors, change.floor);
    }

    /// The generation before every stamp that a change under way, or one still to be begun, may leave on an object. `now` is the
    /// record's generation.
    pub fn complete(&self, now: Generation) -> Generation {
        let oldest = self.floors.keys().next().map_or(now, |one| (*one).min(now));
        Generation(oldest.0.saturating_sub(1))
    }

    /// Something was changed at stores: their fences are to be stamped. Also at the end of a change: a stamp that is sent
    /// meanwhile may come before it.
    pub fn due(&mut self) {
        self.changes += 1;
    }

    /// Beginnings and ends of changes so far, and other reasons to stamp fences.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Is none under way?
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}

fn remove_one(counts: &mut BTreeMap<Generation, u64>, key: Generation) {
    let count = counts.get_mut(&key).expect("counted when it began");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_complete_comes_before_every_change_under_way() {
        let mut stamps = Stamps::default();
        assert_eq!(stamps.complete(Generation(7)), Generation(6));
        let change = stamps.begin(Generation(7));
        assert_eq!(stamps.complete(Generation(9)), Generation(6));
        stamps.end(change);
        assert_eq!(stamps.complete(Generation(9)), Generation(8));
        assert!(stamps.is_empty());
    }

    #[test]
    fn a_change_beside_an_older_one_may_show_the_older_stamp() {
        let mut stamps = Stamps::default();
        let old = stamps.begin(Generation(3));
        let beside = stamps.begin(Generation(5));
        stamps.end(old);
        assert_eq!(stamps.complete(Generation(5)), Generation(2));
        let later = stamps.begin(Generation(6));
        stamps.end(beside);
        assert_eq!(
            (later.floor, stamps.complete(Generation(6))),
            (Generation(5), Generation(4))
        );
    }

    #[test]
    fn beginnings_and_ends_count_as_changes() {
        let mut stamps = Stamps::default();
        let change = stamps.begin(Generation(1));
        stamps.end(change);
        stamps.due();
        assert_eq!(stamps.changes(), 3);
    }
}
