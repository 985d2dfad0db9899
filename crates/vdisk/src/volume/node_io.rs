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

use super::error::VolumeError;
use super::record_io::RecordIo;
use super::replica::{Replica, SyncState};
use super::state::Core;
use crate::map::node::{FANOUT, NODE, Place, stride};
use crate::map::{Entry, MapError, NewNode, NodeRef, Nodes, Pending, Root, Trouble};
use crate::names::{COPIES_MAX, Generation, NodeName, StoreNumber, Stores};
use crate::replica::connect::ConnectionError;

/// A store with less is full: 64 nodes.
pub(super) const ROOM: Bytes = Bytes::mib(1);

/// Nodes read at once when a whole map is.
pub(super) const AHEAD: usize = 32;

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
        Box::pin(async move { NodeIo::of(&self.core()?).read_node(node).await })
    }

    fn write(&self, nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async move {
            let core = self.core()?;
            let stores = NodeIo::of(&core).write_nodes(&nodes).await?;
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

impl Walked {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.nodes.is_empty()
    }
}

/// Reads and writes the nodes of the volume's maps.
#[derive(Clone, Copy)]
pub(super) struct NodeIo<'a> {
    core: &'a Rc<Core>,
}

impl<'a> NodeIo<'a> {
    pub fn of(core: &'a Rc<Core>) -> NodeIo<'a> {
        NodeIo { core }
    }

    pub(super) async fn read_node(self, node: &NodeRef) -> Result<Option<View>, Trouble> {
        let mut stores: Vec<StoreNumber> = node.stores.iter().collect();
        stores.sort_by_key(|number| {
            let replica = self.core.replicas.get(*number);
            replica.map(|it| (it.sync_state() != SyncState::InSync, !it.info.local))
        });
        let name = node.name().to_string();
        let mut why: Option<Trouble> = None;
        for number in stores {
            let Some((replica, connection)) = self
                .core
                .replicas
                .get(number)
                .and_then(|it| Some((it, it.connection()?)))
            else {
                why = Some(
                    format!(
                        "there is no link to store {}",
                        self.core.replicas.label(number)
                    )
                    .into(),
                );
                continue;
            };
            match self
                .core
                .within(connection.read(&name, 0, NODE as u64))
                .await
            {
                Ok(bytes) if node.is_of(&bytes) => return Ok(Some(bytes.freeze())),
                Ok(_) => {
                    why = Some(
                        format!(
                            "store {} has something else there",
                            self.core.replicas.label(number)
                        )
                        .into(),
                    )
                }
                Err(ConnectionError::Absent(_)) => {}
                Err(ConnectionError::Fenced { why, .. }) => {
                    return Err(self.core.fence(why).into());
                }
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
    fn node_targets(self) -> Vec<&'a Replica> {
        let fit = |it: &&Replica| {
            let open = !self.core.replicas.is_cordoned(it.info.number) && it.connection().is_some();
            open && it.sync_state() == SyncState::InSync
        };
        let mut all: Vec<&Replica> = self.core.replicas.values().filter(fit).collect();
        all.sort_by_key(|it| (self.is_last_resort(it), std::cmp::Reverse(it.free.get())));
        all
    }

    /// Is it drained or full?
    fn is_last_resort(self, replica: &Replica) -> bool {
        let full = replica.total.get() > Bytes(0) && replica.free.get() < ROOM;
        full || self.core.replicas.is_drained(replica.info.number)
    }

    /// In how many failure domains nodes would be, written now.
    fn node_domains(self, out: &BTreeMap<StoreNumber, Generation>) -> usize {
        let targets = self.node_targets().into_iter();
        let targets: Vec<&Replica> = targets
            .filter(|it| !out.contains_key(&it.info.number))
            .collect();
        let count = |last: bool| {
            let fit = targets.iter().filter(|it| last || !self.is_last_resort(it));
            fit.map(|it| it.info.domain).collect::<BTreeSet<_>>().len()
        };
        let copies = usize::from(self.core.volume_record().copies);
        count(false).max(count(true).min(copies)).min(COPIES_MAX)
    }

    async fn write_nodes(self, nodes: &[NewNode]) -> Result<Stores, Trouble> {
        let mut chosen: Vec<&Replica> = Vec::new();
        let mut tried = BTreeSet::new();
        let mut why: Trouble = "no store is in sync and has a link".into();
        loop {
            let mut next: Vec<&Replica> = Vec::new();
            for replica in self.node_targets() {
                let mut domains = chosen.iter().chain(&next).map(|it| it.info.domain);
                let most = match self.is_last_resort(replica) {
                    true => usize::from(self.core.volume_record().copies),
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
            RecordIo::of(self.core).list_stores(&numbers).await?;
            let writes = next
                .iter()
                .map(|replica| self.write_nodes_to(replica, nodes));
            let answers = join_all(writes.collect::<Vec<_>>()).await;
            for (replica, answer) in next.iter().zip(answers) {
                match answer {
                    Ok(()) => chosen.push(replica),
                    Err(ConnectionError::Fenced { why, .. }) => {
                        return Err(self.core.fence(why).into());
                    }
                    Err(error) => why = error.into(),
                }
            }
        }
        // A store that left the in-sync set meanwhile counts no more.
        chosen.retain(|replica| replica.sync_state() == SyncState::InSync);
        let numbers: Vec<StoreNumber> = chosen.iter().map(|it| it.info.number).collect();
        Stores::new(&numbers).ok_or(why)
    }

    async fn write_nodes_to(
        self,
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
            if let Err(error) = self.core.within(write).await {
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
        self,
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
            let reader = self.core.maps.head.reader();
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

    /// The nodes of a map above an extent, and what it has for it.
    pub(super) async fn path(
        self,
        root: Root,
        index: u32,
    ) -> Result<(Vec<NodeName>, Option<Entry>), MapError> {
        let mut names = Vec::new();
        let mut at = root.node.map(|node| (node, root.level));
        while let Some((node, level)) = at.filter(|(_, top)| u64::from(index) < stride(top + 1)) {
            names.push(node.name());
            let place = Place::of(level, index);
            let whole = self.core.maps.head.reader().node(&node, place).await?;
            if level == 0 {
                return Ok((names, whole.entry(place.slot(index))));
            }
            let child = whole.child(place.slot(index));
            at = child.map(|child| (child, level - 1));
        }
        Ok((names, None))
    }

    /// Has nodes with fewer in-sync copies than `least` written anew by the next commit, if more stores would take them.
    /// Are there any?
    pub(super) async fn renew_thin_nodes(
        self,
        out: &BTreeMap<StoreNumber, Generation>,
        least: u8,
    ) -> Result<bool, VolumeError> {
        let least = least.min(self.node_domains(out) as u8);
        let thin = self.core.maps.nodes.below_thin(out, least);
        for index in &thin {
            let renewed = self.core.maps.head.renew(*index).await;
            renewed.map_err(|error| self.core.map_error(&error))?;
        }
        Ok(!thin.is_empty())
    }

    /// Would as many stores take nodes as there should be copies, without drained and full ones?
    pub(super) fn takes_nodes(self) -> bool {
        let targets = self.node_targets().into_iter();
        let targets = targets.filter(|it| !self.is_last_resort(it));
        let domains: BTreeSet<_> = targets.map(|it| it.info.domain).collect();
        domains.len() >= usize::from(self.core.volume_record().copies)
    }

    /// Has nodes on these stores written anew elsewhere by the next commit, if others would take as many. Are there any?
    pub(super) async fn renew_nodes_on(
        self,
        stores: &BTreeSet<StoreNumber>,
    ) -> Result<bool, VolumeError> {
        if !self.takes_nodes() {
            return Ok(false);
        }
        let below = self.core.maps.nodes.below_on(stores);
        for index in &below {
            let renewed = self.core.maps.head.renew(*index).await;
            renewed.map_err(|error| self.core.map_error(&error))?;
        }
        Ok(!below.is_empty())
    }

    /// Copies nodes that a store should have and lost.
    pub(super) async fn resync_nodes(self, replica: &Replica) -> Result<(), String> {
        let connection = replica.connection().ok_or("its link broke")?;
        let number = replica.info.number;
        let mut nodes = self.core.maps.nodes.on(number);
        nodes.extend(self.core.maps.older.nodes().on(number));
        for node in nodes {
            let name = node.name().to_string();
            match self.core.within(connection.stat(&name)).await {
                Ok(stat) if stat.size == NODE as u64 => continue,
                Ok(_) | Err(ConnectionError::Absent(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
            let bytes = self.read_node(&node).await.map_err(|why| why.to_string())?;
            // Gone everywhere: it was replaced meanwhile.
            let Some(bytes) = bytes else { continue };
            let write = connection.write(&name, 0, bytes, Change::FUA.creating());
            self.core
                .within(write)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
