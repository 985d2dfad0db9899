//! Volumes come into use on this node, and go out of use.
//!
//! ```text
//! open -> another node has it, and its lease lasts? wait a little -> engine -> InUse, counted -> no user for some seconds -> closed
//! ```

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use device::Throttle;
use policy::place::{ClientId, Origin, Penalties, Permille};
use policy::share::cap::Caps;
use store::ClientTag;

use super::ClusterError;
use super::node::Node;
use super::shared::Shared;
use super::slots::{InUse, Slot, Use};
use super::wants::Claims;
use crate::names::VolumeId;
use crate::record::{Fairness, Name, PriorityClass, VolumeRecord, VolumeState};
use crate::replica::choice::Choice;
use crate::trash::is_in_trash;
use crate::volume::{self, User, UserVolume, Volume, VolumeError};

/// The clients here have so long to come after a volume was taken over.
const KEPT: Nanos = Nanos::secs(60);

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

/// What opens volumes here and closes them.
pub struct Openings {
    node: Rc<Node>,
    shared: Shared,
    pub(super) claims: Claims,
    stopping: Cell<bool>,
}

impl Openings {
    /// What waits for what clients may get goes on at once: this node stops.
    pub fn lift_caps(&self) {
        for slot in self.node.slots.all() {
            slot.throttle().set(Caps::default());
        }
    }

    pub(super) fn new(node: &Rc<Node>, shared: Shared) -> Rc<Openings> {
        Rc::new(Openings {
            node: Rc::clone(node),
            shared,
            claims: Claims::new(node.meta.clone(), node.settings.handover),
            stopping: Cell::new(false),
        })
    }

