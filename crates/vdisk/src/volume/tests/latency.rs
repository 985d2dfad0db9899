//! What a write of several copies takes beside what it takes at the slowest of its copies, in virtual time.

use std::rc::Rc;

use base::{Bytes, Nanos, Sector, View};
use device::DeviceExt;
use env::Rng;
use env::sync::join_all;
use store::Change;

use super::cluster::{Cluster, SIZE};
use crate::names::EXTENT;
use crate::replica::connect::Connection;
use crate::volume::Volume;

const WRITES: u64 = 600;

/// The mean of `WRITES` writes of `len` bytes, one after the other, at places drawn from `seed`.
async fn mean<F: Future<Output = ()>>(len: u64, seed: u64, write: impl Fn(u64) -> F) -> Nanos {
    let mut rng = Rng::from_seed(seed);
    let begun = env::now();
    for _ in 0..WRITES {
        write(rng.below(SIZE.0 / len) * len).await;
    }
    Nanos(env::now().since(begun).0 / WRITES)
}

async fn through(volume: &Rc<Volume>, len: u64, seed: u64) -> Nanos {
    let data = View::copy_of(&vec![1; len as usize]);
    let write = async |at: u64| {
        volume
            .write_at(Sector(at / 512), data.clone())
            .await
            .expect("done")
    };
    mean(len, seed, write).await
}

/// Answered when the slowest of all stores has it.
async fn direct(connections: &[Rc<dyn Connection>], len: u64, seed: u64) -> Nanos {
    let data = View::copy_of(&vec![1; len as usize]);
    let write = async |at: u64| {
        let name = format!("direct {}", at / EXTENT);
        let change = Change::FUA.creating();
        let each = connections
            .iter()
            .map(|connection| connection.write(&name, at % EXTENT, data.clone(), change));
        for done in join_all(each.collect::<Vec<_>>()).await {
            done.expect("done");
        }
    };
    mean(len, seed, write).await
}

#[test]
fn a_write_of_three_copies_takes_at_most_1_3_times_its_slowest_copy() {
    env::Runtime::simulated(51).block_on(async {
        let cluster = Cluster::new(3, 3, 2, Bytes::mib(256)).await;
        for server in &cluster.servers {
            server.listen().await;
        }
        let meta = cluster.meta_store.client();
        let volume = cluster.open_over_the_wire(1, meta).await.expect("opened");
        let mut connections = Vec::new();
        for connector in cluster.connectors() {
            connections.push(connector.open("g/direct", 1).await.expect("sealed"));
        }
        for len in [4 << 10, 64 << 10, 1 << 20] {
            // Allocated, and the stores as warm.
            let (_, _) = (through(&volume, len, 1).await, direct(&connections, len, 1).await);
            let (volume, slowest) = (through(&volume, len, 2).await, direct(&connections, len, 2).await);
            let ratio = volume.0 as f64 / slowest.0 as f64;
            println!("{len} bytes: {volume} through the volume, {slowest} at the slowest copy: {ratio:.3}");
            assert!(ratio <= 1.3, "writes of {len} bytes take {ratio:.3} of the slowest copy's time");
        }
    });
}
