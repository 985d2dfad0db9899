//! What keeps a cache that works from being healthy: dirty pages that cannot be read, a cleaner that gets nowhere, a
//! log of which the end could not be read.
//!
//! ```text
//! a read of one slot fails  -> noted -> read again, or written anew: forgotten
//! a round of cleaning fails -> noted -> one that cleans something: forgotten
//! the log's end is unreadable -> noted until the next opening
//! ```
//!
//! Always true: a slot counts only while a dirty page is in it; of a clean one the slow device has the contents.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use base::{Bytes, Sector};
use device::DeviceError;

use crate::attach::label::PAGE;
use crate::index::page_map::PageMap;

/// Slots whose last read failed.
#[derive(Default)]
pub(crate) struct Unreadable(RefCell<BTreeSet<u32>>);

impl Unreadable {
    /// A read of `count` slots from `first` on ended. Only the failure of a single slot shows which it is. A write that
    /// ended well counts as a read that did.
    pub fn read(&self, first: u32, count: u32, failed: bool) {
        let mut slots = self.0.borrow_mut();
        if failed && count == 1 {
            slots.insert(first);
        } else if !failed && !slots.is_empty() {
            slots.retain(|slot| !(first..first + count).contains(slot));
        }
    }

    /// Dirty pages of which the last read failed, in order.
    pub fn dirty(&self, map: &PageMap) -> Vec<u64> {
        let slots = self.0.borrow();
        let found = slots.iter().filter_map(|slot| map.in_slot(*slot));
        let mut pages: Vec<u64> = found
            .filter(|(_, entry)| entry.dirty)
            .map(|(page, _)| page)
            .collect();
        pages.sort_unstable();
        pages
    }
}

/// What else is wrong.
#[derive(Default)]
pub(crate) struct Trouble {
    /// Rounds of cleaning that failed since the last one that cleaned something.
    failed_rounds: Cell<u64>,
    /// What to say of the end of the log, if it could not be read at opening.
    end: RefCell<Option<String>>,
}

impl Trouble {
    /// At opening, `bytes` at the end of the log, from `at` of `fast` on, could not be read; none: at an earlier opening, after
    /// which nothing was committed.
    pub fn end_unreadable(&self, fast: &str, at: Sector, bytes: Bytes) {
        let (much, when) = match bytes.0 {
            0 => (String::new(), "an earlier start"),
            _ => (format!("{bytes} at "), "the start"),
        };
        let words = format!(
            "{much}the end of the map's log, from byte {} of {fast} on, could not be read at {when}: a power cut \
             hit the last commit there, or what was flushed last before the stop is missing; check what lies on the \
             volume (such as with fsck), and replace {fast} if its power was not cut; this is told until the next start",
            at.byte()
        );
        self.end.replace(Some(words));
    }

    pub fn round_failed(&self) {
        self.failed_rounds.set(self.failed_rounds.get() + 1);
    }

    pub fn round_worked(&self) {
        self.failed_rounds.set(0);
    }

    pub fn failed_rounds(&self) -> u64 {
        self.failed_rounds.get()
    }

    /// Why a running cache is not healthy, if it is not. `pages`: dirty ones of which the last
    /// read failed; `clean_error`: what the cleaner met last.
    pub fn words(
        &self,
        map: &PageMap,
        pages: &[u64],
        clean_error: Option<&DeviceError>,
    ) -> Option<String> {
        let mut why: Vec<String> = self.end.borrow().iter().cloned().collect();
        if let Some(first) = pages.first() {
            why.push(format!(
                "{} that only the fast device has cannot be read from it, the first at byte {}: write them anew, or \
                 restore them from a backup",
                Bytes(pages.len() as u64 * PAGE),
                first * PAGE
            ));
        }
        if let Some(error) = clean_error.filter(|_| map.dirty() > 0) {
            why.push(format!(
                "the cleaner has failed {} times in a row and {} wait for it: {error}; put that device right, it \
                 goes on by itself",
                self.failed_rounds.get().max(1),
                Bytes(u64::from(map.dirty()) * PAGE)
            ));
        }
        (!why.is_empty()).then(|| why.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use policy::cache::Kind;

    use super::*;

    #[test]
    fn a_slot_that_could_not_be_read_may_be_gone_with_a_smaller_cache() {
        let unreadable = Unreadable::default();
        let mut map = PageMap::new(96, Kind::Lru, 1);
        unreadable.read(88, 1, true);
        map.resize(71, Kind::Lru, 1);
        assert!(unreadable.dirty(&map).is_empty());
        assert_eq!(Trouble::default().words(&map, &[], None), None);
    }
}
