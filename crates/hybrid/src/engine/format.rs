//! Making an empty cache.
//!
//! ```text
//! label "detached" -> empty ledger -> fingerprints of the slow device -> record -> label "attached"
//! ```
//!
//! What may be done with a fast device is decided in [`crate::attach::pair`].
//!
//! Always true: until the last step the label says that nothing here counts.

use std::rc::Rc;

use base::Bytes;
use device::Device;
use ledger::{Identity, Ledger, LedgerError};

use super::disk::Engine;
use super::setup::{
    Ties, all_samples, begin_commits, begin_log, check_block, check_lane, keeper, note_in,
    note_pair, put_to_work, quiet, refused_words,
};
use crate::attach::error::OpenError;
use crate::attach::label::{Attachment, Label, PAGE, SLOTS_MIN, Unlabelled};
use crate::attach::pair::{Keeper, Pair, Verdict, is_ours, judge_both};
use crate::attach::refuse::{loses, makes};
use crate::attach::relabel::Change;
use crate::cache::{Cache, Made};
use crate::durable::samples::Samples;
use crate::health::Ends;
use crate::index::extents::ExtentTable;
use crate::index::page_map::PageMap;
use crate::tier::{Movers, Tier};

/// May an empty cache be made on `fast`, which shows `found`?
///
/// # Errors
/// Why not.
pub(super) async fn check_free(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    record: Option<Pair>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let name = &engine.volume.name;
    let ours = |label: &Label| is_ours(name, record, label);
    let may_force =
        ties.force && found.as_ref().is_ok_and(ours) && !record.is_some_and(|pair| pair.dirty);
    let slow = Label::at_start(&engine.volume.slow.device).await?;
    let slow = slow.as_ref();
    let judged = |force| judge_both(name, record, slow, found, &ties.abandoned, force);
    match judged(ties.force) {
        Verdict::Make => check_others(engine, fast, found, ties).await?,
        Verdict::Open if may_force => return check_others(engine, fast, found, ties).await,
        Verdict::Open => {
            return Err(OpenError::State {
                what: "make a cache for",
                name: name.clone(),
                why: format!(
                    "{} is the cache of '{}' already; detach it there, or choose another device",
                    fast.info().name,
                    found.as_ref().map_or("", |label| &label.name)
                ),
            });
        }
        Verdict::Refuse(refusal) => {
            return Err(refused_words(engine, fast, found, refusal, slow));
        }
    }
    match judged(false) {
        Verdict::Refuse(refusal) => {
            let error = refused_words(engine, fast, found, refusal, slow);
            tracing::warn!("{}", loses(name, &error));
        }
        _ => tracing::info!("{}: {}", fast.info().name, makes(name, found)),
    }
    Ok(())
}

/// Refuses to make a cache over lanes that count, where the hybrid had another number of them.
///
/// # Errors
/// [`OpenError::OtherLanes`], [`OpenError::Damaged`]; or a device's.
async fn check_others(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let lane = engine.volume.lane();
    let Some(label) = found.as_ref().ok().filter(|label| label.lane != lane) else {
        return Ok(());
    };
    let counts = |label: &Label| label.attachment.counts() && !ties.abandoned.contains(&label.uuid);
    if counts(label) {
        return check_lane(engine, fast, label);
    }
    // A lane of several sees its own part alone: who divides the device has looked at the whole.
    if !lane.is_only() {
        return Ok(());
    }
    for other in Label::of_lanes(fast, label).await? {
        match other {
            Ok(other) if counts(&other) => return check_lane(engine, fast, &other),
            Ok(_) => {}
            Err(why) => check_lost(&fast.info().name, why)?,
        }
    }
    Ok(())
}

/// May a lane be passed over whose label shows this?
///
/// # Errors
/// It may count.
pub(crate) fn check_lost(fast: &str, why: Unlabelled) -> Result<(), OpenError> {
    let fast = fast.to_owned();
    match why {
        Unlabelled::Blank | Unlabelled::Foreign | Unlabelled::Short(_) => Ok(()),
        Unlabelled::Unreadable => Err(OpenError::Unreadable { fast }),
        Unlabelled::Version(_) | Unlabelled::Damaged => Err(OpenError::Damaged {
            fast,
            why: "the label of one of its lanes cannot be understood".to_owned(),
        }),
    }
}

/// The label of a new cache on `fast`, which began with `found`.
fn new_label(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    ties: &Ties,
    record: Pair,
) -> Result<Label, OpenError> {
    let (sequence, attached) = found
        .as_ref()
        .map_or((0, 0), |label| (label.sequence, label.generation));
    let info = fast.info();
    let volume = &engine.volume;
    let settings = volume.settings.borrow();
    let mut rng = env::rng("hybrid.uuid");
    let uuid = u128::from(rng.bits()) << 64 | u128::from(rng.bits() ^ env::wall_clock().0);
    let slow_size = volume.slow.info.size;
    let layout = Label::layout(
        info.size,
        settings.fast_bytes,
        slow_size,
        &volume.name,
        uuid,
    );
    let Some(label) = layout else {
        return Err(OpenError::TooSmall {
            fast: info.name,
            size: settings
                .fast_bytes
                .map_or(info.size, |limit| Bytes(limit.0.min(info.size.0))),
            slow: volume.slow.info.name.clone(),
            slow_size,
            least: Label::size_for(SLOTS_MIN, slow_size),
        });
    };
    check_block(&info.name, settings.block, label.slots)?;
    Ok(Label {
        sequence,
        generation: attached.max(record.generation) + 1,
        mode: Some(ties.mode.unwrap_or(settings.mode)),
        attachment: Attachment::Detached,
        lane: volume.lane(),
        ..label
    })
}

