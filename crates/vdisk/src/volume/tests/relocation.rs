//! Maps of snapshots that are written anew when a store is drained.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, View};
use device::DeviceExt;
use store::Change;

use super::cluster::{Cluster, VOLUME};
use super::direct::{alike, collector};
use super::gate::{Asked, Gate};
use crate::image::tree::{self as image, IMAGES, ImageState, image_key};
use crate::map::{Commit, Freed, Layer, Map, NodeRef};
use crate::meta::{MetaStore, Op};
use crate::names::{EXTENT, ImageId, StoreNumber, Stores};
use crate::record::{extents, gone_key};
use crate::volume::commit::MapIo;
use crate::volume::drain::Drain;
use crate::volume::elsewhere::Wanted;
use crate::volume::image_io::ImageIo;
use crate::volume::layer_copies::LayerCopies;
use crate::volume::membership::Membership;
use crate::volume::record_io::RecordIo;
use crate::volume::relocate::Relocate;
use crate::volume::{Condition, Mutation, Volume};

const ONE: StoreNumber = StoreNumber(1);

async fn write(volume: &Volume, index: u64) {
    let data = View::copy_of(&[1; 4096]);
    let wrote = volume.write_at(Sector(index * EXTENT / 512), data).await;
    wrote.unwrap_or_else(|why| panic!("extent {index}: {why}"));
}

/// Of four stores the first two have an extent that a snapshot has alone.
async fn a_snapshot_alone(mutation: Option<Mutation>) -> (Rc<Cluster>, Rc<Volume>, String) {
    let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
    let first = cluster.servers[..2].to_vec();
    let volume = cluster
        .open_with(1, cluster.meta_store.client(), first)
        .await;
    let volume = volume.unwrap();
    write(&volume, 1).await;
    let object = volume.core.extents.placed(1).unwrap().object.clone();
    volume.snapshot("monday".parse().unwrap()).await.unwrap();
    volume.resize(Bytes(EXTENT)).await.unwrap();
    volume.close().await.unwrap();
    let volume = cluster
        .open(2, cluster.meta_store.client(), mutation)
        .await
        .unwrap();
    (cluster, volume, object)
}

/// The least number of in-sync copies of anything a snapshot of the volume has, by the meta store.
async fn least(volume: &Volume) -> u8 {
    ImageIo::of(&volume.core).read_older_images().await.unwrap();
    let out = volume.record().out;
    volume.core.maps.older.redundancy_floor(&out).unwrap()
}

/// The same, by what the maps themselves say.
async fn least_by_maps(cluster: &Rc<Cluster>, volume: &Volume) -> usize {
    let collector = collector(cluster);
    let (out, mut counts) = (volume.record().out, Vec::new());
    for known in collector.images.all().await.unwrap().into_values() {
        let image = known.record;
        let (reader, length) = (Rc::clone(&collector.reader), extents(image.size));
        let map = Map::open(reader, VOLUME, image.root, length, image.since);
        let mut from = 0;
        while let Some((index, entry)) = map.next(from).await.unwrap() {
            from = index + 1;
            let in_sync = |layer: Layer| {
                let stores = layer.stores.iter();
                stores.filter(|one| !out.contains_key(one)).count()
            };
            counts.extend(entry.layers().map(in_sync));
        }
    }
    counts.into_iter().min().unwrap()
}

/// A store goes out of sync between the making of a copy on it and the map that names it.
async fn out_meanwhile(mutation: Option<Mutation>) -> Result<(), String> {
    let (cluster, volume, object) = a_snapshot_alone(mutation).await;
    let core = &volume.core;
    volume.drain(BTreeSet::from([ONE]));
    let there = |number: usize| {
        let stat = cluster.servers[number].node().store().stat(&object);
        stat.is_ok_and(|stat| stat.stamp > 0)
    };
    for _ in 0..10_000_000 {
        if there(2) || there(3) {
            break;
        }
        env::sleep(Nanos::micros(5)).await;
    }
    // Nothing is named before this is over.
    let held = core.maps.commits.one.acquire(1).await;
    env::sleep(Nanos::millis(20)).await;
    assert_eq!(volume.counters().relocated, 0);
    let chosen = if there(2) { 2 } else { 3 };
    cluster.servers[chosen]
        .cut
        .borrow_mut()
        .insert(super::cluster::host(1002));
    let number = StoreNumber(chosen as u16 + 1);
    assert!(Membership::of(core).shrink_set(&[number]).await.unwrap());
    drop(held);
    for _ in 0..400 {
        let (has, said) = (least(&volume).await, volume.record().redundancy_floor);
        if has < said {
            return Err(format!(
                "a snapshot has {has} copies in sync, the record says {said}"
            ));
        }
        env::sleep(Nanos::millis(20)).await;
    }
    cluster.heal().await;
    for _ in 0..1_000 {
        let listed = volume.record().stores;
        if listed.is_some_and(|all| !all.contains(&ONE)) && least(&volume).await == 2 {
            return Ok(());
        }
        env::sleep(Nanos::millis(20)).await;
    }
    Err("store 1 is never empty, or the snapshot has too few copies".to_owned())
}

