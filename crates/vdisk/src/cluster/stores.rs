//! Which stores are there, on which nodes, and which are up?
//!
//! ```text
//! store/<number>        this record, JSON with a version          store-name/<name>   its number
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

use policy::place::DomainId;
use serde::{Deserialize, Serialize};

use super::up::Up;
use super::volumes::AllVolumes;
use super::{Cluster, ClusterError};
use crate::image::records::ImagesError;
use crate::meta::{Compare, Op, Outcome, Revision, whole_range};
use crate::names::StoreNumber;
use crate::record::{Name, RecordError, VolumeRecord, gone_key, read};

const VERSION: u32 = 1;
const STORES: &str = "store/";
const NEXT: &str = "store-next";
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
    /// Does its node keep a lease while it is up, as a [`Cluster`] does? A bare store's does not.
    pub leased: bool,
    /// Its number; `None`: the next one.
    pub number: Option<StoreNumber>,
}

/// All stores, with the revisions of their records.
pub type AllStores = BTreeMap<StoreNumber, (StoreRecord, Revision)>;

fn key(number: StoreNumber) -> String {
    format!("{STORES}{:05}", number.0)
}

fn name_key(name: &Name) -> String {
    format!("store-name/{name}")
}

/// The key that says that a store was given up as lost, by its identity.
fn lost_key(uuid: &str) -> String {
    format!("lost/{uuid}")
}

/// The key that says that a node is up.
pub(super) fn alive_key(node: &str) -> String {
    format!("{ALIVE}{node}")
}

