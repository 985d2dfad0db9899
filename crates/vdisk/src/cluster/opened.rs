//! Volumes in use on this node: one engine each, shared by all their users.
//!
//! ```text
//! open -> another node has it, and its lease lasts? wait a little -> engine -> InUse, counted -> no user for some seconds -> closed
//! ```

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Instant, Nanos};
use device::{Device, DeviceError};
use policy::place::{ClientId, Origin, Penalties, Permille};
use store::ClientTag;

use super::stores::{AllStores, domains};
use super::{Cluster, ClusterError};
use crate::meta::whole_range;
use crate::names::VolumeId;
use crate::record::{Fairness, Name, PriorityClass, VolumeRecord, WRITERS};
use crate::replica::choice::Choice;
use crate::volume::{self, StoreInfo, User, UserVolume, Volume, VolumeError};

/// How long an engine may take to say that it is over.
const OVER: Nanos = Nanos::millis(500);

/// A volume that is open here.
pub(super) struct Slot {
    id: VolumeId,
    volume: Rc<Volume>,
    users: Cell<u64>,
    /// Since when no client uses it.
    idle_since: Cell<Instant>,
    /// It is open without a user, to be made well.
    pub(super) visited: Cell<bool>,
    /// Another node wants it, and gets it.
    pub(super) wanted: Cell<bool>,
    /// The number of the want that was refused last.
    pub(super) answered: Cell<u64>,
}

impl Slot {
    pub fn id(&self) -> VolumeId {
        self.id
    }

    pub fn name(&self) -> Name {
        self.volume.record().name
    }

    pub fn volume(&self) -> &Rc<Volume> {
        &self.volume
    }

    pub fn users(&self) -> u64 {
        self.users.get()
    }

    pub fn is_idle(&self, after: Nanos) -> bool {
        let unused = self.users.get() == 0 && !self.visited.get();
        unused && env::now().since(self.idle_since.get()) >= after
    }

    /// Is it of no more use to background work that has it open?
    pub fn is_given_up(&self) -> bool {
        self.wanted.get() || !self.volume.is_open()
    }

    /// Has another writer taken it, so that this one is of no more use?
    async fn is_over(&self) -> bool {
        let flushed = env::timeout(OVER, self.volume.flush()).await;
        matches!(flushed, Ok(Err(DeviceError::Gone { .. })))
    }
}

/// A volume in use on this node; given back when it is dropped.
pub struct InUse(Rc<Slot>);

impl InUse {
    fn new(slot: &Rc<Slot>) -> InUse {
        slot.users.set(slot.users.get() + 1);
        InUse(Rc::clone(slot))
    }

    /// The engine; a `Device`.
    pub fn volume(&self) -> &Rc<Volume> {
        &self.0.volume
    }

    /// Has another writer taken it?
    pub async fn is_over(&self) -> bool {
        self.0.is_over().await
    }
}

/// What an export's clients are beside others, where that is not as the volume says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// Their class.
    pub priority: Option<PriorityClass>,
    /// How far they and others of their class are kept apart.
    pub fairness: Option<Fairness>,
}

impl Terms {
    /// Are they those of the volume, and its clients so no others than the volume's?
    pub fn are_the_volumes(&self) -> bool {
        *self == Terms::default()
    }
}

fn permille(fairness: Fairness) -> Permille {
    Permille(fairness.permille())
}

/// The number of an export's clients. A volume's own has nothing in its upper half.
fn client_of(volume: VolumeId, export: &str) -> ClientId {
    // Below clients that say nothing of themselves; two exports of one number would count as one client, and no more than
    // that.
    let name = (base::crc::crc32c(export.as_bytes()) >> 1).max(1);
    ClientId(u64::from(name) << 32 | u64::from(volume.0))
}

impl Drop for InUse {
    fn drop(&mut self) {
        let slot = &self.0;
        slot.users.set(slot.users.get() - 1);
        slot.idle_since.set(env::now());
    }
}

impl Cluster {
    /// Opens a volume, or joins the users that it has here already.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`]; [`ClusterError::Elsewhere`] if another node that is up has it; [`ClusterError::Volume`] if
    /// it cannot be opened now.
    pub async fn open(&self, name: &Name) -> Result<InUse, ClusterError> {
        let own = self.own.upgrade().ok_or(ClusterError::Stopping)?;
        let name = name.clone();
        // To its end, whether or not the caller still waits: what was taken is let go in good order then.
        let opening = async move {
            let id = own.find(&name).await?;
            let _alone = own.alone(id).await;
            own.open_alone(id).await
        };
        env::spawn(opening).await
    }