#[test]
fn a_relocated_snapshot_has_no_fewer_copies_than_the_redundancy_floor() {
    let run = |seed, mutation| env::Runtime::simulated(seed).block_on(out_meanwhile(mutation));
    // A bitmap replica is counted in any case.
    let mut caught = 0;
    for seed in 61..69 {
        run(seed, None).unwrap_or_else(|why| panic!("{seed}: {why}"));
        if let Err(why) = run(seed, Some(Mutation::UncountedRelocation)) {
            assert!(why.contains("1 copies in sync, the record says 2"), "{why}");
            caught += 1;
        }
    }
    assert!(caught > 0);
}

/// A transaction that gives an image another map.
fn names(image: ImageId) -> impl Fn(&Asked<'_>) -> bool {
    let is_it = move |op: &Op| matches!(op, Op::Put { key, .. } if *key == image_key(image));
    move |asked| matches!(asked, Asked::Txn(ops) if ops.iter().any(is_it))
}

/// A reader of the images' maps has their records, and reads on while one of them gets another map.
#[test]
fn a_snapshots_new_copy_counts_though_its_old_map_was_read_meanwhile() {
    env::Runtime::simulated(67).block_on(async {
        let (cluster, volume, object) = a_snapshot_alone(None).await;
        volume.close().await.unwrap();
        let gate = Gate::new(cluster.meta_store.client());
        let volume = cluster.open(3, gate.clone(), None).await.unwrap();
        let core = &volume.core;
        let is_images =
            |asked: &Asked<'_>| matches!(asked, Asked::Range(prefix) if *prefix == IMAGES);

        let records = gate.hold(1, is_images);
        let reading = Rc::clone(core);
        let reading = env::spawn(async move { ImageIo::of(&reading).read_older_images().await });
        records.has_one().await;
        let snapshot = core.record.head.borrow().record.parent.unwrap();
        let named = gate.hold(1, names(snapshot));
        volume.drain(BTreeSet::from([ONE]));
        named.has_one().await;
        // The map is another one by now, and what the one before had is not freed yet.
        records.let_go();
        reading.await.unwrap();
        // The maps are not read again before it is seen which stores count.
        let again = gate.hold(u64::MAX, is_images);
        named.let_go();
        relocated(&volume, 1).await;
        let new = (3..=4).find(|number| {
            let node = cluster.servers[number - 1].node();
            node.store().stat(&object).is_ok_and(|stat| stat.stamp > 0)
        });
        let new = new.expect("the snapshot has a copy elsewhere");
        cluster.servers[new - 1]
            .cut
            .borrow_mut()
            .insert(super::cluster::host(1003));
        Membership::of(core)
            .shrink_set(&[StoreNumber(new as u16)])
            .await
            .unwrap();
        let (has, said) = (
            least_by_maps(&cluster, &volume).await,
            volume.record().redundancy_floor,
        );
        assert!(
            usize::from(said) <= has,
            "{has} copies are in sync, the record says {said}"
        );
        again.let_go();
        cluster.heal().await;
        for _ in 0..1_000 {
            if volume
                .record()
                .stores
                .is_some_and(|all| !all.contains(&ONE))
            {
                break;
            }
            env::sleep(Nanos::millis(20)).await;
        }
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

/// A snapshot's copy on a drained store is about to be freed when that is taken back, and the head moves there.
#[test]
fn a_copy_that_the_head_gets_is_not_freed_as_one_that_a_snapshot_had() {
    env::Runtime::simulated(69).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let gate = Gate::new(cluster.meta_store.client());
        let volume = cluster.open(1, gate.clone(), None).await.unwrap();
        let core = &volume.core;
        write(&volume, 1).await;
        MapIo::of(core).commit().await.unwrap();
        let monday = volume.snapshot("monday".parse().unwrap()).await.unwrap();
        let placed = core.extents.placed(1).unwrap();
        let first = placed.stores();
        let (leaves, other) = (first[0], first[1]);

        let named = gate.hold(1, names(monday));
        volume.drain(BTreeSet::from([leaves]));
        named.has_one().await;
        assert!(!placed.copies.borrow().stores.contains(&leaves));
        *core.replicas.drained.borrow_mut() = BTreeSet::from([other]);
        let moving = Rc::clone(core);
        let moving = env::spawn(async move { Drain::of(&moving).move_extent(1).await });
        // Done, but for the record, if it may come there now.
        env::sleep(Nanos::millis(200)).await;
        named.let_go();
        relocated(&volume, 1).await;
        moving.await.unwrap();
        env::sleep(Nanos::millis(50)).await;
        Drain::of(core).move_extent(1).await.unwrap();
        assert!(placed.copies.borrow().stores.contains(&leaves));
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

/// Every copy of the only node of an image's map is lost.
async fn lose_map(cluster: &Rc<Cluster>, image: ImageId) {
    let known = collector(cluster).images.image(image).await.unwrap();
    let node = known.record.root.node.unwrap();
    for number in node.stores.iter() {
        let server = &cluster.servers[usize::from(number.0) - 1];
        let (node, name) = (server.node(), node.name().to_string());
        let gone = node.store().delete(&name, Change::FUA).await;
        gone.unwrap();
    }
}

#[test]
fn a_snapshot_whose_map_is_lost_keeps_no_other_on_a_drained_store() {
    env::Runtime::simulated(70).block_on(async {
        let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
        let first = cluster.servers[..2].to_vec();
        let volume = cluster
            .open_with(1, cluster.meta_store.client(), first)
            .await;
        let volume = volume.unwrap();
        let mut snapshots = Vec::new();
        for (index, name) in [(1, "monday"), (2, "tuesday")] {
            write(&volume, index).await;
            snapshots.push(volume.snapshot(name.parse().unwrap()).await.unwrap());
        }
        volume.resize(Bytes(EXTENT)).await.unwrap();
        volume.close().await.unwrap();
        lose_map(&cluster, snapshots[0]).await;

        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        volume.drain(BTreeSet::from([ONE]));
        relocated(&volume, 2).await;
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(volume.counters().relocated, 2);
        let known = collector(&cluster)
            .images
            .image(snapshots[1])
            .await
            .unwrap();
        let drained = Wanted::Without(BTreeSet::from([ONE]));
        let there = Relocate::of(&volume.core)
            .named(&known.record, &drained)
            .await
            .unwrap();
        assert!(there.entries.is_empty());
        // What the other one has there is unknown.
        assert!(volume.record().stores.unwrap().contains(&ONE));
    });
}

/// Numbers are taken all the time while an image is written anew, in many parts.
#[test]
fn an_older_image_gets_its_map_though_volumes_are_made_meanwhile() {
    env::Runtime::simulated(71).block_on(async {
        let (cluster, volume, _) = a_snapshot_alone(None).await;
        volume.close().await.unwrap();
        let gate = Gate::new(cluster.meta_store.client());
        let volume = cluster.open(3, gate.clone(), None).await.unwrap();
        let images = collector(&cluster).images;
        // It has looked up the image's children.
        let looked = gate.hold(
            1,
            |asked| matches!(asked, Asked::Range(prefix) if *prefix == IMAGES),
        );
        volume.drain(BTreeSet::from([ONE]));
        looked.has_one().await;
        let numbers = images.numbers().await.unwrap();
        let name = "another".parse().unwrap();
        let (_, change) = image::create(&numbers, name, EXTENT, 2, 1).unwrap();
        images.change(change).await.unwrap();
        let resynced = volume.counters().resynced;
        looked.let_go();
        relocated(&volume, 1).await;
        assert_eq!(volume.counters().resynced, resynced + 1, "copied once");
        unlisted(&volume, ONE).await;
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

/// Of an image without readers the names count: they may be on any store that the record lists, and on no other.
async fn a_deferred_delete_image_leaves(seed: u64) -> bool {
    let cluster = Cluster::new(10, 1, 1, Bytes::mib(64)).await;
    let first = cluster.servers[..1].to_vec();
    let volume = cluster
        .open_with(1, cluster.meta_store.client(), first)
        .await;
    let volume = volume.unwrap();
    write(&volume, 1).await;
    let monday = volume.snapshot("monday".parse().unwrap()).await.unwrap();
    volume.close().await.unwrap();
    let images = collector(&cluster).images;
    let (numbers, source) = (
        images.numbers().await.unwrap(),
        images.image(monday).await.unwrap(),
    );
    let of = images.volume(VOLUME).await.unwrap();
    let (made, change) = image::clone(&numbers, &source, &of, "clone".parse().unwrap()).unwrap();
    images.change(change).await.unwrap();
    let known = images.image(monday).await.unwrap();
    images
        .change(image::delete_snapshot(&known).unwrap())
        .await
        .unwrap();

    let meta = || cluster.meta_store.client();
    let clone = cluster.open_one(made.id, 2, meta(), None).await.unwrap();
    let volume = cluster.open(3, meta(), None).await.unwrap();
    for volume in [&clone, &volume] {
        volume.drain(BTreeSet::from([ONE]));
    }
    relocated(&volume, 1).await;
    let deferred = images.image(monday).await.unwrap().record;
    let all = Wanted::Without((1..=10).map(StoreNumber).collect());
    let entries = Relocate::of(&volume.core)
        .named(&deferred, &all)
        .await
        .unwrap()
        .entries;
    let listed = volume.record().stores.unwrap();
    let stores = crate::map::stores_of(&entries[0].1);
    assert!(!stores.is_empty(), "seed {seed}");
    stores.iter().all(|one| listed.contains(one))
}

#[test]
fn a_record_lists_the_stores_of_a_deferred_delete_image() {
    for seed in 72..84 {
        let listed = env::Runtime::simulated(seed).block_on(a_deferred_delete_image_leaves(seed));
        assert!(listed, "seed {seed}");
    }
}

/// No table has its nodes, so no check would notice that the last copy of one goes.
#[test]
fn the_map_of_a_deferred_delete_image_is_on_as_many_stores_as_others() {
    env::Runtime::simulated(84).block_on(async {
        let (cluster, volume, _) = a_snapshot_alone(None).await;
        let snapshot = volume.core.record.head.borrow().record.parent.unwrap();
        let known = collector(&cluster).images.image(snapshot).await.unwrap();
        let mut deferred = known.record;
        deferred.state = ImageState::DeferredDelete { swept: false };
        let on = |stores: &[u16]| {
            let stores: Vec<StoreNumber> = stores.iter().copied().map(StoreNumber).collect();
            let node = NodeRef {
                stores: Stores::new(&stores).unwrap(),
                ..deferred.root.node.unwrap()
            };
            Commit {
                root: deferred.root,
                written: vec![node],
                places: Vec::new(),
                replaced: Freed::default(),
            }
        };
        let is_enough =
            |commit| Relocate::of(&volume.core).is_enough(&deferred, &commit, &BTreeMap::new());
        assert_eq!(volume.record().redundancy_floor, 2);
        assert!(is_enough(on(&[1, 2])));
        assert!(!is_enough(on(&[1])));
    });
}

/// Snapshots taken while all stores but one were away have one copy of what was written then.
#[test]
fn snapshots_get_the_copies_that_they_lack_when_stores_are_back() {
    env::Runtime::simulated(85).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let first = cluster.servers[..1].to_vec();
        let volume = cluster
            .open_with(1, cluster.meta_store.client(), first)
            .await;
        let volume = volume.unwrap();
        for (index, name) in [(1, "monday"), (2, "tuesday")] {
            write(&volume, index).await;
            volume.snapshot(name.parse().unwrap()).await.unwrap();
        }
        volume.close().await.unwrap();
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        for _ in 0..3_000 {
            if volume.health().condition == Condition::Healthy {
                break;
            }
            env::sleep(Nanos::millis(20)).await;
        }
        assert_eq!(
            volume.health().condition,
            Condition::Healthy,
            "{:?}",
            volume.health()
        );
        assert_eq!(least_by_maps(&cluster, &volume).await, 2);
        // Monday has one of them, Tuesday both.
        assert_eq!(volume.counters().relocated, 3);
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

/// An extent with three copies, one of them on a store that is drained: another one takes its place in one step.
#[test]
fn a_freed_copy_does_not_count_where_a_map_has_no_room_for_a_fourth() {
    env::Runtime::simulated(62).block_on(async {
        let cluster = Cluster::new(4, 3, 1, Bytes::mib(64)).await;
        let first = cluster.servers[..3].to_vec();
        let volume = cluster
            .open_with(1, cluster.meta_store.client(), first)
            .await;
        let volume = volume.unwrap();
        write(&volume, 1).await;
        volume.close().await.unwrap();
        let volume = cluster
            .open(2, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let core = &volume.core;
        let held = core.locks.ranges.take(EXTENT..2 * EXTENT, true).await;
        *core.replicas.drained.borrow_mut() = BTreeSet::from([ONE]);
        let placed = core.extents.placed(1).unwrap();
        LayerCopies::of(core)
            .add_copy(1, &placed, &placed)
            .await
            .unwrap();
        MapIo::of(core).commit().await.unwrap();
        for number in placed.copies.borrow().stores.iter() {
            let node = cluster.servers[usize::from(number.0) - 1].node();
            assert!(node.store().stat(&placed.object).is_ok(), "{number}");
        }
        assert_eq!(placed.in_sync(&volume.record().out), 3);
        drop(held);
    });
}

#[test]
fn a_drained_store_stays_in_the_record_while_something_is_on_its_way_there() {
    env::Runtime::simulated(63).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let core = &volume.core;
        RecordIo::of(core).list_stores(&[ONE]).await.unwrap();
        let lists = || volume.record().stores.is_some_and(|all| all.contains(&ONE));
        let pending_placements = core.replicas.pending_placement(&[ONE]);
        volume.drain(BTreeSet::from([ONE]));
        env::sleep(Nanos::secs(20)).await;
        assert!(lists());
        drop(pending_placements);
        env::sleep(Nanos::secs(20)).await;
        assert!(!lists());
    });
}

/// Until a record lists a store no more.
async fn unlisted(volume: &Volume, store: StoreNumber) {
    for _ in 0..1_000 {
        if volume
            .record()
            .stores
            .is_some_and(|all| !all.contains(&store))
        {
            return;
        }
        env::sleep(Nanos::millis(20)).await;
    }
    panic!("store {store} is never empty");
}

/// A store that was drained takes long to delete its bits, and is used again.
#[test]
fn bits_stay_that_were_written_behind_a_deletion_that_took_too_long() {
    env::Runtime::simulated(68).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        write(&volume, 0).await;
        let core = &volume.core;
        let bitmap_replicas = || {
            (1..=3)
                .map(StoreNumber)
                .filter(|it| core.is_bitmap_replica(*it))
        };
        let bitmap_replicas = || bitmap_replicas().collect::<BTreeSet<_>>();
        let (first, other) = (
            *bitmap_replicas().first().unwrap(),
            *bitmap_replicas().last().unwrap(),
        );
        let server = &cluster.servers[usize::from(first.0) - 1];
        *server.late_deletes.borrow_mut() = Some("d/");
        volume.drain(BTreeSet::from([first]));
        unlisted(&volume, first).await;
        volume.drain(BTreeSet::from([other]));
        unlisted(&volume, other).await;
        assert!(
            bitmap_replicas().contains(&first),
            "{:?}",
            bitmap_replicas()
        );
        // What is in use has its bit there.
        write(&volume, 1).await;
        server.heal().await;
        env::sleep(Nanos::millis(20)).await;
        let bits = super::super::dirty::object(VOLUME);
        assert!(
            server.node().store().stat(&bits).is_ok(),
            "the bits are gone"
        );
        volume.close().await.unwrap();
    });
}

#[test]
fn a_writer_that_missed_it_does_not_list_a_store_that_left_the_cluster() {
    env::Runtime::simulated(64).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let listed = || volume.record().stores.unwrap_or_default();
        let left: Vec<StoreNumber> = (1..4)
            .map(StoreNumber)
            .filter(|it| !listed().contains(it))
            .collect();
        let gone = Op::Put {
            key: gone_key(left[0]),
            value: Vec::new(),
            lease: None,
        };
        let meta = cluster.meta_store.client();
        meta.txn(Vec::new(), vec![gone]).await.unwrap();
        for index in 0..3 {
            write(&volume, index).await;
        }
        assert!(!listed().contains(&left[0]), "{left:?}");
        assert_eq!(listed().len(), 2);
    });
}

/// A copy that an image which is gone left behind is not what changes reached since: it has the name, and other bytes.
#[test]
fn a_snapshot_is_not_said_to_be_where_a_snapshot_that_is_gone_was() {
    env::Runtime::simulated(65).block_on(async {
        let cluster = Cluster::new(4, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        let core = &volume.core;
        write(&volume, 1).await;
        MapIo::of(core).commit().await.unwrap();
        let placed = || core.extents.placed(1).unwrap();
        let (object, first) = (placed().object.clone(), placed().stores());
        let monday = volume.snapshot("monday".parse().unwrap()).await.unwrap();

        // The head alone leaves a store.
        *core.replicas.drained.borrow_mut() = BTreeSet::from([first[0]]);
        Drain::of(core).move_extent(1).await.unwrap();
        core.replicas.drained.borrow_mut().clear();
        let second = placed().stores();
        assert!(!second.contains(&first[0]), "{second:?}");

        let images = collector(&cluster).images;
        let known = images.image(monday).await.unwrap();
        let change = image::delete_snapshot(&known).unwrap();
        images.change(change).await.unwrap();
        collector(&cluster).run().await.unwrap();
        // With a commit it learns that the snapshot is gone.
        write(&volume, 0).await;
        MapIo::of(core).commit().await.unwrap();
        assert!(!core.is_shared(&placed()), "it is the head's alone");
        let old = cluster.servers[usize::from(first[0].0) - 1].node();
        assert!(old.store().stat(&placed().object).is_ok());
        let data = View::copy_of(&[2; 4096]);
        volume.write_at(Sector(EXTENT / 512), data).await.unwrap();
        assert_eq!(placed().object, object, "it was changed in place");

        volume.snapshot("tuesday".parse().unwrap()).await.unwrap();
        volume.resize(Bytes(EXTENT)).await.unwrap();
        let leaves = *second.iter().find(|one| !first.contains(one)).unwrap();
        volume.drain(BTreeSet::from([leaves]));
        for _ in 0..1_000 {
            if volume.counters().relocated > 0 {
                break;
            }
            env::sleep(Nanos::millis(20)).await;
        }
        assert!(
            volume.counters().relocated > 0,
            "the snapshot stays where it was"
        );
        volume.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}

/// Until so many extents of older images are elsewhere.
async fn relocated(volume: &Volume, count: u64) {
    for _ in 0..10_000_000 {
        if volume.counters().relocated >= count {
            return;
        }
        env::sleep(Nanos::micros(5)).await;
    }
    panic!("older images stay where they were");
}

/// A clone of a snapshot copied back to a store what an older snapshot leaves after that.
#[test]
fn a_copy_stays_where_a_clone_of_a_later_snapshot_has_it() {
    env::Runtime::simulated(66).block_on(async {
        let cluster = Cluster::new(3, 2, 1, Bytes::mib(64)).await;
        let volume = cluster
            .open(1, cluster.meta_store.client(), None)
            .await
            .unwrap();
        write(&volume, 1).await;
        MapIo::of(&volume.core).commit().await.unwrap();
        let placed = volume.core.extents.placed(1).unwrap();
        let first = placed.stores();
        let (stays, leaves) = (BTreeSet::from([first[0]]), BTreeSet::from([first[1]]));
        volume.snapshot("monday".parse().unwrap()).await.unwrap();
        let tuesday = volume.snapshot("tuesday".parse().unwrap()).await.unwrap();
        volume.resize(Bytes(EXTENT)).await.unwrap();

        let images = collector(&cluster).images;
        let numbers = images.numbers().await.unwrap();
        let source = images.image(tuesday).await.unwrap();
        let of = images.volume(VOLUME).await.unwrap();
        let (made, change) =
            image::clone(&numbers, &source, &of, "clone".parse().unwrap()).unwrap();
        images.change(change).await.unwrap();
        let clone = cluster
            .open_one(made.id, 2, cluster.meta_store.client(), None)
            .await;
        let clone = clone.unwrap();
        *clone.core.replicas.drained.borrow_mut() = leaves.clone();
        Drain::of(&clone.core).move_extent(1).await.unwrap();
        clone.core.replicas.drained.borrow_mut().clear();

        // Tuesday's copy leaves, Monday's does not yet.
        volume.drain(leaves.clone());
        relocated(&volume, 1).await;
        volume.drain(BTreeSet::new());
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(volume.counters().relocated, 1);
        *clone.core.replicas.drained.borrow_mut() = stays;
        Drain::of(&clone.core).move_extent(1).await.unwrap();
        clone.core.replicas.drained.borrow_mut().clear();
        let has = clone.core.extents.placed(1).unwrap().stores();
        assert!(has.contains(&first[1]), "{has:?}");

        volume.drain(leaves);
        relocated(&volume, 2).await;
        env::sleep(Nanos::secs(1)).await;
        volume.close().await.unwrap();
        clone.close().await.unwrap();
        alike(&cluster, 2).await.unwrap();
    });
}