fn put(key: String, value: Vec<u8>) -> Op {
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
        let record: StoreRecord = read("the record of a store", bytes)?;
        if u128::from_str_radix(&record.uuid, 16).is_err() || record.uuid.len() != 32 {
            let what = format!("the record of store {}", record.number);
            return Err(RecordError::malformed(&what, "its identity is none"));
        }
        Ok(record)
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

/// Refuses to forget a store that is gone, while a volume counts it as in sync.
fn check_lost(volumes: &AllVolumes, store: &StoreRecord) -> Result<(), ClusterError> {
    let counts = |record: &&VolumeRecord| {
        lists(record, store.number) && !record.out.contains_key(&store.number)
    };
    match volumes.values().map(|it| &it.record).find(counts) {
        None => Ok(()),
        Some(record) => Err(ClusterError::StillInSync {
            name: store.name.clone(),
            volume: record.name.clone(),
        }),
    }
}

/// Refuses to forget a store on which a volume has something.
fn check_left(volumes: &AllVolumes, store: &StoreRecord) -> Result<(), ClusterError> {
    let left = volumes.values().map(|it| &it.record);
    let mut left = left.filter(|record| lists(record, store.number));
    match left.next() {
        None => Ok(()),
        Some(record) => Err(ClusterError::NotEmpty {
            name: store.name.clone(),
            volume: record.name.clone(),
            others: left.count(),
        }),
    }
}

impl Cluster {
    /// All stores.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn stores(&self) -> Result<AllStores, ClusterError> {
        let (entries, _) = whole_range(&*self.images.meta, STORES).await?;
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
        self.learn_stores(&stores);
        Ok(stores)
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
        let (entries, _) = whole_range(&*self.images.meta, ALIVE).await?;
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
    /// [`ClusterError::StoreTaken`], [`ClusterError::NumberTaken`], [`ClusterError::WasLost`], [`ClusterError::Meta`].
    pub async fn register(&self, new: &NewStore) -> Result<StoreRecord, ClusterError> {
        self.again(async || self.try_register(new).await).await
    }

    async fn try_register(&self, new: &NewStore) -> Result<StoreRecord, ClusterError> {
        let stores = self.stores().await?;
        let uuid = format!("{:032x}", new.uuid);
        let same_name = |record: &&StoreRecord| record.name == new.name && record.uuid != uuid;
        if let Some(other) = stores.values().map(|(record, _)| record).find(same_name) {
            return Err(ClusterError::StoreTaken {
                name: new.name.clone(),
                address: other.address.clone(),
                node: other.node.clone(),
            });
        }
        let known = stores.values().find(|(record, _)| record.uuid == uuid);
        if let Some((old, revision)) = known {
            let record = StoreRecord::new(new, old.number, old.state);
            if record == *old {
                return Ok(record);
            }
            let mut compares = vec![Compare::Unchanged(key(old.number), *revision)];
            let mut ops = vec![put(key(old.number), record.encode())];
            if old.name != record.name {
                compares.push(Compare::Absent(name_key(&record.name)));
                ops.push(put(name_key(&record.name), old.number.0.to_string().into()));
                ops.push(Op::Delete {
                    key: name_key(&old.name),
                });
            }
            self.txn(compares, ops).await?;
            return Ok(record);
        }
        if self.images.meta.get(&lost_key(&uuid)).await?.is_some() {
            return Err(ClusterError::WasLost(new.name.clone()));
        }
        let found = self.images.meta.get(NEXT).await?;
        let next = match &found {
            Some(entry) => std::str::from_utf8(&entry.value)
                .ok()
                .and_then(|text| text.parse::<u32>().ok())
                .ok_or_else(|| RecordError::malformed(NEXT, "it is no number"))?,
            None => 1,
        };
        let taken = |number| ClusterError::NumberTaken {
            name: new.name.clone(),
            number,
            next,
        };
        let last = StoreNumber(u16::MAX);
        let number = match new.number {
            Some(asked) if u32::from(asked.0) < next => return Err(taken(asked)),
            Some(asked) => asked,
            None => StoreNumber(u16::try_from(next).map_err(|_| taken(last))?),
        };
        let record = StoreRecord::new(new, number, StoreState::Active);
        let unchanged = found.map_or(Revision(0), |entry| entry.changed);
        let compares = vec![
            Compare::Unchanged(NEXT.to_owned(), unchanged),
            Compare::Absent(key(number)),
            Compare::Absent(name_key(&new.name)),
            Compare::Absent(lost_key(&uuid)),
        ];
        let next = u32::from(number.0) + 1;
        let ops = vec![
            put(NEXT.to_owned(), next.to_string().into()),
            put(key(number), record.encode()),
            put(name_key(&new.name), number.0.to_string().into()),
        ];
        self.txn(compares, ops).await?;
        tracing::info!(store = %record.name, %number, node = %record.node, "a store joined the cluster");
        Ok(record)
    }

    async fn find_store(&self, name: &Name) -> Result<(AllStores, StoreNumber), ClusterError> {
        let stores = self.stores().await?;
        let found = stores.values().find(|(record, _)| record.name == *name);
        match found.map(|(record, _)| record.number) {
            Some(number) => Ok((stores, number)),
            None => Err(ClusterError::NoStore {
                name: name.clone(),
                known: stores.values().map(|(it, _)| it.name.clone()).collect(),
            }),
        }
    }

    /// Lets no new data go to a store, and what is there leave; or lets them go there again.
    ///
    /// # Errors
    /// [`ClusterError::NoStore`]; [`ClusterError::TooFewDomains`] if volumes could not be written any more.
    pub async fn set_state(
        &self,
        name: &Name,
        state: StoreState,
    ) -> Result<StoreRecord, ClusterError> {
        let record = self.again(async || {
            let (stores, number) = self.find_store(name).await?;
            if state == StoreState::Draining {
                let domains = active_domains(&stores, Some(number));
                let volumes = self.records().await?;
                let copies = volumes.values().map(|it| it.record.copies).max();
                let copies = copies.unwrap_or(1);
                if domains < usize::from(copies) {
                    return Err(ClusterError::TooFewDomains { copies, domains });
                }
            }
            let (old, revision) = &stores[&number];
            let record = StoreRecord {
                state,
                ..old.clone()
            };
            if record != *old {
                let compares = vec![Compare::Unchanged(key(number), *revision)];
                let mut ops = vec![put(key(number), record.encode())];
                if state == StoreState::Active {
                    // It may be noted again, though another node was about to forget it.
                    let key = gone_key(number);
                    ops.push(Op::Delete { key });
                }
                self.txn(compares, ops).await?;
            }
            Ok(record)
        });
        let record = record.await?;
        self.stores().await?;
        Ok(record)
    }

    /// Forgets a store: one that was drained and that no volume has anything on, or, with `lost`, one that is gone for good and
    /// that no volume counts on. Volumes that count on it go on without it, if they can.
    ///
    /// # Errors
    /// [`ClusterError::NoStore`], [`ClusterError::Active`], [`ClusterError::NotEmpty`], [`ClusterError::StillInSync`].
    pub async fn remove_store(&self, name: &Name, lost: bool) -> Result<(), ClusterError> {
        if lost {
            let (_, number) = self.find_store(name).await?;
            self.give_up(number).await?;
        }
        let removed = self.again(async || {
            let (stores, number) = self.find_store(name).await?;
            let (record, revision) = &stores[&number];
            if !lost && record.state == StoreState::Active {
                return Err(ClusterError::Active(name.clone()));
            }
            let volumes = self.records().await?;
            match lost {
                true => check_lost(&volumes, record)?,
                false => {
                    check_left(&volumes, record)?;
                    self.shut(record, *revision).await?;
                }
            }
            let compares = vec![Compare::Unchanged(key(number), *revision)];
            let mut ops = vec![
                Op::Delete { key: key(number) },
                Op::Delete {
                    key: name_key(name),
                },
                // A writer that has not heard of it yet does not put anything there.
                put(gone_key(number), record.uuid.clone().into_bytes()),
            ];
            if lost {
                // Should it turn up again, what it has is out of date.
                let name = name.as_str().as_bytes().to_vec();
                ops.push(put(lost_key(&record.uuid), name));
            }
            self.txn(compares, ops).await
        });
        removed.await?;
        self.stores().await?;
        Ok(())
    }

    /// Lets no volume note a drained store any more, however many there are: a node that has one open may have been about to.
    /// Then looks at them again.
    async fn shut(&self, record: &StoreRecord, revision: Revision) -> Result<(), ClusterError> {
        let compares = || vec![Compare::Unchanged(key(record.number), revision)];
        let gone = put(gone_key(record.number), record.uuid.clone().into_bytes());
        self.txn(compares(), vec![gone]).await?;
        let left = check_left(&self.records().await?, record);
        if left.is_err() {
            let key = gone_key(record.number);
            self.txn(compares(), vec![Op::Delete { key }]).await?;
        }
        left
    }

    /// One transaction.
    pub(super) async fn txn(
        &self,
        compares: Vec<Compare>,
        ops: Vec<Op>,
    ) -> Result<(), ClusterError> {
        let keys = ops.iter().map(|op| match op {
            Op::Put { key, .. } | Op::Delete { key } => key.clone(),
        });
        let keys: Vec<String> = keys.collect();
        match self.images.meta.txn(compares, ops).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(_) => Err(ImagesError::Conflict(keys.join(", ")).into()),
        }
    }
}
