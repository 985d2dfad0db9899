//! A store whose disk was put back to an earlier state, under the same identity.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::{Class, Device, DeviceExt};

use super::cluster::{Cluster, Server};
use super::single::{filled, healthy, read};
use crate::names::StoreNumber;
use crate::volume::Volume;

/// All that is on a store's disk.
async fn snapshot(server: &Server) -> Vec<Buf> {
    let disk: Rc<dyn Device> = server.disk.borrow().clone();
    let mut all = Vec::new();
    for at in (0..disk.info().size.0).step_by(1 << 20) {
        let piece = disk.read(Sector(at / 512), Buf::for_read(1 << 20), Class::Foreground);
        all.push(piece.await.unwrap());
    }
    all
}

/// Puts the disk of a store that is down back.
async fn put_back(server: &Server, all: &[Buf]) {
    let disk: Rc<dyn Device> = server.disk.borrow().clone();
    for (number, piece) in all.iter().enumerate() {
        let data = base::View::copy_of(piece);
        let at = Sector((number as u64) << 11);
        disk.write_at(at, data).await.unwrap();
    }
    disk.flush().await.unwrap();
}

async fn open(cluster: &Cluster, node: u16) -> Rc<Volume> {
    let opened = cluster.open(node, cluster.meta_store.client(), None).await;
    opened.unwrap()
}

/// Reads often enough that each copy is chosen.
async fn is_all(volume: &Volume, byte: u8) {
    for _ in 0..40 {
        let found = read(volume, 0, 4096).await;
        assert!(found.iter().all(|it| *it == byte), "an old copy was read");
    }
}

#[test]
fn a_store_put_back_while_the_volume_was_closed_is_refused() {
    env::Runtime::simulated(61).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        volume.flush().await.unwrap();
        let old = snapshot(&cluster.servers[1]).await;
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        volume.close().await.unwrap();
        cluster.servers[1].crash();
        put_back(&cluster.servers[1], &old).await;
        cluster.servers[1].start().await;
        let volume = open(&cluster, 2).await;
        is_all(&volume, 2).await;
        let record = cluster.record().await;
        assert!(record.out.contains_key(&StoreNumber(2)), "{record:?}");
        let why = volume.health().why;
        assert!(
            why.contains("store s2 was put back to an earlier state"),
            "{why}"
        );
        assert!(why.contains("`tanada node delete s2 --lost`"), "{why}");
        // It stays out, however often it is tried.
        env::sleep(Nanos::secs(5)).await;
        is_all(&volume, 2).await;
        volume.close().await.unwrap();
        let volume = open(&cluster, 3).await;
        is_all(&volume, 2).await;
    });
}

#[test]
fn a_store_put_back_beyond_an_opening_is_refused() {
    env::Runtime::simulated(62).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        volume.close().await.unwrap();
        let old = snapshot(&cluster.servers[0]).await;
        let volume = open(&cluster, 2).await;
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        volume.close().await.unwrap();
        cluster.servers[0].crash();
        put_back(&cluster.servers[0], &old).await;
        cluster.servers[0].start().await;
        let volume = open(&cluster, 3).await;
        is_all(&volume, 2).await;
    });
}

#[test]
fn a_store_put_back_while_the_volume_is_written_is_refused() {
    env::Runtime::simulated(64).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        let old = snapshot(&cluster.servers[1]).await;
        for _ in 0..15 {
            volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
            env::sleep(Nanos::secs(1)).await;
        }
        cluster.servers[1].crash();
        put_back(&cluster.servers[1], &old).await;
        cluster.servers[1].start().await;
        is_all(&volume, 2).await;
        env::sleep(Nanos::secs(5)).await;
        is_all(&volume, 2).await;
        // Its writer crashes: the next writer has it from the record.
        drop(volume);
        let volume = open(&cluster, 2).await;
        is_all(&volume, 2).await;
        // The newer disk's fence counts, and not the store that shows it: it comes back as any other.
        assert!(cluster.record().await.seen.contains_key(&StoreNumber(2)));
    });
}

