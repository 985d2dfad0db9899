//! Recovering a cache: the last committed map, clean and dirty entries alike.
//!
//! ```text
//! record and label -> replay the ledger -> drop clean pages of marked regions -> compare fingerprints
//!     -> label of the next attachment -> record
//! ```
//!
//! Always true:
//! 1. A pair that does not belong together is refused, and nothing is written.
//! 2. Cut off at any point, the pair opens as before or as after.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant, Map};
use device::Device;
use ledger::{Ledger, LedgerError, Record, Replay};

use super::compare::{KnownContents, check_slow};
use super::disk::Engine;
use super::late::{Late, late_changes};
use super::manage::resize_at_open;
use super::setup::{Ties, begin_commits, begin_log, check_block, note_pair, put_to_work, quiet};
use crate::attach::error::OpenError;
use crate::attach::label::{Attachment, Label, PAGE};
use crate::attach::pair::{Keeper, Pair};
use crate::attach::relabel::Change;
use crate::cache::{Cache, Made};
use crate::durable::record::{Fact, understand};
use crate::durable::samples::Samples;
use crate::health::Ends;
use crate::index::extents::{ExtentRecord, ExtentTable};
use crate::index::page_map::{Entry, PageMap, REGION_PAGES};
use crate::settings::Settings;
use crate::stats::{Health, NanosOf, Recovered};
use crate::tier::fit::restore_tier;
use crate::tier::{Movers, Tier};

/// What the ledger says.
struct Facts {
    map: PageMap,
    intents: Map<u64, bool>,
    samples: Map<u64, Option<u32>>,
    extents: BTreeMap<u32, ExtentRecord>,
    /// What of it cannot be.
    wrong: Option<String>,
    slots_max: u32,
    whole_pages: u64,
    now: Instant,
    /// What the restart log added: the ledger lacks it.
    late: Late,
}

impl Facts {
    fn new(label: &Label, settings: &Settings, whole_pages: u64) -> Facts {
        Facts {
            // The log may still name slots behind the end of a cache that was made smaller since.
            map: PageMap::new(label.slots_max, settings.policy, settings.block.0 / PAGE),
            intents: Map::default(),
            samples: Map::default(),
            extents: BTreeMap::new(),
            wrong: None,
            slots_max: label.slots_max,
            whole_pages,
            now: env::now(),
            late: Late::default(),
        }
    }

    fn note(&mut self, record: Record<'_>) {
        match understand(record) {
            None => {
                self.wrong
                    .get_or_insert_with(|| format!("a record is none of ours: {record:?}"));
            }
            Some(fact) => self.apply(fact),
        }
    }

    fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Page(page, None) => {
                self.map.remove(page);
            }
            Fact::Page(page, Some(entry)) => self.note_page(page, &entry),
            Fact::Intent(region, marked) => {
                self.intents.insert(region, marked);
            }
            Fact::Sample(number, crc) => {
                self.samples.insert(number, crc);
            }
            Fact::Extent(extent, None) => {
                self.extents.remove(&extent);
            }
            Fact::Extent(extent, Some(state)) => {
                self.extents.insert(extent, state);
            }
        }
    }

    /// Adds what the restart log has beyond the ledger.
    fn add(&mut self, late: Vec<Fact>) {
        for fact in late {
            self.late.note(&fact);
            self.apply(fact);
        }
    }

    fn note_page(&mut self, page: u64, entry: &Entry) {
        let holder = self.map.in_slot(entry.slot).map(|(holder, _)| holder);
        let free_or_ours =
            entry.slot < self.slots_max && holder.is_none_or(|holder| holder == page);
        if !free_or_ours || page >= self.whole_pages {
            let why = || format!("page {page} cannot be in slot {}", entry.slot);
            self.wrong.get_or_insert_with(why);
            return;
        }
        // The same page in the same slot: only its state changed.
        if self.map.find(page) == Some(entry.slot) {
            self.map.remove(page);
        }
        let Entry {
            slot,
            dirty,
            mask,
            crc,
        } = *entry;
        self.map.put(page, slot, dirty, mask, crc, self.now);
    }

    /// Everything was replayed: is it in order for a cache of `slots` slots?
    fn finish(&mut self, slots: u32, settings: &Settings) -> Result<(), String> {
        let beyond = (slots..self.slots_max).find_map(|slot| self.map.in_slot(slot));
        if let Some((page, entry)) = beyond {
            self.wrong.get_or_insert_with(|| {
                format!(
                    "page {page} is in slot {}, behind the last one in use ({slots})",
                    entry.slot
                )
            });
        }
        if let Some(why) = self.wrong.take() {
            return Err(why);
        }
        if slots < self.slots_max {
            self.map
                .resize(slots, settings.policy, settings.block.0 / PAGE);
        }
        self.intents.retain(|_, marked| *marked);
        Ok(())
    }
}

