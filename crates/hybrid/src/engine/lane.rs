//! A hybrid as one lane of several: how it begins on its part of both devices, and what it has of what all share.
//!
//! Always true: what one lane hears of another one is a value.

use std::rc::Rc;

use base::Bytes;
use device::Device;

use super::format::format;
use super::{Hybrid, Ties, open};
use crate::attach::error::OpenError;
use crate::attach::label::{Label, PAGE, Unlabelled};
use crate::limits::{LaneLimits, LaneUse};
use crate::settings::Settings;
use crate::volume::{Among, Follow};

/// How a fast device is taken when a disk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Create,
    Open,
    OpenOrCreate,
}

/// A lane of several, on its part of the slow device, with no cache yet.
///
/// # Errors
/// [`OpenError::Settings`].
pub(crate) fn alone(
    settings: Settings,
    slow: Rc<dyn Device>,
    among: Among,
) -> Result<Hybrid, OpenError> {
    let lane = Hybrid::alone(settings, slow)?;
    let placed = lane.engine.volume.among.set(among);
    assert!(placed.is_ok(), "a lane gets its place once");
    Ok(lane)
}

/// May it begin on `fast`, its part of the fast device, which shows `found`? Nothing is written.
///
/// # Errors
/// Why not.
pub(crate) async fn may_begin(
    lane: &Hybrid,
    how: Begin,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    ties: &Ties,
) -> Result<(), OpenError> {
    open::may_begin(&lane.engine, how, fast, found, ties).await
}

/// Puts a lane to work with its part of the fast device.
///
/// # Errors
/// As those of [`Hybrid::create`], [`Hybrid::open`], [`Hybrid::open_or_create`].
pub(crate) async fn begin(
    lane: &Hybrid,
    how: Begin,
    fast: Rc<dyn Device>,
    ties: &Ties,
) -> Result<(), OpenError> {
    match how {
        Begin::Create => format(&lane.engine, fast, ties).await,
        Begin::Open => open::open(&lane.engine, fast, ties).await,
        Begin::OpenOrCreate => open::open_or_create(&lane.engine, fast, ties).await,
    }
}

/// What it did since it was asked last, and where it stands.
pub(crate) fn take_use(lane: &Hybrid) -> LaneUse {
    let volume = &lane.engine.volume;
    let (mut dirty, mut destaged, mut capacity) = (Bytes(0), Bytes(0), Bytes(0));
    if let Some(cache) = lane.engine.live_cache() {
        dirty = Bytes(u64::from(cache.state.map().dirty()) * PAGE);
        destaged = Bytes(cache.upkeep.get().bytes_cleaned);
        capacity = Bytes(u64::from(cache.state.slots().total()) * PAGE);
    }
    let (limited, users) = (&volume.limited, volume.counters.requests());
    LaneUse {
        capacity,
        ..limited.take_use(&users, &volume.slow, dirty, destaged)
    }
}

/// What it may use from now on of what is counted for all lanes.
pub(crate) fn limit(lane: &Hybrid, limits: LaneLimits) {
    let volume = &lane.engine.volume;
    let before = volume.dirty_marks();
    volume.limited.set(limits);
    let cache = lane.engine.live_cache();
    if let Some(cache) = cache.filter(|_| volume.dirty_marks() != before) {
        cache.destaging.work.notify_all();
    }
}

/// Streams that come to the end of a unit of `lane` go on in `next`.
pub(crate) fn follow(lane: &Hybrid, next: &Hybrid) {
    let next = Rc::downgrade(&next.engine.volume);
    let follow: Follow = Box::new(move |at, length| {
        if let Some(volume) = next.upgrade() {
            volume.expect_stream(at, length);
        }
    });
    let among = lane.engine.volume.among.get();
    let set = among.map(|among| among.next.set(follow));
    assert!(
        set.is_some_and(|set| set.is_ok()),
        "one lane follows each other one"
    );
}
