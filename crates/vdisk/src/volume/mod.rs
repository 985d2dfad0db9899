//! A replicated volume in use: one writer, copies of each extent in several stores.
//!
//! ```text
//! read  -> reconciled   -> range shared -> which copy? (choice) -> a store -> data      failed: another copy, and repaired
//! write -> reconciled   -> range alone -> placed -> dirty bit -> all in-sync copies, durable -> answer
//!                                                                 '-- one failed: out, by compare-and-swap, before the answer
//! ```
//!
//! What all tasks share is in `state`; each job is a type that borrows it, in a file of its own. A file sees only those above it:
//!
//! - State: `error`, `settings`, `status`; `replica`, `replicas` the stores; `extent`, `pieces` what is where; `ranges` locks of
//!   bytes; `users`, `usage` clients; `lease`, `life`, `under_way`; `dirty` bits; `node_table`, `older_images`, `commits` what maps have and need; `repairs`.
//! - Records and stores: `record_io` swaps. `connections` to stores, `age` which were put back, `keep_lease`.
//! - The map: `node_io` its nodes, `commit` how it becomes durable, `image_io` what older images have.
//! - The in-sync set: `membership` which stores leave it. `bitmap_io` which extents' copies may differ after a crash. `copies` from store to
//!   store. `reconcile` what makes copies equal again. `room` what finds no place. `rewrite`, `repair` what scrubs and reads found damaged.
//! - Requests: `read`; `spread` a change to all copies, `overlay` of what is shared with other images, `write` piece by piece.
//! - Jobs: `resync` of stores that come back. `layer_copies`, `rereplicate` as many copies as configured. `elsewhere`, `relocate` older images'
//!   maps on other stores. `drain` what leaves stores that are to be empty. `snapshot`, `resize`.
//! - The whole: `opening` who writes, `recover` what there is, `background` tasks, `health`; `device`, `user_volume` the volume as its users have it.
//!
//! The map is read when a volume is opened, and what was allocated since its last commit is found by listing; it is in memory
//! while the volume is open, and committed beside reads and writes.
//!
//! Source: COST 3.2 (reads by cost, new extents on the cheapest disks, overwrites go to their copies, a write is answered
//! when all copies are on disk); who may write, who is in sync and what happens after faults is ours.
//!
//! Always true:
//! 1. A change that was answered is durable on every store that is in sync and has the extent.
//! 2. A store that may have missed a change is out, in the record, before the change is answered.
//! 3. No store leaves the in-sync set that has the last in-sync copy of an extent.
//! 4. What a read answered stays until it is written, whichever copy is read later: an extent whose copies may differ is not
//!    read before they are equal.
//! 5. Nothing is answered under a lease that may have run out, nor after a greater token was seen.

mod age;
mod background;
mod bitmap_io;
mod commit;
mod commits;
mod connections;
mod copies;
mod device;
mod dirty;
mod drain;
mod elsewhere;
mod error;
mod extent;
mod health;
mod image_io;
mod keep_lease;
mod layer_copies;
mod lease;
mod life;
mod membership;
mod node_io;
mod node_table;
mod older_images;
mod opening;
mod overlay;
mod pieces;
mod ranges;
mod read;
mod reconcile;
mod record_io;
mod recover;
mod relocate;
mod repair;
mod repairs;
mod replica;
mod replicas;
mod rereplicate;
mod resize;
mod resync;
mod rewrite;
mod room;
mod settings;
mod snapshot;
mod spread;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod under_way;
mod usage;
mod user_volume;
mod users;
mod write;

pub use drain::Left;
pub use error::VolumeError;
pub use repairs::{LEFT_MAX, Repairs, Unrepaired};
pub use settings::{Settings, StoreInfo};
pub use status::{Condition, Counters, Health};
pub use user_volume::UserVolume;
pub use users::User;

use std::collections::BTreeSet;
use std::rc::Rc;

use ::device::meter::Snapshot;
use ::device::{Device, DeviceError, Op, Pending};
use base::{Buf, Bytes, Nanos, Sector, Span, View};
use replication::state::Phase;
use store::ClientTag;

use crate::meta::{LeaseId, MetaStore};
use crate::names::{EXTENT, ImageId, StoreNumber, VolumeId};
use crate::record::{Name, VolumeRecord};
use crate::replica::choice::Choice;
use connections::Connections;
use drain::Drain;
use extent::ExtentEntry;
use health::HealthReport;
use keep_lease::LeaseKeeper;
#[cfg(test)]
use life::Mutation;
use membership::Membership;
use node_io::InStores;
use opening::{Taken, head_of, take};
use read::Reads;
use record_io::RecordIo;
use recover::Recovery;
use repair::Repair;
use resize::Resize;
use room::Room;
use snapshot::Snapshots;
use state::Core;
use users::UserId;
use write::Writes;

