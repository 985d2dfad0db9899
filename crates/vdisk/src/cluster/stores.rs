//! Which stores are there, on which nodes, and which are up?
//!
//! ```text
//! store/<number>        this record, JSON with a version by the cluster's level           store-name/<name>   its number
//! store-next            the number that comes next                alive/<node>        under the node's lease
//! gone/<number>         its identity, once it has left             lost/<identity>     its name, if it left as lost
//! ```
//!
//! ```text
//! Active   -> Draining   drain    no new data goes there, and what is there leaves
//! Draining -> Active     undrain
//! Draining -> (nothing)  remove   no volume lists it
//! either   -> (nothing)  remove   it is gone for good, and no volume counts on it
//! ```
//!
//! Always true:
//! 1. A number is never given twice: maps remember it.
//! 2. A store is known by its own identity, which it got when it was made. Another one under the same name is refused.
//! 3. A store that left as lost does not come back: what it has is out of date, and no volume knows it.

use std::collections::{BTreeMap, BTreeSet};

use std::cell::RefCell;
use std::rc::Rc;

use device::Throttle;
use policy::place::{DiskId, DomainId};
use serde::{Deserialize, Serialize};

use super::ClusterError;
use super::level::{Level, LevelRange};
use super::levels::{Levels, Writing};
use super::records::MetaRecords;
use super::shared::Shared;
use super::slots::Slots;
use super::up::Up;
use super::ways::Ways;
use crate::meta::{Compare, Op, Revision, whole_range};
use crate::names::StoreNumber;
use crate::record::{Name, RecordError, VolumeRecord, read_up_to};
use crate::replica::connect::Connector;
use crate::volume::StoreInfo;
use policy::share::BytesPerSec;

/// Of records without and with the levels of the node's program.
const VERSION: u32 = 1;
const VERSION_LEVELS: u32 = 2;
const STORES: &str = "store/";
pub(super) const NEXT: &str = "store-next";
const ALIVE: &str = "alive/";

/// What a store is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreState {
    /// It takes new data.
    #[default]
    Active,
    /// No new data goes there, and what is there leaves.
    Draining,
}

/// A store of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    version: u32,
    /// Its number.
    pub number: StoreNumber,
    /// Its name, the only one in the cluster.
    pub name: Name,
    /// The identity it got when it was made: 32 hexadecimal digits.
    pub uuid: String,
    /// The node it is on.
    pub node: Name,
    /// Where other nodes reach it.
    pub address: String,
    /// What it fails together with.
    pub domain: Name,
    /// Does it have heads to move?
    #[serde(default)]
    pub rotating: bool,
    /// Does its node keep a lease while it is up?
    #[serde(default)]
    pub leased: bool,
    /// What it is good for.
    #[serde(default)]
    pub state: StoreState,
    /// What the program of its node could do when it started last; only in version 2, and not of a bare store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<LevelRange>,
}

/// A store that is to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStore {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub uuid: u128,
    /// The node it is on.
    pub node: Name,
    /// Where other nodes reach it.
    pub address: String,
    /// What it fails together with.
    pub domain: Name,
    /// Does it have heads to move?
    pub rotating: bool,
    /// Does its node keep a lease while it is up, as a [`Cluster`](super::Cluster) does? A bare store's does not.
    pub leased: bool,
    /// Its number; `None`: the next one.
    pub number: Option<StoreNumber>,
}

/// All stores, with the revisions of their records.
pub type AllStores = BTreeMap<StoreNumber, (StoreRecord, Revision)>;

/// The key of a store's record.
pub(super) fn key(number: StoreNumber) -> String {
    format!("{STORES}{:05}", number.0)
}

pub(super) fn name_key(name: &Name) -> String {
    format!("store-name/{name}")
}

/// The key that says that a store was given up as lost, by its identity.
pub(super) fn lost_key(uuid: &str) -> String {
    format!("lost/{uuid}")
}

/// The key that says that a node is up.
pub(super) fn alive_key(node: &str) -> String {
    format!("{ALIVE}{node}")
}

