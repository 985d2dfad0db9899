//! Is this the slow device as the cache left it? What is looked at beside the sampled pages.
//!
//! ```text
//! close:  partition table -> pages with headers of file systems }
//!         pages read lately                                     } -> fingerprints of them -> label "closed"
//! open:   label "closed" -> those fingerprints, and some clean pages of the cache, beside the slow device
//!         asked to verify -> every clean page of the cache
//! ```
//!
//! Headers are where `blkid` looks: a mount of the bare disk changes one of them (ext4 notes the time and the count of
//! mounts, XFS and btrfs a generation). What is compared only after a close needs no care while the disk is in use.
//!
//! Always true:
//! 1. Nothing is written, and a page that cannot be read is not held against the device, if half of them can.
//! 2. A page is compared only where the slow device can hold but one contents.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Bytes, Map, Sector};
use device::{Device, DeviceError, DeviceExt};
use env::sync::join_all;

use crate::attach::error::{OpenError, right_pair};
use crate::attach::label::{Label, PAGE, PAGES_MAX};
use crate::cache::Cache;
use crate::durable::samples::{sample_crc, sample_pages};
use crate::index::page_map::{FULL, PageMap, REGION_PAGES};
use crate::volume::Volume;

/// Fingerprints from this number on are those of a close: the rest of the number is the page.
pub(crate) const CLOSING: u64 = 1 << 10;
/// Clean pages of the cache that are compared after a close.
const CLEAN: usize = 128;
/// Reads under way at once.
const DEPTH: usize = 16;
/// Partitions that are looked at.
const PARTITIONS: usize = 32;
/// Where a file system's header lies from its start: ext, XFS, LVM and swap in its first page, btrfs at 64 KiB.
const HEADERS: [u64; 2] = [0, 64 << 10];
const SECTOR: u64 = 512;

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.get(at..at + len).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |so_far, byte| so_far << 8 | u64::from(*byte))
}

/// The first bytes of partitions, by the start of the disk: GPT with sectors of 512 bytes, else the four of an MBR.
fn partitions(start: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    if start.get(512..520) == Some(b"EFI PART".as_slice()) {
        let (entries, size) = (number(start, 584, 8), number(start, 596, 4) as usize);
        let many = (number(start, 592, 4) as usize).min(PARTITIONS);
        let first = entries.saturating_mul(SECTOR) as usize;
        if (128..=4096).contains(&size) {
            let places = (0..many).map(|entry| first.saturating_add(entry * size));
            let inside = places.filter(|at| at.saturating_add(size) <= start.len());
            let used = inside.filter(|at| number(start, *at, 8) != 0);
            found.extend(used.map(|at| number(start, at + 32, 8)));
        }
    } else if start.get(510..512) == Some([0x55, 0xaa].as_slice()) {
        let places = (0..4).map(|entry| 446 + entry * 16);
        let used = places.filter(|at| start.get(at + 4).is_some_and(|kind| *kind != 0));
        found.extend(used.map(|at| number(start, at + 8, 4)));
    }
    found
        .into_iter()
        .map(|sector: u64| sector.saturating_mul(SECTOR))
        .collect()
}

/// Pages with headers of file systems, on a disk of `pages` pages that begins with `start`.
fn header_pages(start: &[u8], pages: u64) -> BTreeSet<u64> {
    let places = partitions(start)
        .into_iter()
        .flat_map(|first| HEADERS.map(|at| first.saturating_add(at) / PAGE));
    places.filter(|page| *page < pages).collect()
}

/// What comparing has found so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Pages whose fingerprint was known.
    pub known: usize,
    /// Of those, pages that could be read.
    pub compared: usize,
    /// Pages that differ.
    pub differ: Vec<u64>,
    /// The first error of a page that could not be read.
    pub error: Option<DeviceError>,
}

impl Tally {
    /// Counts one page whose fingerprint should be `known`.
    pub fn note(&mut self, page: u64, known: u32, found: Result<u32, DeviceError>) {
        self.known += 1;
        match found {
            Ok(found) => {
                self.compared += 1;
                self.differ.extend((found != known).then_some(page));
            }
            Err(error) => {
                tracing::warn!(page, %error, "a page of the slow device could not be compared");
                self.error.get_or_insert(error);
            }
        }
    }

