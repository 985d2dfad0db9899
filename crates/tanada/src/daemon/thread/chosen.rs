//! The policy by which this node's volumes choose copies, and what it hears of the node's own stores.
//!
//! ```text
//! [cluster] replica_choice -> policy; goes by reports alone? -> each own store's state, every `announce_every`
//! ```

use std::rc::Rc;

use config::ClusterConfig;
use policy::place::{Kind, Options, ReplicaPolicy, build};
use store::qos::manager::Manager;
use vdisk::StoreNumber;
use vdisk::cluster::Cluster;

/// Which of several copies is read, and where new extents go.
pub(super) fn chosen(kind: Kind) -> Box<dyn ReplicaPolicy> {
    let options = Options {
        seed: env::rng("choice").bits(),
        ..Options::default()
    };
    build(kind, &options)
}

/// Reports an own store's queue to a policy that goes by reports alone, as others report theirs, without a network
/// between; until it is dropped.
pub(super) fn hear_own(
    config: &ClusterConfig,
    cluster: &Rc<Cluster>,
    (number, store): (StoreNumber, Rc<Manager>),
) -> Option<env::CancelOnDrop<()>> {
    if !config.replica_choice.needs_reports() {
        return None;
    }
    let every = config.announce.as_ref().map(|it| it.every);
    let every = every.unwrap_or(config::ANNOUNCE_EVERY);
    let cluster = Rc::downgrade(cluster);
    let task = env::spawn(async move {
        while let Some(cluster) = cluster.upgrade() {
            cluster.reports.heard(number, &store.state());
            drop(cluster);
            env::sleep(every).await;
        }
    });
    Some(env::cancel_scope(task))
}
