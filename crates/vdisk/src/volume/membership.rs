//! The stores of a volume, and its record: which are in sync, which are out, and how does every node come to know?
//!
//! Always true:
//! 1. The record is changed by compare-and-swap only, one change at a time, and each has a new generation. A writer that
//!    finds a record with another epoch is fenced.
//! 2. A store leaves the in-sync set with a generation before every change it may have missed.
//! 3. A connection with an indeterminate change is never used again; the store's next one has a greater token.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use policy::place::{At, Candidate, DiskId, Permille, Target};
use replication::age::Age;

use super::users::{ClientSessions, UserId};
use super::{Condition, Core, Health, StoreInfo, Volume, VolumeError, stores};
use crate::meta::{Compare, Entry, MetaError, Op, Outcome};
use crate::names::{ExtentName, Generation, StoreNumber};
use crate::record::{VolumeRecord, gone_key};
use crate::replica::connect::{Connection, ConnectionError, Connector};

/// Where a store stands with this volume; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncState {
    InSync,
    Joining,
    Out,
}

/// A store as this volume's writer has it.
pub(super) struct Replica {
    pub info: StoreInfo,
    /// The way to it as it is now: its node may come back at another address.
    connector: RefCell<Rc<dyn Connector>>,
    pub sync_state: Cell<SyncState>,
    connection: RefCell<Option<Rc<dyn Connection>>>,
    /// Those of users, beside it.
    pub client_sessions: ClientSessions,
    /// A change is indeterminate: the next connection needs a greater token than this.
    tainted: Cell<bool>,
    /// The token of its next connection.
    token: Cell<Generation>,
    /// While it is out: extents that were resynced, and that changes keep up to date.
    pub synced: RefCell<BTreeSet<u32>>,
    /// The same of what older images have.
    pub synced_objects: RefCell<BTreeSet<ExtentName>>,
    /// Why something cannot be resynced to it.
    pub resync_error: RefCell<Option<String>>,
    /// Copies that are being taken away from it.
    pub leaving: Cell<u64>,
    /// Room it had when it was last asked, and what was sent there since.
    pub free: Cell<Bytes>,
    pub sent: Cell<u64>,
    pub total: Cell<Bytes>,
    /// When it was last asked for that and answered, or got a connection.
    pub answered: Cell<Instant>,
    /// How far the volume's fence is there.
    pub age: RefCell<Age>,
    /// It refused something for lack of room, and was not in sync since.
    pub was_full: Cell<bool>,
}

impl Replica {
    pub fn new(info: StoreInfo, token: Generation) -> Replica {
        Replica {
            connector: RefCell::new(Rc::clone(&info.connector)),
            info,
            sync_state: Cell::new(SyncState::InSync),
            connection: RefCell::default(),
            client_sessions: ClientSessions::default(),
            tainted: Cell::new(false),
            token: Cell::new(token),
            synced: RefCell::default(),
            synced_objects: RefCell::default(),
            resync_error: RefCell::default(),
            leaving: Cell::new(0),
            free: Cell::new(Bytes(0)),
            sent: Cell::new(0),
            total: Cell::new(Bytes(0)),
            answered: Cell::new(env::now()),
            age: RefCell::default(),
            was_full: Cell::new(false),
        }
    }

    /// The way to it.
    pub fn connector(&self) -> Rc<dyn Connector> {
        self.connector.borrow().clone()
    }

    pub fn disk(&self) -> DiskId {
        DiskId(u32::from(self.info.number.0))
    }

    pub fn candidate(&self, at: Option<At>) -> Candidate {
        Candidate {
            disk: self.disk(),
            local: self.info.local,
            rotating: self.info.rotating,
            at,
        }
    }

    fn target(&self) -> Target {
        Target {
            candidate: self.candidate(None),
            domain: self.info.domain,
            free: self.room(),
            capacity: self.total.get(),
            reserved: Permille(0),
        }
    }

    /// Must changes reach it?
    pub fn is_needed(&self) -> bool {
        self.sync_state.get() != SyncState::Out
    }

    /// It misses a change of this extent: that must be resynced again before it joins, also where a snapshot has it by then.
    pub fn lacks(&self, index: u32) {
        self.synced.borrow_mut().remove(&index);
        self.synced_objects
            .borrow_mut()
            .retain(|it| it.index != index);
    }

