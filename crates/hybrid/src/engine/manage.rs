//! Management of a disk in use: attach, detach, close, resize, other settings.
//!
//! ```text
//! attach:  gate closed -> an empty cache -> nothing is withheld any more -> gate open
//! detach:  destage everything -> label "detached" -> record -> the slow device stands alone
//! close:   commit -> clean mark; dirty data stay on the fast device, and the next open finds the cache warm
//! ```
//!
//! Always true:
//! 1. None of these writes the slow device but to destage its own data.
//! 2. Cut off at any point, the pair opens as before or as after.

use std::rc::Rc;

use base::{Bytes, Nanos};
use device::{Device, DeviceError, Op};

use super::compare::note_closing;
use super::disk::Engine;
use super::flush::flush;
use super::format::format;
use super::setup::{Ties, check_block, note_pair, quiet};
use crate::attach::error::OpenError;
use crate::attach::label::{Attachment, PAGE};
use crate::attach::pair::Pair;
use crate::attach::relabel::Change;
use crate::cache::Cache;
use crate::fill;
use crate::settings::{Settings, SettingsError};
use crate::tier::Tier;
use crate::tier::drain::drain_buffer;
use crate::tier::fit::{apply_tier, fit_tier};
use crate::writeback::{clear_intents, destage_all, destage_most};

/// The smallest cache, in slots.
const SLOTS_MIN: u32 = 64;

/// One management operation under way.
struct Managing(Rc<Engine>);

impl Drop for Managing {
    fn drop(&mut self) {
        self.0.managing.set(false);
    }
}

/// Begins an operation, one at a time; `what` it is, in words.
fn manage(engine: &Rc<Engine>, what: &'static str) -> Result<Managing, OpenError> {
    if engine.closed.get() {
        return Err(refuse(engine, what, "it was shut down"));
    }
    if engine.managing.replace(true) {
        return Err(refuse(
            engine,
            what,
            "another management operation is under way; try again when it has ended",
        ));
    }
    Ok(Managing(Rc::clone(engine)))
}

fn refuse(engine: &Engine, what: &'static str, why: &str) -> OpenError {
    OpenError::State {
        what,
        name: engine.volume.name.clone(),
        why: why.to_owned(),
    }
}

// --- attach and detach ----------------------------------------------------------------------------

/// See [`crate::Hybrid::attach`].
pub(super) async fn attach(
    engine: &Rc<Engine>,
    fast: Rc<dyn Device>,
    ties: Ties,
) -> Result<(), OpenError> {
    let what = "attach a fast device to";
    let _managing = manage(engine, what)?;
    if engine.live_tier().is_some() {
        return Err(refuse(engine, what, "it has one; detach that first"));
    }
    let mut settings = engine.volume.settings.borrow().clone();
    settings.fit(&*fast);
    settings.check()?;
    *engine.volume.settings.borrow_mut() = settings;
    engine.close_gate().await;
    let answer = match drain_buffer(engine.tier()).await {
        Ok(()) => format(engine, fast, &ties).await,
        Err(error) => Err(error.into()),
    };
    if answer.is_ok() {
        engine.withhold(None);
    }
    engine.open_gate();
    answer
}

/// See [`crate::Hybrid::detach`].
pub(super) async fn detach(engine: &Rc<Engine>) -> Result<(), OpenError> {
    let _managing = manage(engine, "detach the fast device of")?;
    let Some(tier) = engine.live_tier() else {
        return Ok(());
    };
    let _halt = tier.halt_moves().await;
    // Most of it while users go on; then hold them up for the rest.
    destage_most(&tier.cache).await?;
    engine.close_gate().await;
    let answer = let_go(engine, &tier.cache).await;
    engine.open_gate();
    answer
}

/// The volume goes on without its cache because of `error`.
fn gone(volume: &str, error: &OpenError) -> DeviceError {
    DeviceError::Gone {
        device: volume.to_owned(),
        op: Op::Write,
        why: error.to_string(),
    }
}