    /// Is nothing opened here any more?
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Opens a volume, or joins the users that it has here already.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`]; [`ClusterError::Elsewhere`] if another node that is up has it; [`ClusterError::Taken`] if a
    /// user here has it for itself; [`ClusterError::Volume`] if it cannot be opened now.
    pub async fn open(self: &Rc<Self>, name: &Name) -> Result<InUse, ClusterError> {
        self.open_for(Use::Client, name).await
    }

    /// Opens a volume for a user that wants no other client beside it, until it is gone: what others write would destroy what
    /// it has there.
    ///
    /// # Errors
    /// [`ClusterError::Busy`] if it has clients here; as for [`Openings::open`].
    pub async fn open_for_one(self: &Rc<Self>, name: &Name) -> Result<InUse, ClusterError> {
        self.open_for(Use::One, name).await
    }

    async fn open_for(self: &Rc<Self>, wanted: Use, name: &Name) -> Result<InUse, ClusterError> {
        let own = Rc::clone(self);
        let name = name.clone();
        // To its end, whether or not the caller still waits: what was taken is let go in good order then.
        let opening = async move {
            let id = own.node.meta.find(&name).await?;
            let _alone = own.node.slots.alone(id).await;
            let in_use = own.open_alone(id).await?;
            if is_in_trash(&in_use.volume().record()) {
                // It was deleted between the two.
                let known = Vec::new();
                return Err(ClusterError::NoVolume { name, known });
            }
            match wanted {
                Use::Job => {}
                Use::Client | Use::One if in_use.is_for_one() => {
                    return Err(ClusterError::Taken { volume: name });
                }
                Use::One if in_use.clients() > 0 => {
                    return Err(ClusterError::Busy {
                        asked: "open",
                        volume: name,
                        users: in_use.clients(),
                    });
                }
                Use::Client | Use::One => in_use.become_client(wanted),
            }
            Ok(in_use)
        };
        env::spawn(opening).await
    }

    /// The same, and the volume as the clients of an export have it that has terms of its own: a client beside the volume's
    /// others, on all nodes the same by the export's name.
    ///
    /// # Errors
    /// As for [`Openings::open`].
    pub async fn open_as(
        self: &Rc<Self>,
        name: &Name,
        export: &str,
        terms: &Terms,
    ) -> Result<(InUse, Rc<UserVolume>), ClusterError> {
        let in_use = self.open(name).await?;
        let user = User {
            client: client_of(in_use.id(), export),
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
        if let Some(slot) = self.node.slots.get(id) {
            if !slot.is_over().await {
                return Ok(InUse::new(&slot));
            }
            self.node.slots.remove(&slot);
        }
        self.node.levels.allowed()?;
        self.claims.wait_for_others("open", id).await?;
        let stores = self.node.stores.all().await?;
        let volume = self.node.meta.images.volume(id).await?;
        let settings = self.settings_for(&volume.record);
        let store_infos = self.node.stores.infos(&stores);
        let choice = Choice::new(self.shared.part());
        let meta = Rc::clone(&self.node.meta.images.meta);
        let numbers = (volume.record.epoch, volume.record.generation);
        let volume = match Volume::open(id, meta, choice, store_infos, settings).await {
            // It was taken and not changed, and clients of before wait for the next try. Of other errors it is not known whose the
            // epoch is.
            Err(error @ (VolumeError::Offline { .. } | VolumeError::Map { .. })) => {
                let now = self.node.meta.images.volume(id).await?.record;
                self.node.slots.opened(id, numbers, now.epoch);
                return Err(error.into());
            }
            opened => opened?,
        };
        let record = volume.record();
        tracing::info!(volume = %record.name, "opened");
        let openings = self.node.slots.opened(id, numbers, record.epoch);
        let account = self.node.stores.account_cap(&record);
        let slot = Slot::new(id, (volume, openings), account);
        self.node.slots.insert(&slot);
        Ok(InUse::new(&slot))
    }

    /// A volume in use for one job, and its number.
    pub(super) async fn in_use(
        self: &Rc<Self>,
        name: &Name,
    ) -> Result<(InUse, VolumeId), ClusterError> {
        let id = self.node.meta.find(name).await?;
        Ok((self.open_for(Use::Job, name).await?, id))
    }

    /// Takes a volume over from another node whose clients of it sent nothing for `idle`, and keeps it open here for a minute.
    ///
    /// # Errors
    /// [`ClusterError::Elsewhere`] if they did; as for [`Openings::open`].
    pub async fn take_over(self: &Rc<Self>, name: &Name, idle: Nanos) -> Result<(), ClusterError> {
        let id = self.node.meta.find(name).await?;
        let _alone = self.node.slots.alone(id).await;
        if self.node.meta.other_writer(id).await?.is_some() {
            self.claims.claim("take over", id, Some(idle)).await?;
        }
        let in_use = self.open_alone(id).await?;
        env::spawn(async move {
            env::sleep(KEPT).await;
            drop(in_use);
        });
        Ok(())
    }

    /// The volumes that are open here, with their engines' counters.
    pub fn open_volumes(&self) -> Vec<Rc<Volume>> {
        let open = self.node.slots.all();
        open.iter().map(|slot| Rc::clone(slot.volume())).collect()
    }

    /// A volume that is open here.
    pub fn volume(&self, id: VolumeId) -> Option<Rc<Volume>> {
        let slot = self.node.slots.get(id)?;
        Some(Rc::clone(slot.volume()))
    }

    /// What all clients together get at most of a volume that is open here.
    pub fn throttle(&self, id: VolumeId) -> Option<Rc<Throttle>> {
        let slot = self.node.slots.get(id)?;
        Some(Rc::clone(slot.throttle()))
    }

    fn settings_for(&self, volume: &VolumeRecord) -> volume::Settings {
        let ClientTag { origin, penalties } = self.caller_of(volume);
        volume::Settings {
            origin,
            penalties,
            drained: self.node.stores.drained(),
            ..self.node.settings.volume.clone()
        }
    }

    /// Whose a volume's own requests are.
    pub(super) fn caller_of(&self, volume: &VolumeRecord) -> ClientTag {
        let usual = self.node.settings.volume.penalties;
        ClientTag {
            origin: Origin {
                client: ClientId(u64::from(volume.id.0)),
                class: volume.terms.priority.into(),
            },
            penalties: Penalties {
                other: volume.terms.fairness.map_or(usual.other, permille),
                ..usual
            },
        }
    }

    /// Closes a volume here, and forgets it.
    pub(super) async fn close(&self, slot: &Rc<Slot>) -> Result<(), VolumeError> {
        let closed = slot.volume().close().await;
        self.node.slots.remove(slot);
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
        let in_use = match self.node.slots.get(id) {
            Some(slot) => slot,
            None => {
                if self
                    .node
                    .meta
                    .images
                    .volume(id)
                    .await?
                    .record
                    .writer
                    .is_none()
                {
                    return Ok(());
                }
                self.claims.wait_for_others(asked, id).await?;
                // Its writer is gone: one opening completes what it left.
                self.open_alone(id).await?;
                self.node.slots.get(id).expect("just opened")
            }
        };
        if in_use.users() > 0 {
            return Err(ClusterError::Busy {
                asked,
                volume: in_use.name(),
                users: in_use.users(),
            });
        }
        Ok(self.close(&in_use).await?)
    }

    /// Opens a volume that no node has open, without a user, has `work` done, and closes it, unless it has users by then. Answers
    /// what `work` does; `true` if it is open already.
    pub(super) async fn visit(
        &self,
        id: VolumeId,
        work: impl AsyncFnOnce(&Slot) -> bool,
    ) -> Result<bool, ClusterError> {
        let slot = {
            let _alone = self.node.slots.alone(id).await;
            if self.node.slots.get(id).is_some() || self.is_open_elsewhere(id).await? {
                return Ok(true);
            }
            let _in_use = self.open_alone(id).await?;
            let slot = self.node.slots.get(id).expect("just opened");
            slot.visited.set(true);
            slot
        };
        let answer = work(&slot).await;
        slot.visited.set(false);
        let _alone = self.node.slots.alone(id).await;
        let still = self
            .node
            .slots
            .get(id)
            .is_some_and(|it| Rc::ptr_eq(&it, &slot));
        if still
            && slot.users() == 0
            && let Err(error) = self.close(&slot).await
        {
            tracing::debug!(volume = %slot.name(), %error, "closed, and not all is settled");
        }
        Ok(answer)
    }

    /// Has another node a volume open, or is it being deleted?
    async fn is_open_elsewhere(&self, id: VolumeId) -> Result<bool, ClusterError> {
        let record = self.node.meta.images.volume(id).await?.record;
        let own = self.node.name().as_str();
        match record.writer.filter(|it| it.node != own) {
            Some(writer) => Ok(self.node.meta.images.holds(&writer).await?),
            None => Ok(record.state != VolumeState::Live),
        }
    }

    /// Closes a volume that [`Openings::open_for_one`] opened, whatever jobs there are with it: what is still under way there is
    /// waited for or, where that takes too long, kept out by the next opening.
    pub async fn close_for_one(&self, in_use: InUse) {
        let slot = Rc::clone(in_use.slot());
        let _alone = self.node.slots.alone(slot.id()).await;
        drop(in_use);
        let is_there = self.node.slots.get(slot.id());
        if is_there.is_some_and(|it| Rc::ptr_eq(&it, &slot))
            && let Err(error) = self.close(&slot).await
        {
            tracing::warn!(volume = %slot.name(), %error, "closed, and something is left unreconciled");
        }
    }

    /// Closes volumes that no client uses any more.
    pub(super) async fn close_idle(&self) {
        let after = self.node.settings.close_after;
        let idle = self.node.slots.all().into_iter();
        let idle: Vec<Rc<Slot>> = idle.filter(|it| it.is_idle(after)).collect();
        for slot in idle {
            let _alone = self.node.slots.alone(slot.id()).await;
            if slot.is_idle(after)
                && let Err(error) = self.close(&slot).await
            {
                tracing::warn!(volume = %slot.name(), %error, "closed, and something is left unreconciled");
            }
        }
    }

    /// Closes all volumes and opens none any more; what went wrong.
    pub(super) async fn stop(&self) -> Vec<String> {
        self.stopping.set(true);
        let mut troubles = Vec::new();
        for slot in self.node.slots.all() {
            let _alone = self.node.slots.alone(slot.id()).await;
            if let Err(error) = self.close(&slot).await {
                troubles.push(format!("volume {}: {error}", slot.name()));
            }
        }
        troubles
    }
}
