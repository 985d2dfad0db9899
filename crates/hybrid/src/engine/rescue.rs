//! A map of which some was lost: what of the cache is still valid, and which ranges of the volume may be old.
//!
//! ```text
//! label, record of pairs -> the log cannot be replayed -> salvage: records and gaps, in order
//!   -> a page recorded after the last gap: right         dirty entries stay, of clean ones the slow device has all
//!   -> any other page may have changed in a gap          the newest dirty copy stays if it is whole; listed
//!   -> the whole map anew, without clean pages, fingerprints and intents
//! ```
//!
//! A lost batch does not say what it held: it may have recorded any page that no later batch records. Where the
//! record of pairs says that nothing is dirty, the slow device has everything and nothing is listed.
//!
//! Offline: the slow device is neither needed nor looked at.
//!
//! Always true:
//! 1. A page that is not listed reads as it was flushed last, or as a later write of it.
//! 2. Cut off at any point, the log is as it was, or the rescue is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, Span, crc::crc32c};
use device::{Device, DeviceExt};
pub use ledger::Loss;
use ledger::{Batch, Ledger, LedgerError, Owner, Record, Salvaged};

use crate::attach::error::OpenError;
use crate::attach::label::{Label, PAGE};
use crate::attach::pair::{Pair, Verdict, judge};
use crate::attach::refuse::holding;
use crate::durable::record::{self, Fact, understand};
use crate::durable::samples::sample_pages;
use crate::index::extents::ExtentRecord;
use crate::index::page_map::{Entry, REGION_PAGES};

/// Which cache is to be rescued.
#[derive(Debug, Clone)]
pub struct RescueOf {
    /// The volume.
    pub name: String,
    /// The identity of its cache.
    pub cache: u128,
    /// What the record of pairs says.
    pub record: Option<Pair>,
    /// Caches that were given up.
    pub abandoned: Vec<u128>,
}

/// What a rescue leaves, in ranges of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rescued {
    /// The batches of the map that cannot be read.
    pub losses: Vec<Loss>,
    /// Of these the newest contents known are kept; later ones may be lost.
    pub older: Vec<Span>,
    /// Of these the newest contents known cannot be read: the slow device's show, which are older.
    pub lost: Vec<Span>,
    /// Nothing says that these changed: the slow device's contents show, and later ones may be lost.
    pub unknown: Vec<Span>,
    /// Dirty data that stay on the fast device.
    pub dirty: Bytes,
}

impl Rescued {
    /// Bytes of the volume that may be lost or old.
    pub fn listed(&self) -> Bytes {
        let all = [&self.older, &self.lost, &self.unknown];
        Bytes(all.into_iter().flatten().map(|span| span.len.0).sum())
    }
}

/// What is known of the map, while records and gaps pass by.
#[derive(Default)]
struct Found {
    entries: BTreeMap<u64, Entry>,
    holders: BTreeMap<u32, u64>,
    extents: BTreeMap<u32, ExtentRecord>,
    /// Pages recorded since the last gap.
    fresh: BTreeSet<u64>,
    /// Pages whose contents were in slots that others have by now.
    gone: BTreeSet<u64>,
    foreign: bool,
}

impl Found {
    fn pass(&mut self, salvaged: Salvaged<'_>) {
        match salvaged {
            Salvaged::Gap => self.fresh.clear(),
            Salvaged::Record(record) => self.learn(record),
        }
    }

    fn learn(&mut self, record: Record<'_>) {
        match understand(record) {
            None => self.foreign = true,
            Some(Fact::Page(page, entry)) => self.page(page, entry),
            Some(Fact::Extent(extent, Some(kept))) => {
                self.extents.insert(extent, kept);
            }
            Some(Fact::Extent(extent, None)) => {
                self.extents.remove(&extent);
            }
            // Neither is valid after a gap.
            Some(Fact::Intent(..) | Fact::Sample(..)) => {}
        }
    }

    fn page(&mut self, page: u64, entry: Option<Entry>) {
        self.fresh.insert(page);
        self.gone.remove(&page);
        if let Some(old) = self.entries.remove(&page) {
            self.holders.remove(&old.slot);
        }
        let Some(entry) = entry else {
            return;
        };
        // A slot has one page: that the one before left it was in a gap.
        if let Some(other) = self.holders.insert(entry.slot, page) {
            self.entries.remove(&other);
            self.gone.insert(other);
        }
        self.entries.insert(page, entry);
    }
}