/// Replays the ledger.
async fn replay(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    label: &Label,
    ties: &Ties,
) -> Result<(Ledger, Replay, Facts), OpenError> {
    let volume = &engine.volume;
    let settings = volume.settings.borrow().clone();
    let mut facts = Facts::new(label, &settings, volume.whole_pages());
    let visit = |record: Record<'_>| facts.note(record);
    let opened = Ledger::open(Rc::clone(fast), label.ledger, visit).await;
    let (name, device) = (volume.name.clone(), fast.info().name);
    let (ledger, replay) = opened.map_err(|source| match source {
        LedgerError::Damaged { .. } => OpenError::MapLost {
            name,
            fast: device.clone(),
            cache: label.uuid,
            source: Box::new(source),
        },
        _ => OpenError::Ledger {
            name,
            fast: device.clone(),
            source,
        },
    })?;
    let late = late_changes(engine, fast, label, ledger.figures().sequence, ties).await;
    engine.found_all.set(late.is_some() || label.closed);
    facts.add(late.unwrap_or_default());
    match facts.finish(label.slots, &settings) {
        Ok(()) => Ok((ledger, replay, facts)),
        Err(why) => Err(OpenError::Damaged { fast: device, why }),
    }
}

fn check_size(engine: &Engine, fast: &str, label: &Label) -> Result<(), OpenError> {
    let slow = &engine.volume.slow.info;
    if label.slow_size != slow.size {
        return Err(OpenError::WrongSlow {
            fast: fast.to_owned(),
            expected: label.slow_size,
            slow: slow.name.clone(),
            size: slow.size,
        });
    }
    Ok(())
}

/// Recovers the cache of `label` on `fast` and puts it to work.
///
/// # Errors
/// [`OpenError`]; nothing was written then.
pub(super) async fn recover(
    engine: &Engine,
    fast: Rc<dyn Device>,
    label: Label,
    ties: &Ties,
    keeper: Rc<Keeper>,
) -> Result<(), OpenError> {
    let start = env::now();
    let volume = &engine.volume;
    let fast_name = fast.info().name;
    check_size(engine, &fast_name, &label)?;
    let settings = volume.settings.borrow().clone();
    check_block(&fast_name, settings.block, label.slots)?;
    // A process that was killed may have left writes in the volatile caches of both devices. They are seen now,
    // and what is seen must stay: the slow device is flushed here, the fast one by its ledger.
    volume.slow.flush().await?;
    let (ledger, replay, facts) = replay(engine, &fast, &label, ties).await?;
    // A cache that failed destaged some of its data, past the map: its clean entries and
    // fingerprints are out of date.
    let known = keeper.now();
    let failing = label.attachment == Attachment::Failing
        || (known.failing && known.cache == Some(label.uuid));
    if !failing {
        let ours = known.cache == Some(label.uuid) || label.is_of(&volume.name);
        let contents = KnownContents {
            map: &facts.map,
            slots: label.slots,
            intents: &facts.intents,
            samples: &facts.samples,
            closed: label.closed,
            all: ties.verify,
            of: (!ours).then(|| label.name.clone()),
        };
        check_slow(volume, &label, &fast_name, &contents).await?;
    }
    // A commit that cannot be read may have recorded writes past the cache.
    let unsure = failing || replay.unreadable_at.is_some();
    let label = Label {
        mode: Some(ties.mode.unwrap_or(settings.mode)),
        ..label
    };
    let ends = Ends {
        on_abandon: ties.on_abandon.clone(),
        pair: keeper,
    };
    let restart_records = facts.late.records;
    let (tier, mut recovered) = revive(engine, fast, label, ledger, facts, ends, unsure);
    recovered.took = NanosOf(env::now().since(start));
    engine.recovered.set(recovered);
    tracing::info!(
        volume = %volume.name, pages = recovered.pages, dropped = recovered.dropped,
        records = replay.records, restart_records, "cache recovered"
    );
    after_recovery(&tier.cache, &replay, unsure);
    begin_commits(&tier.cache);
    let answer = go_on(engine, &tier, failing, ties).await;
    settle(engine, tier, answer).await
}

/// The cache in memory, with what may be stale dropped; `unsure`: no clean page can be trusted.
fn revive(
    engine: &Engine,
    fast: Rc<dyn Device>,
    label: Label,
    ledger: Ledger,
    facts: Facts,
    ends: Ends,
    unsure: bool,
) -> (Rc<Tier>, Recovered) {
    let volume = &engine.volume;
    let used = label.slots;
    let extents = ExtentTable::new(volume.whole_pages(), &volume.settings.borrow().tier);
    let movers = Rc::new(Movers::default());
    let made = Made {
        fast,
        ledger,
        label,
        map: facts.map,
        extents,
        mover: Rc::clone(&movers) as Rc<dyn crate::interpose::Interpose>,
        ends,
    };
    let cache = Cache::new(volume, made);
    let tier = Tier::new(Rc::clone(&cache), movers);
    let mut recovered = Recovered::default();
    for region in facts.intents.keys().copied() {
        cache.state.intents.borrow_mut().recovered(region);
    }
    for slot in 0..used {
        let found = cache.state.map().in_slot(slot);
        let Some((page, entry)) = found else {
            continue;
        };
        cache.state.slots_mut().adopt(slot);
        let marked = cache.state.intents.borrow().has(page / REGION_PAGES);
        if (marked || unsure) && !entry.dirty {
            // The slow device may have changed beneath; the slot waits for the removal's commit.
            cache.unmap_page(page);
            recovered.dropped += 1;
        } else {
            recovered.pages += 1;
        }
    }
    cache.state.samples.replace(Samples::new(facts.samples));
    restore_tier(&tier, &facts.extents);
    facts.late.touch(&cache);
    (tier, recovered)
}