    /// Why the device cannot be recognized, if too few pages could be read.
    fn too_few(&self) -> Option<DeviceError> {
        let few = self.compared * 2 < self.known;
        self.error.clone().filter(|_| few)
    }
}

/// Compares `expected` (page, fingerprint) with `slow`.
async fn compare(slow: &Rc<dyn Device>, expected: &[(u64, u32)], tally: &mut Tally) {
    for some in expected.chunks(DEPTH) {
        let reads = some.iter().map(|(page, _)| sample_crc(&**slow, *page));
        for ((page, known), found) in some.iter().zip(join_all(reads).await) {
            tally.note(*page, *known, found);
        }
    }
}

/// Clean whole pages in regions that are not marked, in order of address, at most `most` of them.
fn clean_pages(
    map: &PageMap,
    slots: u32,
    intents: &Map<u64, bool>,
    most: usize,
) -> Vec<(u64, u32)> {
    let mut clean: Vec<(u64, u32)> = (0..slots)
        .filter_map(|slot| map.in_slot(slot))
        .filter(|(_, entry)| !entry.dirty && entry.mask == FULL)
        .filter(|(page, _)| !intents.contains_key(&(page / REGION_PAGES)))
        .map(|(page, entry)| (page, entry.crc))
        .collect();
    clean.sort_unstable();
    let step = clean.len().div_ceil(most.max(1)).max(1);
    clean.into_iter().step_by(step).collect()
}

/// What an opening knows of the slow device.
pub(crate) struct KnownContents<'a> {
    pub map: &'a PageMap,
    pub slots: u32,
    pub intents: &'a Map<u64, bool>,
    pub samples: &'a Map<u64, Option<u32>>,
    pub closed: bool,
    /// Every clean page is to be compared.
    pub all: bool,
    /// The volume that the cache's label names, where neither that nor the record is this volume's.
    pub of: Option<String>,
}

/// Compares more than the sampled pages.
pub(crate) async fn compare_more(volume: &Volume, known: &KnownContents<'_>, tally: &mut Tally) {
    let mut expected: Vec<(u64, u32)> = Vec::new();
    if known.closed {
        let closing = known
            .samples
            .iter()
            .filter(|(number, _)| **number >= CLOSING);
        expected.extend(closing.filter_map(|(number, crc)| Some((number - CLOSING, (*crc)?))));
    }
    let most = match (known.all, known.closed) {
        (true, _) => usize::MAX,
        (false, true) => CLEAN,
        (false, false) => 0,
    };
    if most > 0 {
        expected.extend(clean_pages(known.map, known.slots, known.intents, most));
    }
    expected.retain(|(page, _)| *page < volume.slow.whole_pages());
    expected.sort_unstable();
    expected.dedup();
    compare(&volume.slow.device, &expected, tally).await;
}

/// Is this the slow device the cache knew? Compares fingerprints, but for pages that lie in marked regions or,
/// unless it was closed, are dirty: there the slow device may hold either of two contents.
async fn compare_samples(
    volume: &Volume,
    known: &KnownContents<'_>,
    tally: &mut Tally,
) -> Result<(), DeviceError> {
    let pages = sample_pages(volume.slow.whole_pages());
    for (number, page) in pages.iter().enumerate() {
        let sample = known.samples.get(&(number as u64)).copied().flatten();
        let dirty = known.map.is_dirty(*page) && !known.closed;
        let unsettled = dirty || known.intents.contains_key(&(page / REGION_PAGES));
        let Some(sample) = sample.filter(|_| !unsettled) else {
            continue;
        };
        match sample_crc(&*volume.slow.device, *page).await {
            Err(gone @ DeviceError::Gone { .. }) => return Err(gone),
            found => tally.note(*page, sample, found),
        }
    }
    Ok(())
}

