//! This node's lease in the meta store: while it lasts, the others know that the node is up, and which stores it serves.
//!
//! Always true: a key that goes with this node is never put without its lease.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Instant, Nanos};

use super::ClusterError;
use super::levels::Levels;
use super::stores::alive_key;
use super::up::Alive;
use crate::meta::{LeaseId, MetaError, MetaStore, Op, Outcome};
use crate::record::Name;

/// When the meta store answered last.
pub(super) struct Answers {
    last: Cell<Option<Instant>>,
    begun: Cell<Option<Instant>>,
}

impl Answers {
    pub fn new() -> Answers {
        Answers {
            last: Cell::new(None),
            begun: Cell::new(None),
        }
    }

    /// It answered just now.
    pub fn heard(&self) {
        self.last.set(Some(env::now()));
    }

    /// It was asked.
    pub fn asked(&self) {
        if self.begun.get().is_none() {
            self.begun.set(Some(env::now()));
        }
    }

    /// How long ago that was, or since it was asked first.
    pub fn since(&self) -> Nanos {
        let since = self.last.get().or(self.begun.get());
        since.map_or(Nanos(0), |it| env::now().since(it))
    }
}

/// The lease.
pub(super) struct NodeLease {
    meta: Rc<dyn MetaStore>,
    node: Name,
    /// It lasts so long when it is not kept.
    span: Nanos,
    lease: Cell<Option<LeaseId>>,
    /// Identities of the stores that this node serves, once it says so.
    serves: RefCell<Option<BTreeSet<String>>>,
    levels: Rc<Levels>,
    pub answers: Answers,
}

impl NodeLease {
    pub fn new(meta: Rc<dyn MetaStore>, node: Name, span: Nanos, levels: Rc<Levels>) -> NodeLease {
        NodeLease {
            meta,
            levels,
            node,
            span,
            lease: Cell::new(None),
            serves: RefCell::default(),
            answers: Answers::new(),
        }
    }

    /// The stores that this node serves, by their identities.
    pub fn serves(&self, stores: BTreeSet<String>) {
        *self.serves.borrow_mut() = Some(stores);
    }

    /// Lets the others know that this node is up.
    pub async fn keep(&self) {
        let meta = &self.meta;
        self.answers.asked();
        if let Some(lease) = self.lease.get() {
            match meta.keep(lease).await {
                Ok(_) => return self.answers.heard(),
                Err(MetaError::NoLease { .. }) => self.lease.set(None),
                Err(error) => {
                    tracing::debug!(%error, "the node's lease was not kept");
                    return;
                }
            }
        }
        match self.join().await {
            Ok(lease) => {
                self.answers.heard();
                self.lease.set(lease);
            }
            Err(ClusterError::Level { .. }) => self.answers.heard(),
            Err(error) => tracing::debug!(%error, "the node has no lease"),
        }
    }

    /// Takes a lease and says under it that this node is up, by the cluster's level. `None`: that was raised meanwhile.
    async fn join(&self) -> Result<Option<LeaseId>, ClusterError> {
        let meta = &self.meta;
        let mut part = self.levels.joining().await?;
        let lease = meta.lease(self.span).await?;
        let serves = self.serves.borrow().clone();
        part.ops.push(Op::Put {
            key: alive_key(self.node.as_str()),
            value: Alive::new(serves, self.levels.range()).encode(),
            lease: Some(lease),
        });
        match meta.txn(part.compares, part.ops).await? {
            Outcome::Done(_) => Ok(Some(lease)),
            Outcome::Refused(_) => {
                let _ = meta.revoke(lease).await;
                Ok(None)
            }
        }
    }

    /// Puts a key that goes with this node. Is it there?
    pub async fn note(&self, key: String, value: Vec<u8>) -> bool {
        if self.lease.get().is_none() {
            self.keep().await;
        }
        let lease = self.lease.get();
        // Without one it would stay for good.
        if lease.is_none() {
            return false;
        }
        let put = Op::Put { key, value, lease };
        let put = self.meta.txn(Vec::new(), vec![put]).await;
        put.inspect_err(|error| tracing::debug!(%error, "a note is not there"))
            .is_ok()
    }

    /// Lets the other nodes know that this one goes.
    pub async fn revoke(&self) {
        if let Some(lease) = self.lease.take() {
            match self.meta.revoke(lease).await {
                Ok(()) | Err(MetaError::NoLease { .. }) => {}
                Err(error) => tracing::debug!(%error, "the node's lease is left to expire"),
            }
        }
    }
}
