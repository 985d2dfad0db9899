//! Rounds of copying dirty pages to the slow device, and clearing of write intents.
//!
//! ```text
//! pick dirty pages in address order, 64 MiB at most -> read, check, merge
//!    -> write to the slow device in address order -> flush it -> note "clean" -> commit, some time
//! ```
//!
//! Always true:
//! 1. A page is noted as clean only after the slow device was flushed, and only if it was not
//!    overwritten meanwhile.
//! 2. A page goes to the slow device only when its map entry is durable.
//! 3. A round never waits for a lock: pages that another task has locked are left for the next one.

use std::rc::Rc;

use base::{Buf, Nanos, Sector, View};
use device::{Class, DeviceError, Op, WriteFlags};
use env::sync::join_all;

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::hold::Reader;
use crate::index::locks::Mode;
use crate::index::page_map::{Entry, FULL, Pinned, REGION_PAGES, UNIT_PAGES};
#[cfg(test)]
use crate::mutation::Mutation;
use crate::stats::count_in;

const PAGE_LEN: usize = base::PAGE;
/// Regions in one round: 64 MiB of addresses.
const WINDOW_REGIONS: u64 = 16;
/// A round goes on to further windows until it has found so many pages.
const SPARSE_PAGES: usize = 512;
/// Pages in one round at most.
pub(crate) const ROUND_PAGES: usize = 4096;
/// Slow writes under way at once; the device sorts among them.
const DEPTH: usize = 16;

/// Neighbouring dirty pages to be written with one request.
pub(crate) struct Run {
    pub first: u64,
    entries: Vec<Entry>,
}

impl Run {
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Its pages and what the map had of them.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        (self.first..).zip(self.entries.iter().copied())
    }

    fn is_unchanged(&self, cache: &Cache) -> bool {
        let map = cache.state.map();
        let mut entries = self.entries();
        entries.all(|(page, entry)| map.get(page) == Some(entry))
    }

    /// Adds `page`, which lies behind all those in `runs`; a run has at most `most` pages.
    pub fn add(runs: &mut Vec<Run>, page: u64, entry: Entry, most: usize) {
        match runs.last_mut() {
            Some(run) if run.end() == page && run.entries.len() < most => run.entries.push(entry),
            _ => runs.push(Run {
                first: page,
                entries: vec![entry],
            }),
        }
    }
}

/// Which dirty pages a round of cleaning may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// But for those of hot extents, which would be written again soon.
    Cold,
    All,
}

/// One round: up to `pages` dirty pages from region `cursor` on, in address order. Returns how many
/// are clean now.
pub(crate) async fn destage_round(
    cache: &Rc<Cache>,
    cursor: &mut u64,
    pages: usize,
    which: Which,
) -> Result<usize, DeviceError> {
    let _turn = cache.destaging.turn.acquire(1).await;
    if cache.stopped.get() {
        return Ok(0);
    }
    let (runs, next) = pick(cache, *cursor, pages, run_max(cache), which);
    *cursor = next;
    let cleaned = carry_home(cache, &runs, false).await?;
    Ok(cleaned.len())
}

/// Pages in one run at most.
pub(crate) fn run_max(cache: &Cache) -> usize {
    cache.volume.slow.max_io().min(cache.fast.io_max) / PAGE_LEN
}

/// As a round of cleaning, over `runs`; `locked`: the caller holds their pages exclusively. Returns the pages
/// that are clean now, or were clean and are written to the slow device all the same.
pub(crate) async fn destage_runs(
    cache: &Rc<Cache>,
    runs: &[Run],
    locked: bool,
) -> Result<Vec<u64>, DeviceError> {
    let _turn = cache.destaging.turn.acquire(1).await;
    if cache.stopped.get() {
        return Ok(Vec::new());
    }
    carry_home(cache, runs, locked).await
}

