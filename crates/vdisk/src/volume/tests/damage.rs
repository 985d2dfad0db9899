//! What scrubs find damaged.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::fault::{Injury, Rule};
use device::{DeviceExt, Op};
use store::BadBlock;

use super::cluster::{Cluster, Server};
use super::single::{filled, healthy, read};
use crate::volume::{Condition, Mutation};

/// The next `times` reads of a store's disk are rotten, and stay so; then all is scrubbed. How many pages it knows to be bad.
async fn scrubbed(server: &Server, skip: u64, times: u64) -> usize {
    let rot = Injury::Rot {
        bits: 1,
        lasting: true,
    };
    let rule = Rule::new(rot).on(&[Op::Read]).after(skip).times(times);
    let rule = server.book().add(rule);
    let node = server.node();
    while !node
        .store()
        .scrub_step(Bytes::mib(1))
        .await
        .unwrap()
        .round_done
    {}
    server.book().remove(rule);
    bad(server)
}

/// Bad pages of volumes: what a store keeps for itself has no other copy.
fn bad(server: &Server) -> usize {
    bad_pages(server).len()
}

fn bad_pages(server: &Server) -> Vec<BadBlock> {
    let mut all = server.node().store().bad_blocks();
    all.retain(|it| !it.object.starts_with(".tanada/"));
    all
}

/// Fails one read of each of these pages of the only extent, so that its store notes them as damaged.
async fn fail_reads(server: &Server, pages: &[u64], lasting: bool) {
    let node = server.node();
    let store = node.store();
    let object = store.list("v/", None, 1).objects[0].name.clone();
    for page in pages {
        let rot = Injury::Rot { bits: 1, lasting };
        let rule = server.book().add(Rule::new(rot).on(&[Op::Read]).once());
        let read = store.read(&object, page * 4096, 4096, device::Class::Foreground);
        read.await.unwrap_err();
        server.book().remove(rule);
    }
    assert_eq!(bad(server), pages.len());
}

/// Damages a byte of each of these pages of the only extent: what its store reads there is not what was written.
async fn spoil(server: &Server, pages: &[u64]) {
    fail_reads(server, pages, true).await;
}

#[test]
fn damage_that_a_scrub_finds_is_repaired_without_a_read() {
    env::Runtime::simulated(31).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let data = filled(1, 8 << 20);
        volume.write_at(Sector(0), data).await.unwrap();
        env::sleep(Nanos::secs(1)).await;
        let found = scrubbed(&cluster.servers[0], 0, 16).await;
        assert!(found > 4, "{found}");
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(bad(&cluster.servers[0]), 0, "of {found}");
        assert!(volume.counters().repaired_bytes >= 4096 * found as u64);
        assert_eq!(volume.counters().isr_shrinks, 0);
        healthy(&volume).await;
        cluster.servers[1].crash();
        let all = read(&volume, 0, 8 << 20).await;
        assert!(all.iter().all(|byte| *byte == 1));
    });
}

#[test]
fn damage_is_asked_for_by_the_protocol_between_nodes() {
    env::Runtime::simulated(35).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        for server in &cluster.servers {
            server.listen().await;
        }
        let opened = cluster
            .open_over_the_wire(1, cluster.meta_store.client())
            .await;
        let volume = opened.unwrap();
        let data = filled(1, 1 << 20);
        volume.write_at(Sector(0), data).await.unwrap();
        spoil(&cluster.servers[0], &[3, 4, 70]).await;
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(bad(&cluster.servers[0]), 0);
        assert!(volume.repair_damage().await.silent.is_empty());
    });
}

