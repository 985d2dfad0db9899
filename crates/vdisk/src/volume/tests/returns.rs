//! Stores that come back, and what stands in their way; copies that are given up, or half made, when something else fails.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::fault::{Injury, Rule};
use device::{Class, Device, DeviceExt, Op};
use store::Change;

use super::cluster::{Cluster, VOLUME, host};
use crate::meta::{MetaStore, Op as Put};
use crate::names::{EXTENT, StoreNumber};
use crate::record::volume_key;
use crate::volume::bitmap_io::BitmapIo;
use crate::volume::layer_copies::LayerCopies;
use crate::volume::reconcile::Reconcile;
use crate::volume::{Condition, Mutation, Volume, VolumeError};

const ONE: StoreNumber = StoreNumber(1);
const TWO: StoreNumber = StoreNumber(2);

fn filled(byte: u8, len: usize) -> View {
    View::copy_of(&vec![byte; len])
}

fn sector(index: u64) -> Sector {
    Sector(index * EXTENT / 512)
}

async fn write(volume: &Volume, index: u64, byte: u8) {
    let wrote = volume.write_at(sector(index), filled(byte, 4096)).await;
    wrote.unwrap_or_else(|why| panic!("extent {index}: {why}"));
}

async fn read(volume: &Volume, index: u64) -> u8 {
    let buf = Buf::for_read(4096);
    let read = volume.read(sector(index), buf, Class::Foreground).await;
    read.unwrap()[0]
}

/// Waits until it is so.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..10_000 {
        if is_so().await {
            return;
        }
        env::sleep(Nanos::millis(1)).await;
    }
    panic!("never: {what}");
}

async fn is_out(cluster: &Cluster, store: StoreNumber) -> bool {
    cluster.record().await.out.contains_key(&store)
}

fn object(volume: &Volume, index: u32) -> String {
    volume.core.extents.placed(index).unwrap().object.clone()
}

/// Is it in that store, and what is its stamp?
async fn stamp_of(cluster: &Cluster, store: StoreNumber, object: &str) -> Option<u64> {
    let node = cluster.servers[usize::from(store.0) - 1].node();
    node.store().stat(object).ok().map(|stat| stat.stamp)
}

/// Extent `index` cannot be read any more at store 2, which has its only copy.
async fn damage(cluster: &Cluster, volume: &Volume, index: u64) {
    let rot = Injury::Rot {
        bits: 3,
        lasting: true,
    };
    let rule = Rule::new(rot).on(&[Op::Read]).times(1);
    cluster.servers[1].book().add(rule);
    let buf = Buf::for_read(4096);
    let read_it = volume.read(sector(index), buf, Class::Foreground).await;
    assert!(read_it.is_err(), "its only copy is damaged");
}

/// Two stores; what these extents hold is in the map, and store 1 misses what they hold now.
async fn one_is_behind(extents: u64) -> (Rc<Cluster>, Rc<Volume>) {
    let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
    let volume = cluster
        .open(1, cluster.meta_store.client(), None)
        .await
        .unwrap();
    for index in 0..extents {
        write(&volume, index, 1).await;
    }
    volume.close().await.unwrap();
    let volume = cluster
        .open(2, cluster.meta_store.client(), None)
        .await
        .unwrap();
    cluster.servers[0].crash();
    for index in 0..extents {
        write(&volume, index, 2).await;
    }
    assert!(is_out(&cluster, ONE).await);
    // Nothing is unreconciled any more.
    env::sleep(Nanos::millis(300)).await;
    (cluster, volume)
}

#[test]
fn an_unacknowledged_write_does_not_come_back_with_a_store() {
    env::Runtime::simulated(41).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let _its_bit = BitmapIo::of(&volume.core).note_dirty(0).await.unwrap();
        // Store 1 never does it, store 2 does it and its answer is lost.
        cluster.servers[0].stalled.set(true);
        cluster.servers[1].deaf.set(1.0);
        let wrote = volume.write_at(Sector(0), filled(1, 4096)).await;
        assert!(wrote.is_err());
        let object = object(&volume, 0);
        cluster.servers[0].crash();
        cluster.servers[0].heal().await;
        cluster.servers[1].crash();
        assert_eq!(stamp_of(&cluster, ONE, &object).await, None);
        assert_eq!(read(&volume, 0).await, 0);
        cluster.servers[1].heal().await;
        assert!(
            stamp_of(&cluster, TWO, &object).await.is_some(),
            "it has it"
        );
        let joined = async || !is_out(&cluster, TWO).await;
        until("store 2 comes back", joined).await;
        for _ in 0..20 {
            assert_eq!(read(&volume, 0).await, 0);
        }
    });
}

