//! How lanes begin: what is on the fast device before it is divided, what has to go, and which lane is first.
//!
//! ```text
//! label of the whole -> do lanes count there? -> as many as asked for: their layout | others: refused
//!   -> each lane judged by its part and its record: one that may not begin stops them all
//!   -> the first lane does not count: the others' beginnings wiped -> first lane -> the others
//! ```
//!
//! A detach ends one lane after another. Where it was cut off, those that ended are made anew, empty: the slow device has all
//! they had, and the disk is as before the detach. A lane that is blank beside others that count is made anew where caches may
//! be made: making or attaching was cut off. Where they are only opened it is refused, as something may have wiped it.
//!
//! Always true:
//! 1. Nothing is written before every lane was judged.
//! 2. Nothing is wiped where a label may be of a lane that counts.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use ::device::shared::{Dealt, Shared, Slice};
use ::device::{Device, WriteFlags};
use base::{Buf, Sector, Span};
use env::sync::{Event, Semaphore, join_all};

use super::first_error;
use super::layout::Layout;
use super::share::lane_settings;
use crate::attach::error::OpenError;
use crate::attach::inspect::START;
use crate::attach::label::{Attachment, Label, PAGE, Unlabelled};
use crate::attach::lane::Lane;
use crate::engine::{Begin, Hybrid, Ties, check_lost, lane};
use crate::settings::Settings;
use crate::volume::Among;

/// The lanes' parts of a fast device.
pub(super) struct Parts {
    pub slices: Vec<Rc<dyn Device>>,
}

/// The lanes on their parts of the slow device, with no cache yet, and what happens when one is at a limit.
pub(super) fn lanes_alone(
    layout: Layout,
    settings: &Settings,
    slow: &Rc<dyn Device>,
) -> Result<(Vec<Hybrid>, Rc<Event>), OpenError> {
    let Layout { lanes, unit, len } = layout;
    let shared = Shared::new(Rc::clone(slow), lanes);
    // An arm that moves goes one way at a time.
    let turn = slow.info().rotational.then(|| Semaphore::new(1));
    let asks: Rc<Event> = Rc::default();
    let alone = (0..lanes).map(|lane| {
        let among = Among {
            lane: Lane {
                lanes,
                lane,
                unit,
                len,
            },
            turn: turn.clone(),
            next: OnceCell::new(),
            asks: Rc::clone(&asks),
        };
        let settings = lane_settings(settings, lanes, lane, unit);
        lane::alone(settings, Dealt::new(&shared, lane, unit), among)
    });
    let lanes: Vec<Hybrid> = alone.collect::<Result<_, OpenError>>()?;
    for (lane, next) in lanes.iter().zip(lanes.iter().cycle().skip(1)) {
        lane::follow(lane, next);
    }
    Ok((lanes, asks))
}

/// Puts all lanes to work, each in its way, at the same time. `anew`: the first one first, whose label is to be the first that
/// says that something is on the device.
///
/// # Errors
/// The first that there is; those that began are closed again: one lane alone is no disk.
pub(super) async fn begin_all(
    lanes: &[Hybrid],
    hows: &[Begin],
    parts: &Parts,
    anew: bool,
    ties: &dyn Fn(u32) -> Ties,
) -> Result<(), OpenError> {
    if anew {
        let slice = Rc::clone(&parts.slices[0]);
        lane::begin(&lanes[0], hows[0], slice, &ties(0)).await?;
    }
    let begun = lanes.iter().zip(&parts.slices).zip(0..);
    let begun = begun.map(|((lane, slice), number)| {
        let (slice, ties, how) = (Rc::clone(slice), ties(number), hows[number as usize]);
        async move {
            match anew && number == 0 {
                true => Ok(()),
                false => lane::begin(lane, how, slice, &ties).await,
            }
        }
    });
    let answers = join_all(begun).await;
    let Some(error) = first_error(&answers) else {
        return Ok(());
    };
    let begun = lanes.iter().zip(&answers);
    for (lane, _) in begun.filter(|(_, answer)| answer.is_ok()) {
        if let Err(error) = lane.close().await {
            tracing::warn!(%error, "a lane could not be closed");
        }
    }
    Err(error)
}

impl Parts {
    pub fn new(layout: Layout, fast: &Rc<dyn Device>) -> Parts {
        let shared = Shared::new(Rc::clone(fast), layout.lanes);
        let slices = (0..layout.lanes).map(|number| {
            let span = Span::bytes(u64::from(number) * layout.len.0, layout.len.0);
            Slice::new(&shared, number, span) as Rc<dyn Device>
        });
        Parts {
            slices: slices.collect(),
        }
    }

