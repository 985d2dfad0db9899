//! Two things at once that seldom meet: a change of the record and a new extent, several stores that die together.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Class, Device, DeviceExt};
use store::Change;

use super::cluster::{Cluster, VOLUME};
use crate::meta::Faults;
use crate::names::{ExtentName, Generation, StoreNumber};
use crate::volume::Volume;
use crate::volume::membership::Membership;
use crate::volume::record_io::RecordIo;

fn filled(byte: u8, len: usize) -> View {
    View::copy_of(&vec![byte; len])
}

async fn first_byte(volume: &Volume, at: u64) -> u8 {
    let buf = Buf::for_read(4096);
    let read = volume.read(Sector(at / 512), buf, Class::Foreground).await;
    read.unwrap()[0]
}

#[test]
fn an_extent_born_while_a_store_goes_out_is_counted_before_its_answer() {
    env::Runtime::simulated(31).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let meta = cluster.meta_store.client();
        let volume = cluster.open(1, meta.clone(), None).await.unwrap();
        assert_eq!(cluster.record().await.redundancy_floor, 2);
        // Stores 1 and 3 are chosen; 1 and 2 are the bitmap replicas, so nothing else makes `redundancy_floor` smaller.
        let core = Rc::clone(&volume.core);
        core.replicas
            .get(StoreNumber(2))
            .unwrap()
            .free
            .set(Bytes(0));
        RecordIo::of(&core)
            .list_stores(&[StoreNumber(3)])
            .await
            .unwrap();
        let slow = Faults {
            delay_least: Nanos::millis(5),
            delay_most: Nanos::millis(5),
            ..Faults::default()
        };
        meta.set_faults(slow);
        let goes =
            env::spawn(async move { Membership::of(&core).shrink_set(&[StoreNumber(3)]).await });
        env::sleep(Nanos::millis(1)).await;
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        assert!(goes.await.unwrap());
        let record = cluster.record().await;
        let placed = volume.core.extents.placed(0).unwrap();
        assert!(placed.copies.borrow().stores.contains(&StoreNumber(3)));
        if record.out.contains_key(&StoreNumber(3)) {
            assert_eq!(record.redundancy_floor, 1);
        }
    });
}

#[test]
fn dirty_bits_go_to_other_stores_when_all_bitmap_replicas_die() {
    env::Runtime::simulated(32).block_on(async {
        let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        // The bitmap replicas are 1 and 2.
        cluster.servers[0].crash();
        cluster.servers[1].crash();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        let record = cluster.record().await;
        assert!(
            record.out.contains_key(&StoreNumber(1)) && record.out.contains_key(&StoreNumber(2))
        );
        assert_eq!(first_byte(&volume, 0).await, 1);
        // The next opening finds what is unreconciled.
        drop(volume);
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        assert_eq!(first_byte(&volume, 0).await, 1);
        assert_eq!(volume.counters().reconciled, 1);
    });
}

#[test]
fn a_volume_is_not_opened_by_a_record_older_than_what_its_stores_have() {
    env::Runtime::simulated(34).block_on(async {
        let cluster = Cluster::new(2, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.write_at(Sector(0), filled(1, 4096)).await.unwrap();
        volume.close().await.unwrap();
        let name = ExtentName {
            owner: VOLUME,
            born: Generation(5000),
            index: 0,
        };
        let (name, node) = (name.to_string(), cluster.servers[1].node());
        let change = Change {
            stamp: Some(5000),
            ..Change::FUA.creating()
        };
        let made = node.store().write(&name, 0, filled(9, 4096), change);
        made.await.unwrap();
        let refused = cluster.open(2, cluster.meta_store.client(), None).await;
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(
            message.contains("store s2") && message.contains("5000"),
            "{message}"
        );
    });
}
