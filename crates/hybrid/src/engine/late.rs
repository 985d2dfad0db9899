//! What a dead process left in its restart log, beyond its last commit: does it count, and what did it change?
//!
//! Always true: it counts whole or not at all, and only where the fast device has the data of every dirty page that it
//! names.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::Bytes;
use base::crc::crc32c;
use device::{Device, DeviceExt};
use env::sync::join_all;

use super::disk::Engine;
use super::setup::Ties;
use crate::attach::label::{Label, PAGE};
use crate::cache::Cache;
use crate::durable::record::Fact;
use crate::durable::restart::{Left, left};
use crate::index::page_map::Entry;

/// Slots that are read at once.
const AT_ONCE: usize = 32;
/// Attempts to read one.
const READS: u32 = 4;

/// Keys of what the restart log added to the ledger.
#[derive(Default)]
pub(super) struct Late {
    pub records: u64,
    pages: Vec<u64>,
    intents: Vec<u64>,
    samples: Vec<u64>,
    extents: Vec<u32>,
}

impl Late {
    pub fn note(&mut self, fact: &Fact) {
        self.records += 1;
        match fact {
            Fact::Page(page, _) => self.pages.push(*page),
            Fact::Intent(region, _) => self.intents.push(*region),
            Fact::Sample(number, _) => self.samples.push(*number),
            Fact::Extent(extent, _) => self.extents.push(*extent),
        }
    }

    /// The next commit carries it all, as it is in memory by now.
    pub fn touch(&self, cache: &Cache) {
        for page in &self.pages {
            cache.touch(*page);
        }
        let mut intents = cache.state.intents.borrow_mut();
        self.intents
            .iter()
            .for_each(|region| intents.touch(*region));
        let mut samples = cache.state.samples.borrow_mut();
        self.samples
            .iter()
            .for_each(|number| samples.touch(*number));
        let mut extents = cache.state.extents.borrow_mut();
        self.extents
            .iter()
            .for_each(|extent| extents.touch(*extent));
        if self.records > 0 {
            cache.commit.note();
        }
    }
}

/// What a dead process of this boot left beside the ledger, whose last batch is `sequence`; `None` if it may have left
/// more than there is.
pub(super) async fn late_changes(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    label: &Label,
    sequence: u64,
    ties: &Ties,
) -> Option<Vec<Fact>> {
    let place = ties.restart.as_ref()?;
    let why = match left(place, label.id(), sequence) {
        Left::Nothing => return None,
        Left::Changes(facts) if are_whole(fast, label, &facts).await => return Some(facts),
        Left::Changes(_) => {
            "names data that the fast device does not have, as after a loss of its power alone"
        }
        Left::Apart => "goes on from another commit than the fast device has",
    };
    tracing::warn!(
        volume = %engine.volume.name,
        "the restart log {why}, and does not count: what was answered and not flushed before the last end of the process \
         may be missing"
    );
    None
}

/// Does each slot hold what `facts` say of it last? Else the fast device lost what it had not flushed.
async fn are_whole(fast: &Rc<dyn Device>, label: &Label, facts: &[Fact]) -> bool {
    #[cfg(test)]
    if crate::mutation::planted_at_open(crate::mutation::Mutation::LogOverReboot) {
        return true;
    }
    let mut last: BTreeMap<u64, &Entry> = BTreeMap::new();
    for fact in facts {
        match fact {
            Fact::Page(page, Some(entry)) if entry.dirty => {
                last.insert(*page, entry);
            }
            // A clean page is on the slow device, too.
            Fact::Page(page, _) => {
                last.remove(page);
            }
            _ => {}
        }
    }
    let entries: Vec<&Entry> = last.into_values().collect();
    if entries.iter().any(|entry| entry.slot >= label.slots_max) {
        return false;
    }
    for some in entries.chunks(AT_ONCE) {
        let checks = some.iter().map(|entry| is_whole(fast, label, entry));
        let whole = join_all(checks.collect::<Vec<_>>()).await;
        if whole.contains(&false) {
            return false;
        }
    }
    true
}

async fn is_whole(fast: &Rc<dyn Device>, label: &Label, entry: &Entry) -> bool {
    let at = label.slot(entry.slot);
    for _ in 0..READS {
        if let Ok(data) = fast.read_at(at, Bytes(PAGE)).await {
            return crc32c(&data) == entry.crc;
        }
    }
    false
}
