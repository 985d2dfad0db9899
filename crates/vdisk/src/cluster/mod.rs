//! The cluster as one node sees it: which stores and volumes are there, and which volumes are in use here?
//!
//! ```text
//! create, list, clone ... -> records in the meta store (image, record)
//! open -> one engine per volume, shared by its users -> closed some seconds after the last one left
//! background: the node's lease is kept, stores are looked up, deleted images are freed by one node at a time
//! ```
//!
//! From below to above, each part seeing those before it:
//!
//! - `records` in the meta store; [`slots`] volumes that are open here; `shared` one policy for all of them; [`stores`] the stores;
//!   [`level`], [`levels`] what may be written; `lease` this node's; `node` all of these. [`heard`] load reports of stores, unasked. [`revoked`] certificates.
//! - [`opened`] volumes come into use; `wants` other nodes are asked for them. `local` what is done with one here; `forward` or by
//!   the node that has it open. [`overview`] how a volume is; [`seen`] what of the cluster is seen here.
//! - [`volumes`] what operators do with volumes, [`trash`] and with deleted ones; [`membership`] and with stores; [`upgrade`] the
//!   level is raised. [`collect`] freeing and audit; [`repair`] one volume
//!   made whole, `reseal` its stores' seals too.
//! - `background` what goes on unasked: `handover` volumes go to other nodes; [`drain`] stores are emptied; `idle` volumes without
//!   clients are kept well, those after a time that their writers did not close (`left`); `damage` what scrubs found in closed volumes.
//!
//! Always true:
//! 1. A volume has one engine here at most, and one operation on it as a whole runs at a time.
//! 2. A volume is not taken from a node that is up, unless that node gives it up.
//! 3. A store that left the cluster has no data that any volume counts on.

mod background;
pub mod collect;
mod damage;
pub mod drain;
mod error;
mod forgotten;
mod forward;
mod handover;
pub mod heard;
mod idle;
mod lease;
mod left;
pub mod level;
pub mod levels;
mod local;
pub mod membership;
mod node;
pub mod opened;
pub mod overview;
mod records;
pub mod repair;
mod reseal;
pub mod revoked;
pub mod seen;
pub mod set;
mod settings;
mod shared;
pub mod slots;
pub mod stores;
pub mod trash;
pub mod up;
pub mod upgrade;
pub mod volumes;
mod wants;
mod ways;

use std::collections::BTreeSet;
use std::rc::Rc;

use policy::place::ReplicaPolicy;

use crate::image::records::Images;
use crate::meta::MetaStore;
use crate::record::Name;

use background::Background;
use collect::Collecting;
pub use error::ClusterError;
use forward::Forward;
use heard::LoadReports;
use lease::NodeLease;
use levels::Levels;
use local::LocalVolumes;
use membership::Membership;
use node::Node;
use opened::Openings;
use records::MetaRecords;
use repair::VolumeRepair;
use revoked::Revocations;
use seen::View;
pub use settings::Settings;
use shared::Shared;
use stores::StoreTable;
use trash::Trash;
use upgrade::Upgrade;
use volumes::Volumes;
pub use ways::Ways;

/// The cluster, as one node sees it. Lives on one thread; see the module's head.
pub struct Cluster {
    /// Its stores.
    pub stores: Rc<StoreTable>,
    /// What they say of their queues unasked.
    pub reports: LoadReports,
    /// Which of them belong to it.
    pub membership: Membership,
    /// Volumes come into use here.
    pub openings: Rc<Openings>,
    /// What this node sees of it.
    pub view: Rc<View>,
    /// What operators do with volumes.
    pub volumes: Volumes,
    /// Deleted ones are kept for a time.
    pub trash: Rc<Trash>,
    /// Deleted images are freed, maps and stores compared.
    pub collecting: Rc<Collecting>,
    /// A volume is made whole.
    pub repairs: VolumeRepair,
    /// Certificates that open nothing any more.
    pub revocations: Revocations,
    /// What may be written.
    pub levels: Rc<Levels>,
    /// More than that, from now on.
    pub upgrade: Upgrade,
    node: Rc<Node>,
    background: Rc<Background>,
}

impl Cluster {
    /// The cluster whose records are in `meta`. Nothing is asked yet; [`Cluster::start`] begins the background work.
    pub fn new(
        settings: Settings,
        meta: Rc<dyn MetaStore>,
        ways: Rc<dyn Ways>,
        policy: Box<dyn ReplicaPolicy>,
    ) -> Rc<Cluster> {
        let (name, shared, slots) = (settings.node.clone(), Shared::new(policy), Rc::default());
        let levels = Levels::new(Rc::clone(&meta), name.clone(), settings.levels);
        let levels = Rc::new(levels);
        let (of_node, of_lease) = (Rc::clone(&meta), Rc::clone(&levels));
        let lease = NodeLease::new(of_node, name.clone(), settings.lease, of_lease);
        let revocations = Revocations::new(Rc::clone(&meta));
        let images = Images { meta };
        let records = MetaRecords { node: name, images };
        let ways = (ways, Rc::clone(&levels));
        let stores = StoreTable::new(records.clone(), Rc::clone(&slots), shared.clone(), ways);
        let stores = Rc::new(stores);
        let node = Rc::new(Node {
            settings,
            meta: records,
            stores: Rc::clone(&stores),
            slots,
            lease,
            levels: Rc::clone(&levels),
        });
        let reports = LoadReports::new(&stores, shared.clone());
        let openings = Openings::new(&node, shared);
        let local = Rc::new(LocalVolumes::new(&node, &openings));
        let forward = Forward::new(&node, &local);
        let collecting = Collecting::new(&node);
        let view = View::new(&node);
        let trash = Trash::new(&node, &openings, &view);
        Rc::new(Cluster {
            reports,
            membership: Membership::new(&node, &local, &forward),
            volumes: Volumes::new(&node, &openings, &local, &forward, &view),
            repairs: VolumeRepair::new(&node, &openings, &collecting),
            revocations,
            background: Background::new(&node, &openings, &forward, &collecting, &trash),
            trash,
            levels,
            upgrade: Upgrade::new(&node),
            stores,
            openings,
            view,
            collecting,
            node,
        })
    }

    /// Begins the background work: it ends with the cluster.
    pub fn start(&self) {
        self.background.start();
    }

    /// The stores that this node serves, by their identities: others that are registered for it count as down.
    pub fn serves(&self, stores: BTreeSet<String>) {
        self.node.lease.serves(stores);
    }

    /// Closes all volumes and lets the other nodes know. Users get errors from then on.
    pub async fn stop(&self) -> Vec<String> {
        let troubles = self.openings.stop().await;
        self.node.lease.revoke().await;
        troubles
    }

    /// This node.
    pub fn node(&self) -> &Name {
        self.node.name()
    }

    /// What is wrong where this meta store knows of no volume beside stores that have data of some, in words.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn forgotten_volumes(&self) -> Result<Option<String>, ClusterError> {
        forgotten::forgotten_volumes(&self.node).await
    }
}