/// A store that misses a change of what was resynced lacks it in the head and in the snapshot that has it by then. A walk of
/// the head's extents finds it only as long as the head has it.
#[test]
fn a_store_that_misses_a_change_after_resync_lacks_it_in_snapshots_too() {
    env::Runtime::simulated(47).block_on(async {
        let (cluster, volume) = one_is_behind(2).await;
        let core = Rc::clone(&volume.core);
        // It cannot join: extent 1 cannot be read.
        damage(&cluster, &volume, 1).await;
        cluster.servers[0].heal().await;
        let replica = core.replicas.get(ONE).unwrap();
        let name = core.extents.placed(0).unwrap().name;
        let synced_objects = async || replica.state().synced_objects.contains(&name);
        until("extent 0 is resynced", synced_objects).await;
        // What was unreconciled is made equal on those that are in sync, without store 1.
        let _held = core.locks.ranges.take(0..EXTENT, true).await;
        Reconcile::of(&core).reconcile(0).await.unwrap();
        assert!(!replica.state().synced.contains(&0));
        assert!(!replica.state().synced_objects.contains(&name));
    });
}

#[test]
fn an_unreadable_extent_does_not_hold_up_the_resync_of_others() {
    env::Runtime::simulated(42).block_on(async {
        let (cluster, volume) = one_is_behind(3).await;
        let core = Rc::clone(&volume.core);
        damage(&cluster, &volume, 0).await;
        cluster.servers[0].heal().await;
        let replica = core.replicas.get(ONE).unwrap();
        let synced_objects = async || (1..3).all(|index| replica.state().synced.contains(&index));
        until("all but the damaged one are resynced", synced_objects).await;
        env::sleep(Nanos::secs(2)).await;
        assert!(synced_objects().await, "and not given up again");
        assert!(is_out(&cluster, ONE).await);
        let health = volume.health();
        assert_eq!(health.condition, Condition::Resyncing);
        assert!(health.why.contains(&object(&volume, 0)), "{}", health.why);
        let resynced = volume.counters().resynced;
        write(&volume, 1, 3).await;
        // What was damaged is written over, and nothing else is resynced again.
        write(&volume, 0, 4).await;
        let joined = async || !is_out(&cluster, ONE).await;
        until("store 1 comes back", joined).await;
        assert_eq!(volume.counters().resynced, resynced + 1);
        cluster.servers[1].crash();
        assert_eq!(
            [
                read(&volume, 0).await,
                read(&volume, 1).await,
                read(&volume, 2).await
            ],
            [4, 3, 2]
        );
    });
}

#[test]
fn bytes_of_lacking_copies_are_counted_until_they_are_made() {
    env::Runtime::simulated(48).block_on(async {
        let (cluster, volume) = one_is_behind(3).await;
        assert_eq!(volume.copies_left(), Bytes(3 * EXTENT));
        let before = volume.counters().copied_bytes;
        cluster.servers[0].heal().await;
        let joined = async || !is_out(&cluster, ONE).await;
        until("store 1 comes back", joined).await;
        assert_eq!(volume.copies_left(), Bytes(0));
        let copied = volume.counters().copied_bytes - before;
        assert!((3 * 4096..3 * EXTENT).contains(&copied), "{copied} bytes");
    });
}

/// Not later than in two seconds.
async fn the_writer_dies_when_one_joins(cluster: &Cluster, volume: Rc<Volume>) {
    for _ in 0..20_000 {
        if !is_out(cluster, ONE).await {
            break;
        }
        env::sleep(Nanos::micros(100)).await;
    }
    env::net::sim::crash_host(host(1002));
    drop(volume);
    cluster.heal().await;
}

#[test]
fn a_store_does_not_join_while_the_map_names_a_copy_it_was_not_given() {
    env::Runtime::simulated(43).block_on(async {
        let (cluster, volume) = one_is_behind(1).await;
        // No commit comes about: the only store that takes nodes of the map does not move.
        cluster.servers[1].stalled.set(true);
        let core = Rc::clone(&volume.core);
        let placed = core.extents.placed(0).unwrap();
        let leaves = async move {
            let _held = core.locks.ranges.take(0..EXTENT, true).await;
            LayerCopies::of(&core)
                .remove_copy(0, &placed, &placed, 1)
                .await
        };
        drop(env::spawn(leaves));
        cluster.servers[0].heal().await;
        the_writer_dies_when_one_joins(&cluster, volume).await;
        let volume = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        for _ in 0..20 {
            assert_eq!(read(&volume, 0).await, 2);
        }
    });
}

