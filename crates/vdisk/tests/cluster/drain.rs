//! Stores that are drained: what is there leaves, while volumes are written, closed, cloned, and nodes crash.

use std::collections::BTreeSet;

use vdisk::image::records::Images;
use vdisk::meta::{Compare, Faults, Outcome};
use vdisk::record::{Writer as RecordWriter, gone_key, volume_key};

use super::*;

/// Three stores in domains of their own.
async fn three_stores() -> (Rc<MemoryMetaStore>, Rc<Places>, Rc<Cluster>) {
    let (meta_store, places, cluster) = two_stores().await;
    places.add(&cluster, "c", "dc").await;
    (meta_store, places, cluster)
}

/// All that a store has, but for its fences.
fn all_of(places: &Places, called: &str) -> usize {
    places.objects(called) + places.count(called, "d/")
}

async fn drain(cluster: &Cluster, store: &str) {
    let drained = cluster
        .membership
        .set_state(&name(store), StoreState::Draining)
        .await;
    drained.unwrap();
}

/// Waits until no volume has anything on a store; longer than a volume is left to a writer that did not close it.
async fn emptied(cluster: &Cluster, number: u16) {
    let deadline = env::now() + Nanos::secs(900);
    loop {
        let progress = cluster.view.progress(&[StoreNumber(number)]).await.unwrap();
        if progress[0].volumes.is_empty() {
            return;
        }
        assert!(env::now() < deadline, "left: {progress:?}");
        env::sleep(Nanos::secs(1)).await;
    }
}

/// Writes a number into one block after the other until `stop`, and remembers what was answered.
struct Writer {
    blocks: RefCell<BTreeMap<u64, u8>>,
    stop: Cell<bool>,
}

impl Writer {
    fn start(volume: Rc<Volume>, seed: u64) -> (Rc<Writer>, env::Task<()>) {
        let writer = Rc::new(Writer {
            blocks: RefCell::default(),
            stop: Cell::new(false),
        });
        let own = Rc::clone(&writer);
        let task = env::spawn(async move {
            let mut rng = env::Rng::from_seed(seed);
            let mut next = 0_u8;
            while !own.stop.get() {
                let block = rng.below(SIZE / 4096);
                next = next.wrapping_add(1).max(1);
                own.blocks.borrow_mut().remove(&block);
                let data = View::copy_of(&[next; 4096]);
                if volume.write_at(Sector(block * 8), data).await.is_err() {
                    return;
                }
                own.blocks.borrow_mut().insert(block, next);
                env::sleep(Nanos::millis(3)).await;
            }
        });
        (writer, task)
    }

    async fn check(&self, volume: &Volume) {
        let blocks = self.blocks.borrow().clone();
        assert!(blocks.len() > 100, "{}", blocks.len());
        for (block, byte) in blocks {
            assert_eq!(read(volume, block * 4096).await, byte, "block {block}");
        }
    }
}

#[test]
fn a_drained_store_is_emptied_under_a_writer_leaves_and_nothing_misses_it() {
    env::Runtime::simulated(21).block_on(async {
        let (_meta_store, places, cluster) = three_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let (writer, task) = Writer::start(Rc::clone(in_use.volume()), 1);
        env::sleep(Nanos::secs(5)).await;
        let before = ["a", "b", "c"].map(|it| places.extents(it));
        assert_eq!(before.iter().sum::<usize>(), 6);
        // One of those that have something.
        let (gone, number) = if before[0] > 0 { ("a", 1) } else { ("b", 2) };
        let early = error_text(cluster.membership.remove(&name(gone), false).await);
        assert!(early.contains("drain it first"), "{early}");
        drain(&cluster, gone).await;
        let early = error_text(cluster.membership.remove(&name(gone), false).await);
        assert!(early.contains("volume vm1 has something there"), "{early}");
        emptied(&cluster, number).await;
        assert_eq!(all_of(&places, gone), 0, "{gone}");
        cluster.membership.remove(&name(gone), false).await.unwrap();
        places.0.borrow()[gone].down.set(true);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(in_use.volume().health().condition, Condition::Healthy);
        writer.stop.set(true);
        task.await;
        writer.check(in_use.volume()).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        let again = cluster.openings.open(&name("vm1")).await.unwrap();
        writer.check(again.volume()).await;
        assert_eq!(again.volume().health().condition, Condition::Healthy);
        assert_eq!(all_of(&places, gone), 0, "{gone}");
    });
}

