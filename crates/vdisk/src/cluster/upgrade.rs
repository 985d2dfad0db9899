//! `tanada cluster upgrade`: the cluster's level is raised when the programs of all its nodes can do a higher one.
//!
//! ```text
//! level, nodes that are up, stores -> decide (level::highest) -> one transaction: the level, and records of stores as it has them
//!                                       \-> refused: who cannot     \-> refused by a change since: read and decided again
//! ```
//!
//! Always true:
//! 1. The level rises in one compare-and-swap, which sees each node that came up and each store that was taken in before it.
//! 2. A crash after it leaves records of the level before at most. They are read as before; a further upgrade or their node's
//!    next start writes them anew.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ClusterError;
use super::level::{Level, LevelRange, NodeLevels, highest};
use super::levels::{InForce, JOINED, raised};
use super::node::Node;
use super::stores::{AllStores, NEXT, StoreRecord, key, put};
use super::up::Up;
use crate::meta::{Compare, Entry, Op, Revision};

/// Records that go into one transaction: it may have 128 parts.
const RECORDS_MAX: usize = 100;

/// The cluster's level, and what its nodes can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelReport {
    /// In force.
    pub level: Level,
    /// It can be raised to this one now.
    pub next: Option<Level>,
    /// Every node that is up or has stores, by its name.
    pub nodes: Vec<NodeLevels>,
}

/// A raise of the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgraded {
    /// Before.
    pub from: Level,
    /// Now, or as it would be; the same: the nodes can do no higher one.
    pub to: Level,
    /// By name.
    pub nodes: Vec<NodeLevels>,
}

/// The levels of all nodes: as they say while they are up, else as the records of their stores have it. Stores without a lease
/// are left out: their nodes write no records.
pub(super) fn nodes(up: &Up, stores: &AllStores) -> Vec<NodeLevels> {
    let mut nodes: BTreeMap<&str, NodeLevels> = BTreeMap::new();
    for (record, _) in stores.values().filter(|(record, _)| record.leased) {
        let of = nodes
            .entry(record.node.as_str())
            .or_insert_with(|| NodeLevels {
                node: record.node.to_string(),
                levels: record.levels,
                is_up: false,
            });
        // A node writes all its records when it starts: the least is what is known of all.
        of.levels = of.levels.zip(record.levels).map(|(a, b)| least(a, b));
    }
    for (node, levels) in up.levels() {
        let of = NodeLevels {
            node: node.to_owned(),
            levels: Some(levels),
            is_up: true,
        };
        nodes.insert(node, of);
    }
    nodes.into_values().collect()
}

fn least(a: LevelRange, b: LevelRange) -> LevelRange {
    if a.max() <= b.max() { a } else { b }
}

/// The level's report by these records.
pub(super) fn report(level: Level, up: &Up, stores: &AllStores) -> LevelReport {
    let nodes = nodes(up, stores);
    let next = highest(level, &nodes).ok();
    LevelReport {
        level,
        next: next.filter(|next| *next > level),
        nodes,
    }
}

/// All that a raise goes by.
struct Found {
    in_force: InForce,
    joined: Revision,
    next: Option<Entry>,
    stores: AllStores,
    nodes: Vec<NodeLevels>,
}

/// Raises the level.
pub struct Upgrade {
    node: Rc<Node>,
}

impl Upgrade {
    pub(super) fn new(node: &Rc<Node>) -> Upgrade {
        Upgrade {
            node: Rc::clone(node),
        }
    }

    /// Raises the cluster's level to the highest that all its nodes can do; with `dry_run` says what it would be. It is final:
    /// programs that cannot do it take no part from then on.
    ///
    /// # Errors
    /// [`ClusterError::LevelHeld`] if some nodes can do a higher level and others cannot; [`ClusterError::Meta`],
    /// [`ClusterError::Record`].
    ///
    /// # Example
    /// `Cluster` has it as `upgrade`: `cluster.upgrade.run(true).await?.to` is the level that a raise would end with.
    pub async fn run(&self, dry_run: bool) -> Result<Upgraded, ClusterError> {
        let meta = &self.node.meta;
        let done = meta.again(async || self.try_run(dry_run).await).await?;
        if !dry_run {
            meta.again(async || self.rewrite(done.to).await).await?;
            self.node.stores.all().await?;
        }
        Ok(done)
    }

    async fn try_run(&self, dry_run: bool) -> Result<Upgraded, ClusterError> {
        let seen = self.see().await?;
        let from = seen.in_force.level;
        let to = highest(from, &seen.nodes).map_err(|cannot| ClusterError::LevelHeld {
            level: from,
            cannot,
        })?;
        if to > from && !dry_run {
            let (compares, ops) = raise(&seen, to);
            self.node.meta.txn(compares, ops).await?;
            tracing::info!(%from, %to, "the cluster's level was raised");
        }
        Ok(Upgraded {
            from,
            to,
            nodes: seen.nodes,
        })
    }

    async fn see(&self) -> Result<Found, ClusterError> {
        let meta = &self.node.meta.images.meta;
        // The level and who joined first: what comes behind them is at least as new.
        let in_force = self.node.levels.checked().await?;
        let joined = meta.get(JOINED).await?;
        let next = meta.get(NEXT).await?;
        let stores = self.node.stores.all().await?;
        let up = self.node.stores.up().await?;
        Ok(Found {
            in_force,
            joined: joined.map_or(Revision(0), |it| it.changed),
            next,
            nodes: nodes(&up, &stores),
            stores,
        })
    }

    /// Writes records of stores anew that are not as the level has them; a cluster of more stores than one transaction takes has
    /// some after the raise.
    async fn rewrite(&self, level: Level) -> Result<(), ClusterError> {
        loop {
            let seen = self.see().await?;
            let (compares, ops) = rewritten(&seen, level);
            if ops.is_empty() {
                return Ok(());
            }
            self.node.meta.txn(compares, ops).await?;
        }
    }
}

/// The transaction of a raise.
fn raise(seen: &Found, to: Level) -> (Vec<Compare>, Vec<Op>) {
    let (mut compares, mut ops) = rewritten(seen, to);
    compares.push(seen.in_force.unchanged());
    compares.push(Compare::Unchanged(JOINED.to_owned(), seen.joined));
    let next = seen.next.as_ref();
    let unchanged = next.map_or(Revision(0), |it| it.changed);
    compares.push(Compare::Unchanged(NEXT.to_owned(), unchanged));
    ops.push(raised(to));
    // A program that knows of no levels and was about to take a store in reads the stores anew, and refuses them.
    ops.extend(next.map(|it| put(NEXT.to_owned(), it.value.clone())));
    (compares, ops)
}

/// Records of stores that are not as a level has them, as it has them.
fn rewritten(seen: &Found, level: Level) -> (Vec<Compare>, Vec<Op>) {
    let said = |record: &StoreRecord| {
        let of = |it: &&NodeLevels| it.node == record.node.as_str();
        let levels = seen.nodes.iter().find(of)?.levels;
        levels.filter(|_| record.leased)
    };
    let changed = seen.stores.values().filter_map(|(record, revision)| {
        let new = record.at(level, said(record));
        (new != *record).then_some((new, *revision))
    });
    changed
        .take(RECORDS_MAX)
        .map(|(new, revision)| {
            let key = key(new.number);
            let compare = Compare::Unchanged(key.clone(), revision);
            (compare, put(key, new.encode()))
        })
        .unzip()
}
