//! The nodes of a volume's map, and which stores have them.
//!
//! ```text
//! read    any store that the reference names, in-sync ones first, until a copy has the right checksum
//! write   three stores in sync, in three failure domains where there are as many; one that fails is replaced by another.
//!         Stores that are drained or full come last, and only where there would be fewer nodes than extents
//! ```
//!
//! Always true:
//! 1. A node that was written is durable on each store that its reference names.
//! 2. `redundancy_floor` in the record is no greater than the number of in-sync copies of any node of a root in the meta store.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use base::{Bytes, View};
use env::sync::join_all;
use store::Change;

use super::membership::{Replica, SyncState};
use super::{Core, VolumeError};
use crate::map::node::{FANOUT, NODE, Place};
use crate::map::{Entry, MapError, NewNode, NodeRef, Nodes, Pending, Root, Trouble};
use crate::names::{COPIES_MAX, Generation, NodeName, StoreNumber, Stores};
use crate::replica::connect::ConnectionError;

/// A store with less is full: 64 nodes.
const ROOM: Bytes = Bytes::mib(1);
/// Nodes read at once when a whole map is.
const AHEAD: usize = 32;

/// A volume's stores, as its map sees them.
#[derive(Default)]
pub(super) struct InStores(RefCell<Weak<Core>>);

impl InStores {
    pub fn are_of(&self, core: &Rc<Core>) {
        *self.0.borrow_mut() = Rc::downgrade(core);
    }

    fn core(&self) -> Result<Rc<Core>, Trouble> {
        let core = self.0.borrow().upgrade();
        core.ok_or_else(|| "the volume is in use no more".into())
    }
}

impl Nodes for InStores {
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>> {
        Box::pin(async move { self.core()?.read_node(node).await })
    }

    fn write(&self, nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async move {
            let core = self.core()?;
            let stores = core.write_nodes(&nodes).await?;
            Ok(vec![stores; nodes.len()])
        })
    }
}

/// What a whole map has.
#[derive(Default)]
pub(super) struct Walked {
    pub entries: Vec<(u32, Entry)>,
    pub nodes: Vec<(NodeRef, Place)>,
}

/// Nodes of the volume's maps.
#[derive(Default)]
pub(super) struct NodeTable(RefCell<BTreeMap<NodeName, (NodeRef, Place)>>);

impl NodeTable {
    pub fn add(&self, nodes: impl IntoIterator<Item = (NodeRef, Place)>) {
        let nodes = nodes.into_iter();
        (self.0.borrow_mut()).extend(nodes.map(|(node, place)| (node.name(), (node, place))));
    }

    pub fn remove<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeRef>) {
        let mut known = self.0.borrow_mut();
        for node in nodes {
            known.remove(&node.name());
        }
    }

    pub fn add_all(&self, other: &NodeTable) {
        self.0.borrow_mut().extend(other.0.borrow().clone());
    }

    pub fn become_those_of(&self, other: NodeTable) {
        *self.0.borrow_mut() = other.0.into_inner();
    }

    pub fn names(&self) -> BTreeSet<NodeName> {
        self.0.borrow().keys().copied().collect()
    }

    pub fn get(&self, name: &NodeName) -> Option<NodeRef> {
        self.0.borrow().get(name).map(|(node, _)| *node)
    }

    /// Those that a store should have.
    pub fn on(&self, store: StoreNumber) -> Vec<NodeRef> {
        let known = self.0.borrow();
        let on = known
            .values()
            .filter(|(node, _)| node.stores.contains(store));
        on.map(|(node, _)| *node).collect()
    }

    /// The least number of copies that any has with these stores out.
    pub fn redundancy_floor(&self, out: &BTreeMap<StoreNumber, Generation>) -> Option<u8> {
        let known = self.0.borrow();
        known.values().map(|(node, _)| in_sync(node, out)).min()
    }

    pub fn any(&self, are: impl Fn(&[StoreNumber]) -> bool) -> bool {
        let known = self.0.borrow();
        known.values().any(|(node, _)| are(node.stores.as_slice()))
    }

    /// An extent below each that one of these stores has.
    fn below_on(&self, stores: &BTreeSet<StoreNumber>) -> Vec<u32> {
        let known = self.0.borrow();
        let on = |node: &NodeRef| node.stores.iter().any(|one| stores.contains(&one));
        let all = known.values().filter(|(node, _)| on(node));
        all.map(|(_, place)| place.first(0) as u32).collect()
    }

    /// An extent below each that has fewer than `least`.
    fn below_thin(&self, out: &BTreeMap<StoreNumber, Generation>, least: u8) -> Vec<u32> {
        let known = self.0.borrow();
        let thin = known
            .values()
            .filter(|(node, _)| in_sync(node, out) < least);
        thin.map(|(_, place)| place.first(0) as u32).collect()
    }
}