    /// How each lane begins, where `how` is asked for and `before` is there. Nothing is written.
    ///
    /// # Errors
    /// The first lane's that may not; or a device's.
    pub async fn judge(
        &self,
        lanes: &[Hybrid],
        how: Begin,
        before: &Before,
        fast: &Rc<dyn Device>,
        ties: &dyn Fn(u32) -> Ties,
    ) -> Result<Vec<Begin>, OpenError> {
        let mut hows = Vec::new();
        for (number, (lane, slice)) in (0..).zip(lanes.iter().zip(&self.slices)) {
            let (mut found, mut on) = (Label::read(slice).await?, slice);
            let ties = ties(number);
            // One that was given up is no part of a detach.
            let ended = |label: &Label| {
                let given_up = ties.abandoned.contains(&label.uuid);
                label.attachment == Attachment::Detached && !given_up
            };
            let how = match how {
                Begin::Open if before.lanes.is_some() && found.as_ref().is_ok_and(ended) => {
                    let fast = fast.info().name;
                    tracing::info!(
                        "{fast}: a detach was cut off after that of lane {number}; an empty one is made there"
                    );
                    Begin::OpenOrCreate
                }
                how => how,
            };
            if !before.first_counts && number == 0 {
                // A cache that ended may reach further than the first lane's part.
                (found, on) = (Label::read(fast).await?, fast);
            } else if !before.first_counts
                && matches!(found, Err(Unlabelled::Foreign | Unlabelled::Short(_)))
            {
                found = Err(Unlabelled::Blank);
            }
            if how == Begin::Open && before.lanes.is_some() && found == Err(Unlabelled::Blank) {
                return Err(OpenError::LaneBlank {
                    name: lane.settings().name,
                    fast: fast.info().name,
                    lane: number,
                    lanes: lanes.len() as u32,
                });
            }
            lane::may_begin(lane, how, on, &found, &ties).await?;
            hows.push(how);
        }
        Ok(hows)
    }

    /// Makes the device free for new lanes, each of which may be made. Where the others will begin may lie data of caches that
    /// ended: it is wiped.
    ///
    /// # Errors
    /// A device's.
    pub async fn make_free(&self) -> Result<(), OpenError> {
        for slice in &self.slices[1..] {
            // Of anything that may be a label its own lane judges.
            if let Err(Unlabelled::Foreign | Unlabelled::Short(_)) = Label::read(slice).await? {
                wipe(slice, 0..START.0).await?;
            }
        }
        if let Err(Unlabelled::Short(_)) = Label::read(&self.slices[0]).await? {
            // The label last: while it is there the next start comes here again.
            wipe(&self.slices[0], 2 * PAGE..START.0).await?;
            wipe(&self.slices[0], 0..2 * PAGE).await?;
        }
        Ok(())
    }
}

/// What is on a fast device before it is divided.
pub(super) struct Before {
    /// The first label.
    pub first: Option<Label>,
    /// The first lane, if any lane counts.
    pub lanes: Option<Lane>,
    pub first_counts: bool,
}

/// Does what is on the fast device count?
fn counts(label: &Label, abandoned: &[u128]) -> bool {
    label.attachment.counts() && !abandoned.contains(&label.uuid)
}

impl Before {
    pub async fn of(fast: &Rc<dyn Device>, abandoned: &[u128]) -> Result<Before, OpenError> {
        let Ok(first) = Label::read(fast).await? else {
            return Ok(Before {
                first: None,
                lanes: None,
                first_counts: false,
            });
        };
        let first_counts = counts(&first, abandoned);
        let mut any_counts = first_counts;
        if !first_counts && !first.lane.is_only() {
            for label in Label::of_lanes(fast, &first).await? {
                match label {
                    Ok(label) => any_counts |= counts(&label, abandoned),
                    Err(why) => check_lost(&fast.info().name, why)?,
                }
            }
        }
        Ok(Before {
            lanes: any_counts.then_some(first.lane),
            first: Some(first),
            first_counts,
        })
    }

    /// Refuses a slow device that begins with lanes that count, before a cache is made on another one.
    ///
    /// # Errors
    /// [`OpenError::Swapped`]; or the device's.
    pub async fn refuse_swapped(
        &self,
        name: &str,
        slow: &Rc<dyn Device>,
        fast: &Rc<dyn Device>,
        ties: &Ties,
    ) -> Result<(), OpenError> {
        if self.lanes.is_some() || ties.force {
            return Ok(());
        }
        let behind = Before::of(slow, &ties.abandoned).await?;
        let of = behind.first.filter(|_| behind.lanes.is_some());
        of.map_or(Ok(()), |label| {
            Err(OpenError::Swapped {
                name: name.to_owned(),
                slow: slow.info().name,
                fast: fast.info().name,
                of: label.name,
            })
        })
    }
}

pub(super) fn other_lanes(
    settings: &Settings,
    fast: &dyn Device,
    found: u32,
    asked: u32,
) -> OpenError {
    OpenError::OtherLanes {
        name: settings.name.clone(),
        fast: fast.info().name,
        found,
        asked,
    }
}

/// Zeroes bytes `range` of `device` as far as it reaches, durably.
async fn wipe(device: &Rc<dyn Device>, range: Range<u64>) -> Result<(), OpenError> {
    let end = range.end.min(device.info().size.0);
    let zeroes = Buf::zeroed((end - range.start) as usize).freeze();
    let at = Sector::containing(range.start);
    device.write(at, zeroes, WriteFlags::FUA).await?;
    Ok(())
}
