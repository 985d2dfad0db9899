//! What making, opening and ending a cache have in common.
//!
//! Always true: none of it writes the slow device but to destage its own data.

use std::rc::Rc;

use base::{Bytes, Map};
use device::{Device, DeviceError};
use ledger::CommitSource;

use super::disk::Engine;
use crate::attach::error::OpenError;
use crate::attach::label::{Label, PAGE, Unlabelled};
use crate::attach::pair::{Keeper, Pair, PairBook, Refusal};
use crate::attach::refuse::refused;
use crate::cache::Cache;
use crate::destage::{clear_intents_loop, destage_loop};
use crate::durable::restart::{RestartLog, RestartPlace};
use crate::durable::samples::{sample_crc, sample_pages};
use crate::fill;
use crate::health::Abandon;
use crate::room::spare_for;
use crate::settings::Mode;
use crate::tier::Tier;
use crate::tier::copy::copy_loop;
use crate::tier::demote::demote_loop;
use crate::tier::fit::begin_tier;
use crate::tier::flow::pace_loop;
use crate::tier::interval::interval_loop;
use crate::tier::promote::promote_loop;
use crate::tier::published::published_loop;

/// How a pair is to be opened.
#[derive(Clone, Default)]
pub struct Ties {
    /// Take the fast device even if it holds something else or belongs elsewhere: what is on it is lost. What
    /// the record of pairs says may be the only copy is never given up so.
    pub force: bool,
    /// Caches given up after a failure: their contents never count again, whatever their labels say.
    pub abandoned: Vec<u128>,
    /// Remembers a cache given up when its own label cannot be written any more; without it such a
    /// failure stops the volume.
    pub on_abandon: Option<Abandon>,
    /// Where the record of the volume's cache is kept. Without it, an open cannot recognize a blank fast device, or one
    /// that was away meanwhile.
    pub pairs: Option<Rc<dyn PairBook>>,
    /// Compare every clean page of the cache with the slow device before the page is used.
    pub verify: bool,
    /// The mode that label and record keep ([`crate::kept_mode`]); `None`: that of the settings.
    pub mode: Option<Mode>,
    /// Where the changes between two commits outlive the process. Without it the death of the process may undo what was
    /// answered and not flushed.
    pub restart: Option<RestartPlace>,
}

/// The restart log begins, if there is a place for one.
pub(super) fn begin_log(cache: &Cache, ties: &Ties) {
    let Some(place) = &ties.restart else { return };
    let at = (!cache.state.pending() && cache.commit.is_idle())
        .then(|| cache.commit.ledger().figures().sequence);
    let log = RestartLog::begin(
        place,
        cache.health.label.borrow().id(),
        at,
        cache.state.next(),
    );
    cache.state.log_to(Some(log));
}

/// The record of this volume's cache.
///
/// # Errors
/// It cannot be understood.
pub(super) fn keeper(name: &str, ties: &Ties) -> Result<Rc<Keeper>, OpenError> {
    Keeper::read(ties.pairs.as_ref()).map_err(|why| OpenError::Record {
        name: name.to_owned(),
        why,
    })
}

/// Replaces the record of the cache of the volume `name`.
///
/// # Errors
/// See [`Keeper::note`].
pub(super) fn note_in(name: &str, keeper: &Keeper, pair: Pair) -> Result<(), OpenError> {
    keeper.note(pair).map_err(|why| OpenError::Record {
        name: name.to_owned(),
        why,
    })
}

/// Replaces the record of this cache.
///
/// # Errors
/// See [`Keeper::note`].
pub(super) fn note_pair(cache: &Cache, pair: Pair) -> Result<(), OpenError> {
    note_in(&cache.volume.name, &cache.health.pair, pair)
}

/// A refusal in words.
pub(super) fn refused_words(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    refusal: Refusal,
    slow: Option<&Label>,
) -> OpenError {
    let info = fast.info();
    let volume = &engine.volume;
    let names = (&*volume.name, &*volume.slow.info.name, &*info.name);
    refused(names, info.size, found, refusal, slow)
}

/// Refuses a cache that is not this lane of the hybrid's.
///
/// # Errors
/// [`OpenError::OtherLanes`], [`OpenError::Damaged`].
pub(super) fn check_lane(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    label: &Label,
) -> Result<(), OpenError> {
    let (lane, other) = (engine.volume.lane(), label.lane);
    let fast = fast.info().name;
    if other == lane {
        return Ok(());
    }
    if other.lanes != lane.lanes {
        return Err(OpenError::OtherLanes {
            name: engine.volume.name.clone(),
            fast,
            found: other.lanes,
            asked: lane.lanes,
        });
    }
    Err(OpenError::Damaged {
        fast,
        why: format!(
            "lane {} of {} is where lane {} should be",
            other.lane, other.lanes, lane.lane
        ),
    })
}

/// Refuses blocks so big that a cache of `slots` slots would not hold one.
///
/// # Errors
/// [`OpenError::BlockTooBig`].
pub(super) fn check_block(fast: &str, block: Bytes, slots: u32) -> Result<(), OpenError> {
    let room = Bytes(u64::from(slots - spare_for(slots)) * PAGE);
    if room >= block {
        return Ok(());
    }
    Err(OpenError::BlockTooBig {
        fast: fast.to_owned(),
        block,
        room,
    })
}

/// The fingerprint of one page of the slow device; none if the page cannot be read, which says nothing about what
/// is on it.
async fn sample_if_readable(slow: &dyn Device, page: u64) -> Result<Option<u32>, DeviceError> {
    match sample_crc(slow, page).await {
        Ok(crc) => Ok(Some(crc)),
        Err(gone @ DeviceError::Gone { .. }) => Err(gone),
        Err(error) => {
            tracing::warn!(page, %error, "a page of the slow device could not be compared");
            Ok(None)
        }
    }
}

/// Fingerprints of all sampled pages, as they are now.
///
/// # Errors
/// The slow device is gone.
pub(super) async fn all_samples(slow: &dyn Device) -> Result<Map<u64, Option<u32>>, DeviceError> {
    let whole_pages = slow.info().size.0 / PAGE;
    let mut samples: Map<u64, Option<u32>> = Map::default();
    for (number, page) in (0u64..).zip(sample_pages(whole_pages)) {
        samples.insert(number, sample_if_readable(slow, page).await?);
    }
    Ok(samples)
}

/// Commits begin.
pub(super) fn begin_commits(cache: &Rc<Cache>) {
    let commit_after = cache.volume.settings.borrow().commit_after;
    env::spawn(Rc::clone(cache).commit_loop(commit_after));
}

/// All other tasks begin.
pub(super) fn put_to_work(tier: &Rc<Tier>) {
    let cache = &tier.cache;
    let slots = cache.state.slots().total();
    cache.volume.remember_reads(slots);
    env::spawn(destage_loop(Rc::clone(cache)));
    env::spawn(clear_intents_loop(Rc::clone(cache)));
    env::spawn(interval_loop(Rc::clone(tier)));
    env::spawn(pace_loop(Rc::clone(tier)));
    env::spawn(promote_loop(Rc::clone(tier)));
    env::spawn(copy_loop(Rc::clone(tier)));
    env::spawn(demote_loop(Rc::clone(tier)));
    env::spawn(published_loop(Rc::clone(tier)));
    begin_tier(tier);
}

/// Ends what goes on behind the users' backs: no fill, round of cleaning or clearing of intents is under way
/// afterwards, and none will begin. The gate is closed.
pub(super) async fn quiet(cache: &Rc<Cache>) {
    fill::pause(cache).await;
    let _turn = cache.destaging.turn.acquire(1).await;
    cache.stop();
}