fn in_sync(node: &NodeRef, out: &BTreeMap<StoreNumber, Generation>) -> u8 {
    node.stores
        .iter()
        .filter(|one| !out.contains_key(one))
        .count() as u8
}

impl Core {
    pub(super) fn map_error(&self, source: &MapError) -> VolumeError {
        VolumeError::Map {
            volume: self.id,
            why: source.to_string(),
        }
    }

    pub(super) async fn read_node(&self, node: &NodeRef) -> Result<Option<View>, Trouble> {
        let mut stores: Vec<StoreNumber> = node.stores.iter().collect();
        stores.sort_by_key(|number| {
            let replica = self.replica(*number);
            replica.map(|it| (it.sync_state.get() != SyncState::InSync, !it.info.local))
        });
        let name = node.name().to_string();
        let mut why: Option<Trouble> = None;
        for number in stores {
            let Some((replica, connection)) = self
                .replica(number)
                .and_then(|it| Some((it, it.connection()?)))
            else {
                why = Some(format!("there is no link to store {}", self.label(number)).into());
                continue;
            };
            match self.within(connection.read(&name, 0, NODE as u64)).await {
                Ok(bytes) if node.is_of(&bytes) => return Ok(Some(bytes.freeze())),
                Ok(_) => {
                    why = Some(
                        format!("store {} has something else there", self.label(number)).into(),
                    )
                }
                Err(ConnectionError::Absent(_)) => {}
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why).into()),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(&connection, false);
                    }
                    why = Some(error.into());
                }
            }
        }
        why.map_or(Ok(None), Err)
    }

    /// Stores for nodes, the one with most room first; those that should get none last.
    fn node_targets(&self) -> Vec<&Replica> {
        let fit = |it: &&Replica| {
            let open = !self.is_cordoned(it.info.number) && it.connection().is_some();
            open && it.sync_state.get() == SyncState::InSync
        };
        let mut all: Vec<&Replica> = self.replicas.values().filter(fit).collect();
        all.sort_by_key(|it| (self.is_last_resort(it), std::cmp::Reverse(it.free.get())));
        all
    }

    /// Is it drained or full?
    fn is_last_resort(&self, replica: &Replica) -> bool {
        let full = replica.total.get() > Bytes(0) && replica.free.get() < ROOM;
        full || self.is_drained(replica.info.number)
    }

    /// In how many failure domains nodes would be, written now.
    fn node_domains(&self, out: &BTreeMap<StoreNumber, Generation>) -> usize {
        let targets = self.node_targets().into_iter();
        let targets: Vec<&Replica> = targets
            .filter(|it| !out.contains_key(&it.info.number))
            .collect();
        let count = |last: bool| {
            let fit = targets.iter().filter(|it| last || !self.is_last_resort(it));
            fit.map(|it| it.info.domain).collect::<BTreeSet<_>>().len()
        };
        let copies = usize::from(self.record.borrow().0.copies);
        count(false).max(count(true).min(copies)).min(COPIES_MAX)
    }

    async fn write_nodes(&self, nodes: &[NewNode]) -> Result<Stores, Trouble> {
        let mut chosen: Vec<&Replica> = Vec::new();
        let mut tried = BTreeSet::new();
        let mut why: Trouble = "no store is in sync and has a link".into();
        loop {
            let mut next: Vec<&Replica> = Vec::new();
            for replica in self.node_targets() {
                let mut domains = chosen.iter().chain(&next).map(|it| it.info.domain);
                let most = match self.is_last_resort(replica) {
                    true => usize::from(self.record.borrow().0.copies),
                    false => COPIES_MAX,
                };
                let more = chosen.len() + next.len() < most;
                let fresh = !domains.any(|domain| domain == replica.info.domain);
                if more && fresh && tried.insert(replica.info.number) {
                    next.push(replica);
                }
            }
            if next.is_empty() {
                break;
            }
            let numbers: Vec<StoreNumber> = next.iter().map(|it| it.info.number).collect();
            self.list_stores(&numbers).await?;
            let writes = next
                .iter()
                .map(|replica| self.write_nodes_to(replica, nodes));
            let answers = join_all(writes.collect::<Vec<_>>()).await;
            for (replica, answer) in next.iter().zip(answers) {
                match answer {
                    Ok(()) => chosen.push(replica),
                    Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why).into()),
                    Err(error) => why = error.into(),
                }
            }
        }
        // A store that left the in-sync set meanwhile counts no more.
        chosen.retain(|replica| replica.sync_state.get() == SyncState::InSync);
        let numbers: Vec<StoreNumber> = chosen.iter().map(|it| it.info.number).collect();
        Stores::new(&numbers).ok_or(why)
    }

    async fn write_nodes_to(
        &self,
        replica: &Replica,
        nodes: &[NewNode],
    ) -> Result<(), ConnectionError> {
        let Some(connection) = replica.connection() else {
            let why = format!("there is no link to store {}", replica.info.name);
            return Err(ConnectionError::Gone(why));
        };
        for node in nodes {
            let name = node.name.to_string();
            let write = connection.write(&name, 0, node.bytes.clone(), Change::FUA.creating());
            if let Err(error) = self.within(write).await {
                if error.ends_connection() {
                    replica.lose(&connection, error.is_indeterminate());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// All that a map has, but for what lies below nodes that are `known`.
    pub(super) async fn walk(
        &self,
        root: Root,
        known: &BTreeSet<NodeName>,
    ) -> Result<Walked, MapError> {
        let place = Place {
            level: root.level,
            nth: 0,
        };
        let mut walked = Walked::default();
        let mut ahead: Vec<(NodeRef, Place)> =
            root.node.map(|it| (it, place)).into_iter().collect();
        while !ahead.is_empty() {
            let some = ahead.split_off(ahead.len().saturating_sub(AHEAD));
            let some = some
                .into_iter()
                .filter(|(node, _)| !known.contains(&node.name()));
            let some: Vec<(NodeRef, Place)> = some.collect();
            let reader = self.map.reader();
            let reads = some.iter().map(|(node, place)| reader.node(node, *place));
            for (node, below) in some.iter().zip(join_all(reads.collect::<Vec<_>>()).await) {
                let (below, place) = (below?, node.1);
                walked.nodes.push(*node);
                for slot in
                    (0..FANOUT as usize).filter(|slot| below.next_slot(*slot) == Some(*slot))
                {
                    match place.level {
                        0 => {
                            let entry = below.entry(slot).expect("the slot is taken");
                            walked.entries.push((place.first(slot) as u32, entry));
                        }
                        _ => ahead.extend(below.child(slot).map(|it| (it, place.child(slot)))),
                    }
                }
            }
        }
        Ok(walked)
    }

    /// Has nodes with fewer in-sync copies than `least` written anew by the next commit, if more stores would take them.
    /// Are there any?
    pub(super) async fn renew_thin_nodes(
        &self,
        out: &BTreeMap<StoreNumber, Generation>,
        least: u8,
    ) -> Result<bool, VolumeError> {
        let least = least.min(self.node_domains(out) as u8);
        let thin = self.nodes.below_thin(out, least);
        for index in &thin {
            let renewed = self.map.renew(*index).await;
            renewed.map_err(|error| self.map_error(&error))?;
        }
        Ok(!thin.is_empty())
    }

    /// Would as many stores take nodes as there should be copies, without drained and full ones?
    pub(super) fn takes_nodes(&self) -> bool {
        let targets = self.node_targets().into_iter();
        let targets = targets.filter(|it| !self.is_last_resort(it));
        let domains: BTreeSet<_> = targets.map(|it| it.info.domain).collect();
        domains.len() >= usize::from(self.record.borrow().0.copies)
    }

    /// Has nodes on these stores written anew elsewhere by the next commit, if others would take as many. Are there any?
    pub(super) async fn renew_nodes_on(
        &self,
        stores: &BTreeSet<StoreNumber>,
    ) -> Result<bool, VolumeError> {
        if !self.takes_nodes() {
            return Ok(false);
        }
        let below = self.nodes.below_on(stores);
        for index in &below {
            let renewed = self.map.renew(*index).await;
            renewed.map_err(|error| self.map_error(&error))?;
        }
        Ok(!below.is_empty())
    }

    /// Copies nodes that a store should have and lost.
    pub(super) async fn resync_nodes(&self, replica: &Replica) -> Result<(), String> {
        let connection = replica.connection().ok_or("its link broke")?;
        let number = replica.info.number;
        let mut nodes = self.nodes.on(number);
        nodes.extend(self.older_images.nodes().on(number));
        for node in nodes {
            let name = node.name().to_string();
            match self.within(connection.stat(&name)).await {
                Ok(stat) if stat.size == NODE as u64 => continue,
                Ok(_) | Err(ConnectionError::Absent(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
            let bytes = self.read_node(&node).await.map_err(|why| why.to_string())?;
            // Gone everywhere: it was replaced meanwhile.
            let Some(bytes) = bytes else { continue };
            let write = connection.write(&name, 0, bytes, Change::FUA.creating());
            self.within(write)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