/// An empty ledger, where nothing of a former life counts, also of another version.
async fn new_ledger(
    engine: &Engine,
    fast: &Rc<dyn Device>,
    label: &Label,
) -> Result<Ledger, OpenError> {
    let failed = |source: LedgerError| OpenError::Ledger {
        name: engine.volume.name.clone(),
        fast: fast.info().name,
        source,
    };
    Ledger::wipe(Rc::clone(fast), label.ledger)
        .await
        .map_err(failed)?;
    let identity = Identity {
        id: label.uuid,
        payload: Vec::new(),
    };
    Ledger::format(Rc::clone(fast), label.ledger, identity)
        .await
        .map_err(failed)
}

/// Makes an empty cache on `fast` and puts it to work.
///
/// # Errors
/// [`OpenError`]; nothing was written then, unless a device failed half-way.
pub(super) async fn format(
    engine: &Engine,
    fast: Rc<dyn Device>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let volume = &engine.volume;
    let keeper = keeper(&volume.name, ties)?;
    let found = Label::read(&fast).await?;
    check_free(engine, &fast, &found, keeper.record(), ties).await?;
    // On a blank device one label is written after the other, so that one can always be read.
    let wipes = !matches!(found, Ok(_) | Err(Unlabelled::Blank));
    let mut label = new_label(engine, &fast, &found, ties, keeper.now())?;
    // Its label says that it ended, and is about to be replaced: a stop after that must not leave it missed.
    note_in(&volume.name, &keeper, keeper.now().without_dirty())?;
    if wipes {
        Label::wipe(&fast).await?;
    }
    label.write_both(&fast).await?;
    let ledger = new_ledger(engine, &fast, &label).await?;
    // A fingerprint of what a power cut could still undo would be wrong afterwards.
    volume.slow.flush().await?;
    let samples = all_samples(&*volume.slow.device).await?;
    let generation = label.generation;
    let tier = new_tier(engine, fast, label, ledger, keeper, ties);
    let cache = &tier.cache;
    cache.state.samples.replace(Samples::new(samples));
    cache.state.samples.borrow_mut().touch_all();
    cache.commit.note();
    begin_commits(cache);
    put_to_work(&tier);
    let answer: Result<(), OpenError> = async {
        cache.committed().await?;
        take_new(cache, generation).await?;
        begin_log(cache, ties);
        Ok(())
    }
    .await;
    if answer.is_err() {
        quiet(cache).await;
        // One copy may say "attached" all the same, and the slow device goes on alone.
        if let Err(why) = cache.health.abandon().await {
            tracing::error!(volume = %volume.name, why, "a cache that was not made may count all the same");
        }
    }
    answer?;
    if let Some(old) = engine.attach(Some(tier)) {
        old.cache.stop();
    }
    Ok(())
}

/// An empty cache with its tier.
fn new_tier(
    engine: &Engine,
    fast: Rc<dyn Device>,
    label: Label,
    ledger: Ledger,
    pair: Rc<Keeper>,
    ties: &Ties,
) -> Rc<Tier> {
    let volume = &engine.volume;
    let settings = volume.settings.borrow();
    let map = PageMap::new(label.slots, settings.policy, settings.block.0 / PAGE);
    let extents = ExtentTable::new(volume.whole_pages(), &settings.tier);
    drop(settings);
    let movers = Rc::new(Movers::default());
    let made = Made {
        fast,
        ledger,
        label,
        map,
        extents,
        mover: Rc::clone(&movers) as Rc<dyn crate::interpose::Interpose>,
        ends: Ends {
            on_abandon: ties.on_abandon.clone(),
            pair,
        },
    };
    Tier::new(Cache::new(volume, made), movers)
}

/// The record, then the label: this new cache counts from now on.
async fn take_new(cache: &Rc<Cache>, generation: u64) -> Result<(), OpenError> {
    let (label, health) = (&cache.health.label, &cache.health);
    let pair = Pair {
        cache: Some(label.borrow().uuid),
        generation,
        dirty: cache.volume.settings.borrow().write.keeps_dirty(),
        mode: label.borrow().mode,
        ..Pair::default()
    };
    note_pair(cache, pair)?;
    let Err(error) = label.change(Change::Opened(generation)).await else {
        return Ok(());
    };
    // One copy may say "attached", and the slow device goes on alone.
    if health.abandon().await.is_err()
        && let Err(why) = health.pair.note(pair.alone())
    {
        tracing::warn!(volume = %cache.volume.name, why, "the record of pairs could not be written");
    }
    Err(error.into())
}
