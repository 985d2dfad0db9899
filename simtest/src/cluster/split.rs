//! A run in which the network splits: two writers, of which one has lost what says that there is another.
//!
//! ```text
//! a writer at work -> cut from the meta store -> a successor opens -> both go on a while -> both hosts crash -> the end
//! ```

use std::rc::Rc;

use base::Nanos;
use env::Rng;
use env::net::sim::{self, Delay, Link};

use super::clients::{PLACES, World};
use super::mutations::Mutation;
use super::scenario::{CLIENTS, HARDER, Ran, ScenarioPhase, well_again, work};
use super::{Cluster, host};

/// A writer loses the meta store, and goes on while another node takes over. Either it loses all stores but one as well, and reads there
/// while its lease lasts. Or it sends writes of which it can answer none. Its clock is slow and its successor's is fast. Some successors
/// come at the end of its lease.
pub(super) async fn split(
    seed: u64,
    drift: i32,
    mutation: Option<Mutation>,
    phase: &ScenarioPhase,
) -> Result<Ran, String> {
    let mut rng = Rng::from_seed((seed % HARDER) ^ 0x5eed);
    let cluster = Cluster::new(3, 2, 1, mutation).await;
    sim::set_drift(host(0), -drift);
    sim::set_drift(host(1), drift);
    let world = Rc::new(World::default());
    let failed = |why: vdisk::volume::VolumeError| format!("nothing is wrong, and yet: {why}");
    let old = cluster.open(0).await.map_err(failed)?;
    for block in PLACES {
        let wrote = world.write(&old, 1, block, 1).await;
        wrote.map_err(|why| format!("nothing is wrong, and yet: {why}"))?;
    }
    // What it cannot write would keep it from reading that.
    let alone = rng.chance(0.6);
    let count = if alone { CLIENTS } else { 4 * CLIENTS };
    work(&old, &world, 0, count, !alone).await;
    env::sleep(Nanos::millis(rng.below(2_500))).await;
    let picked = rng.below(3) as usize;
    for (at, node) in cluster.nodes.iter().enumerate() {
        if alone {
            let other = if at == picked { 1 } else { 0 };
            sim::partition(&[host(other)], &[node.ip]);
        } else if at == picked {
            // Its writes come there after those of its successor.
            let delay = Delay::Uniform(Nanos::millis(20), Nanos::millis(250));
            sim::set_link(host(0), node.ip, Link { delay, ..Link::LAN });
        }
    }
    let cut = vdisk::meta::Faults {
        cut: true,
        timeout: Nanos::millis(100),
        ..Default::default()
    };
    cluster.meta_faults(0, cut);
    // A successor that comes while the lease lasts waits for its end; one that comes just after does not wait.
    let wait = match rng.chance(0.7) {
        true => rng.below(300),
        false => 1_400 + rng.below(1_000),
    };
    env::sleep(Nanos::millis(wait)).await;
    let new = cluster.open(1).await.map_err(failed)?;
    work(&new, &world, 1, CLIENTS, true).await;
    env::sleep(Nanos::secs(if alone { 3 } else { 8 })).await;
    drop((old, new));
    cluster.crash_host(0);
    cluster.crash_host(1);
    cluster.heal().await;
    well_again(&cluster, &world, 2, Ran::default(), phase).await
}