/// A volume in use. Held as `Rc<dyn Device>` by the export; see the module's head.
///
/// Every write is durable when it is answered, so a flush has nothing to do.
pub struct Volume {
    core: Rc<Core>,
}

impl Drop for Volume {
    /// As a crash of its node, if it was not closed: nothing goes on, and the lease runs out.
    fn drop(&mut self) {
        if self.core.usable().is_ok() {
            self.core.replication.borrow_mut().phase = Phase::Closed;
        }
        self.core.life.changed.notify_all();
    }
}

impl Volume {
    /// Opens a volume here, whichever writer has it now: that one is fenced.
    ///
    /// # Errors
    /// [`VolumeError::Missing`], [`VolumeError::Record`], [`VolumeError::Settings`]; [`VolumeError::Offline`] if too few
    /// stores can be sealed; [`VolumeError::Meta`]; [`VolumeError::Fenced`] if another node opened it at the same time.
    pub async fn open(
        id: VolumeId,
        meta: Rc<dyn MetaStore>,
        choice: Choice,
        store_infos: Vec<StoreInfo>,
        settings: Settings,
    ) -> Result<Rc<Volume>, VolumeError> {
        let asked = env::clocks();
        let Taken {
            record,
            revision,
            before,
        } = take(id, &*meta, &settings).await?;
        let waits = record.writer.as_ref().is_some_and(|it| it.waits);
        let own = record.writer.as_ref().map(|it| LeaseId(it.lease));
        // From here on no lease of an earlier writer is made longer.
        let alone = env::now() + settings.lease;
        let head = head_of(&record, &*meta).await?;
        let below = Rc::new(InStores::default());
        let core = Rc::new(Core::new(
            id,
            (meta, choice),
            store_infos,
            settings,
            (record, revision),
            head,
            Rc::<InStores>::clone(&below),
        )?);
        below.are_of(&core);
        // The record's lease was asked for after that, and no node has since taken the volume without awaiting its end.
        let counted = core.settings.counted(core.settings.lease);
        core.lease.keep(asked, counted);
        if let Err(error) = Recovery::of(&core).begin_with(&before).await {
            if !matches!(error, VolumeError::Meta { .. }) {
                Recovery::of(&core).give_back(&before).await;
            }
            // Nothing was answered under it: the next one need not wait for its end.
            if let Some(own) = own
                && let Err(error) = core.meta.revoke(own).await
            {
                tracing::debug!(volume = %id, %error, "the lease of an opening that failed is left to expire");
            }
            return Err(error);
        }
        let volume = Volume { core };
        let core = &volume.core;
        // From here on: a lease of our own does not run out while that of another is awaited.
        let own = Rc::clone(core);
        env::spawn(async move { LeaseKeeper::of(&own).keep_lease().await });
        if waits {
            // The old writer may answer from memory, or from a store whose removal it never heard of.
            env::sleep(alone.since(env::now())).await;
            if let Err(error) = LeaseKeeper::of(core).waits_no_more().await {
                // The next writer waits longer than it need.
                tracing::debug!(volume = %id, %error, "the record still says that an earlier writer is waited for");
            }
        }
        background::start(core);
        Ok(Rc::new(volume))
    }

    /// Ends the use of the volume. It waits for what is under way, no longer than a request may take, and leaves
    /// nothing unreconciled if it can.
    ///
    /// # Errors
    /// [`VolumeError`] if something is left unreconciled: the next opening reconciles it. It is closed all the same.
    pub async fn close(&self) -> Result<(), VolumeError> {
        let core = &self.core;
        let waited = core.settings.deadline;
        let all = env::timeout(waited, core.locks.ranges.take(0..u64::MAX, true)).await;
        let left = match &all {
            Ok(_) => Recovery::of(core).leave_clean().await,
            Err(_) => Err(VolumeError::Busy {
                volume: core.id,
                waited,
            }),
        };
        core.replication.borrow_mut().phase = Phase::Closed;
        core.life.changed.notify_all();
        left
    }

    /// How it is, and why.
    pub fn health(&self) -> Health {
        HealthReport::of(&self.core).health()
    }

    /// What it has done since it was opened.
    pub fn counters(&self) -> Counters {
        self.core.life.counters.get()
    }

    /// What its clients asked since it was opened, by operation and their class.
    pub fn requests(&self) -> Snapshot {
        self.core.clients.requests.snapshot(&self.name())
    }

