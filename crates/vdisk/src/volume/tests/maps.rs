//! What a volume does with its map: it is read, committed, and found again.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Class, Device, DeviceExt};

use super::cluster::{Cluster, VOLUME};
use super::direct::{alike, collector};
use crate::image::audit::Audit;
use crate::image::tree::{self as image, Versioned};
use crate::map::{Entry, Layer, Map, Root};
use crate::meta::MetaStore;
use crate::names::{EXTENT, Generation, StoreNumber, Stores};
use crate::record::{VolumeRecord, volume_key};
use crate::volume::commit::MapIo;
use crate::volume::layer_copies::LayerCopies;
use crate::volume::{Condition, Mutation, Volume};

fn filled(byte: u8, len: usize) -> View {
    View::copy_of(&vec![byte; len])
}

async fn read(volume: &Volume, at: u64, len: usize) -> Buf {
    let buf = Buf::for_read(len);
    let read = volume.read(Sector(at / 512), buf, Class::Foreground).await;
    read.unwrap()
}

async fn healthy(volume: &Volume) {
    for _ in 0..1000 {
        if volume.health().condition == Condition::Healthy {
            return;
        }
        env::sleep(Nanos::millis(20)).await;
    }
    panic!("{:?}", volume.health());
}

/// Gives the volume a map of `count` extents that no store has, in 200,000.
async fn with_a_map(cluster: &Rc<Cluster>, count: u32) {
    let collector = collector(cluster);
    let images = &collector.images;
    let nothing = Root::empty(Generation(0));
    let map = Map::open(
        collector.reader.clone(),
        VOLUME,
        nothing,
        200_000,
        Generation(0),
    );
    for index in 0..count {
        let layer = Layer {
            owner: VOLUME,
            born: Generation(1),
            stores: Stores::new(&[StoreNumber(1), StoreNumber(2)]).unwrap(),
        };
        map.set(index, Entry::full(layer)).await.unwrap();
    }
    let commit = map.commit(Generation(2)).await.unwrap();
    for _ in 0..3 {
        let (_, change) = image::advance(&images.volume(VOLUME).await.unwrap());
        images.change(change).await.unwrap();
    }
    let volume: Versioned<_> = images.volume(VOLUME).await.unwrap();
    let head = images.image(volume.record.head).await.unwrap();
    let (_, change) = image::resize(&volume, &head, 200_000 * EXTENT).unwrap();
    images.change(change).await.unwrap();
    let head = images.image(volume.record.head).await.unwrap();
    let (_, change) = image::commit(&volume, &head, commit.root).unwrap();
    images.change(change).await.unwrap();
}

#[test]
fn opening_reads_the_map_and_lists_only_what_was_born_later() {
    env::Runtime::simulated(31).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        with_a_map(&cluster, 100_000).await;
        let listed = || {
            cluster
                .servers
                .iter()
                .map(|it| it.listed.get())
                .sum::<u64>()
        };
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(volume.core.extents.all.borrow().len(), 100_000);
        assert_eq!(listed(), 0);
        let at = 150_000 * EXTENT;
        volume
            .write_at(Sector(at / 512), filled(7, 4096))
            .await
            .unwrap();
        // It crashes before a commit.
        assert_eq!(volume.counters().commits, 0);
        drop(volume);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(volume.core.extents.all.borrow().len(), 100_001);
        assert_eq!(listed(), 2);
        assert_eq!(read(&volume, at, 4096).await[0], 7);
        volume.close().await.unwrap();
        // Committed: every extent is in the map.
        let volume = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(listed(), 2);
        assert_eq!(read(&volume, at, 4096).await[0], 7);
    });
}

#[test]
fn a_committed_map_is_found_without_its_writer_and_nothing_is_left_over() {
    env::Runtime::simulated(32).block_on(async {
        let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
        for round in 1..=6_u8 {
            let node = u16::from(round);
            let volume = cluster
                .open(node, cluster.meta_store.client(), None)
                .await
                .unwrap();
            for extent in 0..3 {
                let at = extent * EXTENT + u64::from(round) * 8192;
                volume
                    .write_at(Sector(at / 512), filled(round, 8192))
                    .await
                    .unwrap();
                env::sleep(Nanos::millis(100)).await;
            }
            for before in 1..=round {
                let at = u64::from(before) * 8192;
                assert_eq!(read(&volume, at, 8192).await[..], [before; 8192][..]);
            }
            assert!(volume.counters().commits > 0 || round > 1);
            healthy(&volume).await;
            if round % 2 == 0 {
                volume.close().await.unwrap();
            }
        }
        let volume = cluster
            .open(9, cluster.meta_store.client(), None)
            .await
            .unwrap();
        healthy(&volume).await;
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
        let report = Audit(&collector(&cluster)).run(false).await.unwrap();
        assert_eq!(
            (report.leaks.len(), report.extra.len()),
            (0, 0),
            "{report:?}"
        );
    });
}