#[test]
fn what_a_node_that_died_was_moving_is_moved_on_by_another_or_by_itself() {
    let mut midway = 0;
    for (seed, after) in [(31, 10), (32, 60), (33, 200), (34, 500), (35, 1_500)] {
        midway += env::Runtime::simulated(seed).block_on(async move {
            let (meta_store, places, first) = three_stores().await;
            for store in ["a", "b", "c"] {
                places.0.borrow()[store]
                    .disk
                    .set_latency(Nanos::micros(300));
            }
            first.volumes.create(&vm("vm1")).await.unwrap();
            let in_use = first.openings.open(&name("vm1")).await.unwrap();
            let (writer, task) = Writer::start(Rc::clone(in_use.volume()), seed);
            env::sleep(Nanos::secs(5)).await;
            let gone = if places.extents("a") > 0 { "a" } else { "b" };
            let number = places.0.borrow()[gone].number.0;
            let before = places.extents(gone) as u64;
            drain(&first, gone).await;
            env::sleep(Nanos::millis(after)).await;
            let progress = first.view.progress(&[StoreNumber(number)]).await.unwrap();
            let left = progress[0].here.extents;
            // Its end, without a word.
            drop(cancel(task));
            drop((in_use, first));
            // Another node, or the same one, started again.
            let second = cluster(
                ["n1", "n2"][seed as usize % 2],
                meta_store.client(),
                &places,
            );
            second.start();
            // No client uses the volume: a node that is up opens it, as soon as the other is seen to be gone.
            emptied(&second, number).await;
            second.membership.remove(&name(gone), false).await.unwrap();
            places.0.borrow()[gone].down.set(true);
            env::sleep(Nanos::secs(15)).await;
            let seen = second.view.overview(&name("vm1")).await.unwrap();
            assert_eq!(seen.used, Use::Closed, "it is closed again");
            let again = second.openings.open(&name("vm1")).await.unwrap();
            writer.check(again.volume()).await;
            assert_eq!(again.volume().health().condition, Condition::Healthy);
            assert_eq!(all_of(&places, gone), 0, "{gone} after {after} ms");
            u32::from((1..before).contains(&left))
        });
    }
    assert!(midway > 0, "a node died while it moved something");
}

fn cancel(task: env::Task<()>) -> env::CancelOnDrop<()> {
    env::cancel_scope(task)
}

#[test]
fn snapshots_and_clones_leave_a_drained_store_without_leftovers() {
    env::Runtime::simulated(41).block_on(async {
        let (_meta_store, places, cluster) = three_stores().await;
        let (vm1, vm2) = (name("vm1"), name("vm2"));
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&vm1).await.unwrap();
        for extent in 0..3 {
            write(in_use.volume(), extent << 22, 1).await;
        }
        cluster
            .volumes
            .snapshot(&vm1, &name("monday"))
            .await
            .unwrap();
        write(in_use.volume(), 1 << 22, 2).await;
        cluster
            .volumes
            .snapshot(&vm1, &name("tuesday"))
            .await
            .unwrap();
        write(in_use.volume(), 2 << 22, 3).await;
        drop(in_use);
        cluster
            .volumes
            .clone_volume(&vm1, &name("monday"), &vm2)
            .await
            .unwrap();
        let clone = cluster.openings.open(&vm2).await.unwrap();
        write(clone.volume(), 0, 4).await;
        drop(clone);
        env::sleep(Nanos::secs(10)).await;
        // Both that have most of it, one after the other.
        for (gone, number) in [("a", 1), ("b", 2)] {
            if gone == "b" {
                places.add(&cluster, "d", "dd").await;
            }
            drain(&cluster, gone).await;
            emptied(&cluster, number).await;
            cluster.membership.remove(&name(gone), false).await.unwrap();
            // Extents that the clone has too are not freed there: its writer may be copying them back.
            let left = places.extents(gone);
            assert_eq!(all_of(&places, gone), left, "{gone}");
            assert!(left <= 3, "{gone}: {left}");
            places.0.borrow()[gone].down.set(true);
        }
        let expected = [
            (&vm1, None, [1, 2, 3]),
            (&vm1, Some("tuesday"), [1, 2, 1]),
            (&vm1, Some("monday"), [1, 1, 1]),
            (&vm2, None, [4, 1, 1]),
        ];
        for (volume, snapshot, bytes) in expected {
            let looked = match snapshot {
                None => volume.clone(),
                Some(snapshot) => {
                    let clone = name("look");
                    let made = cluster
                        .volumes
                        .clone_volume(volume, &name(snapshot), &clone)
                        .await;
                    made.unwrap();
                    clone
                }
            };
            let in_use = cluster.openings.open(&looked).await.unwrap();
            for (extent, byte) in bytes.into_iter().enumerate() {
                let found = read(in_use.volume(), (extent as u64) << 22).await;
                assert_eq!(found, byte, "{volume} {snapshot:?} {extent}");
            }
            assert_eq!(in_use.volume().health().condition, Condition::Healthy);
            drop(in_use);
            if snapshot.is_some() {
                cluster.volumes.remove(&looked).await.unwrap();
            }
        }
        let report = cluster.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.unknown.is_empty(),
            "{report:?}"
        );
        for snapshot in ["monday", "tuesday"] {
            cluster
                .volumes
                .remove_snapshot(&vm1, &name(snapshot))
                .await
                .unwrap();
        }
        cluster.volumes.remove(&vm1).await.unwrap();
        cluster.volumes.remove(&vm2).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        cluster.collecting.audit(true).await.unwrap();
        assert_eq!((places.objects("c"), places.objects("d")), (0, 0));
    });
}