pub(super) fn put(key: String, value: Vec<u8>) -> Op {
    Op::Put {
        key,
        value,
        lease: None,
    }
}

impl StoreRecord {
    /// As it stands in the meta store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<StoreRecord, RecordError> {
        let record: StoreRecord = read_up_to(VERSION_LEVELS, "the record of a store", bytes)?;
        if u128::from_str_radix(&record.uuid, 16).is_err() || record.uuid.len() != 32 {
            let what = format!("the record of store {}", record.number);
            return Err(RecordError::malformed(&what, "its identity is none"));
        }
        if record.version < VERSION_LEVELS && record.levels.is_some() {
            let what = format!("the record of store {}", record.number);
            return Err(RecordError::malformed(&what, "version 1 has no levels"));
        }
        Ok(record)
    }

    /// As a level of the cluster has it, where the program of its node can do `levels`.
    pub(super) fn at(&self, level: Level, levels: Option<LevelRange>) -> StoreRecord {
        let has_levels = level >= Level::IN_STORE_RECORDS;
        StoreRecord {
            version: if has_levels { VERSION_LEVELS } else { VERSION },
            levels: levels.filter(|_| has_levels),
            ..self.clone()
        }
    }

    pub(super) fn new(new: &NewStore, number: StoreNumber, state: StoreState) -> StoreRecord {
        StoreRecord {
            version: VERSION,
            number,
            name: new.name.clone(),
            uuid: format!("{:032x}", new.uuid),
            node: new.node.clone(),
            address: new.address.clone(),
            domain: new.domain.clone(),
            rotating: new.rotating,
            leased: new.leased,
            state,
            levels: None,
        }
    }
}

/// A number for each domain: that of its first store.
pub(super) fn domains(stores: &AllStores) -> BTreeMap<Name, DomainId> {
    let mut domains = BTreeMap::new();
    for (record, _) in stores.values() {
        let id = DomainId(u32::from(record.number.0));
        domains.entry(record.domain.clone()).or_insert(id);
    }
    domains
}

/// Failure domains with a store that takes new data, but for those of `but`.
pub(super) fn active_domains(stores: &AllStores, but: Option<StoreNumber>) -> usize {
    let fit = stores
        .values()
        .filter(|(record, _)| record.state == StoreState::Active && Some(record.number) != but);
    let domains: BTreeSet<&Name> = fit.map(|(record, _)| &record.domain).collect();
    domains.len()
}

/// May a volume have something on a store?
pub(super) fn lists(record: &VolumeRecord, store: StoreNumber) -> bool {
    let listed = record.stores.as_ref();
    listed.is_none_or(|all| all.contains(&store))
}

/// The number of a new store, where `next` is the least that was never given.
fn number_for(new: &NewStore, next: u32) -> Result<StoreNumber, ClusterError> {
    let taken = |number| ClusterError::NumberTaken {
        name: new.name.clone(),
        number,
        next,
    };
    match new.number {
        Some(asked) if u32::from(asked.0) < next => Err(taken(asked)),
        Some(asked) => Ok(asked),
        None => match u16::try_from(next) {
            Ok(number) => Ok(StoreNumber(number)),
            Err(_) => Err(taken(StoreNumber(u16::MAX))),
        },
    }
}

/// The stores of the cluster, and what this node knew of them last.
pub struct StoreTable {
    meta: MetaRecords,
    slots: Rc<Slots>,
    shared: Shared,
    ways: Rc<dyn Ways>,
    levels: Rc<Levels>,
    known: RefCell<AllStores>,
}

impl StoreTable {
    pub(super) fn new(
        meta: MetaRecords,
        slots: Rc<Slots>,
        shared: Shared,
        (ways, levels): (Rc<dyn Ways>, Rc<Levels>),
    ) -> StoreTable {
        StoreTable {
            meta,
            slots,
            shared,
            ways,
            levels,
            known: RefCell::default(),
        }
    }