#[test]
fn a_volume_of_one_copy_whose_store_was_put_back_is_offline_and_says_why() {
    env::Runtime::simulated(65).block_on(async {
        let cluster = Cluster::new(1, 1, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        volume.close().await.unwrap();
        let server = &cluster.servers[0];
        let old = snapshot(server).await;
        let volume = open(&cluster, 2).await;
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        volume.close().await.unwrap();
        let newer = snapshot(server).await;
        server.crash();
        put_back(server, &old).await;
        server.start().await;
        let refused = cluster.open(3, cluster.meta_store.client(), None).await;
        let why = refused.map(drop).unwrap_err().to_string();
        assert!(why.contains("was put back to an earlier state"), "{why}");
        // The way out: the newer disk.
        server.crash();
        put_back(server, &newer).await;
        server.start().await;
        let volume = open(&cluster, 4).await;
        is_all(&volume, 2).await;
    });
}

#[test]
fn a_store_put_back_to_the_midst_of_its_resync_is_refused() {
    env::Runtime::simulated(66).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = open(&cluster, 1).await;
        let all = |byte: u8| {
            let volume = Rc::clone(&volume);
            async move {
                for extent in 0..3 {
                    let at = Sector(extent << 13);
                    volume.write_at(at, filled(byte, 4096)).await.unwrap();
                }
            }
        };
        all(1).await;
        let server = &cluster.servers[1];
        server.crash();
        all(2).await;
        // What is read to be copied takes long, and the disk that it goes to is fast.
        cluster.servers[0].slow(Nanos::millis(50));
        server.slow(Nanos::micros(1));
        let before = volume.counters().resynced;
        server.start().await;
        while volume.counters().resynced == before {
            env::sleep(Nanos::millis(1)).await;
        }
        let old = snapshot(server).await;
        assert_eq!(volume.counters().isr_expands, 0, "it is in the midst");
        cluster.servers[0].slow(Nanos::micros(100));
        healthy(&volume).await;
        volume.close().await.unwrap();
        server.crash();
        put_back(server, &old).await;
        server.start().await;
        let volume = open(&cluster, 2).await;
        for extent in 0..3 {
            for _ in 0..20 {
                let found = read(&volume, extent << 22, 4096).await;
                assert!(found.iter().all(|it| *it == 2), "an old copy was read");
            }
        }
        assert!(cluster.record().await.out.contains_key(&StoreNumber(2)));
    });
}

/// How often the volume's fence was changed at a store.
fn fence(server: &Server) -> u64 {
    let node = server.node();
    let found = node.store().list("g/0", None, 1);
    found.objects[0].version.0
}

#[test]
fn a_store_that_cannot_be_reached_when_others_are_stamped_is_stamped_later() {
    env::Runtime::simulated(67).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        env::sleep(Nanos::secs(12)).await;
        let server = &cluster.servers[1];
        let old = snapshot(server).await;
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        let stamped = fence(&cluster.servers[0]);
        env::sleep(Nanos::secs(7)).await;
        server.crash();
        while fence(&cluster.servers[0]) == stamped {
            env::sleep(Nanos::millis(10)).await;
        }
        env::sleep(Nanos::secs(1)).await;
        server.start().await;
        env::sleep(Nanos::secs(15)).await;
        assert_eq!(volume.counters().isr_shrinks, 0, "it stayed in sync");
        server.crash();
        put_back(server, &old).await;
        server.start().await;
        env::sleep(Nanos::secs(5)).await;
        is_all(&volume, 2).await;
    });
}

#[test]
fn a_change_that_ends_after_a_stamp_was_sent_is_stamped_again() {
    env::Runtime::simulated(68).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        let volume = open(&cluster, 1).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        let server = &cluster.servers[1];
        let first = fence(server);
        while fence(server) == first {
            env::sleep(Nanos::millis(10)).await;
        }
        // The next stamp is sent ten seconds after this one.
        env::sleep(Nanos::secs(9)).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        env::sleep(Nanos::millis(980)).await;
        server.slow(Nanos::millis(20));
        let second = fence(server);
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        server.slow(Nanos::micros(100));
        env::sleep(Nanos::secs(5)).await;
        let third = fence(server);
        assert!(third > second, "it was stamped beside the write");
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(volume.counters().isr_shrinks, 0, "it stayed in sync");
        assert!(fence(server) > third, "and after it");
    });
}

#[test]
fn a_store_that_lost_power_is_accepted_as_before() {
    env::Runtime::simulated(63).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(16)).await;
        for round in 1..4 {
            let volume = open(&cluster, u16::from(round)).await;
            volume
                .write_at(Sector(0), filled(round, 4096))
                .await
                .unwrap();
            volume.close().await.unwrap();
            for server in &cluster.servers {
                server.crash();
                server.start().await;
            }
        }
        let volume = open(&cluster, 9).await;
        is_all(&volume, 3).await;
        assert!(cluster.record().await.out.is_empty());
    });
}