    /// What is to be copied at most until each extent has all its copies in sync.
    pub fn copies_left(&self) -> Bytes {
        let core = &self.core;
        let record = core.volume_record().clone();
        if record.out.is_empty() && record.redundancy_floor >= record.copies {
            return Bytes(0);
        }
        let replicas = record.out.keys().filter_map(|it| core.replicas.get(*it));
        let synced: u64 = replicas.map(|it| it.state().synced.len() as u64).sum();
        Bytes(self.missing_copies().saturating_sub(synced) * EXTENT)
    }

    /// How much more can be written where nothing is yet, before a copy finds no room.
    pub fn room_left(&self) -> Bytes {
        Room::of(&self.core).left()
    }

    /// The record as this node knows it.
    pub fn record(&self) -> VolumeRecord {
        self.core.volume_record().clone()
    }

    /// How long no client asked for anything; `None`: a request is under way.
    pub fn idle_for(&self) -> Option<Nanos> {
        self.core.clients.usage.idle_for()
    }

    /// Is it still open, and taken by no other writer?
    pub fn is_open(&self) -> bool {
        self.core.usable().is_ok()
    }

    /// Are the copies of all extents known to be equal?
    pub fn is_settled(&self) -> bool {
        self.core.replication.borrow().unreconciled.is_empty()
    }

    /// All stores of the cluster: those that joined since the volume was opened may be used from now on, and those that it knows
    /// and that are not named have left. To the others the next connection goes the way that is named now.
    pub fn add_stores(&self, store_infos: Vec<StoreInfo>) {
        let core = &self.core;
        let named = |number: &StoreNumber| store_infos.iter().any(|it| it.number == *number);
        let left = core.replicas.keys().filter(|it| !named(it));
        let left: Vec<StoreNumber> = left.copied().collect();
        left.into_iter()
            .for_each(|number| core.replicas.leave(number));
        // A list that is older than what is known here may come late.
        core.replicas
            .gone
            .borrow_mut()
            .retain(|number| !named(number));
        for info in store_infos {
            let number = info.number;
            if let Some(known) = core.replicas.get(number) {
                *known.connector.borrow_mut() = info.connector;
                continue;
            }
            // Its first connection seals the fence with what is newest now; the volume never wrote there before.
            let token = core.generation();
            if core.replicas.add(info, &core.replication, token) {
                tracing::info!(volume = %core.id, store = %core.replicas.label(number), "a store more");
                RecordIo::of(core).learn_ages(&core.volume_record());
                background::start_with(core, number);
                core.life.changed.notify_all();
            }
        }
    }

    /// From now on nothing new goes to these stores, and what is there leaves.
    pub fn drain(&self, stores: BTreeSet<StoreNumber>) {
        let core = &self.core;
        if *core.replicas.drained.borrow() != stores {
            *core.replicas.drained.borrow_mut() = stores;
            core.life.changed.notify_all();
        }
    }

    /// What it has on a store now.
    pub fn left_on(&self, store: StoreNumber) -> Left {
        Drain::of(&self.core).left_on(store)
    }