#[test]
fn damage_of_snapshots_and_maps_is_repaired_when_the_volume_is_opened() {
    env::Runtime::simulated(32).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume
            .write_at(Sector(0), filled(1, 4 << 20))
            .await
            .unwrap();
        volume.snapshot("monday".parse().unwrap()).await.unwrap();
        volume
            .write_at(Sector(0), filled(2, 4 << 20))
            .await
            .unwrap();
        volume.close().await.unwrap();
        let found = scrubbed(&cluster.servers[0], 0, u64::MAX).await;
        let objects = bad_pages(&cluster.servers[0]);
        assert!(
            objects.iter().any(|it| it.object.starts_with("m/")),
            "{objects:?}"
        );
        assert!(
            objects.iter().any(|it| it.object.starts_with("v/")),
            "{objects:?}"
        );
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        env::sleep(Nanos::secs(2)).await;
        let left = bad_pages(&cluster.servers[0]);
        assert!(left.is_empty(), "{} of {found}: {left:?}", left.len());
        healthy(&volume).await;
        assert!(
            read(&volume, 0, 4 << 20)
                .await
                .iter()
                .all(|byte| *byte == 2)
        );
    });
}

#[test]
fn copies_with_damage_in_different_pages_are_read_and_make_each_other_whole() {
    env::Runtime::simulated(33).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume
            .write_at(Sector(0), filled(3, 1 << 20))
            .await
            .unwrap();
        spoil(&cluster.servers[0], &[3, 70]).await;
        spoil(&cluster.servers[1], &[4, 71, 200]).await;
        let before = env::now();
        let all = read(&volume, 0, 1 << 20).await;
        assert!(all.iter().all(|byte| *byte == 3));
        assert!(env::now().since(before) < Nanos::secs(1), "it is no wait");
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(cluster.servers.iter().map(|it| bad(it)).sum::<usize>(), 0);
        assert_eq!(volume.counters().isr_shrinks, 0);
    });
}

#[test]
fn a_page_no_copy_has_is_reported_and_whole_again_when_overwritten() {
    env::Runtime::simulated(34).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume
            .write_at(Sector(0), filled(4, 1 << 20))
            .await
            .unwrap();
        spoil(&cluster.servers[0], &[5, 9]).await;
        spoil(&cluster.servers[1], &[5]).await;
        let repairs = volume.repair_damage().await;
        let left: Vec<(u64, bool)> = repairs
            .left
            .iter()
            .map(|it| (it.damage.offset, it.lost))
            .collect();
        assert_eq!(left, [(5 * 4096, true), (5 * 4096, true)]);
        assert_eq!(volume.lost_pages().len(), 2);
        let health = volume.health();
        assert_eq!(health.condition, Condition::Degraded);
        assert!(
            health.why.contains("4.0 KiB at byte 20480 of v/"),
            "{}",
            health.why
        );
        // All else is as before: both copies count, and what is beside it is read.
        assert!(cluster.record().await.out.is_empty());
        assert!(read(&volume, 0, 20_480).await.iter().all(|byte| *byte == 4));
        assert!(
            read(&volume, 24_576, 1 << 19)
                .await
                .iter()
                .all(|byte| *byte == 4)
        );
        let buf = Buf::for_read(4096);
        let lost = device::Device::read(&*volume, Sector(40), buf, device::Class::Foreground).await;
        assert!(lost.unwrap_err().to_string().contains("damaged"));
        volume.write_at(Sector(40), filled(5, 4096)).await.unwrap();
        assert!(
            read(&volume, 20_480, 4096)
                .await
                .iter()
                .all(|byte| *byte == 5)
        );
        healthy(&volume).await;
        assert!(volume.repair_damage().await.left.is_empty());
    });
}

/// Notes pages as damaged though nothing is wrong with them but one read.
async fn suspect(server: &Server, pages: &[u64]) {
    fail_reads(server, pages, false).await;
}

#[test]
fn a_page_that_failed_one_read_on_each_copy_is_not_called_lost() {
    env::Runtime::simulated(36).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let data = filled(4, 1 << 20);
        volume.write_at(Sector(0), data).await.unwrap();
        for server in &cluster.servers {
            suspect(server, &[5]).await;
        }
        let repairs = volume.repair_damage().await;
        assert!(repairs.left.is_empty(), "{:?}", repairs.left);
        assert_eq!(cluster.servers.iter().map(|it| bad(it)).sum::<usize>(), 0);
        healthy(&volume).await;
        assert!(read(&volume, 0, 1 << 20).await.iter().all(|it| *it == 4));
    });
}