/// What a replay that met damage, or a cache that failed, leaves to be said.
fn after_recovery(cache: &Cache, replay: &Replay, unsure: bool) {
    if unsure {
        cache.state.samples.borrow_mut().forget_all();
        if cache.state.samples.borrow().any_touched() {
            cache.commit.note();
        }
    }
    if let Some(at) = replay.unreadable_at {
        let bytes = Bytes(replay.unreadable * PAGE);
        let device = cache.fast.name();
        cache.health.trouble.end_unreadable(&device, at, bytes);
        tracing::warn!(
            volume = %cache.volume.name, device, byte = at.byte(), bytes = bytes.0,
            "the end of the map's log cannot be read: a power cut hit its last commit, or what was flushed last \
             is missing"
        );
    }
}

/// The cache counts in a new attachment, and its tasks begin.
async fn go_on(
    engine: &Engine,
    tier: &Rc<Tier>,
    failing: bool,
    ties: &Ties,
) -> Result<(), OpenError> {
    let cache = &tier.cache;
    // What was dropped must be durably gone before its slots or regions are used anew: the first
    // commit carries it, and slots wait for that.
    take_found(cache, failing)?;
    cache.committed().await?;
    take_again(cache).await?;
    begin_log(cache, ties);
    // Not before: until the label names this attachment the slow device must stay as it was closed.
    put_to_work(tier);
    engine.attach(Some(Rc::clone(tier)));
    let wanted = engine.volume.settings.borrow().fast_bytes;
    resize_at_open(engine, wanted).await
}

/// A fast device that takes no writes does not keep the volume from opening, if its data can be destaged.
async fn settle(
    engine: &Engine,
    tier: Rc<Tier>,
    answer: Result<(), OpenError>,
) -> Result<(), OpenError> {
    match answer {
        Err(OpenError::Device(error)) if can_evacuate(&tier.cache) => {
            tracing::warn!(
                volume = %engine.volume.name, %error,
                "the fast device takes no writes: its dirty data go to the slow device"
            );
            put_to_work(&tier);
            engine.attach(Some(tier));
            Ok(())
        }
        Err(error) => {
            engine.attach(None);
            quiet(&tier.cache).await;
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Did the fast device fail in a way that the volume can go on with: dirty data are destaged, or nothing is dirty?
fn can_evacuate(cache: &Cache) -> bool {
    let evacuating = cache.health.is(Health::Evacuating) && cache.health.is_failing_noted();
    evacuating || cache.health.is(Health::PassThrough)
}

/// The record, before anything is written to the fast device: the cache as it was found. Where no record can be
/// written, a cache of an earlier version stays one that its program opens.
fn take_found(cache: &Cache, failing: bool) -> Result<(), OpenError> {
    let (uuid, generation, mode) = {
        let label = cache.health.label.borrow();
        (label.uuid, label.generation, label.mode)
    };
    let now = cache.health.pair.now();
    let ours = now.cache == Some(uuid);
    let pair = Pair {
        cache: Some(uuid),
        // An accepted one may be behind; the count never goes back.
        generation: generation.max(now.generation),
        dirty: (now.dirty && ours) || cache.state.map().dirty() > 0,
        failing,
        accepted: now.accepted && ours,
        mode,
    };
    note_pair(cache, pair)
}

/// The label, then the record: a cache of an earlier attachment counts in this one. What is dropped is durably
/// gone before: from here on clean pages count again.
async fn take_again(cache: &Rc<Cache>) -> Result<(), OpenError> {
    let (uuid, attached, mode) = {
        let label = cache.health.label.borrow();
        (label.uuid, label.generation, label.mode)
    };
    let generation = attached.max(cache.health.pair.now().generation) + 1;
    let opened = Change::Opened(generation);
    if let Err(error) = cache.health.label.change(opened).await {
        cache.fail(error.clone()).await;
        return Err(error.into());
    }
    let dirty = cache.state.map().dirty() > 0;
    let pair = Pair {
        cache: Some(uuid),
        generation,
        dirty: dirty || cache.volume.settings.borrow().write.keeps_dirty(),
        mode,
        ..Pair::default()
    };
    note_pair(cache, pair)
}