    /// Keeps what the volume holds now as a snapshot, and goes on. Requests wait meanwhile. Answers the snapshot's image.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was kept then. With [`VolumeError::Fenced`] and [`VolumeError::Closed`] it may have been.
    pub async fn snapshot(&self, name: Name) -> Result<ImageId, VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { Snapshots::of(&core).snapshot(name).await }).await
    }

    /// Gives the volume another size. What lies behind a lesser one is gone, and with an error some of it may be.
    ///
    /// # Errors
    /// [`VolumeError::Image`] for a size that cannot be; whatever else stands in the way.
    pub async fn resize(&self, size: Bytes) -> Result<(), VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { Resize::of(&core).resize(size.0).await }).await
    }

    /// Repairs all that its stores know to be damaged, and says what could not be.
    pub async fn repair_damage(&self) -> Repairs {
        let core = Rc::clone(&self.core);
        // To its end, whether or not the caller waits: writes under way are not given up.
        env::spawn(async move { Repair::of(&core).repair_damage().await }).await
    }

    /// How many in-sync copies extents lack, by the in-sync set of the record.
    pub fn missing_copies(&self) -> u64 {
        let core = &self.core;
        let (out, copies) = {
            let record = &core.volume_record();
            (record.out.clone(), u64::from(record.copies))
        };
        let extents = core.extents.all.borrow();
        let layers = extents.values().flat_map(ExtentEntry::layers);
        let lacks = |layer: Rc<ExtentEntry>| {
            let stores = &layer.copies.borrow().stores;
            let there = stores.iter().filter(|one| !out.contains_key(one)).count();
            copies.saturating_sub(there as u64)
        };
        layers.map(lacks).sum()
    }

    /// Goes on without a store that is gone for good: it is out of sync from here on. `false`: it has the last in-sync copy of
    /// something, or it still answers, and nothing was done.
    ///
    /// # Errors
    /// [`VolumeError`] if the record could not be changed.
    pub async fn give_up(&self, store: StoreNumber) -> Result<bool, VolumeError> {
        let core = Rc::clone(&self.core);
        env::spawn(async move { Membership::of(&core).give_up(store).await }).await
    }

    /// What no in-sync copy has, as of the last look.
    pub fn lost_pages(&self) -> Vec<Unrepaired> {
        self.core.repairing.lost_pages()
    }

    /// Changes what operators set in its record: `change` does so and says whether anything is different. It may be asked several
    /// times.
    ///
    /// # Errors
    /// [`VolumeError`], if the record could not be changed; with [`VolumeError::Meta`] it may have been.
    pub async fn set(
        &self,
        change: impl Fn(&mut VolumeRecord) -> bool + 'static,
    ) -> Result<(), VolumeError> {
        let core = Rc::clone(&self.core);
        let changing = async move {
            RecordIo::of(&core)
                .change_record(|record| Ok(change(record)))
                .await
        };
        // To its end, whether or not the caller still waits.
        env::spawn(changing).await
    }

    /// Its requests are `own`'s from here on, and its users' as far as they set nothing else; under whose reservations the
    /// record says. All stores that answer know it then.
    pub async fn become_one_of(&self, own: ClientTag) {
        let core = Rc::clone(&self.core);
        core.clients.users.own.set(own);
        env::spawn(async move { Connections::of(&core).introduce_anew().await }).await;
    }

    /// The volume for a user that is a client of its own.
    pub async fn for_user(self: &Rc<Self>, user: User) -> Rc<UserVolume> {
        let user = self.core.clients.users.enter(user);
        if user != UserId::OWN {
            Connections::of(&self.core).open_client_sessions(user).await;
        }
        Rc::new(UserVolume {
            volume: Rc::clone(self),
            user,
        })
    }

    fn device_error(&self, op: Op, span: Span, error: VolumeError) -> DeviceError {
        let device = self.name();
        let why = error.to_string();
        match error {
            VolumeError::Fenced { .. } | VolumeError::Closed(_) => {
                DeviceError::Gone { device, op, why }
            }
            VolumeError::NoRoom { .. } => DeviceError::NoSpace { device, op, why },
            _ => DeviceError::Io {
                device,
                op,
                span,
                why,
            },
        }
    }

    fn name(&self) -> String {
        self.core.volume_record().name.to_string()
    }

    fn read_as(&self, at: Sector, buf: Buf, user: UserId) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        if let Err(error) = self.info().check(Op::Read, at, span.len.0) {
            return ::device::ready(Err(error));
        }
        let watch = self.core.clients.begin(Op::Read, span.len.0, user);
        Box::pin(async move {
            let _request = self.core.clients.usage.begin();
            let read = async {
                let buf = Reads::of(&self.core).read(at.byte(), buf, user).await?;
                self.core.leased().await?;
                Ok(buf)
            };
            let read = read.await;
            watch.end(read.is_ok());
            read.map_err(|error| self.device_error(Op::Read, span, error))
        })
    }

    fn flush_as(&self, user: UserId) -> Pending<'_, ()> {
        let watch = self.core.clients.begin(Op::Flush, 0, user);
        Box::pin(async move {
            let _request = self.core.clients.usage.begin();
            let leased = self.core.leased().await;
            watch.end(leased.is_ok());
            leased.map_err(|error| self.device_error(Op::Flush, Span::default(), error))
        })
    }

    fn change(&self, op: Op, span: Span, data: Option<View>, user: UserId) -> Pending<'_, ()> {
        if let Err(error) = self.info().check(op, span.start, span.len.0) {
            return ::device::ready(Err(error));
        }
        let core = Rc::clone(&self.core);
        let watch = core.clients.begin(op, span.len.0, user);
        // To its end, whether or not the caller still waits.
        let task = env::spawn(async move {
            let _request = core.clients.usage.begin();
            let changed = async {
                Writes::of(&core)
                    .change(span.start.byte(), span.len.0, data, user)
                    .await?;
                core.leased().await
            };
            let changed = changed.await;
            watch.end(changed.is_ok());
            changed
        });
        Box::pin(async move {
            task.await
                .map_err(|error| self.device_error(op, span, error))
        })
    }
}