/// Destages `runs`; the caller has the turn. Returns which pages are clean now.
async fn carry_home(
    cache: &Rc<Cache>,
    runs: &[Run],
    locked: bool,
) -> Result<Vec<u64>, DeviceError> {
    // The map entry of what is destaged must be durable first. Else a crash would leave the new contents
    // on the slow device beneath an older clean copy in the map.
    if cache.is_running() && !runs.is_empty() {
        cache.committed().await?;
    }
    let mut done: Vec<(u64, Entry)> = Vec::new();
    let mut failed = None;
    for batch in runs.chunks(DEPTH) {
        let writes = batch.iter().map(|run| destage_run(cache, run, locked));
        for (destaged, error) in join_all(writes).await {
            done.extend(destaged);
            failed = failed.or(error);
        }
    }
    #[cfg(test)]
    let early = cache.volume.planted(Mutation::EarlyClean);
    #[cfg(not(test))]
    let early = false;
    if !done.is_empty() && !early {
        let flushed = cache.volume.slow.flush().await;
        if let Err(error) = flushed {
            return Err(no_progress(cache, error));
        }
    }
    let cleaned = note_clean(cache, &done).await;
    count_in(&cache.upkeep, |counts| {
        counts.bytes_cleaned += cleaned.len() as u64 * PAGE;
        counts.clean_rounds += 1;
    });
    match failed {
        Some(error) if cleaned.is_empty() => Err(no_progress(cache, error)),
        _ => {
            if !cleaned.is_empty() {
                *cache.destaging.error.borrow_mut() = None;
                cache.health.trouble.round_worked();
                cache.room.notify_all();
            }
            Ok(cleaned)
        }
    }
}

/// The slow device has `done` for good: notes as clean what was not written meanwhile, and returns those pages.
pub(crate) async fn note_clean(cache: &Rc<Cache>, done: &[(u64, Entry)]) -> Vec<u64> {
    // Fingerprints first: a commit between may only see a page that is still dirty.
    refresh_samples(cache, done).await;
    let mut cleaned = Vec::new();
    for (page, entry) in done {
        let mut map = cache.state.map_mut();
        if map.get(*page).as_ref() == Some(entry) {
            map.set_clean(*page);
            drop(map);
            cache.touch(*page);
            cleaned.push(*page);
        }
    }
    cleaned
}

/// Writers that wait for clean pages wait in vain: wakes them with the error.
fn no_progress(cache: &Cache, error: DeviceError) -> DeviceError {
    *cache.destaging.error.borrow_mut() = Some(error.clone());
    cache.health.trouble.round_failed();
    cache.room.notify_all();
    error
}