/// What the new map holds.
enum Row {
    Page(u64, Entry),
    Intent(u64),
    Extent(u32, ExtentRecord),
}

impl Row {
    fn put(&self, out: &mut Batch) {
        match self {
            Row::Page(page, entry) => record::put_page(out, *page, entry),
            Row::Intent(region) => record::intent(out, *region, true),
            Row::Extent(number, kept) => record::extent(out, *number, Some(*kept)),
        }
    }
}

struct Rows(Vec<Row>);

impl Owner for Rows {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let from = cursor as usize;
        let end = (from + max.max(1)).min(self.0.len());
        for row in self.0.iter().take(end).skip(from) {
            row.put(out);
        }
        (end < self.0.len()).then_some(end as u64)
    }

    fn live(&self) -> Option<Bytes> {
        let mut all = Batch::new();
        self.0.iter().for_each(|row| row.put(&mut all));
        Some(all.bytes())
    }
}

/// Pages in ascending order as ranges of bytes.
fn ranges(pages: impl IntoIterator<Item = u64>) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    for page in pages {
        match found.last_mut() {
            Some(last) if last.end().byte() == page * PAGE => last.len += Bytes(PAGE),
            _ => found.push(Span::bytes(page * PAGE, PAGE)),
        }
    }
    found
}

fn state(of: &RescueOf, why: String) -> OpenError {
    OpenError::State {
        what: "rescue the cache of",
        name: of.name.clone(),
        why,
    }
}

/// The label of the cache that is meant, if its contents count.
async fn label_of(fast: &Rc<dyn Device>, of: &RescueOf) -> Result<Label, OpenError> {
    let found = Label::read(fast).await?;
    if let Ok(label) = &found
        && !label.lane.is_only()
    {
        return Err(OpenError::Lanes {
            name: of.name.clone(),
            asked: label.lane.lanes,
            why: "a cache of several lanes cannot be rescued; copy the device to a sound one and start again"
                .to_owned(),
        });
    }
    let named = matches!(&found, Ok(label) if label.uuid == of.cache);
    if !named {
        let why = format!("{} {}", fast.info().name, holding(&found));
        return Err(state(of, why));
    }
    let verdict = judge(&of.name, of.record, &found, &of.abandoned, false);
    match (verdict, found) {
        (Verdict::Open, Ok(label)) => Ok(label),
        _ => Err(state(
            of,
            "it is not the volume's, or counts no more; start the daemon, which says what stands in the way".to_owned(),
        )),
    }
}

/// Is the page that `entry` names in its slot?
async fn is_whole(fast: &Rc<dyn Device>, label: &Label, entry: &Entry) -> bool {
    match fast.read_at(label.slot(entry.slot), Bytes(PAGE)).await {
        Ok(page) => crc32c(&page) == entry.crc,
        Err(_) => false,
    }
}

/// Takes what is valid, and lists the rest. `pages`: whole pages of the volume.
async fn sort(
    found: Found,
    fast: &Rc<dyn Device>,
    label: &Label,
    rescued: &mut Rescued,
) -> Vec<Row> {
    let pages = label.slow_size.0 / PAGE;
    let (mut older, mut lost) = (BTreeSet::new(), found.gone);
    let mut rows = Vec::new();
    for (page, entry) in found.entries {
        if !entry.dirty || page >= pages {
            continue;
        }
        let fresh = found.fresh.contains(&page);
        let inside = entry.slot < label.slots;
        if inside && (fresh || is_whole(fast, label, &entry).await) {
            rescued.dirty += Bytes(PAGE);
            rows.push(Row::Page(page, entry));
            if !fresh {
                older.insert(page);
            }
        } else {
            lost.insert(page);
        }
    }
    let unknown = (0..pages).filter(|page| {
        !found.fresh.contains(page) && !older.contains(page) && !lost.contains(page)
    });
    rescued.unknown = ranges(unknown);
    rescued.older = ranges(older);
    rescued.lost = ranges(lost);
    rows.extend(
        found
            .extents
            .into_iter()
            .map(|(number, kept)| Row::Extent(number, kept)),
    );
    // Fingerprints are read anew once their regions have rested.
    let regions: BTreeSet<u64> = sample_pages(pages)
        .iter()
        .map(|page| page / REGION_PAGES)
        .collect();
    rows.extend(regions.into_iter().map(Row::Intent));
    rows
}

