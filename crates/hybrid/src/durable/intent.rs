//! Which regions of the slow device may have changed behind the cache's back?
//!
//! A write that goes to the slow device over a clean cached page is a trap. If the machine dies after the write
//! landed and before the map forgot the page, recovery would map the old copy again. So a region (4 MiB) is
//! *marked*, durably, before such a write is sent: a write intent. Recovery drops the clean pages of marked
//! regions.
//!
//! Where the durable map has no page that the write covers, recovery has no old copy to map. The intent stays in
//! memory then. But until the slow device is flushed, a copy of what was written would be a trap again: a power cut
//! may undo the write and not the copy. So such a copy writes the intent to the ledger, with or before its own map
//! entry. An intent that is in memory alone is *unrecorded*.
//!
//! ```text
//! clear      -> recorded    begin             durable before the slow write is sent
//! clear      -> unrecorded  begin_unrecorded  the durable map has none of the pages
//! unrecorded -> recorded    begin, record     a write over a cached page, or a copy in the region
//! recorded   -> clear       clear             no write under way, and the slow device flushed since the last one
//! unrecorded -> clear       clear             likewise
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use base::{Instant, Nanos};
use ledger::Cut;

pub(crate) struct Intent {
    /// Is it in the ledger, or on its way there?
    pub recorded: bool,
    /// The commit that makes it durable.
    pub commit: Cut,
    pub in_flight: u32,
    /// Writes begun so far: shows whether a region rested.
    pub writes: u64,
    pub last: Instant,
}

#[derive(Default)]
pub(crate) struct WriteIntents {
    set: BTreeMap<u64, Intent>,
    recorded: usize,
    /// Regions whose intent changed since the last cut.
    touched: Vec<u64>,
}

impl WriteIntents {
    /// How many are in the ledger, or on their way there.
    pub fn len(&self) -> usize {
        self.recorded
    }

    pub fn has(&self, region: u64) -> bool {
        self.set.get(&region).is_some_and(|intent| intent.recorded)
    }