/// Detaches: the gate is closed.
async fn let_go(engine: &Engine, cache: &Rc<Cache>) -> Result<(), OpenError> {
    let volume = &cache.volume;
    fill::pause(cache).await;
    destage_all(cache).await?;
    volume.slow.flush().await?;
    cache.committed().await?;
    let clean = Pair {
        dirty: false,
        ..cache.health.pair.now()
    };
    if let Err(error) = note_pair(cache, clean) {
        // It may say so all the same, and nothing may become dirty then. Nothing is: the slow device goes on alone.
        if !cache.health.pair.is_settled() {
            cache.fail(gone(&volume.name, &error)).await;
        }
        return Err(error);
    }
    let detached = Attachment::Detached;
    if let Err(error) = cache.health.label.change_attachment(detached).await {
        // One copy may say "detached" already, so nothing may count on the cache any more. Nothing
        // is dirty: the slow device goes on alone, if the tie can be cut at all.
        cache.fail(error.clone()).await;
        return Err(error.into());
    }
    if let Err(why) = cache.health.pair.note(clean.alone()) {
        // It names a cache of which nothing is missed, and whose label says that it ended.
        tracing::warn!(volume = %volume.name, why, "the record of pairs could not be written");
    }
    quiet(cache).await;
    end_log(cache);
    engine.attach(None);
    *engine.why_alone.borrow_mut() = "the fast device was detached".to_owned();
    Ok(())
}

// --- close ----------------------------------------------------------------------------------------

/// See [`crate::Hybrid::close`].
pub(super) async fn close(engine: &Rc<Engine>) -> Result<(), OpenError> {
    let _managing = manage(engine, "close")?;
    engine.close_gate().await;
    engine.closed.set(true);
    let answer = match engine.live_tier() {
        None => flush(engine).await.map_err(OpenError::from),
        Some(tier) => {
            let _halt = tier.halt_moves().await;
            put_down(&tier.cache).await
        }
    };
    if let Some(tier) = engine.tier() {
        tier.cache.stop();
    }
    engine.open_gate();
    answer
}

/// Closes: the gate is closed for good. Goes as far as it can and returns the first error.
async fn put_down(cache: &Rc<Cache>) -> Result<(), OpenError> {
    let volume = &cache.volume;
    fill::pause(cache).await;
    let mut first: Result<(), OpenError> = cache.committed().await.map_err(OpenError::from);
    // A rested disk needs no intents, and a full set of fingerprints recognises it best.
    let cleared = clear_intents(cache, Nanos(0)).await;
    first = first.and(cleared.map_err(OpenError::from));
    // No round is under way from here on, and once the cache has stopped none begins.
    let _turn = cache.destaging.turn.acquire(1).await;
    // After that: a round that failed may have written pages without a flush, and a fingerprint of what a power
    // cut could still undo would be wrong afterwards.
    let flushed = volume.slow.flush().await;
    first = first.and(flushed.map_err(OpenError::from));
    if first.is_ok() {
        refresh_dirty_samples(cache).await;
        note_closing(cache).await;
    }
    let committed = cache.committed().await;
    first = first.and(committed.map_err(OpenError::from));
    cache.stop();
    let closed = cache.commit.ledger().close().await;
    first = first.and(closed.map_err(|source| OpenError::Ledger {
        name: volume.name.clone(),
        fast: cache.fast.name(),
        source,
    }));
    first?;
    cache.health.label.change(Change::Closed).await?;
    end_log(cache);
    if cache.state.map().dirty() > 0 {
        return Ok(());
    }
    let clean = Pair {
        dirty: false,
        ..cache.health.pair.now()
    };
    note_pair(cache, clean)
}

/// The ledger has everything: a restart log counts no more.
fn end_log(cache: &Cache) {
    if let Some(log) = cache.state.log_to(None) {
        log.end();
    }
}