#[test]
fn a_commit_whose_answer_is_lost_counts_and_one_that_failed_is_made_up_for() {
    env::Runtime::simulated(33).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let meta = cluster.meta_store.client();
        let volume = cluster.open(1, meta.clone(), None).await.unwrap();
        for round in 0..30_u64 {
            meta.set_faults(crate::meta::Faults {
                answers_lost: 0.4,
                requests_lost: 0.2,
                timeout: Nanos::millis(20),
                ..crate::meta::Faults::default()
            });
            let at = round % 3 * EXTENT + round * 4096;
            volume
                .write_at(Sector(at / 512), filled(round as u8 + 1, 4096))
                .await
                .unwrap();
            env::sleep(Nanos::millis(70)).await;
        }
        meta.set_faults(crate::meta::Faults::default());
        drop(volume);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        for round in 0..30_u64 {
            let at = round % 3 * EXTENT + round * 4096;
            assert_eq!(read(&volume, at, 4096).await[0], round as u8 + 1);
        }
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

#[test]
fn a_store_that_may_have_something_and_is_not_named_counts_as_missing() {
    env::Runtime::simulated(34).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        assert_eq!(cluster.record().await.stores, Some(BTreeSet::new()));
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        healthy(&volume).await;
        volume.close().await.unwrap();
        let listed = cluster.record().await.stores.unwrap();
        // The bitmap replicas, the stores of nodes, and the extent's: all three.
        assert_eq!(listed.len(), 3, "{listed:?}");
        let some = |numbers: &[u16]| {
            let server = |number: &u16| Rc::clone(&cluster.servers[usize::from(*number) - 1]);
            numbers.iter().map(server).collect::<Vec<_>>()
        };
        let one = cluster
            .open_with(2, cluster.meta_store.client(), some(&[1]))
            .await;
        let message = one.map(drop).unwrap_err().to_string();
        assert!(
            message.contains("offline")
                && message.contains("store number 2 (not in the cluster any more), store number 3"),
            "{message}"
        );
        let volume = cluster
            .open_with(3, cluster.meta_store.client(), some(&[1, 2]))
            .await
            .unwrap();
        let out = cluster.record().await.out;
        assert_eq!(out.keys().copied().collect::<Vec<_>>(), [StoreNumber(3)]);
        assert_eq!(read(&volume, 0, 4096).await[0], 1);
    });
}

#[test]
fn a_record_older_than_the_stores_is_refused_at_every_try() {
    env::Runtime::simulated(35).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let images = collector(&cluster).images;
        let old = images.volume(VOLUME).await.unwrap().record;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        for _ in 0..5 {
            cluster.servers[1].crash();
            volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
            cluster.servers[1].start().await;
            healthy(&volume).await;
        }
        volume.close().await.unwrap();
        // The meta store is restored from a backup, and its record lists the stores that are used.
        let listed = cluster.record().await.stores;
        let restored = VolumeRecord {
            stores: listed,
            ..old
        };
        let put = crate::meta::Op::Put {
            key: volume_key(VOLUME),
            value: restored.encode(),
            lease: None,
        };
        let meta = cluster.meta_store.client();
        meta.txn(Vec::new(), vec![put]).await.unwrap();
        for round in 0..30 {
            let refused = cluster
                .open(2 + round, cluster.meta_store.client(), None)
                .await;
            let message = refused.map(drop).unwrap_err().to_string();
            assert!(message.contains("older than the stores"), "{message}");
            assert_eq!(cluster.record().await.writer, None);
        }
    });
}

/// An extent gets a copy too many, loses it, and is written; then its writer crashes. Is every copy that is read later the
/// last one?
async fn a_copy_too_many(mutation: Option<Mutation>) -> Result<(), String> {
    let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
    let volume = cluster
        .open(1, cluster.meta_store.client(), mutation)
        .await
        .unwrap();
    volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
    healthy(&volume).await;
    let core = &volume.core;
    let placed = core.extents.placed(0).unwrap();
    LayerCopies::of(core)
        .add_copy(0, &placed, &placed)
        .await
        .unwrap();
    MapIo::of(core).commit().await.unwrap();
    // From here on commits are late, and dirty bits are cleared in time.
    let hold = core.maps.commits.one.acquire(1).await;
    env::spawn(async move {
        env::sleep(Nanos::millis(400)).await;
        drop(hold);
    });
    while placed.copies.borrow().stores.len() > 2 {
        env::sleep(Nanos::micros(100)).await;
    }
    volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
    env::sleep(Nanos::millis(150)).await;
    drop(volume);
    let volume = cluster
        .open(2, cluster.meta_store.client(), mutation)
        .await
        .unwrap();
    for _ in 0..40 {
        if read(&volume, 0, 4096).await[0] != 2 {
            return Err("an older copy is read".to_owned());
        }
    }
    healthy(&volume).await;
    volume.close().await.unwrap();
    alike(&cluster, 2).await
}

#[test]
fn a_copy_that_an_extent_loses_is_out_of_the_map_before_it_misses_a_change() {
    let run = |seed, mutation| env::Runtime::simulated(seed).block_on(a_copy_too_many(mutation));
    for seed in 0..10 {
        run(seed, None).unwrap();
    }
    let caught = (0..10).find_map(|seed| run(seed, Some(Mutation::NoCommit)).err());
    println!("{}", caught.expect("it went unseen"));
}