    /// Regions whose intent is in the ledger, or on its way there, in order.
    pub fn regions(&self) -> impl Iterator<Item = u64> + '_ {
        let recorded = self.set.iter().filter(|(_, intent)| intent.recorded);
        recorded.map(|(region, _)| *region)
    }

    /// Recovery found `region` marked.
    pub fn recovered(&mut self, region: u64) {
        let intent = Intent {
            recorded: true,
            commit: Cut::default(),
            in_flight: 0,
            writes: 0,
            last: Instant(0),
        };
        self.recorded += usize::from(self.set.insert(region, intent).is_none());
    }

    /// A write to `region` is about to begin; `next` is the commit that will carry a new intent.
    /// Returns the commit to wait for before the write may be sent.
    pub fn begin(&mut self, region: u64, next: Cut, now: Instant) -> Cut {
        self.begin_unrecorded(region, now);
        self.record(region, next)
    }

    /// A write to all of `regions` is about to begin. Returns the commit to wait for.
    pub fn begin_all(&mut self, regions: RangeInclusive<u64>, next: Cut, now: Instant) -> Cut {
        let needed = regions.map(|region| self.begin(region, next, now)).max();
        needed.unwrap_or_default()
    }

    /// A write to `region` is about to begin, over pages that the durable map does not have.
    pub fn begin_unrecorded(&mut self, region: u64, now: Instant) {
        let intent = self.set.entry(region).or_insert(Intent {
            recorded: false,
            commit: Cut::default(),
            in_flight: 0,
            writes: 0,
            last: now,
        });
        intent.in_flight += 1;
        intent.writes += 1;
        intent.last = now;
    }

    /// If `region` was written lately, its intent must be in the ledger from `next` on. Returns the commit
    /// that has it.
    pub fn record(&mut self, region: u64, next: Cut) -> Cut {
        let Some(intent) = self.set.get_mut(&region) else {
            return Cut::default();
        };
        if !intent.recorded {
            intent.recorded = true;
            intent.commit = next;
            self.recorded += 1;
            self.touched.push(region);
        }
        intent.commit
    }

    /// The write to `region` is over.
    pub fn end(&mut self, region: u64, now: Instant) {
        let intent = self
            .set
            .get_mut(&region)
            .expect("a region under write stays marked");
        intent.in_flight -= 1;
        intent.last = now;
    }

    /// Regions that have rested for `rest`, with the write count to hand to [`WriteIntents::clear`]; `recorded` ones or
    /// the others.
    pub fn rested(&self, now: Instant, rest: Nanos, recorded: bool) -> Vec<(u64, u64)> {
        self.set
            .iter()
            .filter(|(_, intent)| intent.recorded == recorded)
            .filter(|(_, intent)| intent.in_flight == 0 && now.since(intent.last) >= rest)
            .map(|(region, intent)| (*region, intent.writes))
            .collect()
    }

    /// The slow device was flushed, in a flush that began at `flushed`: forgets the older intents that are in memory
    /// alone.
    pub fn forget_unrecorded(&mut self, flushed: Instant) {
        self.set
            .retain(|_, intent| intent.recorded || intent.in_flight > 0 || intent.last >= flushed);
    }

    /// The slow device was flushed: clears the intent, unless the region was written since.
    pub fn clear(&mut self, region: u64, writes: u64) -> bool {
        let rested = self
            .set
            .get(&region)
            .is_some_and(|intent| intent.in_flight == 0 && intent.writes == writes);
        if rested
            && self
                .set
                .remove(&region)
                .is_some_and(|intent| intent.recorded)
        {
            self.recorded -= 1;
            self.touched.push(region);
        }
        rested
    }

    /// Changes since the last call: (region, is it marked?), each region once.
    pub fn take_touched(&mut self) -> Vec<(u64, bool)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
            .into_iter()
            .map(|region| (region, self.has(region)))
            .collect()
    }

    pub fn any_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Regions whose intent changed since the last call of [`WriteIntents::take_touched`], in the order they did.
    pub fn touched(&self) -> &[u64] {
        &self.touched
    }

    /// The next commit carries the intent of `region`, or that it has none.
    pub fn touch(&mut self, region: u64) {
        self.touched.push(region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(number: u32) -> Cut {
        (0..number).fold(Cut::default(), |cut, _| cut.next())
    }

    #[test]
    fn a_region_is_marked_once_and_cleared_only_after_a_rest() {
        let mut intents = WriteIntents::default();
        let now = Instant(5);
        assert_eq!(intents.begin(3, cut(8), now), cut(8));
        assert_eq!(
            intents.begin(3, cut(9), now),
            cut(8),
            "the first commit carries the intent"
        );
        assert_eq!(intents.take_touched(), [(3, true)]);
        assert!(
            intents.rested(now, Nanos(0), true).is_empty(),
            "two writes are under way"
        );
        intents.end(3, now);
        intents.end(3, now);
        let rested = intents.rested(now, Nanos(0), true);
        assert_eq!(rested, [(3, 2)]);
        intents.begin(3, cut(9), now);
        assert!(!intents.clear(3, 2), "written since");
        intents.end(3, now);
        assert!(intents.clear(3, 3));
        assert_eq!(intents.take_touched(), [(3, false)]);
        assert!(!intents.has(3));
    }

    #[test]
    fn an_intent_is_recorded_only_when_something_depends_on_it() {
        let mut intents = WriteIntents::default();
        intents.begin_unrecorded(5, Instant(1));
        intents.begin_unrecorded(6, Instant(1));
        intents.end(5, Instant(2));
        intents.end(6, Instant(2));
        assert!(!intents.any_touched() && !intents.has(5));
        assert_eq!(intents.record(5, cut(9)), cut(9));
        assert_eq!(
            (intents.take_touched(), intents.len()),
            (vec![(5, true)], 1)
        );
        intents.forget_unrecorded(Instant(2));
        assert_eq!(intents.rested(Instant(9), Nanos(0), false), [(6, 1)]);
        intents.forget_unrecorded(Instant(3));
        assert_eq!(intents.rested(Instant(9), Nanos(0), false), []);
        assert_eq!(
            intents.record(6, cut(9)),
            Cut::default(),
            "flushed: nothing depends on it any more"
        );
        assert!(intents.has(5));
    }
}