#[test]
fn neighbouring_lost_pages_are_reported_as_one() {
    env::Runtime::simulated(37).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let data = filled(4, 1 << 20);
        volume.write_at(Sector(0), data).await.unwrap();
        for server in &cluster.servers {
            spoil(server, &[5, 6, 7, 20]).await;
        }
        let left = volume.repair_damage().await.left;
        let left: Vec<u64> = left.iter().map(|it| it.damage.len).collect();
        assert_eq!(left, [3 * 4096, 4096, 3 * 4096, 4096]);
        assert_eq!(volume.counters().isr_shrinks, 0);
    });
}

#[test]
fn a_page_that_no_copy_has_puts_no_store_out_when_copies_are_made_equal() {
    env::Runtime::simulated(38).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let data = filled(4, 1 << 20);
        volume.write_at(Sector(0), data).await.unwrap();
        for server in &cluster.servers {
            spoil(server, &[5]).await;
        }
        // The bit of the extent is set still: the next opening makes its copies equal first.
        volume.write_at(Sector(0), filled(6, 4096)).await.unwrap();
        drop(volume);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(8), filled(7, 4096)).await.unwrap();
        assert!(read(&volume, 0, 4096).await.iter().all(|it| *it == 6));
        assert!(
            read(&volume, 24_576, 65_536)
                .await
                .iter()
                .all(|it| *it == 4)
        );
        assert!(volume.counters().reconciled > 0);
        assert!(cluster.record().await.out.is_empty());
        assert_eq!(volume.counters().isr_shrinks, 0);
    });
}

/// Repairs 64 pages of a copy while eight writers write over them, each in pages of its own. Pages that do not have what was
/// written last, of both copies.
fn lost_beside_a_repair(seed: u64, mutation: Option<Mutation>) -> usize {
    const EACH: u64 = 8;
    env::Runtime::simulated(seed).block_on(async move {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let opened = cluster.open(1, cluster.meta_store.client(), mutation).await;
        let volume = opened.unwrap();
        volume
            .write_at(Sector(0), filled(1, 64 * 4096))
            .await
            .unwrap();
        let pages: Vec<u64> = (0..64).collect();
        spoil(&cluster.servers[0], &pages).await;
        // What is read for the repair takes longer than the write over the damage.
        cluster.servers[1].slow(Nanos::millis(2));
        let repairing = {
            let volume = Rc::clone(&volume);
            env::spawn(async move { volume.repair_damage().await })
        };
        let writers = (0..8_u64).map(|writer| {
            let volume = Rc::clone(&volume);
            env::spawn(async move {
                let mut rng = env::rng("writer");
                for page in writer * EACH..(writer + 1) * EACH {
                    env::sleep(Nanos::micros(rng.below(500))).await;
                    let data = filled(4, 4096);
                    volume.write_at(Sector(page * 8), data).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await;
        }
        repairing.await;
        let mut lost = 0;
        for server in &cluster.servers {
            let node = server.node();
            let store = node.store();
            let object = store.list("v/", None, 1).objects[0].name.clone();
            for page in &pages {
                let read = store.read(&object, page * 4096, 4096, device::Class::Foreground);
                lost += usize::from(read.await.unwrap().iter().any(|it| *it != 4));
            }
        }
        lost
    })
}

const SEEDS: std::ops::Range<u64> = 0..8;

#[test]
fn a_repair_beside_writers_of_the_same_pages_loses_no_write() {
    for seed in SEEDS {
        assert_eq!(lost_beside_a_repair(seed, None), 0, "seed {seed}");
    }
}

#[test]
fn a_repair_that_does_not_lock_its_range_is_caught() {
    let mut lost = SEEDS.map(|seed| lost_beside_a_repair(seed, Some(Mutation::LooseRepair)));
    assert!(lost.any(|it| it > 0), "the test shows nothing");
}
