//! What a volume does with its map: it is read, committed, and found again.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Class, Device, DeviceExt};

use super::cluster::{Cluster, VOLUME};
use super::direct::{alike, collector};
use crate::image::{self, Known};
use crate::map::{Entry, Layer, Map, Root};
use crate::names::{EXTENT, Generation, StoreNumber, Stores};
use crate::volume::{Condition, Volume};

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
    let volume: Known<_> = images.volume(VOLUME).await.unwrap();
    let head = images.image(volume.record.head).await.unwrap();
    let (_, change) = image::resize(&volume, &head, 200_000 * EXTENT).unwrap();
    images.change(change).await.unwrap();
    let head = images.image(volume.record.head).await.unwrap();
    let (_, change) = image::commit(&volume, &head, commit.root).unwrap();
    images.change(change).await.unwrap();
}

#[test]
fn opening_reads_the_map_and_lists_what_is_younger_alone() {
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
        let volume = cluster.open(1, cluster.twin.client(), None).await.unwrap();
        assert_eq!(volume.core.extents.borrow().len(), 100_000);
        assert_eq!(listed(), 0);
        let at = 150_000 * EXTENT;
        volume
            .write_at(Sector(at / 512), filled(7, 4096))
            .await
            .unwrap();
        // It crashes before a commit.
        assert_eq!(volume.figures().commits, 0);
        drop(volume);
        let volume = cluster.open(2, cluster.twin.client(), None).await.unwrap();
        assert_eq!(volume.core.extents.borrow().len(), 100_001);
        assert_eq!(listed(), 2);
        assert_eq!(read(&volume, at, 4096).await[0], 7);
        volume.close().await.unwrap();
        // Committed: nothing is young any more.
        let volume = cluster.open(3, cluster.twin.client(), None).await.unwrap();
        assert_eq!(listed(), 2);
        assert_eq!(read(&volume, at, 4096).await[0], 7);
    });
}

#[test]
fn what_was_committed_is_found_without_its_last_writer_and_nothing_is_left_over() {
    env::Runtime::simulated(32).block_on(async {
        let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
        for round in 1..=6_u8 {
            let node = u16::from(round);
            let volume = cluster
                .open(node, cluster.twin.client(), None)
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
            assert!(volume.figures().commits > 0 || round > 1);
            healthy(&volume).await;
            if round % 2 == 0 {
                volume.close().await.unwrap();
            }
        }
        let volume = cluster.open(9, cluster.twin.client(), None).await.unwrap();
        healthy(&volume).await;
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
        let report = collector(&cluster).audit(false).await.unwrap();
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
        let meta = cluster.twin.client();
        let volume = cluster.open(1, Rc::clone(&meta), None).await.unwrap();
        for round in 0..30_u64 {
            meta.set_faults(crate::meta::Faults {
                answers_lost: 0.4,
                requests_lost: 0.2,
                patience: Nanos::millis(20),
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
        let volume = cluster.open(2, cluster.twin.client(), None).await.unwrap();
        for round in 0..30_u64 {
            let at = round % 3 * EXTENT + round * 4096;
            assert_eq!(read(&volume, at, 4096).await[0], round as u8 + 1);
        }
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}