/// Writes the map anew: one batch under a new generation, and a clean mark.
async fn write(ledger: &Ledger, rows: Vec<Row>) -> Result<(), LedgerError> {
    let mut rows = Rows(rows);
    let prepared = ledger.prepare(ledger.batch(), &mut rows);
    ledger.commit(prepared).await?;
    ledger.close().await
}

/// Opens the map of a cache that lost some of it with what is left, drops what may be stale, and lists the ranges of the
/// volume that may be lost or old. Without `writes` nothing is written. No daemon has the devices meanwhile.
///
/// # Errors
/// [`OpenError::State`] if it is not the cache that is meant, or nothing of its map is lost; [`OpenError::Ledger`];
/// [`OpenError::Damaged`]; [`OpenError::Device`].
pub async fn rescue(
    fast: Rc<dyn Device>,
    of: &RescueOf,
    writes: bool,
) -> Result<Rescued, OpenError> {
    let label = label_of(&fast, of).await?;
    let device = fast.info().name;
    let failed = |source| OpenError::Ledger {
        name: of.name.clone(),
        fast: device.clone(),
        source,
    };
    match Ledger::open(Rc::clone(&fast), label.ledger, |_| {}).await {
        Err(LedgerError::Damaged { .. }) => {}
        Err(source) => return Err(failed(source)),
        Ok(_) => {
            let why = "all of its map can be read: start the daemon".to_owned();
            return Err(state(of, why));
        }
    }
    let mut found = Found::default();
    let opened = Ledger::open_rescue(Rc::clone(&fast), label.ledger, |one| found.pass(one)).await;
    let (ledger, replay) = opened.map_err(failed)?;
    if found.foreign {
        return Err(OpenError::Damaged {
            fast: device.clone(),
            why: "a record of its map is none of ours".to_owned(),
        });
    }
    let mut rescued = Rescued {
        losses: replay.losses,
        ..Rescued::default()
    };
    let rows = sort(found, &fast, &label, &mut rescued).await;
    let clean = |pair: Pair| pair.cache == Some(of.cache) && !pair.dirty;
    if rescued.losses.is_empty() || of.record.is_some_and(clean) {
        // Nothing that counts was lost.
        (rescued.older, rescued.lost, rescued.unknown) = Default::default();
    }
    if writes {
        write(&ledger, rows).await.map_err(failed)?;
    }
    Ok(rescued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::page_map::FULL;

    fn entry(slot: u32) -> Option<Entry> {
        Some(Entry {
            slot,
            dirty: true,
            mask: FULL,
            crc: 0,
        })
    }

    #[test]
    fn only_what_is_recorded_after_the_last_gap_is_fresh() {
        let mut found = Found::default();
        found.page(1, entry(10));
        found.page(2, entry(20));
        found.pass(Salvaged::Gap);
        found.page(3, entry(30));
        found.pass(Salvaged::Gap);
        found.page(2, entry(21));
        found.page(4, None);
        assert_eq!(found.fresh, BTreeSet::from([2, 4]));
        let held: Vec<u64> = found.entries.keys().copied().collect();
        assert_eq!(held, [1, 2, 3]);
    }

    #[test]
    fn a_page_whose_slot_another_has_by_now_is_gone() {
        let mut found = Found::default();
        found.page(1, entry(10));
        found.pass(Salvaged::Gap);
        found.page(2, entry(10));
        assert_eq!(found.gone, BTreeSet::from([1]));
        assert_eq!(found.holders, BTreeMap::from([(10, 2)]));
        // Recorded anew, it is right again.
        found.page(1, entry(11));
        assert!(found.gone.is_empty());
    }

    #[test]
    fn neighbouring_pages_are_one_range() {
        let found = ranges([0, 1, 2, 7, 9, 10]);
        let pages = |first: u64, count: u64| Span::bytes(first * PAGE, count * PAGE);
        assert_eq!(found, [pages(0, 3), pages(7, 1), pages(9, 2)]);
        assert!(ranges([]).is_empty());
    }
}
