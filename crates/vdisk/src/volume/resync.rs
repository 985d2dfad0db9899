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

use std::rc::Rc;

use base::Nanos;
use store::Change;

use super::membership::{Replica, SyncState};
use super::reconcile::{Copy, CopyError, ResyncError, stamped, unstamped};
use super::{Core, ExtentEntry};
use crate::names::{EXTENT, ExtentName, Generation, StoreNumber};
use crate::replica::connect::{Connection, ConnectionError};

impl Core {
    /// Resyncs `number` whenever it is out, as long as the volume is open.
    pub(super) async fn keep_in_sync(self: Rc<Self>, number: StoreNumber) {
        let replica = self.replica(number).expect("a task for each member");
        let mut wait = Nanos::millis(100);
        while self.usable().is_ok() {
            if replica.sync_state.get() != SyncState::Out {
                self.changed.wait().await;
                continue;
            }
            match self.resync(replica).await {
                Ok(()) => wait = Nanos::millis(100),
                Err(why) => {
                    tracing::debug!(volume = %self.id, store = %self.label(number), why, "not back in sync");
                    replica.lacks_all();
                    if replica.sync_state.get() == SyncState::Out {
                        replica.drop_connection();
                    }
                    env::sleep(wait).await;
                    wait = Nanos((wait.0 * 2).min(self.settings.timeout.0.max(100_000_000)));
                }
            }
        }
    }