/// A volume with a snapshot whose map was written anew when store a was drained; the head was not committed after that.
async fn a_moved_snapshot() -> (Rc<MemoryMetaStore>, Rc<Places>, Rc<Cluster>) {
    let (meta_store, places, cluster) = three_stores().await;
    cluster.volumes.create(&vm("vm1")).await.unwrap();
    let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
    for extent in 0..3 {
        write(in_use.volume(), extent << 22, 1).await;
    }
    let snapshot = cluster
        .volumes
        .snapshot(&name("vm1"), &name("monday"))
        .await;
    snapshot.unwrap();
    write(in_use.volume(), 0, 2).await;
    drop(in_use);
    drain(&cluster, "a").await;
    emptied(&cluster, 1).await;
    cluster.membership.remove(&name("a"), false).await.unwrap();
    (meta_store, places, cluster)
}

async fn reads_as(cluster: &Cluster, volume: &str, bytes: [u8; 3]) {
    let in_use = cluster.openings.open(&name(volume)).await.unwrap();
    for (extent, byte) in bytes.into_iter().enumerate() {
        let found = read(in_use.volume(), (extent as u64) << 22).await;
        assert_eq!(found, byte, "{volume} {extent}");
    }
}

/// A snapshot has 30 extents on slow stores a and b, and the volume none but the first; store c is empty.
async fn a_large_snapshot() -> (Rc<MemoryMetaStore>, Rc<Places>, Rc<Cluster>) {
    let (meta_store, places, cluster) = two_stores().await;
    let vm1 = name("vm1");
    let large = NewVolume {
        size: 30 << 22,
        ..vm("vm1")
    };
    cluster.volumes.create(&large).await.unwrap();
    let in_use = cluster.openings.open(&vm1).await.unwrap();
    for extent in 0..30 {
        write(in_use.volume(), extent << 22, 1 + extent as u8).await;
    }
    cluster
        .volumes
        .snapshot(&vm1, &name("monday"))
        .await
        .unwrap();
    cluster.volumes.resize(&vm1, 1 << 22, true).await.unwrap();
    drop(in_use);
    env::sleep(Nanos::secs(10)).await;
    places.add(&cluster, "c", "dc").await;
    for store in ["a", "b", "c"] {
        let slow = Nanos::millis(60);
        places.0.borrow()[store].disk.set_latency(slow);
    }
    (meta_store, places, cluster)
}

