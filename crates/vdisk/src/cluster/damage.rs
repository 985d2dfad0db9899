//! Damage that the stores of this node know of, in volumes that no node has open.
//!
//! ```text
//! open volumes     their engines ask their stores themselves
//! closed volumes   stores of this node -> lists of damage -> whose objects? -> opened, repaired, closed
//! ```
//!
//! Always true:
//! 1. A volume that is open, here or elsewhere, is left to its engine.
//! 2. No volume is opened for it while one of its stores in sync is down: opening would remove it from the in-sync set.
//! 3. A volume with damage that cannot be repaired is opened for it no more than every ten minutes, one that has none every six hours.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};

use super::ClusterError;
use super::idle::missing;
use super::node::Node;
use super::opened::Openings;
use super::slots::Slot;
use crate::image::records::AllImages;
use crate::image::tree::{ImageRecord, Versioned};
use crate::names::{ExtentName, NodeName, VolumeId};
use crate::record::{Name, VolumeRecord, VolumeState, writer_key};
use crate::replica::connect::Connector;

/// The fence of looks at a store; nothing is fenced by it.
const FENCE: &str = "g/damage";
/// Between two openings of a volume that has damage still.
const AGAIN: Nanos = Nanos::secs(600);
/// And of one that turned out to have none of it.
const AGAIN_WITHOUT: Nanos = Nanos::secs(6 * 3600);

/// What repairs it.
pub(super) struct ClosedDamage {
    node: Rc<Node>,
    openings: Rc<Openings>,
    /// Volumes with damage that could not be repaired, and until when they are left alone.
    damaged: RefCell<BTreeMap<VolumeId, Instant>>,
}

impl ClosedDamage {
    pub fn new(node: &Rc<Node>, openings: &Rc<Openings>) -> ClosedDamage {
        ClosedDamage {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            damaged: RefCell::default(),
        }
    }

    pub async fn repair_now_and_then(&self) {
        if let Err(error) = self.repair_closed().await {
            tracing::debug!(%error, "damage of closed volumes is not repaired yet");
        }
    }

    async fn repair_closed(&self) -> Result<(), ClusterError> {
        let owners = self.damaged_here().await;
        if owners.is_empty() {
            return Ok(());
        }
        let (images, held) = (
            self.node.meta.images.all().await?,
            self.node.meta.held().await?,
        );
        let (stores, up) = (self.node.stores.all().await?, self.node.stores.up().await?);
        let records = self.node.meta.volumes().await?;
        // What a deleted volume left to its clones: which of them has it only their maps say.
        let is_live = |id| {
            let known: Option<&Versioned<VolumeRecord>> = records.get(id);
            known.is_some_and(|it| it.record.state == VolumeState::Live)
        };
        let inherited = !owners.iter().all(is_live);
        for record in records.values().map(|known| &known.record) {
            let elsewhere = record.writer.as_ref().filter(|it| {
                it.node != self.node.name().as_str() && held.contains(&writer_key(it.lease))
            });
            let has = inherited || has_any_of(record, &owners, &images);
            let has = has && record.state == VolumeState::Live;
            let complete = missing(record, &stores, &up) == 0;
            let left_alone = {
                let damaged = self.damaged.borrow();
                let until = damaged.get(&record.id);
                until.is_some_and(|until| env::now() < *until)
            };
            let closed = elsewhere.is_none() && self.node.slots.get(record.id).is_none();
            if has && complete && closed && !left_alone {
                self.repair_one(record.id, &record.name).await;
            }
        }
        Ok(())
    }

    /// Volumes that allocated what is damaged on this node's stores.
    async fn damaged_here(&self) -> BTreeSet<VolumeId> {
        let connectors: Vec<Rc<dyn Connector>> = {
            let known = self.node.stores.known();
            let ways = known
                .values()
                .map(|(record, _)| self.node.stores.way(record));
            ways.filter(|(_, local)| *local)
                .map(|(connector, _)| connector)
                .collect()
        };
        let mut owners = BTreeSet::new();
        for connector in connectors {
            let asked = async {
                let connection = connector.open(FENCE, 1).await?;
                let mut all = connection.damage("v/").await?;
                all.extend(connection.damage("m/").await?);
                Ok::<_, crate::replica::connect::ConnectionError>(all)
            };
            match env::timeout(self.node.settings.timeout, asked).await {
                Ok(Ok(all)) => owners.extend(all.iter().filter_map(|it| owner(&it.object))),
                Ok(Err(error)) => tracing::debug!(%error, "a store does not say what is damaged"),
                Err(late) => tracing::debug!(%late, "a store does not say what is damaged"),
            }
        }
        owners
    }

    /// Has a volume open until its engine has repaired what it can, or another node wants it.
    async fn repair_one(&self, id: VolumeId, name: &Name) {
        let until = env::now() + AGAIN;
        self.damaged.borrow_mut().insert(id, until);
        let found = Cell::new(false);
        let visited = self.openings.visit(id, async |slot: &Slot| {
            let repairs = slot.volume().repair_damage().await;
            // The engine began when it was opened.
            let repaired = Bytes(slot.volume().counters().repaired_bytes);
            let left = repairs.count;
            tracing::info!(volume = %name, %repaired, left, "damage of a closed volume");
            found.set(left > 0 || repaired > Bytes(0));
            left == 0
        });
        match visited.await {
            Ok(_) if !found.get() => {
                // It is another one's, or of no use to any.
                let until = env::now() + AGAIN_WITHOUT;
                self.damaged.borrow_mut().insert(id, until);
            }
            Ok(true) => drop(self.damaged.borrow_mut().remove(&id)),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(volume = %name, %error, "not opened to be repaired");
            }
        }
    }
}

/// The volume that allocated an object; `None`: it is neither extent nor node.
fn owner(object: &str) -> Option<VolumeId> {
    let extent = ExtentName::parse(object).map(|name| name.owner);
    extent.or_else(|| NodeName::parse(object).map(|name| name.owner))
}

/// Was anything a volume may have allocated by one of these: itself, or a volume it was cloned from?
fn has_any_of(record: &VolumeRecord, owners: &BTreeSet<VolumeId>, images: &AllImages) -> bool {
    let mut next = images.get(&record.head).map(|it| &it.record);
    let mut seen = BTreeSet::new();
    while let Some(ImageRecord {
        id, volume, parent, ..
    }) = next
    {
        if owners.contains(volume) {
            return true;
        }
        if !seen.insert(*id) {
            return false;
        }
        next = parent.and_then(|id| images.get(&id)).map(|it| &it.record);
    }
    owners.contains(&record.id)
}
