//! How a volume is used, and the stores it is told of.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use policy::place::{DomainId, Origin, Penalties};
use replication::opening;

use crate::names::StoreNumber;
use crate::replica::connect::Connector;

/// A store of the cluster.
#[derive(Clone)]
pub struct StoreInfo {
    /// Its number.
    pub number: StoreNumber,
    /// Its name, for messages.
    pub name: String,
    /// What it fails together with.
    pub domain: DomainId,
    /// Is it in this very node?
    pub local: bool,
    /// Does it have heads to move?
    pub rotating: bool,
    /// The way to it.
    pub connector: Rc<dyn Connector>,
}

/// How a volume is used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node's name.
    pub node: String,
    /// How long the writer's lease lasts, the same on all nodes; after an unclean close the next writer waits for it.
    pub lease: Nanos,
    /// By how much it counts as shorter: more than clocks drift apart in that time.
    pub margin: Nanos,
    /// How long is waited for one store's answer to one request.
    pub timeout: Nanos,
    /// How long a request is tried before it fails.
    pub deadline: Nanos,
    /// An extent that was not written for so long is clean.
    pub clean_after: Nanos,
    /// How often the map is committed while it changes.
    pub commit_after: Nanos,
    /// How often background work looks around.
    pub tick: Nanos,
    /// Whose its requests are.
    pub origin: Origin,
    /// How other clients before it in a queue count.
    pub penalties: Penalties,
    /// Do reads go first to copies at whose stores something booked for them is left?
    pub prefer_booked: bool,
    /// Stores that are being drained: nothing goes there, and what is there leaves.
    pub drained: BTreeSet<StoreNumber>,
}

impl Settings {
    /// A lease of 10 s counted as 8, 5 s for a store's answer, 30 s for a request.
    pub fn new(node: &str, origin: Origin) -> Settings {
        Settings {
            node: node.to_owned(),
            lease: Nanos::secs(10),
            margin: Nanos::secs(2),
            timeout: Nanos::secs(5),
            deadline: Nanos::secs(30),
            clean_after: Nanos::secs(5),
            commit_after: Nanos::secs(3),
            tick: Nanos::secs(1),
            origin,
            penalties: Penalties::default(),
            prefer_booked: true,
            drained: BTreeSet::new(),
        }
    }

    /// How long a lease of `ttl` counts, from before it was asked for.
    pub(super) fn counted(&self, ttl: Nanos) -> Nanos {
        opening::counted(ttl, self.lease, self.margin)
    }
}