    async fn resync(&self, replica: &Replica) -> Result<(), String> {
        let number = replica.info.number;
        let said = |error: ConnectionError| error.to_string();
        let connection = match self.open_anew(replica).await {
            Ok(connection) => connection,
            Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why).to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let since = self.record.borrow().0.out.get(&number).copied();
        let since = since.ok_or("the record does not say since when it is out")?;
        replica.lacks_all();
        replica.set_connection(Rc::clone(&connection));
        let deleted = self.delete_orphans(number, &connection).await;
        deleted.map_err(said)?;
        let read = self.read_older_images().await;
        read.map_err(|error| error.to_string())?;
        self.resync_nodes(replica).await?;
        let mut tries = 0;
        loop {
            self.resync_all(replica, &connection, since).await?;
            self.within(connection.flush()).await.map_err(said)?;
            if !is_by(replica, &connection) {
                return Err("its link broke".to_owned());
            }
            // A change may have missed it meanwhile; and by the map it may still have a copy that was not resynced.
            let lacks = self.next_to_resync(replica, 0).is_some()
                || self.next_older(replica, None).is_some();
            if !lacks && replica.leaving.get() == 0 {
                break;
            }
            self.usable().map_err(|error| error.to_string())?;
            self.pause(&mut tries).await;
        }
        // So that a disk that is put back to before this is noticed.
        if !self.stamp_fence(replica, Rc::clone(&connection)).await {
            return Err("its fence is not stamped".to_owned());
        }
        // From here on changes need it: none that it misses is acknowledged before it is out again.
        replica.sync_state.set(SyncState::Joining);
        // The same of extents that are gone, and of which nothing was resynced to it.
        while self.is_anything_forgotten() && replica.sync_state.get() == SyncState::Joining {
            match self.commit().await {
                Ok(()) => break,
                Err(error) if !error.passes() => return Err(error.to_string()),
                Err(_) => self.pause(&mut tries).await,
            }
        }
        take_in(self, replica, &mut tries).await?;
        if replica.sync_state.get() == SyncState::Joining {
            replica.sync_state.set(SyncState::InSync);
            replica.was_full.set(false);
            replica.lacks_all();
            self.count(|counters| counters.isr_expands += 1);
            tracing::info!(volume = %self.id, store = %self.label(number), "in sync again");
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Resyncs to a store that is out all that it should have. What cannot be read holds up nothing else: it is tried
    /// again, while changes keep up to date what is there already.
    async fn resync_all(
        &self,
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
            tracing::debug!(volume = %self.id, store = %replica.info.name, why, "resynced all but this");
            env::sleep(wait).await;
            wait = Nanos((wait.0 * 2).min(self.settings.timeout.0.max(100_000_000)));
            self.usable().map_err(|error| error.to_string())?;
            if !is_by(replica, connection) {
                return Err("its link broke".to_owned());
            }
        }
    }

    /// Resyncs extents until none are left but those that cannot be; returns why one of them cannot.
    async fn resync_extents(
        &self,
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
    fn next_to_resync(&self, replica: &Replica, from: u32) -> Option<(u32, Rc<ExtentEntry>)> {
        let synced = replica.synced.borrow();
        let extents = self.extents.borrow();
        let number = replica.info.number;
        let next = extents.range(from..).find(|(index, placed)| {
            let mut layers = placed.layers();
            !synced.contains(index) && layers.any(|it| it.stores.borrow().contains(&number))
        });
        next.map(|(index, placed)| (*index, Rc::clone(placed)))
    }

    /// Resyncs one extent to a store that is out.
    async fn resync_extent(
        &self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        index: u32,
        since: Generation,
    ) -> Result<(), ResyncError> {
        // Once: others are not to wait for what cannot be reconciled now.
        let reconciled = self.ensure_reconciled(index, env::now()).await;
        reconciled.map_err(ResyncError::by_extent)?;
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_unreconciled(index)) else {
            return Ok(());
        };
        if !replica
            .connection()
            .is_some_and(|own| Rc::ptr_eq(&own, connection))
        {
            return Err(ResyncError::Store("its link broke".to_owned()));
        }
        let mut synced_objects = Vec::new();
        for layer in placed.layers() {
            let numbers = layer.stores.borrow().clone();
            if !numbers.contains(&replica.info.number) {
                continue;
            }
            if layer.unacknowledged.get() {
                // What it alone has of it was never acknowledged; the first change makes it on all.
                let gone = self.within(connection.delete(&layer.object, unstamped()));
                match gone.await {
                    Ok(()) | Err(ConnectionError::Absent(_)) => continue,
                    Err(error) => return Err(ResyncError::by_store(error)),
                }
            }
            self.resync_layer(connection, &layer, &numbers, since)
                .await?;
            synced_objects.push(layer.name);
        }
        // All together: changes reach it from here on, and none did before.
        replica.synced_objects.borrow_mut().extend(synced_objects);
        replica.synced.borrow_mut().insert(index);
        Ok(())
    }

    /// Is it one of the head's own objects? After a rollback what was born after the head's beginning may be another image's.
    pub(super) fn is_heads(&self, placed: &ExtentEntry) -> bool {
        let there = self.placed(placed.name.index);
        there.is_some_and(|it| it.layers().any(|layer| layer.name == placed.name))
    }

    /// Resyncs one object to a store that is out. No write changes it meanwhile.
    pub(super) async fn resync_layer(
        &self,
        connection: &Rc<dyn Connection>,
        placed: &ExtentEntry,
        numbers: &[StoreNumber],
        since: Generation,
    ) -> Result<(), ResyncError> {
        let copies: Vec<Copy<'_>> = (self.needed(numbers).into_iter())
            .filter_map(|other| Some((other, other.connection()?)))
            .collect();
        let source = self.source(placed, &copies).await;
        let Some((source, _)) = source.map_err(ResyncError::by_extent)? else {
            let why = format!("no in-sync copy of {} can be reached", placed.object);
            return Err(ResyncError::Extent(why));
        };
        let held = |halt: CopyError| match halt {
            CopyError::To(error) => ResyncError::by_store(error),
            CopyError::From(error) => {
                if error.ends_connection() {
                    self.lose_source(&copies, &source);
                }
                ResyncError::Extent(format!("{} cannot be read: {error}", placed.object))
            }
        };
        let object = &placed.object;
        let stat = self.within(source.stat(object)).await;
        let stamp = stat.map_err(|error| held(CopyError::From(error)))?.stamp;
        let there = self.within(connection.stat(object)).await;
        // A copy that is not whole has the stamp 0.
        let whole = there.is_ok_and(|there| there.stamp > 0);
        if stamp <= since.0 && whole {
            return Ok(());
        }
        self.count(|counters| counters.resynced += 1);
        let change = stamped(Generation(stamp), false);
        // Beside what is there, and in its place in one step: until the fresh copy is whole the stale one may be all that is left, if
        // the sources fail meanwhile. Where it is shared it may be read meanwhile, too.
        let put = self.put_beside(placed, &source, &copies, connection, change);
        match put.await {
            Err(CopyError::To(ConnectionError::Full(_)))
                if !self.is_shared(placed) && self.is_heads(placed) => {}
            other => return other.map_err(held),
        }
        // There is no room for both: the stale copy goes first, and what was begun beside it.
        let beside = self.beside(placed);
        let gone = self.within(connection.delete(&beside, unstamped())).await;
        if let Err(error) = gone
            && !matches!(error, ConnectionError::Absent(_))
        {
            return Err(ResyncError::by_store(error));
        }
        match self.within(connection.delete(object, unstamped())).await {
            Ok(()) | Err(ConnectionError::Absent(_)) => {}
            Err(error) => return Err(ResyncError::by_store(error)),
        }
        let copied = self.copy_behind(object, object, &source, &copies, connection);
        copied.await.map_err(held)?;
        let stamp = self.within(connection.stamp(object, change)).await;
        stamp.map_err(ResyncError::by_store)
    }

    /// Puts a copy of a shared object on a store, in one step: a client may be reading what is there.
    pub(super) async fn put_beside(
        &self,
        placed: &ExtentEntry,
        source: &Rc<dyn Connection>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Connection>,
        change: Change,
    ) -> Result<(), CopyError> {
        let beside = self.beside(placed);
        match self.within(to.delete(&beside, unstamped())).await {
            Ok(()) | Err(ConnectionError::Absent(_)) => {}
            Err(error) => return Err(CopyError::To(error)),
        }
        let object = &placed.object;
        self.copy_behind(object, &beside, source, copies, to)
            .await?;
        let named = self.within(to.rename(&beside, object, true, change));
        named.await.map_err(CopyError::To)
    }

    /// Looks through what a returning store has and was named since the volume was opened, or a snapshot taken: what no
    /// extent knows goes. What is older may be that of another image.
    async fn delete_orphans(
        &self,
        number: StoreNumber,
        connection: &Rc<dyn Connection>,
    ) -> Result<(), ConnectionError> {
        let prefix = ExtentName::prefix(self.id);
        let mut after = Some(ExtentName::before(self.id, self.scan_floor.get().next()));
        loop {
            let part = self
                .within(connection.list(&prefix, after.as_deref()))
                .await?;
            for stat in &part.objects {
                let name = ExtentName::parse(&stat.name);
                let placed = name.and_then(|name| self.placed(name.index));
                let layers = placed.into_iter().flat_map(|placed| placed.layers());
                let mut known = layers.filter(|layer| Some(layer.name) == name);
                let keep = known.any(|layer| layer.stores.borrow().contains(&number));
                if name.is_some() && !keep {
                    match self
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
async fn take_in(core: &Core, replica: &Replica, tries: &mut u32) -> Result<(), String> {
    loop {
        let taken = core.change_record(|record| {
            // A store that missed a change while this waited its turn is out again.
            let joins = replica.sync_state.get() == SyncState::Joining;
            let was_out = joins && record.out.remove(&replica.info.number).is_some();
            let redundancy_floor = core.redundancy_floor(&record.out, record.copies).max(1);
            record.redundancy_floor = match core.older_images.is_known() {
                true => redundancy_floor,
                false => redundancy_floor.min(record.redundancy_floor),
            };
            Ok(was_out)
        });
        match taken.await {
            Ok(()) => return Ok(()),
            Err(error) if !error.passes() => return Err(error.to_string()),
            // Whether it was taken in is not known: changes need it until that is.
            Err(_) => core.pause(tries).await,
        }
    }
}

/// Is this the store's connection still?
fn is_by(replica: &Replica, connection: &Rc<dyn Connection>) -> bool {
    let own = replica.connection();
    own.is_some_and(|own| Rc::ptr_eq(&own, connection))
}