#[test]
fn what_a_snapshot_has_leaves_though_one_writer_after_the_other_dies() {
    env::Runtime::simulated(47).block_on(async {
        let (meta_store, places, mut last) = a_large_snapshot().await;
        drain(&last, "a").await;
        let mut midway = Vec::new();
        for life in 0..4 {
            env::sleep(Nanos::secs(3)).await;
            // Its end, without a word.
            drop(last);
            midway.push(places.extents("c"));
            last = cluster(["n2", "n1"][life % 2], meta_store.client(), &places);
            last.start();
            env::sleep(Nanos::secs(11)).await;
        }
        assert!(
            midway.iter().any(|some| (1..29).contains(some)),
            "{midway:?}"
        );
        emptied(&last, 1).await;
        last.membership.remove(&name("a"), false).await.unwrap();
        places.0.borrow()["a"].down.set(true);
        let (vm1, look) = (name("vm1"), name("look"));
        let made = last
            .volumes
            .clone_volume(&vm1, &name("monday"), &look)
            .await;
        made.unwrap();
        let in_use = last.openings.open(&look).await.unwrap();
        for extent in 0..30 {
            let found = read(in_use.volume(), extent << 22).await;
            assert_eq!(found, 1 + extent as u8, "{extent}");
        }
        let report = last.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.gone.is_empty(),
            "{report:?}"
        );
    });
}

#[test]
fn a_deleted_volume_two_clones_share_keeps_a_store_until_one_is_gone() {
    env::Runtime::simulated(48).block_on(async {
        let (_meta_store, _places, cluster) = three_stores().await;
        let (vm1, monday) = (name("vm1"), name("monday"));
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&vm1).await.unwrap();
        for extent in 0..3 {
            write(in_use.volume(), extent << 22, 1).await;
        }
        cluster.volumes.snapshot(&vm1, &monday).await.unwrap();
        drop(in_use);
        for clone in ["vm2", "vm3"] {
            let made = cluster
                .volumes
                .clone_volume(&vm1, &monday, &name(clone))
                .await;
            made.unwrap();
        }
        env::sleep(Nanos::secs(10)).await;
        cluster
            .volumes
            .remove_snapshot(&vm1, &monday)
            .await
            .unwrap();
        cluster.volumes.remove(&vm1).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        // Nodes of a map go to three stores.
        drain(&cluster, "a").await;
        env::sleep(Nanos::secs(60)).await;
        let progress = cluster.view.progress(&[StoreNumber(1)]).await.unwrap();
        assert_eq!(progress[0].volumes, [vm1]);
        let removed = cluster.membership.remove(&name("a"), false).await;
        assert!(error_text(removed).contains("vm1"));
        cluster.volumes.remove(&name("vm2")).await.unwrap();
        emptied(&cluster, 1).await;
        cluster.membership.remove(&name("a"), false).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        reads_as(&cluster, "vm3", [1, 1, 1]).await;
        let report = cluster.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.gone.is_empty(),
            "{report:?}"
        );
    });
}

/// Copying all of it takes longer than a volume is open for at a time.
#[test]
fn snapshots_of_a_closed_volume_leave_a_slow_store_part_by_part() {
    env::Runtime::simulated(46).block_on(async {
        let (_meta_store, places, cluster) = a_large_snapshot().await;
        drain(&cluster, "a").await;
        emptied(&cluster, 1).await;
        assert_eq!(all_of(&places, "a"), 0);
        assert_eq!(places.extents("c"), 30);
        cluster.membership.remove(&name("a"), false).await.unwrap();
        let report = cluster.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.extra.is_empty(),
            "{report:?}"
        );
    });
}

#[test]
fn a_volume_goes_back_to_a_snapshot_that_left_a_drained_store() {
    env::Runtime::simulated(44).block_on(async {
        let (_meta_store, places, cluster) = a_moved_snapshot().await;
        let (vm1, monday) = (name("vm1"), name("monday"));
        cluster.volumes.rollback(&vm1, &monday).await.unwrap();
        // What the head that was had is freed meanwhile.
        env::sleep(Nanos::secs(20)).await;
        reads_as(&cluster, "vm1", [1, 1, 1]).await;
        let report = cluster.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.leaks.is_empty(),
            "{report:?}"
        );
        cluster
            .volumes
            .remove_snapshot(&vm1, &monday)
            .await
            .unwrap();
        cluster.volumes.remove(&vm1).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        assert_eq!((places.objects("b"), places.objects("c")), (0, 0));
    });
}

