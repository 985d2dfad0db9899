//! How lanes begin: what is on the fast device before it is divided, what has to go, and which lane is first.
//!
//! ```text
//! label of the whole -> do lanes count there? -> as many as asked for: their layout | others: refused
//!                    \-> none: judged by the first lane -> the others' beginnings wiped -> first lane -> the others
//! ```
//!
//! Always true: nothing is wiped where a label may be of a lane that counts.

use std::ops::Range;
use std::rc::Rc;

use ::device::shared::{Dealt, Shared, Slice};
use ::device::{Device, WriteFlags};
use base::{Buf, Sector, Span};
use env::sync::{Semaphore, join_all};

use super::first_error;
use super::layout::Layout;
use super::share::lane_settings;
use crate::attach::error::OpenError;
use crate::attach::inspect::START;
use crate::attach::label::{Label, PAGE, Unlabelled};
use crate::attach::lane::Lane;
use crate::engine::{Begin, Hybrid, Ties, check_lost};
use crate::settings::Settings;
use crate::volume::Among;

/// The lanes' parts of a fast device.
pub(super) struct Parts {
    pub slices: Vec<Rc<dyn Device>>,
}

/// The lanes on their parts of the slow device, with no cache yet.
pub(super) fn lanes_alone(
    layout: Layout,
    settings: &Settings,
    slow: &Rc<dyn Device>,
) -> Result<Vec<Hybrid>, OpenError> {
    let Layout { lanes, unit, len } = layout;
    let shared = Shared::new(Rc::clone(slow), lanes);
    // An arm that moves goes one way at a time.
    let turn = slow.info().rotational.then(|| Semaphore::new(1));
    let alone = (0..lanes).map(|lane| {
        let among = Among {
            lane: Lane {
                lanes,
                lane,
                unit,
                len,
            },
            turn: turn.clone(),
        };
        let settings = lane_settings(settings, lanes, lane, unit);
        Hybrid::lane(settings, Dealt::new(&shared, lane, unit), among)
    });
    alone.collect()
}

/// Puts all lanes to work, at the same time. `anew`: the first one first, whose label is to be the first that says that
/// something is on the device.
///
/// # Errors
/// The first that there is; those that began are closed again: one lane alone is no disk.
pub(super) async fn begin_all(
    lanes: &[Hybrid],
    how: Begin,
    parts: &Parts,
    anew: bool,
    ties: &dyn Fn(u32) -> Ties,
) -> Result<(), OpenError> {
    if anew {
        let slice = Rc::clone(&parts.slices[0]);
        lanes[0].begin(how, slice, &ties(0)).await?;
    }
    let begun = lanes.iter().zip(&parts.slices).zip(0..);
    let begun = begun.map(|((lane, slice), number)| {
        let (slice, ties) = (Rc::clone(slice), ties(number));
        async move {
            match anew && number == 0 {
                true => Ok(()),
                false => lane.begin(how, slice, &ties).await,
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

    /// Makes the device free for new lanes, if the first one may be made. Where the others will begin may lie data of caches
    /// that ended: it is wiped.
    ///
    /// # Errors
    /// The first lane's refusal, in which nothing was written; or a device's.
    pub async fn make_free(
        &self,
        first: &Hybrid,
        fast: &Rc<dyn Device>,
        ties: &Ties,
    ) -> Result<(), OpenError> {
        // Judged by the whole device: a cache that ended may reach further than the first lane's part.
        first.may_create(fast, ties).await?;
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
    /// The first lane, if any lane counts.
    pub lanes: Option<Lane>,
    pub first_counts: bool,
}

impl Before {
    pub async fn of(fast: &Rc<dyn Device>, abandoned: &[u128]) -> Result<Before, OpenError> {
        let Ok(first) = Label::read(fast).await? else {
            return Ok(Before {
                lanes: None,
                first_counts: false,
            });
        };
        let counts = |label: &Label| label.attachment.counts() && !abandoned.contains(&label.uuid);
        let first_counts = counts(&first);
        let mut any_counts = first_counts;
        if !first_counts && !first.lane.is_only() {
            for label in Label::of_lanes(fast, &first).await? {
                match label {
                    Ok(label) => any_counts |= counts(&label),
                    Err(why) => check_lost(&fast.info().name, why)?,
                }
            }
        }
        Ok(Before {
            lanes: any_counts.then_some(first.lane),
            first_counts,
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
