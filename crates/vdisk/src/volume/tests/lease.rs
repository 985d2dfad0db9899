//! The writer's lease: what requests do without the meta store, and clocks that do not show all time.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::{Class, Device, DeviceExt};
use env::net::sim;

use super::cluster::{Cluster, host};
use super::single::{filled, healthy, read};
use crate::meta::{Faults, MemoryMetaClient};
use crate::record::OnMetaLoss;
use crate::replica::connect::{Connector, LocalConnector};
use crate::volume::{Condition, Mutation, Volume, VolumeError};

async fn one_volume() -> (Rc<Cluster>, Rc<MemoryMetaClient>, Rc<Volume>) {
    let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
    let meta = cluster.meta_store.client();
    let volume = cluster.open(1, meta.clone(), None).await.unwrap();
    volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
    (cluster, meta, volume)
}

fn refuse(meta: &MemoryMetaClient, refused: bool) {
    meta.set_faults(Faults {
        refused,
        ..Faults::default()
    });
}

/// The host of the volume: its clocks count.
async fn at_its_host<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    sim::on_host(host(1001), work).await
}

/// A read and a write under way, and how many of them were answered.
fn two_requests(volume: &Rc<Volume>) -> Rc<Cell<u32>> {
    let answered = Rc::new(Cell::new(0));
    let (own, count) = (Rc::clone(volume), Rc::clone(&answered));
    env::spawn(async move {
        own.write_at(Sector(8), filled(2, 4096)).await.unwrap();
        count.set(count.get() + 1);
    });
    let (own, count) = (Rc::clone(volume), Rc::clone(&answered));
    env::spawn(async move {
        let buf = Buf::for_read(4096);
        own.read(Sector(0), buf, Class::Foreground).await.unwrap();
        count.set(count.get() + 1);
    });
    answered
}

#[test]
fn requests_wait_while_the_meta_store_is_away_and_are_answered_later() {
    env::Runtime::simulated(201).block_on(async {
        let (_cluster, meta, volume) = one_volume().await;
        refuse(&meta, true);
        env::sleep(Nanos::secs(20)).await;
        let answered = two_requests(&volume);
        // More than a hundred times as long as a request is tried.
        env::sleep(Nanos::secs(600)).await;
        assert_eq!(answered.get(), 0);
        let health = volume.health();
        assert_eq!(health.condition, Condition::Offline);
        assert!(
            health
                .why
                .starts_with("the meta store has not answered for 62")
                && health
                    .why
                    .ends_with("requests wait until it does (on_meta_loss = wait)"),
            "{health:?}"
        );
        refuse(&meta, false);
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(answered.get(), 2);
        assert_eq!(read(&volume, 4096, 4096).await[0], 2);
        healthy(&volume).await;
    });
}

#[test]
fn a_write_that_missed_a_store_waits_for_the_meta_store_to_say_so() {
    env::Runtime::simulated(202).block_on(async {
        let (cluster, meta, volume) = one_volume().await;
        refuse(&meta, true);
        cluster.servers[1].crash();
        let answered = two_requests(&volume);
        env::sleep(Nanos::secs(120)).await;
        // The read was, under the lease there was.
        assert_eq!(answered.get(), 1);
        refuse(&meta, false);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(answered.get(), 2);
        assert_eq!(read(&volume, 4096, 4096).await[0], 2);
        assert_eq!(volume.health().condition, Condition::Degraded);
    });
}

#[test]
fn requests_fail_while_the_meta_store_is_away_where_that_is_set() {
    env::Runtime::simulated(203).block_on(async {
        let (_cluster, meta, volume) = one_volume().await;
        let set = volume.set(|record| {
            record.terms.on_meta_loss = OnMetaLoss::Fail;
            true
        });
        set.await.unwrap();
        refuse(&meta, true);
        env::sleep(Nanos::secs(20)).await;
        let health = volume.health();
        assert!(health.why.contains("requests fail after"), "{health:?}");
        let buf = Buf::for_read(4096);
        let refused = volume.read(Sector(0), buf, Class::Foreground).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("cannot keep its lease"), "{why}");
    });
}