#[test]
fn a_clone_of_a_relocated_snapshot_outlives_snapshot_and_volume() {
    env::Runtime::simulated(45).block_on(async {
        let (_meta_store, places, cluster) = a_moved_snapshot().await;
        let (vm1, vm2, monday) = (name("vm1"), name("vm2"), name("monday"));
        cluster
            .volumes
            .clone_volume(&vm1, &monday, &vm2)
            .await
            .unwrap();
        cluster
            .volumes
            .remove_snapshot(&vm1, &monday)
            .await
            .unwrap();
        cluster.volumes.remove(&vm1).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        reads_as(&cluster, "vm2", [1, 1, 1]).await;
        let report = cluster.collecting.audit(false).await.unwrap();
        assert!(
            report.losses.is_empty() && report.leaks.is_empty(),
            "{report:?}"
        );
        cluster.volumes.remove(&vm2).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        assert_eq!((places.objects("b"), places.objects("c")), (0, 0));
    });
}

#[test]
fn a_store_that_is_gone_for_good_is_made_up_for_on_the_others() {
    env::Runtime::simulated(51).block_on(async {
        let (_meta_store, places, cluster) = three_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        for extent in 0..3 {
            write(in_use.volume(), extent << 22, 5).await;
        }
        let gone = if places.extents("a") > 0 { "a" } else { "b" };
        places.0.borrow()[gone].down.set(true);
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        for extent in 0..3 {
            write(in_use.volume(), extent << 22, 6).await;
        }
        cluster.membership.remove(&name(gone), true).await.unwrap();
        env::sleep(Nanos::secs(30)).await;
        for extent in 0..3 {
            assert_eq!(read(in_use.volume(), extent << 22).await, 6);
        }
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await
            .unwrap();
        assert_eq!(
            repaired.health.condition,
            Condition::Healthy,
            "{}",
            repaired.health.why
        );
        assert!(repaired.losses.is_empty());
        let left: usize = ["a", "b", "c"]
            .iter()
            .filter(|it| **it != gone)
            .map(|it| places.extents(it))
            .sum();
        assert_eq!(left, 6);
    });
}

/// With so many volumes in use that no transaction could compare all their records: one notes a store that is being forgotten.
async fn noted_after(wait: Nanos) -> (bool, bool) {
    let (meta_store, places, first) = three_stores().await;
    let images = Images {
        meta: meta_store.client(),
    };
    let mut last = None;
    for nth in 0..102 {
        let made = first
            .volumes
            .create(&vm(&format!("vm{nth}")))
            .await
            .unwrap()
            .record
            .id;
        let known = images.volume(made).await.unwrap();
        let mut record = known.record;
        record.stores = Some(BTreeSet::from([StoreNumber(1)]));
        record.writer = Some(RecordWriter {
            node: "n9".to_owned(),
            lease: 1,
            waits: false,
        });
        let put = Op::Put {
            key: volume_key(made),
            value: record.encode(),
            lease: None,
        };
        images.meta.txn(Vec::new(), vec![put]).await.unwrap();
        last = Some(made);
    }
    drain(&first, "c").await;
    let slow = meta_store.client();
    slow.set_faults(Faults {
        delay_least: Nanos::millis(5),
        delay_most: Nanos::millis(5),
        ..Faults::default()
    });
    let second = cluster("n2", slow, &places);
    let removing = env::spawn(async move { second.membership.remove(&name("c"), false).await });
    env::sleep(wait).await;
    let known = images.volume(last.unwrap()).await.unwrap();
    let mut record = known.record;
    record.stores.as_mut().unwrap().insert(StoreNumber(3));
    let compares = vec![
        Compare::Unchanged(volume_key(record.id), known.changed.unwrap()),
        Compare::Absent(gone_key(StoreNumber(3))),
    ];
    let put = Op::Put {
        key: volume_key(record.id),
        value: record.encode(),
        lease: None,
    };
    let noted = images.meta.txn(compares, vec![put]).await.unwrap();
    (matches!(noted, Outcome::Done(_)), removing.await.is_ok())
}

#[test]
fn a_store_is_not_forgotten_that_one_of_many_volumes_notes_meanwhile() {
    let (mut noted, mut removed) = (0, 0);
    for wait in (1..90).step_by(3) {
        let run = env::Runtime::simulated(31).block_on(noted_after(Nanos::millis(wait)));
        assert_ne!(run, (true, true), "after {wait} ms");
        noted += u32::from(run.0);
        removed += u32::from(run.1);
    }
    assert!(noted > 0 && removed > 0, "{noted} {removed}");
}