#[test]
fn a_store_does_not_join_while_the_map_still_has_an_extent_that_was_dropped() {
    env::Runtime::simulated(44).block_on(async {
        let (cluster, volume) = one_is_behind(3).await;
        // No commit comes about: the only store that takes nodes of the map has no room.
        let full = cluster.servers[1].node();
        let space = full.store().space();
        let left = Bytes(space.free.0 - space.spare.0);
        let taken = full.store().reserve(left).await.unwrap();
        let resized = volume.resize(Bytes(EXTENT)).await;
        assert!(
            resized.is_err(),
            "extents 1 and 2 are gone, but for the map"
        );
        cluster.servers[0].heal().await;
        the_writer_dies_when_one_joins(&cluster, volume).await;
        full.store().release(taken).await.unwrap();
        let volume = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        for _ in 0..20 {
            assert_eq!(read(&volume, 2).await, 2);
        }
    });
}

#[test]
fn closing_does_not_wait_for_a_copy_that_cannot_be_taken_away() {
    env::Runtime::simulated(45).block_on(async {
        let (cluster, volume) = one_is_behind(1).await;
        cluster.servers[1].stalled.set(true);
        let core = Rc::clone(&volume.core);
        let placed = core.extents.placed(0).unwrap();
        let leaves = async move {
            let _held = core.locks.ranges.take(0..EXTENT, true).await;
            LayerCopies::of(&core)
                .remove_copy(0, &placed, &placed, 1)
                .await
        };
        let leaves = env::spawn(leaves);
        env::sleep(Nanos::millis(1)).await;
        let closed = env::timeout(Nanos::secs(20), volume.close()).await;
        let error = closed.expect("it ends").unwrap_err();
        assert!(matches!(error, VolumeError::Busy { .. }), "{error}");
        assert!(error.to_string().contains("3.00 s"), "{error}");
        let left = env::timeout(Nanos::secs(20), leaves).await;
        assert!(left.expect("it ends as well").is_err());
    });
}

#[test]
fn a_copy_that_is_half_made_is_not_taken_for_a_whole_one_after_a_crash() {
    // Whichever is asked first.
    for gone in [ONE, TWO] {
        env::Runtime::simulated(46).block_on(half_made(gone));
    }
}

async fn half_made(gone: StoreNumber) {
    let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
    let volume = cluster
        .open(1, cluster.meta_store.client(), None)
        .await
        .unwrap();
    for mib in 0..4 {
        let wrote = volume.write_at(Sector(mib << 11), filled(7, 1 << 20)).await;
        wrote.unwrap();
    }
    let object = object(&volume, 0);
    // The map names both. The writer dies, the extent is unreconciled, and one copy is lost.
    let core = Rc::clone(&volume.core);
    let _in_use = BitmapIo::of(&core).note_dirty(0).await.unwrap();
    env::sleep(Nanos::millis(200)).await;
    env::net::sim::crash_host(host(1001));
    drop(volume);
    let node = cluster.servers[usize::from(gone.0) - 1].node();
    let deleted = node.store().delete(&object, Change::FUA).await;
    deleted.unwrap();
    let volume = cluster
        .open(2, cluster.meta_store.client(), None)
        .await
        .unwrap();
    let size = || node.store().stat(&object).map_or(0, |stat| stat.size);
    // Background work makes it again: so far.
    while size() == 0 {
        env::sleep(Nanos::micros(50)).await;
    }
    assert!(size() < EXTENT);
    env::net::sim::crash_host(host(1002));
    drop(volume);
    let volume = cluster
        .open(3, cluster.meta_store.client(), None)
        .await
        .unwrap();
    for mib in 0..4 {
        let buf = Buf::for_read(4096);
        let read = volume.read(Sector(mib << 11), buf, Class::Foreground).await;
        assert_eq!(
            read.unwrap()[0],
            7,
            "the {mib}. MiB without the copy of store {gone}"
        );
    }
}

#[test]
fn a_volume_that_was_closed_has_no_extent_that_is_nowhere() {
    env::Runtime::simulated(48).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let its_bit = BitmapIo::of(&volume.core).note_dirty(0).await.unwrap();
        for server in &cluster.servers {
            server.stalled.set(true);
        }
        let wrote = volume.write_at(Sector(0), filled(1, 4096)).await;
        assert!(wrote.is_err() && volume.core.extents.placed(0).is_some());
        for server in &cluster.servers {
            server.crash();
        }
        cluster.heal().await;
        drop(its_bit);
        assert_eq!(read(&volume, 0).await, 0);
        volume.close().await.unwrap();
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(
            volume.core.extents.placed(0).is_none(),
            "the map names what no store has"
        );
    });
}