    /// Nothing counts as resynced to it.
    pub fn lacks_all(&self) {
        self.synced.borrow_mut().clear();
        self.synced_objects.borrow_mut().clear();
    }

    /// Its connection, if it can be used.
    pub fn connection(&self) -> Option<Rc<dyn Connection>> {
        self.connection.borrow().clone()
    }

    /// Is it in sync, and this its connection? Then it was never out since this became so.
    pub fn is_in_by(&self, connection: &Rc<dyn Connection>) -> bool {
        let own = self.connection.borrow();
        let same = own.as_ref().is_some_and(|own| Rc::ptr_eq(own, connection));
        same && self.sync_state.get() == SyncState::InSync
    }

    /// The token of its connection.
    pub fn token(&self) -> Generation {
        self.token.get()
    }

    pub fn drop_connection(&self) {
        self.client_sessions.clear();
        *self.connection.borrow_mut() = None;
    }

    pub fn set_connection(&self, connection: Rc<dyn Connection>) {
        self.answered.set(env::now());
        self.client_sessions.clear();
        *self.connection.borrow_mut() = Some(connection);
    }

    /// This connection is of no more use. `tainted`: a change on it is indeterminate.
    pub fn lose(&self, connection: &Rc<dyn Connection>, tainted: bool) {
        self.client_sessions.drop_one(connection);
        let mut own = self.connection.borrow_mut();
        if own.as_ref().is_some_and(|own| Rc::ptr_eq(own, connection)) {
            *own = None;
            self.client_sessions.clear();
            self.tainted.set(self.tainted.get() || tainted);
        } else if tainted {
            // A later connection, there or not yet, would have the same token, and so has the volume's beside a user's. An
            // indeterminate change may still come after its changes.
            *own = None;
            self.client_sessions.clear();
            self.tainted.set(true);
        }
    }
}

impl Volume {
    /// All stores of the cluster: those that joined since the volume was opened may be used from now on, and those that it knows
    /// and that are not named have left. To the others the next connection goes the way that is named now.
    pub fn add_stores(&self, store_infos: Vec<StoreInfo>) {
        let core = &self.core;
        let named = |number: &StoreNumber| store_infos.iter().any(|it| it.number == *number);
        let left = core.replicas.keys().filter(|it| !named(it));
        let left: Vec<StoreNumber> = left.copied().collect();
        left.into_iter().for_each(|number| core.leave(number));
        // A list that is older than what is known here may come late.
        core.gone.borrow_mut().retain(|number| !named(number));
        for info in store_infos {
            let number = info.number;
            if let Some(known) = core.replica(number) {
                *known.connector.borrow_mut() = info.connector;
                continue;
            }
            // Its first connection seals the fence with what is newest now; the volume never wrote there before.
            let replica = Replica::new(info, core.generation());
            if core.record.borrow().0.out.contains_key(&number) {
                replica.sync_state.set(SyncState::Out);
            }
            if core.replicas.add(replica) {
                tracing::info!(volume = %core.id, store = %core.label(number), "a store more");
                core.learn_ages(&core.record.borrow().0);
                core.start_with(number);
                core.changed.notify_all();
            }
        }
    }
}

impl Core {
    pub(super) fn replica(&self, number: StoreNumber) -> Option<&Replica> {
        self.replicas.get(&number)
    }

    /// What a store is called.
    pub(super) fn label(&self, number: StoreNumber) -> String {
        match self.replica(number) {
            Some(replica) => replica.info.name.clone(),
            None => format!("number {number} (not in the cluster any more)"),
        }
    }

