//! Stores that are being drained are emptied.
//!
//! ```text
//! open volumes     their engines hear which stores are drained
//! closed volumes   one node opens them for a while, one after the other: the first by name of those that are up
//! ```
//!
//! How far it is, the volumes' records say: each lists the stores that may have something of it. So it goes on after any crash,
//! on whatever node is up then.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Instant, Nanos};

use super::ClusterError;
use super::idle::LOOK;
use super::left::Left as LeftOpen;
use super::node::Node;
use super::opened::Openings;
use super::slots::Slot;
use super::stores::{StoreState, lists};
use crate::names::{StoreNumber, VolumeId};
use crate::record::{Name, VolumeRecord, VolumeState, writer_key};
use crate::volume::Left;

/// A closed volume is open for so long at a time: less than an opening elsewhere waits.
const AT_A_TIME: Nanos = Nanos::secs(4);

/// What there still is on a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Volumes that may have something there.
    pub volumes: Vec<Name>,
    /// What those have that are open on this node.
    pub here: Left,
}

/// What empties them.
pub(super) struct Drains {
    node: Rc<Node>,
    openings: Rc<Openings>,
    left: Rc<LeftOpen>,
    /// Closed volumes that could not be emptied of drained stores, and until when they are left alone.
    stuck: RefCell<BTreeMap<VolumeId, Instant>>,
}

impl Drains {
    pub fn new(node: &Rc<Node>, openings: &Rc<Openings>, left: &Rc<LeftOpen>) -> Drains {
        Drains {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            left: Rc::clone(left),
            stuck: RefCell::default(),
        }
    }

    pub async fn drain_now_and_then(&self) {
        if let Err(error) = self.drain_closed().await {
            tracing::debug!(%error, "drained stores are not empty yet");
        }
    }

    /// Opens volumes that no node has open and that have something on drained stores. Those that a writer elsewhere did not close
    /// are left to it for minutes, as where idle volumes are kept well.
    async fn drain_closed(&self) -> Result<(), ClusterError> {
        let drained: BTreeSet<StoreNumber> = {
            let known = self.node.stores.known();
            let all = known.values().map(|(record, _)| record);
            let all = all.filter(|record| record.state == StoreState::Draining);
            all.map(|record| record.number).collect()
        };
        let alive = match drained.is_empty() {
            true => return Ok(()),
            false => self.node.stores.alive().await?,
        };
        if alive
            .first()
            .is_none_or(|first| first != self.node.name().as_str())
        {
            return Ok(());
        }
        let held = self.node.meta.held().await?;
        let records = self.node.meta.volumes().await?;
        self.left.looked(records.values(), &held);
        for known in records.into_values() {
            let settled = self.left.is_free(&known, self.node.name().as_str());
            let record = known.record;
            if record.state != VolumeState::Live {
                continue;
            }
            let elsewhere = record.writer.as_ref();
            // What this node itself left before it was started again is for it to settle.
            let elsewhere = elsewhere.filter(|it| it.node != self.node.name().as_str());
            let elsewhere = elsewhere.filter(|it| held.contains(&writer_key(it.lease)));
            let elsewhere = elsewhere.is_some() || !settled;
            if !has_any(&record, &drained) || elsewhere || self.is_left_alone(record.id) {
                continue;
            }
            if self.node.slots.get(record.id).is_none() {
                self.empty_closed(&record, &drained).await;
            }
        }
        Ok(())
    }

    fn is_left_alone(&self, id: VolumeId) -> bool {
        let stuck = self.stuck.borrow();
        stuck.get(&id).is_some_and(|until| env::now() < *until)
    }

    /// Has a volume open for a while, and its engine empty the stores.
    async fn empty_closed(&self, record: &VolumeRecord, drained: &BTreeSet<StoreNumber>) {
        let visited = self
            .openings
            .visit(record.id, async |slot| empties(slot, drained).await);
        let moved = visited.await.unwrap_or_else(|error| {
            tracing::debug!(volume = %record.name, %error, "it is not emptied");
            false
        });
        if !moved {
            let until = env::now() + self.node.settings.collect_every;
            self.stuck.borrow_mut().insert(record.id, until);
        }
    }
}

/// Waits while a volume's engine empties the stores, or the volume is wanted elsewhere. Did anything go?
async fn empties(slot: &Slot, drained: &BTreeSet<StoreNumber>) -> bool {
    let volume = slot.volume();
    let left = || {
        let of = drained.iter().map(|store| volume.left_on(*store));
        of.map(|left| left.extents + left.nodes).sum::<u64>()
    };
    let (before, until) = (left(), env::now() + AT_A_TIME);
    while has_any(&volume.record(), drained) && env::now() < until && !slot.is_given_up() {
        env::sleep(LOOK).await;
    }
    let gone = !has_any(&volume.record(), drained);
    gone || left() < before || volume.counters().relocated > 0
}

fn has_any(record: &VolumeRecord, stores: &BTreeSet<StoreNumber>) -> bool {
    stores.iter().any(|store| lists(record, *store))
}