/// A write that one store of two does not take, where both must. The answer: what is read while it is tried again, and
/// what is there in the end. Another client wrote in between.
async fn overtaken(mutation: Option<Mutation>, wait: Nanos) -> (u8, u8) {
    let cluster = Cluster::new(2, 2, 2, Bytes::mib(64)).await;
    let volume = cluster
        .open(1, cluster.meta_store.client(), mutation)
        .await
        .unwrap();
    write(&volume, 0, 1).await;
    cluster.servers[1].stalled.set(true);
    let first = volume.clone();
    let first = env::spawn(async move { write(&first, 0, 2).await });
    env::sleep(Nanos::millis(350)).await;
    let reader = volume.clone();
    let reader = env::spawn(async move { read(&reader, 0).await });
    env::sleep(wait).await;
    cluster.servers[1].heal().await;
    let seen = reader.await;
    write(&volume, 0, 3).await;
    first.await;
    (seen, read(&volume, 0).await)
}

#[test]
fn a_write_that_was_seen_is_not_done_again_over_what_was_written_since() {
    let run = |seed, mutation, wait| {
        let runtime = env::Runtime::simulated(seed);
        runtime.block_on(overtaken(mutation, Nanos::millis(wait)))
    };
    for wait in 0..40 {
        assert_eq!(run(49, None, 10 * wait), (2, 3));
    }
    let mut freely = (49..64).flat_map(|seed| {
        let waits = (0..40).map(|wait| 10 * wait);
        waits.map(move |wait| run(seed, Some(Mutation::FreeRange), wait))
    });
    assert!(freely.any(|it| it == (2, 2)), "it would show");
}

#[test]
fn a_dropped_read_leaves_no_other_changes_under_way() {
    env::Runtime::simulated(47).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        write(&volume, 0, 7).await;
        env::net::sim::crash_host(host(1001));
        drop(volume);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let core = &volume.core;
        assert!(core.is_unreconciled(0));
        let buf = Buf::for_read(4096);
        let reads = volume.read(Sector(0), buf, Class::Foreground);
        let given_up = env::timeout(Nanos::micros(1_500), reads).await;
        assert!(given_up.is_err() && core.is_unreconciled(0));
        // A change of a copy may be at its store: the next change must not be there before it is over.
        assert!(!core.replication.borrow().stamps.is_empty());
        let next = core.locks.ranges.take(0..EXTENT, true);
        let next = env::timeout(Nanos::micros(100), next).await;
        assert!(next.is_err(), "the extent is free");
        assert_eq!(read(&volume, 0).await, 7);
    });
}

#[test]
fn a_store_that_went_out_without_an_answer_comes_back_all_the_same() {
    env::Runtime::simulated(33).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        write(&volume, 0, 1).await;
        let mut record = cluster.record().await;
        // As if an answer that was given up came about after all.
        record.generation = record.generation.next();
        record.out.insert(StoreNumber(3), record.generation);
        record.redundancy_floor = 1;
        let put = Put::Put {
            key: volume_key(VOLUME),
            value: record.encode(),
            lease: None,
        };
        let done = cluster.meta_store.client().txn(Vec::new(), vec![put]).await;
        done.unwrap();
        write(&volume, 0, 2).await;
        write(&volume, 1, 2).await;
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(volume.health().condition, Condition::Healthy);
        assert!(cluster.record().await.out.is_empty());
    });
}

#[test]
fn a_stale_copy_stays_until_the_fresh_one_is_whole() {
    env::Runtime::simulated(41).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let whole = |byte| filled(byte, EXTENT as usize);
        volume.write_at(sector(0), whole(1)).await.unwrap();
        cluster.servers[1].crash();
        volume.write_at(sector(0), whole(2)).await.unwrap();
        let object = object(&volume, 0);
        // What is read to be copied takes long.
        cluster.servers[0].slow(Nanos::millis(20));
        let before = volume.counters();
        cluster.servers[1].start().await;
        let mut looked = 0;
        while volume.counters().isr_expands == before.isr_expands {
            if volume.counters().resynced > before.resynced {
                let mark = stamp_of(&cluster, TWO, &object).await;
                assert!(
                    mark.is_some_and(|it| it > 0),
                    "a crash now leaves nothing of it in the store"
                );
                looked += 1;
            }
            env::sleep(Nanos::millis(1)).await;
        }
        assert!(looked > 20, "{looked}");
        cluster.servers[0].crash();
        assert_eq!(read(&volume, 0).await, 2);
    });
}
