//! Resync: what stores that come back get.
//!
//! ```text
//! out -> opened anew -> leftovers deleted -> each extent alone: copied where its stamp is later -> joining -> in
//! ```
//!
//! Always true:
//! 1. A store joins only when each of its extents was resynced and changes have kept it up to date since.
//! 2. By no map in the meta store does a store that joins have a copy that was not resynced.
//! 3. What cannot be read keeps its own stores out; everything else is resynced to them all the same.
//! 4. A stale copy stays until the fresh one is whole, if the store has room for both.

use std::ops::Bound;
use std::rc::Rc;

use base::Nanos;

use replication::membership;

use super::age::Fences;
use super::commit::MapIo;
use super::connections::Connections;
use super::copies::{Copies, ResyncError, unstamped};
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
#[cfg(test)]
use super::life::Mutation;
use super::node_io::NodeIo;
use super::older_images::union;
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::replica::{Replica, SyncState};
use super::state::Core;
use crate::names::{ExtentName, Generation, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

/// Brings a store that was out up to date.
#[derive(Clone, Copy)]
pub(super) struct Resync<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Resync<'a> {
    pub fn of(core: &'a Rc<Core>) -> Resync<'a> {
        Resync { core }
    }

    /// Resyncs `number` whenever it is out, as long as the volume is open.
    pub(super) async fn keep_in_sync(self, number: StoreNumber) {
        let replica = self
            .core
            .replicas
            .get(number)
            .expect("a task for each member");
        let mut wait = Nanos::millis(100);
        while self.core.usable().is_ok() {
            if replica.sync_state() != SyncState::Out {
                self.core.life.changed.wait().await;
                continue;
            }
            match self.resync(replica).await {
                Ok(()) => wait = Nanos::millis(100),
                Err(why) => {
                    tracing::debug!(volume = %self.core.id, store = %self.core.replicas.label(number), why, "not back in sync");
                    replica.state_mut().lacks_all();
                    if replica.sync_state() == SyncState::Out {
                        replica.drop_connection();
                    }
                    env::sleep(wait).await;
                    wait = Nanos((wait.0 * 2).min(self.core.settings.timeout.0.max(100_000_000)));
                }
            }
        }
    }

    async fn resync(self, replica: &Replica) -> Result<(), String> {
        let core = self.core;
        let number = replica.info.number;
        let said = |error: ConnectionError| error.to_string();
        let connection = match Connections::of(core).open_anew(replica).await {
            Ok(connection) => connection,
            Err(ConnectionError::Fenced { why, .. }) => {
                return Err(core.fence(why).to_string());
            }
            Err(error) => return Err(error.to_string()),
        };
        let since = core.volume_record().out.get(&number).copied();
        let since = since.ok_or("the record does not say since when it is out")?;
        replica.state_mut().lacks_all();
        replica.set_connection(Rc::clone(&connection));
        let deleted = self.delete_orphans(number, &connection).await;
        deleted.map_err(said)?;
        let read = ImageIo::of(core).read_older_images().await;
        read.map_err(|error| error.to_string())?;
        NodeIo::of(core).resync_nodes(replica).await?;
        let mut tries = 0;
        loop {
            self.resync_all(replica, &connection, since).await?;
            core.within(connection.flush()).await.map_err(said)?;
            if !replica.is_by(&connection) {
                return Err("its link broke".to_owned());
            }
            // A change may have missed it meanwhile; and by the map it may still have a copy that was not resynced.
            let has_all = self.next_to_resync(replica, 0).is_none()
                && self.next_older(replica, None).is_none();
            if replica.state().may_join(has_all) {
                break;
            }
            core.usable().map_err(|error| error.to_string())?;
            core.pause(&mut tries).await;
        }
        // So that a disk that is put back to before this is noticed.
        if !Fences::of(core)
            .stamp_fence(replica, Rc::clone(&connection))
            .await
        {
            return Err("its fence is not stamped".to_owned());
        }
        // From here on changes need it: none that it misses is acknowledged before it is out again.
        replica.state_mut().begin_join();
        // The same of extents that are gone, and of which nothing was resynced to it.
        while core.replication.borrow().changes.is_anything_forgotten()
            && replica.sync_state() == SyncState::Joining
        {
            match MapIo::of(core).commit().await {
                Ok(()) => break,
                Err(error) if !error.passes() => return Err(error.to_string()),
                Err(_) => core.pause(&mut tries).await,
            }
        }
        take_in(core, replica, &mut tries).await?;
        self.joined(replica);
        Ok(())
    }

    /// A store is in sync by the record: it is here too, unless a change missed it meanwhile.
    fn joined(self, replica: &Replica) {
        if !replica.state_mut().joined() {
            return;
        }
        let (core, number) = (self.core, replica.info.number);
        replica.was_full.set(false);
        core.count(|counters| counters.isr_expands += 1);
        tracing::info!(volume = %core.id, store = %core.replicas.label(number), "in sync again");
        core.life.changed.notify_all();
    }

    /// Resyncs to a store that is out all that it should have. What cannot be read holds up nothing else: it is tried
    /// again, while changes keep up to date what is there already.
    async fn resync_all(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        since: Generation,
    ) -> Result<(), String> {
        let mut wait = Nanos::millis(100);
        loop {
            let mut held = self.resync_extents(replica, connection, since).await?;
            if let Some(why) = self.resync_older_images(replica, connection, since).await? {
                held = Some(why);
            }
            *replica.resync_error.borrow_mut() = held.clone();
            let Some(why) = held else {
                return Ok(());
            };
            tracing::debug!(volume = %self.core.id, store = %replica.info.name, why, "resynced all but this");
            env::sleep(wait).await;
            wait = Nanos((wait.0 * 2).min(self.core.settings.timeout.0.max(100_000_000)));
            self.core.usable().map_err(|error| error.to_string())?;
            if !replica.is_by(connection) {
                return Err("its link broke".to_owned());
            }
        }
    }

    /// Resyncs extents until none are left but those that cannot be; returns why one of them cannot.
    async fn resync_extents(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        since: Generation,
    ) -> Result<Option<String>, String> {
        let mut held: Option<String> = None;
        let mut from = 0;
        loop {
            let Some((index, _)) = self.next_to_resync(replica, from) else {
                // Some that were passed may lack a change by now.
                match from == 0 || held.is_some() {
                    true => return Ok(held),
                    false => from = 0,
                }
                continue;
            };
            match self.resync_extent(replica, connection, index, since).await {
                Ok(()) => {}
                Err(ResyncError::Store(why)) => return Err(why),
                Err(ResyncError::Extent(why)) => held = Some(why),
            }
            from = index.saturating_add(1);
        }
    }

    /// An extent of this store from there on that was not resynced yet.
    fn next_to_resync(self, replica: &Replica, from: u32) -> Option<(u32, Rc<ExtentEntry>)> {
        let state = replica.state();
        let extents = self.core.extents.all.borrow();
        let number = replica.info.number;
        let next = extents.range(from..).find(|(index, placed)| {
            let mut layers = placed.layers();
            !state.synced.contains(index)
                && layers.any(|it| it.copies.borrow().stores.contains(&number))
        });
        next.map(|(index, placed)| (*index, Rc::clone(placed)))
    }

    /// Resyncs one extent to a store that is out.
    async fn resync_extent(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        index: u32,
        since: Generation,
    ) -> Result<(), ResyncError> {
        // Once: others are not to wait for what cannot be reconciled now.
        let reconciled = Reconcile::of(self.core)
            .ensure_reconciled(index, env::now())
            .await;
        reconciled.map_err(ResyncError::by_extent)?;
        let Some((_held, placed)) = self.core.lock_extent(index).await else {
            return Ok(());
        };
        if !replica.is_by(connection) {
            return Err(ResyncError::Store("its link broke".to_owned()));
        }
        let mut synced_objects = Vec::new();
        for layer in placed.layers() {
            let numbers = layer.stores();
            if !numbers.contains(&replica.info.number) {
                continue;
            }
            if layer.is_unacknowledged() {
                // What it alone has of it was never acknowledged; the first change makes it on all.
                let gone = self
                    .core
                    .within(connection.delete(&layer.object, unstamped()));
                match gone.await {
                    Ok(()) | Err(ConnectionError::Absent(_)) => continue,
                    Err(error) => return Err(ResyncError::by_store(error)),
                }
            }
            Copies::of(self.core)
                .resync_layer(connection, &layer, &numbers, since)
                .await?;
            synced_objects.push(layer.name);
        }
        // All together: changes reach it from here on, and none did before.
        replica.state_mut().resynced(index, synced_objects);
        Ok(())
    }

    /// Something of older images that a store should have, behind that one, and was not resynced yet.
    fn next_older(
        self,
        replica: &Replica,
        after: Option<ExtentName>,
    ) -> Option<(ExtentName, Vec<StoreNumber>)> {
        #[cfg(test)]
        if self.core.mutated(Mutation::HeadOnlyResync) {
            return None;
        }
        let (number, state) = (replica.info.number, replica.state());
        let older_images = self.core.maps.older.tables.extents.borrow();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut all = (older_images.range((from, Bound::Unbounded))).filter(|(name, places)| {
            places.iter().flatten().any(|one| *one == number)
                && !state.synced_objects.contains(name)
        });
        all.next().map(|(name, places)| (*name, union(places)))
    }

    /// Resyncs to a store that is out what the images before the head have there; returns why something of it cannot
    /// be.
    async fn resync_older_images(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        since: Generation,
    ) -> Result<Option<String>, String> {
        let (mut held, mut after) = (None, None);
        while let Some((name, stores)) = self.next_older(replica, after) {
            after = Some(name);
            let placed = ExtentEntry::new(name, stores.clone(), false);
            if !self.core.is_shared(&placed) && self.core.extents.is_heads(&placed) {
                // It is the head's alone by now, which resyncs it extent by extent, or has.
                let mut state = replica.state_mut();
                if state.synced.contains(&name.index) {
                    state.synced_objects.insert(name);
                }
                continue;
            }
            match Copies::of(self.core)
                .resync_layer(connection, &placed, &stores, since)
                .await
            {
                Ok(()) => drop(replica.state_mut().synced_objects.insert(name)),
                Err(ResyncError::Store(why)) => return Err(why),
                Err(ResyncError::Extent(why)) => held = Some(why),
            }
        }
        Ok(held)
    }

    /// Looks through what a returning store has and was named since the volume was opened, or a snapshot taken: what no
    /// extent knows goes. What is older may be that of another image.
    async fn delete_orphans(
        self,
        number: StoreNumber,
        connection: &Rc<dyn Connection>,
    ) -> Result<(), ConnectionError> {
        let prefix = ExtentName::prefix(self.core.id);
        let mut after = Some(ExtentName::before(
            self.core.id,
            self.core.replication.borrow().changes.scan_floor().next(),
        ));
        loop {
            let part = self
                .core
                .within(connection.list(&prefix, after.as_deref()))
                .await?;
            for stat in &part.objects {
                let name = ExtentName::parse(&stat.name);
                let placed = name.and_then(|name| self.core.extents.placed(name.index));
                let layers = placed.into_iter().flat_map(|placed| placed.layers());
                let mut known = layers.filter(|layer| Some(layer.name) == name);
                let keep = known.any(|layer| layer.copies.borrow().stores.contains(&number));
                if name.is_some() && !keep {
                    match self
                        .core
                        .within(connection.delete(&stat.name, unstamped()))
                        .await
                    {
                        Ok(()) | Err(ConnectionError::Absent(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            match part.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// Takes a store that joins into the in-sync set of the record.
async fn take_in(core: &Rc<Core>, replica: &Replica, tries: &mut u32) -> Result<(), String> {
    loop {
        let taken = RecordIo::of(core).change_record(|record| {
            // A store that missed a change while this waited its turn is out again.
            let joins = replica.sync_state() == SyncState::Joining;
            let all_known = core.maps.older.is_known();
            let floor = |out: &_, copies| core.redundancy_floor(out, copies);
            Ok(membership::expand(
                record,
                replica.info.number,
                joins,
                all_known,
                floor,
            ))
        });
        match taken.await {
            Ok(()) => return Ok(()),
            Err(error) if !error.passes() => return Err(error.to_string()),
            // Whether it was taken in is not known: changes need it until that is.
            Err(_) => core.pause(tries).await,
        }
    }
}