#[test]
fn a_suspended_writer_answers_nothing_before_its_lease_is_kept_again() {
    env::Runtime::simulated(204).block_on(async {
        let (_cluster, meta, volume) = one_volume().await;
        at_its_host(async move {
            env::sleep(Nanos::secs(3)).await;
            refuse(&meta, true);
            // No timer saw it.
            sim::suspended(sim::host(), Nanos::secs(60));
            let answered = two_requests(&volume);
            env::sleep(Nanos::millis(100)).await;
            assert_eq!(answered.get(), 0);
            assert_eq!(volume.health().condition, Condition::Offline);
            refuse(&meta, false);
            env::sleep(Nanos::secs(2)).await;
            assert_eq!(answered.get(), 2);
        })
        .await;
    });
}

#[test]
fn a_jump_of_the_wall_clock_ends_the_lease_until_it_was_kept_again() {
    env::Runtime::simulated(205).block_on(async {
        let (_cluster, meta, volume) = one_volume().await;
        at_its_host(async move {
            env::sleep(Nanos::secs(3)).await;
            // As clocks are set right all the time.
            sim::stopped(sim::host(), Nanos::millis(1));
            assert_eq!(volume.health().condition, Condition::Healthy);
            refuse(&meta, true);
            sim::stopped(sim::host(), Nanos::secs(60));
            let answered = two_requests(&volume);
            env::sleep(Nanos::millis(100)).await;
            assert_eq!(answered.get(), 0);
            refuse(&meta, false);
            env::sleep(Nanos::secs(1)).await;
            assert_eq!(answered.get(), 2);
            assert_eq!(volume.health().condition, Condition::Healthy);
        })
        .await;
    });
}

#[test]
fn an_idle_volume_reports_that_a_store_is_gone() {
    env::Runtime::simulated(206).block_on(async {
        let (cluster, _meta, volume) = one_volume().await;
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(volume.health().condition, Condition::Healthy);
        // It does not even say that it is gone.
        cluster.servers[1].stalled.set(true);
        env::sleep(Nanos::secs(10)).await;
        let health = volume.health();
        assert_eq!(health.condition, Condition::Degraded, "{health:?}");
        assert_eq!(health.why, "not answering: store s2");
        cluster.servers[1].stalled.set(false);
        healthy(&volume).await;
    });
}

/// Two writes of the same bytes, one after the other, of an extent whose copies may differ; while the meta store is away, and a
/// store, they cannot be made equal. What is there in the end.
async fn two_writes(wait: Nanos, mutation: Option<Mutation>) -> u8 {
    let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
    let crashes = cluster
        .open(1, cluster.meta_store.client(), None)
        .await
        .unwrap();
    crashes.write_at(Sector(0), filled(9, 4096)).await.unwrap();
    drop(crashes);
    let meta = cluster.meta_store.client();
    let volume = cluster.open(2, meta.clone(), mutation).await.unwrap();
    refuse(&meta, true);
    cluster.servers[1].crash();
    let write = |byte: u8| {
        let own = Rc::clone(&volume);
        env::spawn(async move { own.write_at(Sector(0), filled(byte, 4096)).await })
    };
    let first = write(1);
    env::sleep(Nanos::secs(1)).await;
    let second = write(2);
    env::sleep(wait).await;
    refuse(&meta, false);
    second.await.unwrap();
    first.await.unwrap();
    read(&volume, 0, 4096).await[0]
}

#[test]
fn a_write_that_is_tried_again_never_lands_on_one_that_came_later() {
    let left = |mutation: Option<Mutation>| {
        let left = (0..16).map(move |nth| {
            let wait = Nanos::secs(20) + Nanos::millis(911 * nth);
            env::Runtime::simulated(207 + nth).block_on(two_writes(wait, mutation))
        });
        left.collect::<Vec<u8>>()
    };
    assert_eq!(left(None), [2; 16]);
    // Where each try is an arrival of its own, the older one wins at times.
    let unordered = left(Some(Mutation::FreeRange));
    assert!(unordered.contains(&1), "{unordered:?}");
}

#[test]
fn a_writer_that_is_waited_for_still_is_when_a_fence_was_put_right() {
    env::Runtime::simulated(221).block_on(async {
        let (cluster, meta, _volume) = one_volume().await;
        let node = cluster.servers[1].node();
        LocalConnector(node)
            .open("g/00000007", 1 << 31)
            .await
            .unwrap();
        refuse(&meta, true);
        // It holds its lease still.
        let refused = cluster.open(2, cluster.meta_store.client(), None).await;
        let why = refused.map(drop).unwrap_err();
        assert!(matches!(why, VolumeError::Sealed { .. }), "{why}");
        let writer = cluster.record().await.writer;
        assert!(writer.is_some_and(|it| it.waits));
    });
}