    /// The same, and the volume as the clients of an export have it that has terms of its own: a client beside the volume's
    /// others, on all nodes the same by the export's name.
    ///
    /// # Errors
    /// As for [`Cluster::open`].
    pub async fn open_as(
        &self,
        name: &Name,
        export: &str,
        terms: &Terms,
    ) -> Result<(InUse, Rc<UserVolume>), ClusterError> {
        let in_use = self.open(name).await?;
        let user = User {
            client: client_of(in_use.0.id, export),
            class: terms.priority.map(Into::into),
            other: terms.fairness.map(permille),
        };
        let seen = in_use.volume().for_user(user).await;
        Ok((in_use, seen))
    }

    /// The same for a caller that is alone with the volume.
    pub(super) async fn open_alone(&self, id: VolumeId) -> Result<InUse, ClusterError> {
        if self.stopping.get() {
            return Err(ClusterError::Stopping);
        }
        if let Some(slot) = self.slot(id) {
            if !slot.is_over().await {
                return Ok(InUse::new(&slot));
            }
            self.open.borrow_mut().remove(&id);
        }
        self.wait_for_others("open", id).await?;
        let stores = self.stores().await?;
        let volume = self.images.volume(id).await?;
        let settings = self.settings_for(&volume.record);
        let store_infos = self.store_infos(&stores);
        let choice = Choice::new(self.shared.part());
        let meta = Rc::clone(&self.images.meta);
        let volume = Volume::open(id, meta, choice, store_infos, settings).await?;
        tracing::info!(volume = %volume.record().name, "opened");
        let slot = Rc::new(Slot {
            id,
            volume,
            users: Cell::new(0),
            idle_since: Cell::new(env::now()),
            visited: Cell::new(false),
            wanted: Cell::new(false),
            answered: Cell::new(0),
        });
        self.open.borrow_mut().insert(id, Rc::clone(&slot));
        Ok(InUse::new(&slot))
    }

    pub(super) fn slot(&self, id: VolumeId) -> Option<Rc<Slot>> {
        self.open.borrow().get(&id).cloned()
    }

    fn settings_for(&self, volume: &VolumeRecord) -> volume::Settings {
        let ClientTag { origin, penalties } = self.caller_of(volume);
        volume::Settings {
            origin,
            penalties,
            drained: self.drained(),
            ..self.settings.volume.clone()
        }
    }

    /// Whose a volume's own requests are.
    pub(super) fn caller_of(&self, volume: &VolumeRecord) -> ClientTag {
        let usual = self.settings.volume.penalties;
        ClientTag {
            origin: Origin {
                client: ClientId(u64::from(volume.id.0)),
                class: volume.priority.into(),
            },
            penalties: Penalties {
                other: volume.fairness.map_or(usual.other, permille),
                ..usual
            },
        }
    }

    pub(super) fn store_infos(&self, stores: &AllStores) -> Vec<StoreInfo> {
        let domains = domains(stores);
        let info = |(record, _): &(super::StoreRecord, _)| {
            let (connector, local) = self.ways.way(record);
            StoreInfo {
                number: record.number,
                name: record.name.to_string(),
                domain: domains[&record.domain],
                local,
                rotating: record.rotating,
                connector,
            }
        };
        stores.values().map(info).collect()
    }

    /// All leases of writers that last.
    pub(super) async fn held(&self) -> Result<BTreeSet<String>, ClusterError> {
        let (entries, _) = whole_range(&*self.images.meta, WRITERS).await?;
        Ok(entries.into_iter().map(|it| it.key).collect())
    }

    /// Closes a volume here, and forgets it.
    pub(super) async fn close_slot(&self, slot: &Rc<Slot>) -> Result<(), VolumeError> {
        let closed = slot.volume.close().await;
        let mut open = self.open.borrow_mut();
        if open.get(&slot.id).is_some_and(|it| Rc::ptr_eq(it, slot)) {
            open.remove(&slot.id);
        }
        tracing::info!(volume = %slot.name(), "closed");
        match closed {
            // Another writer has it.
            Err(VolumeError::Fenced { .. } | VolumeError::Closed(_)) => Ok(()),
            other => other,
        }
    }

    /// Sees to it that no node has the volume open; the caller is alone with it. One without clients here is closed, and
    /// what a node that is gone left behind is completed.
    pub(super) async fn closed(
        &self,
        asked: &'static str,
        id: VolumeId,
    ) -> Result<(), ClusterError> {
        let in_use = match self.slot(id) {
            Some(slot) => slot,
            None => {
                if self.images.volume(id).await?.record.writer.is_none() {
                    return Ok(());
                }
                self.wait_for_others(asked, id).await?;
                // Its writer is gone: one opening completes what it left.
                self.open_alone(id).await?;
                self.slot(id).expect("just opened")
            }
        };
        if in_use.users() > 0 {
            return Err(ClusterError::Busy {
                asked,
                volume: in_use.name(),
                users: in_use.users(),
            });
        }
        Ok(self.close_slot(&in_use).await?)
    }
}
