//! One thing at a time.

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::fault::{Injury, Rule};
use device::{Class, Device, DeviceError, DeviceExt, Op, WriteFlags};
use env::net::sim;

use super::cluster::{Cluster, SIZE, VOLUME, host};
use crate::meta::{Faults, LeaseId, MetaError, MetaStore, Op as MetaOp};
use crate::names::StoreNumber;
use crate::record::{OnMetaLoss, volume_key};
use crate::volume::{Condition, Volume};

pub(super) fn filled(byte: u8, len: usize) -> View {
    View::copy_of(&vec![byte; len])
}

pub(super) async fn healthy(volume: &Volume) {
    for _ in 0..1000 {
        if volume.health().condition == Condition::Healthy {
            return;
        }
        env::sleep(Nanos::millis(20)).await;
    }
    panic!("{:?}", volume.health());
}

pub(super) async fn read(volume: &Volume, at: u64, len: usize) -> Buf {
    let buf = Buf::for_read(len);
    let read = volume.read(Sector(at / 512), buf, Class::Foreground).await;
    read.unwrap()
}

/// Random requests beside a plain `Vec`.
async fn beside_a_twin(stores: u16, copies: u8) {
    let cluster = Cluster::new(stores, copies, 1, Bytes::mib(64)).await;
    let mut volume = cluster
        .open(1, cluster.meta_store.client(), None)
        .await
        .unwrap();
    let mut model = vec![0; SIZE.usize()];
    let mut rng = env::rng("requests");
    for round in 0..3 {
        for _ in 0..60 {
            let len = match rng.below(3) {
                0 => 512 * (1 + rng.below(8)),
                1 => 4096 * (1 + rng.below(30)),
                _ => 65_536 * (1 + rng.below(30)),
            };
            let at = rng.below((SIZE.0 - len) / 512) * 512;
            let range = at as usize..(at + len) as usize;
            match rng.below(5) {
                0 | 1 => {
                    let mut data = vec![0; len as usize];
                    rng.fill(&mut data);
                    let view = View::copy_of(&data);
                    volume.write_at(Sector(at / 512), view).await.unwrap();
                    model[range].copy_from_slice(&data);
                }
                2 => {
                    let span = Span::bytes(at, len);
                    let flags = WriteFlags::default();
                    volume.write_zeroes(span, flags).await.unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let found = read(&volume, at, len as usize).await;
                    assert!(found[..] == model[range], "round {round}, {len} at {at}");
                }
            }
        }
        volume.close().await.unwrap();
        let refused = volume.write_at(Sector(0), filled(1, 512)).await;
        assert!(matches!(refused, Err(DeviceError::Gone { .. })));
        volume = cluster
            .open(2 + round, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let found = read(&volume, 0, SIZE.usize()).await;
        assert!(found[..] == model[..], "after round {round}");
        // It was closed well: nothing was unreconciled.
        assert_eq!(volume.counters().reconciled, 0);
    }
}

#[test]
fn a_volume_is_what_its_twin_is_with_one_copy_and_with_several() {
    for (stores, copies) in [(1, 1), (3, 2), (3, 3)] {
        env::Runtime::simulated(u64::from(copies)).block_on(beside_a_twin(stores, copies));
    }
}

#[test]
fn a_store_that_fails_is_out_before_the_answer_and_is_resynced_later() {
    env::Runtime::simulated(11).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 8192)).await.unwrap();
        healthy(&volume).await;
        cluster.servers[1].crash();
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        let record = cluster.record().await;
        assert!(record.out.contains_key(&StoreNumber(2)));
        assert_eq!(record.redundancy_floor, 1);
        assert_eq!(volume.health().condition, Condition::Degraded);
        assert_eq!(read(&volume, 0, 8192).await[4095..4097], [2, 1]);
        cluster.servers[1].start().await;
        healthy(&volume).await;
        let record = cluster.record().await;
        assert!(record.out.is_empty());
        assert_eq!(
            (record.redundancy_floor, volume.counters().resynced),
            (2, 1)
        );
        // The other one alone has everything now.
        cluster.servers[0].crash();
        assert_eq!(read(&volume, 0, 8192).await[4095..4097], [2, 1]);
    });
}

