//! By which level does this node write, and may it take part at all?
//!
//! ```text
//! cluster/level -> in the range of this program? no: refused -> yes: what is written compares the record's revision with what was read
//! cluster/joined   the node that came up last: put with its lease, so that a raise that did not see the node has no effect
//! ```
//!
//! Always true:
//! 1. No node that can not do the level keeps a lease, registers a store or opens a volume, once it has read the level.
//! 2. A record that goes by the level and the level itself change in one order: what was written by an older level is seen by the raise.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use base::Nanos;

use super::ClusterError;
use super::level::{Level, LevelRange, LevelRecord};
use super::stores::put;
use super::up::Up;
use crate::meta::{Compare, Event, MetaStore, Op, Revision, TxnPart, whole_range};
use crate::record::Name;

/// The level in force.
pub(super) const LEVEL: &str = "cluster/level";
/// Changes with each node that comes up.
pub(super) const JOINED: &str = "cluster/joined";
/// Between two tries to look where the meta store does not answer.
const AGAIN: Nanos = Nanos::millis(250);

/// The level in force, and the transaction that put it there; revision 0: none did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InForce {
    pub level: Level,
    pub changed: Revision,
}

impl InForce {
    /// It is this one still.
    pub fn unchanged(&self) -> Compare {
        Compare::Unchanged(LEVEL.to_owned(), self.changed)
    }
}

/// How something is to be written now.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    pub level: Level,
    /// Goes into the same transaction.
    pub part: TxnPart,
}

/// The cluster's level, as a node with this program sees it.
pub struct Levels {
    meta: Rc<dyn MetaStore>,
    node: Name,
    range: LevelRange,
    /// The level that was read last and is not in the range.
    refused: Cell<Option<Level>>,
}

impl Levels {
    pub(super) fn new(meta: Rc<dyn MetaStore>, node: Name, range: LevelRange) -> Levels {
        Levels {
            meta,
            node,
            range,
            refused: Cell::new(None),
        }
    }

    /// What this node's program can do.
    pub fn range(&self) -> LevelRange {
        self.range
    }

    /// The level in force, whether or not this program can do it.
    pub(super) async fn in_force(&self) -> Result<InForce, ClusterError> {
        let found = self.meta.get(LEVEL).await?;
        let in_force = match found {
            None => InForce {
                level: Level::FIRST,
                changed: Revision(0),
            },
            Some(entry) => InForce {
                level: LevelRecord::decode(&entry.value)?.level,
                changed: entry.changed,
            },
        };
        self.note(in_force.level);
        Ok(in_force)
    }

    fn note(&self, level: Level) {
        let refused = (!self.range.has(level)).then_some(level);
        let before = self.refused.replace(refused);
        if before != refused
            && let Err(error) = self.allowed()
        {
            tracing::error!(%error);
        }
    }

    /// Refuses if the level that was read last is none of this program's.
    ///
    /// # Errors
    /// [`ClusterError::Level`].
    pub(super) fn allowed(&self) -> Result<(), ClusterError> {
        match self.refused.get() {
            None => Ok(()),
            Some(level) => Err(ClusterError::Level {
                node: self.node.clone(),
                level,
                range: self.range,
            }),
        }
    }

    /// The level in force, which this program can do.
    ///
    /// # Errors
    /// [`ClusterError::Level`] if it cannot; [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn check(&self) -> Result<Level, ClusterError> {
        self.checked().await.map(|it| it.level)
    }

    pub(super) async fn checked(&self) -> Result<InForce, ClusterError> {
        let in_force = self.in_force().await?;
        self.allowed()?;
        Ok(in_force)
    }

    /// By which level a record is written now.
    pub(super) async fn writing(&self) -> Result<Writing, ClusterError> {
        let in_force = self.checked().await?;
        let compares = vec![in_force.unchanged()];
        Ok(Writing {
            level: in_force.level,
            part: TxnPart {
                compares,
                ops: Vec::new(),
            },
        })
    }

    /// The same where the cluster has nothing yet: it begins with the highest level that this program and all nodes in `up` can do.
    pub(super) async fn writing_first(&self, up: &Up) -> Result<Writing, ClusterError> {
        let mut writing = self.writing().await?;
        let level = first_level(self.range, up, self.node.as_str());
        if level > writing.level {
            let record = LevelRecord::new(level);
            writing
                .part
                .ops
                .push(put(LEVEL.to_owned(), record.encode()));
            writing.level = level;
        }
        Ok(writing)
    }

    /// What goes into the transaction in which this node comes up.
    pub(super) async fn joining(&self) -> Result<TxnPart, ClusterError> {
        let in_force = self.checked().await?;
        let name = self.node.as_str().as_bytes().to_vec();
        Ok(TxnPart {
            compares: vec![in_force.unchanged()],
            ops: vec![put(JOINED.to_owned(), name)],
        })
    }

    /// Gives `hear` the level in force, and each one after it as it comes. Only ends with its future.
    pub async fn follow(&self, mut hear: impl FnMut(Level)) -> Infallible {
        loop {
            if let Err(error) = self.follow_once(&mut hear).await {
                tracing::debug!(%error, "the cluster's level is not heard of");
            }
            env::sleep(AGAIN).await;
        }
    }

    async fn follow_once(&self, hear: &mut impl FnMut(Level)) -> Result<(), ClusterError> {
        let (_, revision) = whole_range(&*self.meta, LEVEL).await?;
        let next = Revision(revision.0 + 1);
        let mut watch = self.meta.watch(LEVEL, next).await?;
        hear(self.in_force().await?.level);
        loop {
            for event in watch.next().await? {
                if let Event::Put(entry) = event {
                    let level = LevelRecord::decode(&entry.value)?.level;
                    self.note(level);
                    hear(level);
                }
            }
        }
    }
}

/// The level itself, as it is to be from now on.
pub(super) fn raised(level: Level) -> Op {
    put(LEVEL.to_owned(), LevelRecord::new(level).encode())
}

/// The level that a cluster begins with which has nothing yet: the highest that this program and all nodes that are up can do.
fn first_level(own: LevelRange, others: &Up, node: &str) -> Level {
    let others = others.levels().filter(|(name, _)| *name != node);
    let others = others.map(|(_, levels)| levels.max());
    others.chain([own.max()]).min().unwrap_or(Level::FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u32, max: u32) -> LevelRange {
        LevelRange::new(Level(min), Level(max)).expect("a range")
    }

    #[test]
    fn a_new_cluster_begins_with_what_all_nodes_that_are_up_can_do() {
        let mut up = Up::default();
        assert_eq!(first_level(range(1, 3), &up, "n1"), Level(3));
        up.add("n2", br#"{"stores": [], "levels": [1, 2]}"#);
        assert_eq!(first_level(range(1, 3), &up, "n1"), Level(2));
        // As programs wrote it that know of no levels; what this node wrote before its last start does not count.
        up.add("n1", b"1");
        assert_eq!(first_level(range(1, 3), &up, "n1"), Level(2));
        up.add("n3", br#"{"stores": []}"#);
        assert_eq!(first_level(range(1, 3), &up, "n1"), Level(1));
    }
}