/// Beneath dirty pages the slow device has what it had when they were written, unless the cleaner was at work on
/// them since. At rest it is read anew: then a start can see whether it was changed meanwhile.
async fn refresh_dirty_samples(cache: &Rc<Cache>) {
    for (number, page) in (0u64..).zip(cache.state.sample_pages()) {
        if cache.state.map().is_dirty(*page) {
            cache.refresh_sample(number, *page).await;
        }
    }
}

// --- size -----------------------------------------------------------------------------------------

/// See [`crate::Hybrid::resize`].
pub(super) async fn resize(
    engine: &Rc<Engine>,
    fast_bytes: Option<Bytes>,
) -> Result<(), OpenError> {
    let what = "resize the cache of";
    let _managing = manage(engine, what)?;
    let Some(tier) = engine.live_tier() else {
        return Err(refuse(engine, what, "it has none"));
    };
    let slots_max = tier.cache.health.label.borrow().slots_max;
    let wanted = slots_of(fast_bytes, slots_max);
    if wanted < SLOTS_MIN {
        return Err(OpenError::TooSmall {
            fast: tier.cache.fast.name(),
            size: Bytes(u64::from(wanted) * PAGE),
            slow: engine.volume.slow.info.name.clone(),
            slow_size: engine.volume.slow.info.size,
            least: Bytes(u64::from(SLOTS_MIN) * PAGE),
        });
    }
    engine.close_gate().await;
    let answer = change_size(&tier, wanted).await;
    engine.open_gate();
    if answer.is_ok() {
        engine.volume.settings.borrow_mut().fast_bytes = fast_bytes;
    }
    answer
}

/// Slots of a cache of `bytes`, of `slots_max`.
fn slots_of(bytes: Option<Bytes>, slots_max: u32) -> u32 {
    bytes.map_or(slots_max, |bytes| {
        (bytes.0 / PAGE).min(u64::from(slots_max)) as u32
    })
}

/// The configuration may ask for another size than the cache had.
pub(super) async fn resize_at_open(
    engine: &Engine,
    wanted: Option<Bytes>,
) -> Result<(), OpenError> {
    let Some(tier) = engine.live_tier() else {
        return Ok(());
    };
    let (slots_now, slots_max) = {
        let label = tier.cache.health.label.borrow();
        (label.slots, label.slots_max)
    };
    let slots = slots_of(wanted, slots_max);
    if slots == slots_now || slots < SLOTS_MIN {
        return Ok(());
    }
    change_size(&tier, slots).await
}

/// Changes the number of slots in use; no request is under way.
async fn change_size(tier: &Rc<Tier>, slots: u32) -> Result<(), OpenError> {
    let cache = &tier.cache;
    let settings = cache.volume.settings.borrow().clone();
    let (policy, pages_per_block) = (settings.policy, settings.block.0 / PAGE);
    if slots == cache.health.label.borrow().slots {
        return Ok(());
    }
    check_block(&cache.fast.name(), settings.block, slots)?;
    let _halt = tier.halt_moves().await;
    if slots > cache.state.slots().total() {
        // The label first: entries behind the old end must be legal before there are any.
        cache.health.label.change(Change::Slots(slots)).await?;
        cache.state.slots_mut().grow(slots);
    } else {
        shrink(cache, slots).await?;
    }
    cache.state.map_mut().resize(slots, policy, pages_per_block);
    cache.room.set(slots, pages_per_block);
    cache.fills.pause(false);
    fit_tier(tier);
    Ok(())
}

/// Empties the slots from `slots` on and gives them up.
async fn shrink(cache: &Rc<Cache>, slots: u32) -> Result<(), OpenError> {
    fill::pause(cache).await;
    destage_all(cache).await?;
    cache.state.slots_mut().withdraw(slots);
    drop_slots_from(cache, slots);
    cache.committed().await?;
    if let Err(error) = cache.health.label.change(Change::Slots(slots)).await {
        // One copy may name the new end already: slots behind it must hold nothing from now on.
        cache.fail(error.clone()).await;
        return Err(error.into());
    }
    cache.state.slots_mut().shrink(slots);
    Ok(())
}