#[test]
fn a_volume_that_asks_for_two_copies_takes_no_write_with_one() {
    env::Runtime::simulated(12).block_on(async {
        let cluster = Cluster::new(2, 2, 2, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        cluster.servers[1].crash();
        let refused = volume
            .write_at(Sector(0), filled(2, 4096))
            .await
            .unwrap_err();
        let message = refused.to_string();
        assert!(
            message.contains("1 of the extent's copies are in sync"),
            "{message}"
        );
        assert_eq!(volume.health().condition, Condition::ReadOnly);
        cluster.servers[1].start().await;
        healthy(&volume).await;
        volume.write_at(Sector(0), filled(3, 4096)).await.unwrap();
        assert_eq!(read(&volume, 0, 4096).await[0], 3);
    });
}

#[test]
fn a_volume_opens_without_a_store_it_can_spare_and_not_without_one_it_needs() {
    env::Runtime::simulated(13).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        healthy(&volume).await;
        cluster.servers[0].crash();
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        cluster.servers[1].crash();
        cluster.servers[0].start().await;
        // Store 1 is there and does not have the last write.
        let refused = cluster.open(3, cluster.meta_store.client(), None).await;
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(
            message.contains("offline") && message.contains("store s2"),
            "{message}"
        );
        cluster.servers[1].start().await;
        let volume = cluster
            .open(4, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(read(&volume, 0, 4096).await[0], 2);
        healthy(&volume).await;
        cluster.servers[1].crash();
        assert_eq!(read(&volume, 0, 4096).await[0], 2);
    });
}

#[test]
fn a_damaged_copy_is_read_from_another_and_repaired() {
    env::Runtime::simulated(14).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume
            .write_at(Sector(0), filled(1, 1 << 20))
            .await
            .unwrap();
        let rot = Injury::Rot {
            bits: 3,
            lasting: true,
        };
        let rule = Rule::new(rot).on(&[Op::Read]).times(5);
        cluster.servers[0].book().add(rule);
        for _ in 0..20 {
            assert!(
                read(&volume, 0, 1 << 20)
                    .await
                    .iter()
                    .all(|byte| *byte == 1)
            );
            env::sleep(Nanos::millis(50)).await;
        }
        assert!(volume.counters().read_repairs > 0);
        assert!(cluster.servers[0].book().injuries().rotten_reads > 0);
        // What is there now is right without another repair.
        healthy(&volume).await;
        cluster.servers[1].crash();
        assert!(
            read(&volume, 0, 1 << 20)
                .await
                .iter()
                .all(|byte| *byte == 1)
        );
    });
}

#[test]
fn io_without_the_meta_store_ends_with_the_lease_and_resumes_later() {
    env::Runtime::simulated(15).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let meta = cluster.meta_store.client();
        let volume = cluster.open(1, meta.clone(), None).await.unwrap();
        let fails = volume.set(|record| {
            record.terms.on_meta_loss = OnMetaLoss::Fail;
            true
        });
        fails.await.unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        meta.set_faults(Faults {
            refused: true,
            ..Faults::default()
        });
        volume.write_at(Sector(0), filled(2, 4096)).await.unwrap();
        assert_eq!(read(&volume, 0, 4096).await[0], 2);
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(volume.health().condition, Condition::Offline);
        let buf = Buf::for_read(4096);
        let refused = volume.read(Sector(0), buf, Class::Foreground).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("cannot keep its lease"), "{message}");
        meta.set_faults(Faults::default());
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(read(&volume, 0, 4096).await[0], 2);
        volume.write_at(Sector(0), filled(3, 4096)).await.unwrap();
        assert_eq!(volume.health().condition, Condition::Healthy);
    });
}

#[test]
fn full_stores_are_passed_over_and_full_clusters_say_so() {
    env::Runtime::simulated(16).block_on(async {
        // Each holds a little more than one extent.
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(8)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let mut written = Vec::new();
        let mut message = String::new();
        for at in (0..SIZE.0).step_by(1 << 20) {
            match volume.write_at(Sector(at / 512), filled(7, 1 << 20)).await {
                Ok(()) => written.push(at),
                Err(error) => {
                    message = error.to_string();
                    break;
                }
            }
        }
        assert!(message.contains("room"), "{message} after {written:?}");
        // Of each store 2 MiB are kept.
        assert!(written.len() >= 3, "{written:?}");
        for at in written {
            assert!(
                read(&volume, at, 1 << 20)
                    .await
                    .iter()
                    .all(|byte| *byte == 7)
            );
        }
    });
}

