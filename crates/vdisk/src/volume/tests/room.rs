//! Stores that fill up.

use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::{Device, DeviceExt};

use super::cluster::{Cluster, SIZE, Server};
use super::single::{filled, healthy, read};
use crate::names::StoreNumber;
use crate::volume::{Condition, Volume};

const PIECE: u64 = 256 << 10;

/// One large store and one that has not room for all of the volume.
async fn large_and_small() -> Cluster {
    let cluster = Cluster::new(1, 2, 1, Bytes::mib(64)).await;
    let mut cluster = Rc::into_inner(cluster).expect("the only handle");
    cluster.servers.push(Server::new(2, Bytes::mib(8)).await);
    cluster
}

/// Writes piece after piece; where it was refused, and what was said.
async fn fill(volume: &Volume) -> (u64, String) {
    for at in (0..SIZE.0).step_by(PIECE as usize) {
        let data = filled(7, PIECE as usize);
        if let Err(error) = volume.write_at(Sector(at / 512), data).await {
            return (at, error.to_string());
        }
    }
    (SIZE.0, "it took all".to_owned())
}

#[test]
fn a_write_without_room_for_all_copies_is_refused_naming_the_full_store() {
    env::Runtime::simulated(41).block_on(async {
        let cluster = large_and_small().await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let before = env::now();
        let (end, said) = fill(&volume).await;
        assert!(said.contains("room") && said.contains("store s2"), "{said}");
        assert!((1 << 20..8 << 20).contains(&end), "{end}");
        assert!(env::now().since(before) < Nanos::secs(3), "it is no wait");
        let health = volume.health();
        assert_eq!(health.condition, Condition::Full, "{}", health.why);
        assert!(
            health.why.contains("store s2 has room for"),
            "{}",
            health.why
        );
        let record = cluster.record().await;
        assert_eq!((record.out.len(), record.redundancy_floor), (0, 2));
        // What is there can be written over, again and again.
        for byte in 1..20 {
            let data = filled(byte, 1 << 20);
            volume.write_at(Sector(0), data).await.unwrap();
        }
        assert_eq!(volume.counters().isr_shrinks, 0);
        cluster.servers[0].crash();
        assert!(
            read(&volume, 0, 1 << 20)
                .await
                .iter()
                .all(|byte| *byte == 19)
        );
        let rest = read(&volume, 1 << 20, (end - (1 << 20)) as usize).await;
        assert!(rest.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn a_full_volume_takes_writes_again_when_room_is_made() {
    env::Runtime::simulated(42).block_on(async {
        let cluster = large_and_small().await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let (end, _) = fill(&volume).await;
        let gone = Span::bytes(0, 3 << 20);
        volume.discard(gone).await.unwrap();
        let data = filled(8, PIECE as usize);
        volume.write_at(Sector(end / 512), data).await.unwrap();
        healthy(&volume).await;
        assert!(cluster.record().await.out.is_empty());
    });
}

/// Another client takes what room a store has left, unseen by the volume.
async fn taken_by_others(server: &Server) {
    let node = server.node();
    let store = node.store();
    let change = store::Change {
        create: true,
        ..store::Change::FUA
    };
    let mut at = 0;
    for len in [1 << 20, 64 << 10, 4096] {
        loop {
            let data = filled(1, len);
            if store.write("others", at, data, change).await.is_err() {
                break;
            }
            at += len as u64;
        }
    }
}

#[test]
fn a_store_that_fills_up_holds_up_what_is_new_until_it_is_gone_for_good() {
    env::Runtime::simulated(43).block_on(async {
        let cluster = large_and_small().await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let data = || filled(1, PIECE as usize);
        volume.write_at(Sector(0), data()).await.unwrap();
        taken_by_others(&cluster.servers[1]).await;
        // Both copies take it, or the record says that one has not.
        volume.write_at(Sector(PIECE / 512), data()).await.unwrap();
        assert_eq!(cluster.record().await.out.len(), 1);
        let health = volume.health();
        assert_eq!(health.condition, Condition::Full, "{}", health.why);
        assert!(health.why.contains("(it was full)"), "{}", health.why);
        // It may have room again: until then nothing is kept with one copy alone.
        let elsewhere = Sector((8 << 20) / 512);
        let refused = volume.write_at(elsewhere, data()).await.unwrap_err();
        assert!(refused.to_string().contains("store s2"), "{refused}");
        volume.write_at(Sector(0), data()).await.unwrap();
        cluster.servers[1].crash();
        env::sleep(Nanos::secs(30)).await;
        let health = volume.health();
        assert_eq!(health.condition, Condition::Degraded, "{}", health.why);
        volume.write_at(elsewhere, data()).await.unwrap();
        assert!(read(&volume, 8 << 20, 4096).await.iter().all(|it| *it == 1));
    });
}

#[test]
fn writing_over_what_is_there_never_makes_a_store_count_as_full() {
    env::Runtime::simulated(44).block_on(async {
        let cluster = large_and_small().await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        for _ in 0..40 {
            let data = filled(1, 1 << 20);
            volume.write_at(Sector(0), data).await.unwrap();
            assert_ne!(volume.health().condition, Condition::Full);
        }
        // New room is found at once, though more was sent than the small store holds.
        let before = env::now();
        let data = filled(2, PIECE as usize);
        volume
            .write_at(Sector((4 << 20) / 512), data)
            .await
            .unwrap();
        assert!(env::now().since(before) < Nanos::millis(500));
        assert!(cluster.record().await.out.is_empty());
    });
}

#[test]
fn a_store_is_given_up_only_when_it_is_gone_and_not_the_last() {
    env::Runtime::simulated(45).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        let [first, second] = [0, 1].map(|at| StoreNumber(cluster.servers[at].number));
        assert!(!volume.give_up(second).await.unwrap());
        assert!(cluster.record().await.out.is_empty());
        cluster.servers[1].crash();
        assert!(volume.give_up(second).await.unwrap());
        assert_eq!(
            cluster.record().await.out.keys().collect::<Vec<_>>(),
            [&second]
        );
        cluster.servers[0].crash();
        assert!(!volume.give_up(first).await.unwrap());
        assert_eq!(cluster.record().await.out.len(), 1);
    });
}

#[test]
fn a_store_without_room_for_two_copies_of_an_extent_is_resynced() {
    env::Runtime::simulated(44).block_on(async {
        let cluster = large_and_small().await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume
            .write_at(Sector(0), filled(1, 4 << 20))
            .await
            .unwrap();
        let free = cluster.servers[1].node().store().space().free;
        assert!(free < Bytes::mib(4), "{free}");
        cluster.servers[1].crash();
        volume
            .write_at(Sector(0), filled(2, 4 << 20))
            .await
            .unwrap();
        assert!(cluster.record().await.out.contains_key(&StoreNumber(2)));
        cluster.servers[1].start().await;
        while !cluster.record().await.out.is_empty() {
            env::sleep(Nanos::millis(100)).await;
        }
        cluster.servers[0].crash();
        let all = read(&volume, 0, 4 << 20).await;
        assert!(all.iter().all(|byte| *byte == 2));
    });
}