    /// All stores.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn all(&self) -> Result<AllStores, ClusterError> {
        let (entries, _) = whole_range(&*self.meta.images.meta, STORES).await?;
        let mut stores = AllStores::new();
        for entry in entries {
            let record = StoreRecord::decode(&entry.value)?;
            if entry.key != key(record.number) {
                let what = format!("the record {}", entry.key);
                let why = format!("it is that of store {}", record.number);
                return Err(RecordError::malformed(&what, why).into());
            }
            stores.insert(record.number, (record, entry.changed));
        }
        self.learn(&stores);
        Ok(stores)
    }

    /// Open volumes and the policy hear what is new.
    fn learn(&self, stores: &AllStores) {
        let takes = |disk: &DiskId| {
            let of = |(record, _): &(StoreRecord, _)| {
                record.state == StoreState::Active && u32::from(record.number.0) == disk.0
            };
            stores.values().any(of)
        };
        // A volume that is open knows those that have left, too.
        let mut known = self.known.borrow_mut();
        let all = known.keys().chain(stores.keys());
        let all: Vec<DiskId> = all.map(|number| DiskId(u32::from(number.0))).collect();
        let mut draining = self.shared.draining.borrow_mut();
        draining.extend(all);
        draining.retain(|disk| !takes(disk));
        known.clone_from(stores);
        drop((known, draining));
        let drained = self.drained();
        for slot in self.slots.all() {
            slot.volume().add_stores(self.infos(stores));
            slot.volume().drain(drained.clone());
        }
    }

    /// The stores as they were looked up last.
    pub fn known_stores(&self) -> Vec<StoreRecord> {
        let known = self.known.borrow();
        known.values().map(|(record, _)| record.clone()).collect()
    }

    /// What a store is called.
    pub fn label(&self, number: StoreNumber) -> String {
        match self.known.borrow().get(&number) {
            Some((record, _)) => record.name.to_string(),
            None => format!("number {number} (not in the cluster any more)"),
        }
    }

    /// The stores as they were looked up last, with the revisions of their records.
    pub(super) fn known(&self) -> std::cell::Ref<'_, AllStores> {
        self.known.borrow()
    }

    /// The way to a store, and whether it is in this very process.
    pub(super) fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        self.ways.way(store)
    }

    /// The largest bookings of a holder at this node's stores: of reads, and of writes.
    pub(super) fn booked(&self, holder: &str) -> [BytesPerSec; 2] {
        self.ways.booked(holder)
    }

    /// What the account that a volume is of gets at most, if it is of one.
    pub(super) fn account_cap(&self, record: &VolumeRecord) -> Option<Rc<Throttle>> {
        let holder = record.terms.reservation.as_deref()?;
        self.ways.account_cap(holder)
    }

    /// Stores that get nothing new: drained ones, and those that left while volumes had them.
    pub(super) fn drained(&self) -> BTreeSet<StoreNumber> {
        let draining = self.shared.draining.borrow();
        draining
            .iter()
            .map(|disk| StoreNumber(disk.0 as u16))
            .collect()
    }

    pub(super) fn infos(&self, stores: &AllStores) -> Vec<StoreInfo> {
        let domains = domains(stores);
        let info = |(record, _): &(StoreRecord, _)| {
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

    /// Nodes that are up, as far as they keep a lease.
    ///
    /// # Errors
    /// [`ClusterError::Meta`].
    pub async fn alive(&self) -> Result<BTreeSet<String>, ClusterError> {
        Ok(self.up().await?.nodes())
    }

    /// The same, with the stores they serve.
    ///
    /// # Errors
    /// [`ClusterError::Meta`].
    pub async fn up(&self) -> Result<Up, ClusterError> {
        let (entries, _) = whole_range(&*self.meta.images.meta, ALIVE).await?;
        let mut up = Up::default();
        for entry in entries {
            if let Some(node) = entry.key.strip_prefix(ALIVE) {
                up.add(node, &entry.value);
            }
        }
        Ok(up)
    }

    /// Takes a store in, or notes what is new about one that is known by its identity.
    ///
    /// # Errors
    /// [`ClusterError::StoreTaken`], [`ClusterError::NumberTaken`], [`ClusterError::WasLost`], [`ClusterError::Level`],
    /// [`ClusterError::Meta`].
    pub async fn register(&self, new: &NewStore) -> Result<StoreRecord, ClusterError> {
        self.meta.again(async || self.try_register(new).await).await
    }

    async fn try_register(&self, new: &NewStore) -> Result<StoreRecord, ClusterError> {
        let writing = self.levels.writing().await?;
        let stores = self.all().await?;
        let uuid = format!("{:032x}", new.uuid);
        let same_name = |it: &&StoreRecord| it.name == new.name && it.uuid != uuid;
        if let Some(other) = stores.values().map(|it| &it.0).find(same_name) {
            return Err(ClusterError::StoreTaken {
                name: new.name.clone(),
                address: other.address.clone(),
                node: other.node.clone(),
            });
        }
        match stores.values().find(|(record, _)| record.uuid == uuid) {
            Some((old, revision)) => self.renew(new, (old, *revision), writing).await,
            None => self.take_in(new, &uuid).await,
        }
    }

    /// Notes what is new about a store that is known.
    async fn renew(
        &self,
        new: &NewStore,
        (old, revision): (&StoreRecord, Revision),
        writing: Writing,
    ) -> Result<StoreRecord, ClusterError> {
        let record = StoreRecord::new(new, old.number, old.state);
        let record = record.at(writing.level, new.leased.then(|| self.levels.range()));
        if record == *old {
            return Ok(record);
        }
        let mut compares = writing.part.compares;
        compares.push(Compare::Unchanged(key(old.number), revision));
        let mut ops = vec![put(key(old.number), record.encode())];
        if old.name != record.name {
            compares.push(Compare::Absent(name_key(&record.name)));
            ops.push(put(name_key(&record.name), old.number.0.to_string().into()));
            ops.push(Op::Delete {
                key: name_key(&old.name),
            });
        }
        self.meta.txn(compares, ops).await?;
        Ok(record)
    }

    /// Gives a store that was not known the number it asks for, or the next one.
    async fn take_in(&self, new: &NewStore, uuid: &str) -> Result<StoreRecord, ClusterError> {
        let meta = &self.meta.images.meta;
        if meta.get(&lost_key(uuid)).await?.is_some() {
            return Err(ClusterError::WasLost(new.name.clone()));
        }
        let found = meta.get(NEXT).await?;
        let next = match &found {
            Some(entry) => std::str::from_utf8(&entry.value)
                .ok()
                .and_then(|text| text.parse::<u32>().ok())
                .ok_or_else(|| RecordError::malformed(NEXT, "it is no number"))?,
            None => 1,
        };
        let number = number_for(new, next)?;
        let writing = match &found {
            Some(_) => self.levels.writing().await?,
            None => self.levels.writing_first(&self.up().await?).await?,
        };
        let record = StoreRecord::new(new, number, StoreState::Active);
        let record = record.at(writing.level, new.leased.then(|| self.levels.range()));
        let unchanged = found.map_or(Revision(0), |entry| entry.changed);
        let mut part = writing.part;
        part.compares.extend([
            Compare::Unchanged(NEXT.to_owned(), unchanged),
            Compare::Absent(key(number)),
            Compare::Absent(name_key(&new.name)),
            Compare::Absent(lost_key(uuid)),
        ]);
        let next = u32::from(number.0) + 1;
        part.ops.extend([
            put(NEXT.to_owned(), next.to_string().into()),
            put(key(number), record.encode()),
            put(name_key(&new.name), number.0.to_string().into()),
        ]);
        self.meta.txn(part.compares, part.ops).await?;
        tracing::info!(store = %record.name, %number, node = %record.node, "a store joined the cluster");
        Ok(record)
    }

    /// All stores, and the number of one of them.
    pub(super) async fn find(&self, name: &Name) -> Result<(AllStores, StoreNumber), ClusterError> {
        let stores = self.all().await?;
        let found = stores.values().find(|(record, _)| record.name == *name);
        match found.map(|(record, _)| record.number) {
            Some(number) => Ok((stores, number)),
            None => Err(ClusterError::NoStore {
                name: name.clone(),
                known: stores.values().map(|(it, _)| it.name.clone()).collect(),
            }),
        }
    }
}