#[test]
fn over_the_wire_connections_break_writers_change_and_nothing_is_lost() {
    env::Runtime::simulated(18).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        for server in &cluster.servers {
            server.listen().await;
        }
        let open = |node| cluster.open_over_the_wire(node, cluster.meta_store.client());
        let volume = open(1).await.unwrap();
        for round in 0..20_u8 {
            let at = u64::from(round) * 300_000 / 512;
            let (one, two) = (filled(round + 1, 65_536), filled(round + 1, 65_536));
            let far = Sector(at + (2 << 11));
            let writes = [volume.write_at(Sector(at), one), volume.write_at(far, two)];
            cluster.servers[usize::from(round) % 3].reset(1);
            for write in env::sync::join_all(writes).await {
                write.unwrap();
            }
            assert_eq!(
                read(&volume, at * 512, 65_536).await[..],
                [round + 1; 65_536][..]
            );
            healthy(&volume).await;
        }
        assert!(volume.counters().isr_shrinks > 0, "nothing broke");
        let next = open(2).await.unwrap();
        let refused = volume
            .read(Sector(0), Buf::for_read(512), Class::Foreground)
            .await;
        assert!(
            matches!(refused, Err(DeviceError::Gone { .. })),
            "{refused:?}"
        );
        assert_eq!(read(&next, 19 * 300_000 / 512 * 512, 512).await[0], 20);
    });
}

#[test]
fn a_volume_that_is_dropped_keeps_its_lease_no_more() {
    env::Runtime::simulated(19).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        let writer = cluster.record().await.writer.unwrap();
        let lease = LeaseId(writer.lease);
        env::sleep(Nanos::secs(5)).await;
        cluster.meta_store.client().keep(lease).await.unwrap();
        drop(volume);
        env::sleep(Nanos::secs(5)).await;
        let kept = cluster.meta_store.client().keep(lease).await;
        assert!(matches!(kept, Err(MetaError::NoLease { .. })), "{kept:?}");
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(read(&volume, 0, 4096).await[0], 1);
    });
}

#[test]
fn a_writer_who_crashed_is_waited_for_and_one_who_closed_is_not() {
    env::Runtime::simulated(20).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let old = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        // Its node hears nothing of what comes: it may answer what was never allocated as long as its lease lasts.
        assert_eq!(read(&old, 0, 512).await[0], 0);
        let begun = env::now();
        let new = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(env::now().since(begun) >= Nanos::secs(2));
        new.write_at(Sector(0), filled(1, 512)).await.unwrap();
        let late = old.read(Sector(0), Buf::for_read(512), Class::Foreground);
        assert!(late.await.is_err());
        new.close().await.unwrap();
        let begun = env::now();
        let next = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(env::now().since(begun) < Nanos::secs(1));
        assert_eq!(read(&next, 0, 512).await[0], 1);
    });
}

/// The writer's lease was over before another took the volume, and the meta store says so.
#[test]
fn a_writer_whose_lease_ran_out_is_not_waited_for_once_more() {
    env::Runtime::simulated(23).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let old = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        old.write_at(Sector(0), filled(1, 512)).await.unwrap();
        sim::crash_host(host(1001));
        env::sleep(Nanos::millis(2200)).await;
        let begun = env::now();
        let new = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(env::now().since(begun) < Nanos::millis(500));
        assert!(!cluster.record().await.writer.unwrap().waits);
        assert_eq!(read(&new, 0, 512).await[0], 1);
    });
}

/// The first goes on, cut off. The second ends the first's lease, and crashes before its wait is over. The third finds the
/// second's lease run out.
#[test]
fn a_writer_that_replaces_a_waiting_writer_waits_too() {
    env::Runtime::simulated(24).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let meta = cluster.meta_store.client();
        let first = cluster.open(1, meta.clone(), None).await.unwrap();
        assert_eq!(read(&first, 0, 512).await[0], 0);
        let second = cluster.open(2, cluster.meta_store.client(), None);
        assert!(env::timeout(Nanos::millis(300), second).await.is_err());
        sim::crash_host(host(1002));
        assert!(cluster.record().await.writer.unwrap().waits);
        // As if the way to the meta store had been slow: when the first's lease was kept last is unknown.
        env::sleep(Nanos::millis(2200)).await;
        let begun = env::now();
        let third = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(env::now().since(begun) >= Nanos::secs(2));
        // No writer is left to wait for, and that is known.
        assert!(!cluster.record().await.writer.unwrap().waits);
        sim::crash_host(host(1003));
        drop(third);
        env::sleep(Nanos::millis(2200)).await;
        let begun = env::now();
        let next = cluster
            .open(4, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert!(env::now().since(begun) < Nanos::millis(500));
        assert_eq!(read(&next, 0, 512).await[0], 0);
    });
}