/// Refuses a slow device that is not the one the cache knew, or of which too little can be read to recognize it.
pub(crate) async fn check_slow(
    volume: &Volume,
    label: &Label,
    fast: &str,
    known: &KnownContents<'_>,
) -> Result<(), OpenError> {
    let mut tally = Tally::default();
    compare_samples(volume, known, &mut tally).await?;
    if tally.differ.is_empty() {
        compare_more(volume, known, &mut tally).await;
    }
    if known.all {
        let (pages, differ) = (tally.compared, tally.differ.len());
        tracing::info!(volume = %volume.name, pages, differ, "verified");
    }
    if let Some(page) = tally.differ.first() {
        let slow = volume.slow.info.name.clone();
        let dirty = Bytes(u64::from(known.map.dirty()) * PAGE);
        let of = known.of.as_deref();
        return Err(OpenError::Stale {
            cure: right_pair(&volume.name, &slow, of, label.uuid, dirty),
            fast: fast.to_owned(),
            slow,
            differ: tally.differ.len(),
            compared: tally.compared,
            at: page * PAGE,
        });
    }
    if let Some(error) = tally.too_few() {
        return Err(error.into());
    }
    match tally.error {
        Some(error) if known.all => Err(OpenError::State {
            what: "verify",
            name: volume.name.clone(),
            why: format!(
                "{} of {} pages of {} that are to be compared cannot be read (the first: {error}); copy it to a \
                 sound device, or start without verifying",
                tally.known - tally.compared,
                tally.known,
                volume.slow.info.name
            ),
        }),
        _ => Ok(()),
    }
}

/// Notes the fingerprints of a close: nothing is written to the slow device from here on, and it was flushed.
pub(crate) async fn note_closing(cache: &Cache) {
    let pages = cache.volume.slow.whole_pages();
    let mut chosen: BTreeSet<u64> = cache.volume.recent.borrow().pages().collect();
    let start = Bytes((5 * PAGE).min(pages * PAGE));
    if let Ok(start) = cache.volume.slow.device.read_at(Sector(0), start).await {
        chosen.extend(header_pages(&start, pages));
    }
    chosen.retain(|page| *page < pages.min(PAGES_MAX - CLOSING));
    let old: Vec<u64> = cache
        .state
        .samples
        .borrow()
        .known()
        .keys()
        .copied()
        .collect();
    for number in old.into_iter().filter(|number| *number >= CLOSING) {
        if !chosen.contains(&(number - CLOSING)) {
            cache.state.samples.borrow_mut().set(number, None);
            cache.commit.note();
        }
    }
    for page in chosen {
        cache.refresh_sample(CLOSING + page, page).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_looked_for_where_partitions_begin() {
        let mut mbr = vec![0; 4096];
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        for (entry, start) in [(0, 2048u32), (2, 1 << 20)] {
            let at = 446 + entry * 16;
            mbr[at + 4] = 0x83;
            mbr[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        }
        let pages: Vec<u64> = header_pages(&mbr, 1 << 20).into_iter().collect();
        assert_eq!(pages, [256, 272, 131_072, 131_088]);
        assert_eq!(header_pages(&mbr, 270).len(), 1, "none behind the end");

        let mut gpt = vec![0; 5 * 4096];
        gpt[512..520].copy_from_slice(b"EFI PART");
        gpt[584..592].copy_from_slice(&2u64.to_le_bytes());
        gpt[592..596].copy_from_slice(&128u32.to_le_bytes());
        gpt[596..600].copy_from_slice(&128u32.to_le_bytes());
        for (entry, start) in [(0, 34u64), (31, 1 << 30)] {
            let at = 1024 + entry * 128;
            gpt[at] = 1;
            gpt[at + 32..at + 40].copy_from_slice(&start.to_le_bytes());
        }
        let pages: Vec<u64> = header_pages(&gpt, u64::MAX).into_iter().collect();
        assert_eq!(pages, [4, 20, 1 << 27, (1 << 27) + 16]);
    }

    #[test]
    fn a_partition_table_of_any_bytes_is_looked_at_and_no_more() {
        let mut rng = env::Rng::from_seed(5);
        for turn in 0..2_000 {
            let mut start = vec![0; [0, 100, 512, 600, 4096, 20_480][turn % 6]];
            rng.fill(&mut start);
            if let Some(magic) = start.get_mut(512..520).filter(|_| turn % 2 == 0) {
                magic.copy_from_slice(b"EFI PART");
            }
            assert!(header_pages(&start, 1000).iter().all(|page| *page < 1000));
        }
    }
}