/// Evicts every page in a slot from `slot` on; none of them is dirty.
fn drop_slots_from(cache: &Cache, slot: u32) {
    let total = cache.state.slots().total();
    for slot in slot..total {
        let found = cache.state.map().in_slot(slot);
        if let Some((page, entry)) = found {
            assert!(!entry.dirty, "page {page} was destaged first");
            cache.unmap_page(page);
        }
    }
}

// --- settings -------------------------------------------------------------------------------------

/// Why a change of settings was refused or not carried through.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The choice makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Another management operation is under way, or the choice does not fit the cache.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// A device failed while dirty data were being destaged.
    #[error("the new settings are in force, but dirty data could not all be destaged: {0}")]
    Cleaning(#[from] DeviceError),
}

/// Takes over changed settings.
fn apply(engine: &Engine, settings: &Settings) {
    let volume = &engine.volume;
    let old = volume.apply(settings);
    let Some(tier) = engine.tier() else { return };
    let cache = &tier.cache;
    let slots = cache.state.slots().total();
    if (old.admission, old.block) != (settings.admission, settings.block) {
        volume.remember_reads(slots);
    }
    if (old.policy, old.block) != (settings.policy, settings.block) {
        let grain = settings.block.0 / PAGE;
        cache.state.map_mut().set_grain(settings.policy, grain);
        cache.room.set(slots, grain);
    }
    apply_tier(&tier, &old);
    cache.destaging.work.notify_all();
}

/// See [`crate::Hybrid::set`].
pub(super) async fn set(engine: &Rc<Engine>, settings: Settings) -> Result<(), SetError> {
    settings.check()?;
    let _managing = manage(engine, "change the settings of")?;
    let old = engine.volume.settings.borrow().clone();
    let mut settings = Settings {
        name: old.name.clone(),
        fast_bytes: old.fast_bytes,
        ..settings
    };
    // What was not asked for stays as it is.
    settings.tier.extent = settings.tier.extent.or_else(|| {
        let extent = old.tier.extent?;
        Some(extent.min(settings.tier.region))
    });
    let tier = engine.live_tier();
    if let Some(cache) = tier.as_ref().map(|tier| &tier.cache) {
        let slots = cache.state.slots().total();
        check_block(&cache.fast.name(), settings.block, slots)?;
    }
    let clean_first = old.write.keeps_dirty() && !settings.write.keeps_dirty();
    // No move goes on under other choices than those it began with.
    let other_moves = (settings.mode, &settings.tier) != (old.mode, &old.tier);
    let _halt = match &tier {
        Some(tier) if clean_first || other_moves => Some(tier.halt_moves().await),
        _ => None,
    };
    if let Some(tier) = tier.as_ref().filter(|_| settings.write.keeps_dirty()) {
        let pair = tier.cache.health.pair.now();
        note_pair(
            &tier.cache,
            Pair {
                dirty: true,
                ..pair
            },
        )?;
    }
    apply(engine, &settings);
    if !engine.keeps_changes()
        && let Some(tier) = &tier
    {
        // With a published mover it is not promised: its buffer may be in memory.
        end_log(&tier.cache);
    }
    match tier.filter(|_| clean_first) {
        Some(tier) => Ok(clean_all(engine, &tier.cache).await?),
        None => Ok(()),
    }
}

/// Nothing is dirty from here on.
async fn clean_all(engine: &Engine, cache: &Rc<Cache>) -> Result<(), DeviceError> {
    // Most of it while users go on; then hold them up for the rest, or it might never end.
    destage_most(cache).await?;
    engine.close_gate().await;
    let answer = destage_all(cache).await;
    if answer.is_ok() && cache.is_running() {
        let clean = Pair {
            dirty: false,
            ..cache.health.pair.now()
        };
        // Said too much, at worst.
        if let Err(error) = note_pair(cache, clean) {
            tracing::warn!(volume = %cache.volume.name, %error, "the record still says dirty");
        }
    }
    engine.open_gate();
    answer
}