/// Copies one run of dirty pages to the slow device. If that fails, copies page by page, so that one bad page
/// does not keep its neighbours. Returns the pages written and the last error. Returns no page if another task
/// has one locked or has changed one.
pub(crate) async fn destage_run(
    cache: &Rc<Cache>,
    run: &Run,
    locked: bool,
) -> (Vec<(u64, Entry)>, Option<DeviceError>) {
    match try_destage(cache, run, locked).await {
        Ok(true) => (
            (run.first..).zip(run.entries.iter().copied()).collect(),
            None,
        ),
        Ok(false) => (Vec::new(), None),
        Err(error) if run.entries.len() == 1 => (Vec::new(), Some(error)),
        Err(_) => {
            let (mut destaged, mut failed) = (Vec::new(), None);
            for (page, entry) in (run.first..).zip(&run.entries) {
                let single = Run {
                    first: page,
                    entries: vec![*entry],
                };
                match try_destage(cache, &single, locked).await {
                    Ok(true) => destaged.push((page, *entry)),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
            }
            (destaged, failed)
        }
    }
}

/// False: another task has a page locked, or has changed one.
async fn try_destage(cache: &Rc<Cache>, run: &Run, locked: bool) -> Result<bool, DeviceError> {
    let held = match locked {
        true => None,
        false => cache
            .volume
            .locks
            .try_acquire(run.first, run.end(), Mode::CLEANING),
    };
    if held.is_none() && !locked {
        return Ok(false);
    }
    let reader = Reader::enter(cache);
    if !run.is_unchanged(cache) {
        return Ok(false);
    }
    let data = gather(cache, run).await?;
    drop(reader);
    for (from, len) in kept_sectors(&run.entries) {
        let at = Sector::containing(run.first * PAGE + from as u64);
        let flags = WriteFlags::BACKGROUND;
        cache
            .volume
            .slow
            .write(at, data.slice(from, len), flags)
            .await?;
    }
    Ok(true)
}

/// Copies `runs` to the slow device: all of them are read before the first is written, and then they are
/// written at once. Leaves out runs that another task has locked or changed; returns the others.
pub(crate) async fn destage_together(
    cache: &Rc<Cache>,
    runs: &[Run],
) -> Result<Vec<(u64, Entry)>, DeviceError> {
    let reader = Reader::enter(cache);
    let mut held = Vec::new();
    let mut chosen = Vec::new();
    for run in runs {
        let lock = cache
            .volume
            .locks
            .try_acquire(run.first, run.end(), Mode::CLEANING);
        if lock.is_some() && run.is_unchanged(cache) {
            held.extend(lock);
            chosen.push(run);
        }
    }
    let gathered = join_all(chosen.iter().map(|run| gather(cache, run))).await;
    drop(reader);
    let mut writes = Vec::new();
    for (run, data) in chosen.iter().zip(gathered) {
        let data = data?;
        for (from, len) in kept_sectors(&run.entries) {
            let at = Sector::containing(run.first * PAGE + from as u64);
            let data = data.slice(from, len);
            writes.push(cache.volume.slow.write(at, data, WriteFlags::BACKGROUND));
        }
    }
    let answers = join_all(writes).await;
    answers.into_iter().collect::<Result<(), DeviceError>>()?;
    Ok(chosen.iter().flat_map(|run| run.entries()).collect())
}

/// The pages of a run, read from their slots and checked.
async fn gather(cache: &Rc<Cache>, run: &Run) -> Result<View, DeviceError> {
    let mut rest = Buf::for_read(run.entries.len() * PAGE_LEN);
    let mut reads = Vec::new();
    let mut at = 0;
    while at < run.entries.len() {
        let slot = run.entries[at].slot;
        let mut len = 1;
        while at + len < run.entries.len() && run.entries[at + len].slot == slot + len as u32 {
            len += 1;
        }
        let tail = rest.split_off(len * PAGE_LEN);
        let piece = std::mem::replace(&mut rest, tail);
        reads.push(cache.read_slots(slot, piece, Class::Background));
        at += len;
    }
    let mut whole: Option<Buf> = None;
    for piece in join_all(reads).await {
        let piece = piece?;
        match &mut whole {
            None => whole = Some(piece),
            Some(whole) => whole.join(piece),
        }
    }
    Ok(whole.expect("a run holds at least one page").freeze())
}

/// Sampled pages that were destaged have a new fingerprint.
async fn refresh_samples(cache: &Rc<Cache>, done: &[(u64, Entry)]) {
    let samples = cache.state.sample_pages();
    for (page, _) in done {
        if let Ok(number) = samples.binary_search(page) {
            cache.refresh_sample(number as u64, *page).await;
        }
    }
}

/// Destages about what is dirty now, while users go on. They may make pages dirty as fast, so this ends
/// after twice as many; the gate is to be closed for the rest.
pub(crate) async fn destage_most(cache: &Rc<Cache>) -> Result<(), DeviceError> {
    let (mut cursor, mut destaged) = (0, 0);
    let most = 2 * cache.state.map().dirty() as usize;
    while cache.state.map().dirty() > 0 && destaged < most {
        match destage_round(cache, &mut cursor, 1024, Which::All).await? {
            0 => break,
            some => destaged += some,
        }
    }
    Ok(())
}

/// Rounds until nothing is dirty. Without a closed gate users may make pages dirty as fast as they are
/// cleaned.
///
/// # Errors
/// The last error, once a whole sweep over what is dirty destaged nothing.
pub(crate) async fn destage_all(cache: &Rc<Cache>) -> Result<(), DeviceError> {
    while cache.state.map().dirty() > 0 {
        if cache.stopped.get() {
            return Err(DeviceError::Gone {
                device: cache.volume.name.clone(),
                op: Op::Write,
                why: "it was shut down".to_owned(),
            });
        }
        let (mut cursor, mut cleaned, mut failed) = (0, 0, None);
        let regions = cache.state.map().regions().from(0).count();
        for _ in 0..=regions {
            match destage_round(cache, &mut cursor, ROUND_PAGES, Which::All).await {
                Ok(some) => cleaned += some,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if cleaned == 0 => return Err(error),
            _ if cleaned == 0 => env::sleep(Nanos::micros(100)).await,
            _ => {}
        }
    }
    Ok(())
}

/// Clears the intents of regions that have rested for `rest`.
pub(crate) async fn clear_intents(cache: &Rc<Cache>, rest: Nanos) -> Result<(), DeviceError> {
    let _turn = cache.destaging.turn.acquire(1).await;
    if cache.stopped.get() {
        return Ok(());
    }
    let rested = cache.state.intents.borrow().rested(env::now(), rest, true);
    if !rested.is_empty() {
        cache.volume.slow.flush().await?;
    }
    // The others wait for a flush that another task asks for.
    let flushed = cache.volume.slow.flushed_since();
    cache.state.intents.borrow_mut().forget_unrecorded(flushed);
    let samples = cache.state.sample_pages();
    for (region, writes) in rested {
        // The fingerprints of a marked region are unknown until they are read anew.
        let (first, end) = (region * REGION_PAGES, (region + 1) * REGION_PAGES);
        for (number, page) in samples.iter().enumerate() {
            if (first..end).contains(page) {
                cache.refresh_sample(number as u64, *page).await;
            }
        }
        cache.state.intents.borrow_mut().clear(region, writes);
    }
    Ok(())
}

/// Chooses dirty pages in address order from region `cursor` on, within one window of addresses, as
/// runs of neighbours. Returns the runs and the region to go on from.
fn pick(
    cache: &Rc<Cache>,
    cursor: u64,
    pages: usize,
    run_max: usize,
    which: Which,
) -> (Vec<Run>, u64) {
    let map = cache.state.map();
    let first_region = map
        .regions()
        .from(cursor)
        .next()
        .or_else(|| map.regions().from(0).next());
    let Some(first_region) = first_region else {
        return (Vec::new(), 0);
    };
    let mut runs: Vec<Run> = Vec::new();
    let mut chosen = 0;
    let mut window_end = first_region + WINDOW_REGIONS;
    let mut next = window_end;
    for region in map.regions().from(first_region) {
        let units = region * REGION_PAGES..(region + 1) * REGION_PAGES;
        let all_hot = || {
            let mut units = units.clone().step_by(UNIT_PAGES as usize);
            units.all(|page| map.pins().of(page) == Pinned::Hot)
        };
        if which == Which::Cold && all_hot() {
            continue;
        }
        if region >= window_end {
            // A full window is a round; sparse ones are worked through until there is enough to do.
            if chosen >= pages.min(SPARSE_PAGES) {
                break;
            }
            window_end = region + WINDOW_REGIONS;
            next = window_end;
        }
        if chosen >= pages {
            next = region;
            break;
        }
        let dirty = |page| map.get(page).filter(|entry| entry.dirty);
        for (page, entry) in map.regions().pages_of(region, dirty) {
            if which == Which::Cold && map.pins().of(page) == Pinned::Hot {
                continue;
            }
            chosen += 1;
            Run::add(&mut runs, page, entry, run_max);
        }
    }
    (runs, next)
}

/// Runs of valid sectors in neighbouring pages: (first byte, bytes).
fn kept_sectors(entries: &[Entry]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut add = |from: usize, len: usize| match runs.last_mut() {
        Some((start, so_far)) if *start + *so_far == from => *so_far += len,
        _ => runs.push((from, len)),
    };
    for (number, entry) in entries.iter().enumerate() {
        if entry.mask == FULL {
            add(number * PAGE_LEN, PAGE_LEN);
            continue;
        }
        for sector in 0..8 {
            if entry.mask >> sector & 1 == 1 {
                add(number * PAGE_LEN + sector * 512, 512);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_sectors_are_destaged_and_neighbours_go_together() {
        let entry = |mask: u8| Entry {
            slot: 0,
            dirty: true,
            mask,
            crc: 0,
        };
        let runs = kept_sectors(&[entry(FULL), entry(0b11), entry(0b1000_0000), entry(FULL)]);
        assert_eq!(runs, [(0, 4096 + 1024), (2 * 4096 + 3584, 512 + 4096)]);
    }
}