    pub(super) fn labels<'a>(
        &self,
        numbers: impl IntoIterator<Item = &'a StoreNumber>,
    ) -> Vec<String> {
        let numbers = numbers.into_iter();
        numbers.map(|number| self.label(*number)).collect()
    }

    pub(super) fn replica_of(&self, disk: DiskId) -> Option<&Replica> {
        self.replica(StoreNumber(disk.0 as u16))
    }

    /// Those of `numbers` that changes must reach.
    pub(super) fn needed(&self, numbers: &[StoreNumber]) -> Vec<&Replica> {
        let replicas = numbers.iter().filter_map(|number| self.replica(*number));
        replicas.filter(|replica| replica.is_needed()).collect()
    }

    /// Where new copies may go.
    pub(super) fn targets(&self, but: &[StoreNumber]) -> Vec<Target> {
        let taken: Vec<_> = (but.iter())
            .filter_map(|number| self.replica(*number).map(|replica| replica.info.domain))
            .collect();
        let fit = self.replicas.values().filter(|replica| {
            replica.sync_state.get() == SyncState::InSync
                && replica.connection().is_some()
                && !taken.contains(&replica.info.domain)
                && !self.is_drained(replica.info.number)
                && !self.freeing.borrow().contains(&replica.info.number)
        });
        fit.map(Replica::target).collect()
    }

    /// One request to a store, no longer than it may take.
    pub(super) async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        match env::timeout(self.settings.timeout, request).await {
            // A later connection of our own has the greater token: this one is over.
            Ok(Err(ConnectionError::Fenced { found, why })) if found <= self.generation().0 => {
                Err(ConnectionError::Gone(why))
            }
            Ok(answer) => answer,
            Err(elapsed) => Err(ConnectionError::Indeterminate(format!(
                "{elapsed} from a store"
            ))),
        }
    }

    // --- the record ---------------------------------------------------------------------------------

    pub(super) fn meta_error(&self, source: MetaError) -> VolumeError {
        VolumeError::Meta {
            volume: self.id,
            source,
        }
    }

    /// The record the meta store holds now; another epoch means that another writer has the volume.
    pub(super) fn check_epoch(&self, entry: Option<&Entry>) -> Result<VolumeRecord, VolumeError> {
        let Some(entry) = entry else {
            return Err(self.fence("its record is gone"));
        };
        let record = VolumeRecord::decode(self.id, &entry.value)?;
        let epoch = self.record.borrow().0.epoch;
        if record.epoch != epoch {
            let by = record.writer.as_ref().map_or("nobody", |one| &one.node);
            return Err(self.fence(format!("by {by}, epoch {}", record.epoch)));
        }
        Ok(record)
    }

    /// Takes what the meta store holds now.
    pub(super) fn learn(&self, entry: Option<&Entry>) -> Result<(), VolumeError> {
        let record = self.check_epoch(entry)?;
        let entry = entry.expect("checked");
        if entry.changed != self.record.borrow().1 {
            self.record_indeterminate.set(false);
        }
        *self.record.borrow_mut() = (record, entry.changed);
        self.apply_record();
        Ok(())
    }

    /// A store that is out by the record is out here too: a change whose answer was lost may have removed it. One that
    /// joins does so in spite of the record.
    fn apply_record(&self) {
        let out: Vec<StoreNumber> = self.record.borrow().0.out.keys().copied().collect();
        for replica in out.iter().filter_map(|number| self.replica(*number)) {
            if replica.sync_state.get() == SyncState::InSync {
                self.leave_set(replica);
            }
        }
    }

    /// A store is out from here on.
    fn leave_set(&self, replica: &Replica) {
        if replica.sync_state.replace(SyncState::Out) != SyncState::Out {
            tracing::warn!(volume = %self.id, store = %replica.info.name, "out of sync");
            self.count(|counters| counters.isr_shrinks += 1);
        }
        replica.drop_connection();
        replica.lacks_all();
        // Resync opens it anew, under the token there is then.
        replica.tainted.set(false);
        self.changed.notify_all();
    }

    /// Changes the record: `change` makes the new one of the old one and says whether there is anything to change. It may be
    /// asked several times.
    pub(super) async fn change_record(
        &self,
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        self.change_record_without(&[], change).await
    }

    /// The same, if none of these stores has left the cluster.
    async fn change_record_without(
        &self,
        gone: &[StoreNumber],
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        let _one = self.changing.acquire(1).await;
        let deadline = env::now() + self.settings.deadline;
        let mut last = None;
        loop {
            self.usable()?;
            let (mut next, revision) = self.record.borrow().clone();
            if !change(&mut next)? {
                if !self.record_indeterminate.get() {
                    return Ok(());
                }
                // What was asked before may still come about: a new revision sees to it that it does not.
                next = self.record.borrow().0.clone();
            }
            if let Some(error) = last.take_if(|_| env::now() >= deadline) {
                return Err(self.meta_error(error));
            }
            next.generation = next.generation.next();
            self.note_ages(&mut next);
            let put = Op::Put {
                key: self.key.clone(),
                value: next.encode(),
                lease: None,
            };
            let mut compares = vec![Compare::Unchanged(self.key.clone(), revision)];
            compares.extend(gone.iter().map(|one| Compare::Absent(gone_key(*one))));
            match self.meta.txn(compares, vec![put]).await {
                Ok(Outcome::Done(revision)) => {
                    *self.record.borrow_mut() = (next, revision);
                    self.record_indeterminate.set(false);
                    self.apply_record();
                    self.changed.notify_all();
                    return Ok(());
                }
                Ok(Outcome::Refused(found)) => {
                    self.learn(found.first().and_then(Option::as_ref))?;
                    let left = gone.iter().zip(found.iter().skip(1));
                    let left = left.filter_map(|(one, found)| found.as_ref().map(|_| *one));
                    if let Some(store) = left.inspect(|one| self.leave(*one)).last() {
                        return Err(VolumeError::NoRoom {
                            volume: self.id,
                            why: format!("store {} has left the cluster", self.label(store)),
                        });
                    }
                }
                Err(error) => {
                    self.record_indeterminate.set(true);
                    last = Some(error);
                    if let Ok(found) = self.meta.get(&self.key).await {
                        self.learn(found.as_ref())?;
                    }
                    env::sleep(Nanos::millis(100)).await;
                }
            }
        }
    }

    /// The least number of in-sync copies of any extent or node, of older images too, with these stores out, as the next opening finds them; as many
    /// as there should be if there is none. No more than the bitmap replicas among them: the next opening must find one.
    pub(super) fn redundancy_floor(
        &self,
        out: &BTreeMap<StoreNumber, Generation>,
        copies: u8,
    ) -> u8 {
        let extents = self.extents.borrow();
        let all = extents.values().filter(|it| !it.stores.borrow().is_empty());
        let least = all.map(|it| it.in_sync(out)).min();
        let least = least.unwrap_or(copies).min(copies);
        let least = least.min(self.nodes.redundancy_floor(out).unwrap_or(copies));
        let least = least.min(self.older_images.redundancy_floor(out).unwrap_or(copies));
        let bitmap_replicas = self.dirty.bitmap.borrow().replicas_without(out);
        match bitmap_replicas {
            Some(bitmap_replicas) if copies > 1 => least.min(bitmap_replicas as u8),
            _ => least,
        }
    }

    /// Puts stores that may have missed a change out, in the record. `false`: one of them has the last in-sync copy of some
    /// extent, and nothing was done.
    pub(super) async fn shrink_set(&self, numbers: &[StoreNumber]) -> Result<bool, VolumeError> {
        self.spare_nodes(numbers).await?;
        #[cfg(test)]
        let skip_swap = self.mutated(super::Mutation::AnswerBeforeSwap);
        #[cfg(not(test))]
        let skip_swap = false;
        let last_copy = Cell::new(false);
        let change = |record: &mut VolumeRecord| {
            let since = self.stamps.borrow().complete(record.generation);
            let before = record.out.len();
            let mut anything = false;
            for number in numbers {
                anything |= record.out.insert(*number, since).is_none_or(|before| {
                    // It was out already: it stays so since then.
                    record.out.insert(*number, before);
                    false
                });
            }
            let newly = record.out.len() - before;
            let redundancy_floor = self.redundancy_floor_after(record, newly);
            last_copy.set(anything && redundancy_floor == 0);
            record.redundancy_floor = record.redundancy_floor.min(redundancy_floor);
            Ok(anything && redundancy_floor > 0)
        };
        match skip_swap {
            true => drop(change(&mut self.record.borrow().0.clone())),
            false => self.change_record(change).await?,
        }
        if last_copy.get() {
            return Ok(false);
        }
        for replica in numbers.iter().filter_map(|number| self.replica(*number)) {
            self.leave_set(replica);
        }
        Ok(true)
    }

    /// A store has left the cluster, and this volume had not heard of it.
    fn leave(&self, store: StoreNumber) {
        self.gone.borrow_mut().insert(store);
    }

    /// Asks which of these have left since the volume was opened.
    pub(super) async fn learn_who_left(
        &self,
        stores: &BTreeSet<StoreNumber>,
    ) -> Result<(), VolumeError> {
        for store in stores.iter().filter(|it| !self.has_left(**it)) {
            let found = self.meta.get(&gone_key(*store)).await;
            if found.map_err(|error| self.meta_error(error))?.is_some() {
                self.leave(*store);
            }
        }
        Ok(())
    }

    /// Notes in the record that stores may have something of the volume, before they have: the next opening must seal them. A
    /// store that has left the cluster meanwhile is not listed any more.
    pub(super) async fn list_stores(&self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        let lacks = |record: &VolumeRecord| {
            let listed = record.stores.as_ref();
            listed.is_some_and(|it| numbers.iter().any(|one| !it.contains(one)))
        };
        if !lacks(&self.record.borrow().0) {
            return Ok(());
        }
        self.change_record_without(numbers, |record| {
            let lacks = lacks(record);
            if let Some(listed) = &mut record.stores {
                listed.extend(numbers);
            }
            Ok(lacks)
        })
        .await
    }

    /// Has nodes of which these stores have the last in-sync copies written elsewhere, where extents can do without them.
    async fn spare_nodes(&self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        let mut out = self.record.borrow().0.out.clone();
        out.extend(numbers.iter().map(|number| (*number, Generation(0))));
        if self.nodes.redundancy_floor(&out) == Some(0) && self.renew_thin_nodes(&out, 1).await? {
            match self.commit().await {
                Err(error) if !error.passes() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// New connections, under a greater token, to in-sync stores with indeterminate changes: none of those is under way then.
    pub(super) async fn renew(&self) -> Result<(), VolumeError> {
        let tainted = || {
            self.replicas
                .values()
                .filter(|replica| replica.tainted.get())
        };
        // Others may get there, under the newest token, while the record is changed.
        while let Some(most) = tainted().map(|replica| replica.token.get()).max() {
            self.change_record(|record| Ok(record.generation <= most))
                .await?;
            let now = self.generation();
            for replica in tainted().filter(|replica| replica.token.get() < now) {
                replica.token.set(now);
                replica.tainted.set(false);
            }
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Opens a connection to `replica` under its token.
    pub(super) async fn open_connection(
        &self,
        replica: &Replica,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let connection = self.enter_store(replica, replica.token.get()).await?;
        self.look_at_fence(replica, &connection).await;
        self.introduce(&connection, UserId::OWN, true).await?;
        let longest = (connection.write_max() / 4096 * 4096).max(4096);
        self.write_max.set(self.write_max.get().min(longest));
        if let Ok(space) = self.within(connection.space()).await {
            replica.says(&space);
        }
        Ok(connection)
    }

    /// As [`Core::open_connection`], under a token greater than that of any connection it had.
    pub(super) async fn open_anew(
        &self,
        replica: &Replica,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let before = replica.token.get();
        let newer = self.change_record(|record| Ok(record.generation <= before));
        if let Err(error) = newer.await {
            return Err(ConnectionError::Refused(error.to_string()));
        }
        let token = self.generation();
        let connection = self.enter_store(replica, token).await?;
        self.look_at_fence(replica, &connection).await;
        self.introduce(&connection, UserId::OWN, true).await?;
        replica.token.set(token);
        replica.tainted.set(false);
        Ok(connection)
    }

    /// Opens connections of in-sync stores again, as long as the volume is open.
    pub(super) async fn keep_connected(self: Rc<Self>) {
        let mut turn = 0_u32;
        while self.usable().is_ok() {
            let broken: Vec<StoreNumber> = self
                .replicas
                .values()
                .filter(|it| it.is_needed() && it.connection().is_none() && !it.tainted.get())
                .map(|it| it.info.number)
                .collect();
            for number in &broken {
                let replica = self.replica(*number).expect("just listed");
                let token = replica.token.get();
                match self.open_connection(replica).await {
                    // Out of the in-sync set, or tainted again, while it was opened.
                    Ok(_) if !replica.is_needed() || replica.tainted.get() => {}
                    Ok(_) if replica.token.get() != token => {}
                    Ok(connection) => {
                        replica.set_connection(connection);
                        self.changed.notify_all();
                    }
                    Err(ConnectionError::Fenced { why, .. }) => {
                        self.fence(why);
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.id, store = %self.label(*number), %error, "no link");
                    }
                }
            }
            // 50 ms, 100 ms ... 1.6 s between tries that fail.
            turn = if broken.is_empty() {
                0
            } else {
                (turn + 1).min(5)
            };
            let wait = match broken.is_empty() {
                true => self.settings.tick,
                false => Nanos::millis(50 << turn),
            };
            let _ = env::timeout(wait, self.changed.wait()).await;
            env::sleep(Nanos::millis(10)).await;
        }
    }

    // --- for operators ---------------------------------------------------------------------------------

    pub(super) fn health(&self) -> Health {
        let record = self.record.borrow().0.clone();
        let report = |condition, why: String| Health { condition, why };
        if let Err(error) = self.usable() {
            return report(Condition::Offline, error.to_string());
        }
        let lease = self.health_of_lease();
        let offline = |it: &&Health| it.condition == Condition::Offline;
        if let Some(health) = lease.as_ref().filter(offline) {
            return health.clone();
        }
        let out: Vec<StoreNumber> = record.out.keys().copied().collect();
        let redundancy_floor = self.redundancy_floor(&record.out, record.copies);
        let silent = self.silent();
        if !silent.is_empty() && silent.len() >= usize::from(redundancy_floor) {
            let why = format!(
                "an extent may have only {redundancy_floor} in-sync copies, and these do not answer: {}",
                stores(&self.out_in_words(&silent))
            );
            return report(Condition::Offline, why);
        }
        if redundancy_floor < record.min_isr {
            let why = format!(
                "an extent has {redundancy_floor} in-sync copies, and writes must reach {}; out: {}",
                record.min_isr,
                stores(&self.out_in_words(&out))
            );
            return report(Condition::ReadOnly, why);
        }
        if let Some(mut why) = self.full_in_words() {
            if !out.is_empty() {
                why = format!("{why}; out: {}", stores(&self.out_in_words(&out)));
            }
            return report(Condition::Full, why);
        }
        let back = |number: &StoreNumber| {
            self.replica(*number)
                .is_some_and(|it| !it.synced.borrow().is_empty())
        };
        if out.iter().any(back) {
            let held = out.iter().filter_map(|number| self.replica(*number));
            let mut held = held.filter_map(|it| it.resync_error.borrow().clone());
            let held = held.next().map_or(String::new(), |why| format!("; {why}"));
            let why = format!("bringing back {}{held}", stores(&self.out_in_words(&out)));
            return report(Condition::Resyncing, why);
        }
        if !out.is_empty() || !silent.is_empty() {
            return report(Condition::Degraded, away_in_words(self, &out, &silent));
        }
        if redundancy_floor < record.copies {
            let copies = record.copies;
            let why = format!("an extent has {redundancy_floor} of {copies} copies");
            return report(Condition::Degraded, why);
        }
        if let Some(why) = self.lost_in_words() {
            return report(Condition::Degraded, why);
        }
        lease.unwrap_or_else(|| report(Condition::Healthy, String::new()))
    }

    /// Stores that are in sync, have something of the volume, and do not answer for some time.
    fn silent(&self) -> Vec<StoreNumber> {
        let record = self.record.borrow();
        let listed = record.0.stores.as_ref();
        let uses = |it: &&Replica| {
            let number = it.info.number;
            listed.is_none_or(|all| all.contains(&number)) && it.is_needed()
        };
        let long = self.settings.timeout;
        let silent =
            |it: &&Replica| it.connection().is_none() && env::now().since(it.answered.get()) > long;
        let all = self.replicas.values().filter(uses).filter(silent);
        all.map(|it| it.info.number).collect()
    }
}

/// Which stores are out or do not answer, and which were refused.
fn away_in_words(core: &Core, out: &[StoreNumber], silent: &[StoreNumber]) -> String {
    let of = |what: &str, which: &[StoreNumber]| match which.is_empty() {
        true => None,
        false => Some(format!("{what}: {}", stores(&core.out_in_words(which)))),
    };
    let why = [of("out", out), of("not answering", silent)];
    let why = why.into_iter().flatten().chain(core.refused_store());
    why.collect::<Vec<String>>().join("; ")
}