/// The record says another has the volume, and no node ended the lease of the one before.
#[test]
fn a_lease_that_was_not_ended_is_kept_only_while_the_record_is_ours() {
    env::Runtime::simulated(21).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let meta = cluster.meta_store.client();
        let volume = cluster.open(1, meta, None).await.unwrap();
        assert_eq!(read(&volume, 0, 512).await[0], 0);
        let mut record = cluster.record().await;
        record.generation = record.generation.next();
        record.epoch = record.generation;
        let put = MetaOp::Put {
            key: volume_key(VOLUME),
            value: record.encode(),
            lease: None,
        };
        let done = cluster.meta_store.client().txn(Vec::new(), vec![put]).await;
        done.unwrap();
        env::sleep(Nanos::secs(2)).await;
        let late = volume.read(Sector(0), Buf::for_read(512), Class::Foreground);
        assert!(matches!(late.await, Err(DeviceError::Gone { .. })));
    });
}

#[test]
fn a_damaged_page_of_a_bitmap_leaves_its_extents_unreconciled() {
    // Where the map is read from the other store the page is not hit.
    let hit = (22..30).filter(|seed| is_hit_in_a_bitmap(*seed)).count();
    assert!(hit > 0);
}

/// Is a page of a bitmap damaged? Then all is well.
fn is_hit_in_a_bitmap(seed: u64) -> bool {
    env::Runtime::simulated(seed).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        volume.close().await.unwrap();
        let rot = Injury::Rot {
            bits: 3,
            lasting: true,
        };
        // The first read is that of the map.
        let rule = Rule::new(rot).on(&[Op::Read]).after(1).times(1);
        cluster.servers[0].book().add(rule);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        if cluster.servers[0].book().injuries().rotten_reads == 0 {
            return false;
        }
        assert_eq!(read(&volume, 0, 4096).await[0], 1);
        assert_eq!(volume.counters().reconciled, 1);
        volume.close().await.unwrap();
        // The page was written anew.
        let volume = cluster
            .open(3, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(read(&volume, 0, 4096).await[0], 1);
        assert_eq!(volume.counters().reconciled, 0);
        true
    })
}

#[test]
fn a_store_that_comes_back_has_the_dirty_bits_before_it_counts() {
    env::Runtime::simulated(23).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        cluster.servers[1].crash();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        cluster.servers[1].start().await;
        // Written all the time: its bit was set without store 2 and stays set.
        let mut rounds = 0;
        while cluster.record().await.redundancy_floor < 2 {
            rounds += 1;
            assert!(rounds < 1000, "{:?}", volume.health());
            volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
            env::sleep(Nanos::millis(5)).await;
        }
        let node = cluster.servers[1].node();
        let object = format!("d/{VOLUME}");
        let bits = node.store().read(&object, 0, 1, Class::Foreground).await;
        assert_eq!(bits.unwrap()[0] & 1, 1);
    });
}

#[test]
fn what_was_never_written_is_not_allocated() {
    env::Runtime::simulated(17).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let zeroes = Span::bytes(0, 4 << 20);
        volume
            .write_zeroes(zeroes, WriteFlags::default())
            .await
            .unwrap();
        volume
            .write_at(Sector(5 << 11), filled(1, 512))
            .await
            .unwrap();
        let all = volume.allocation(Span::bytes(0, SIZE.0)).await.unwrap();
        let extent = 4 << 20;
        assert_eq!(all, [(extent, false), (extent, true), (extent, false)]);
        assert!(read(&volume, 0, 4096).await.iter().all(|byte| *byte == 0));
        let beyond = volume.read(Sector(SIZE.0 / 512), Buf::for_read(512), Class::Foreground);
        assert!(matches!(beyond.await, Err(DeviceError::OutOfRange { .. })));
    });
}
