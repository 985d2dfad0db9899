//! One behaviour each.

use super::world::World;
use crate::image::audit::Audit;
use crate::image::tree::{self as image, ImageState};
use crate::map::{Entry, Layer, Map, Root};
use crate::names::{EXTENT, Generation, StoreNumber, Stores};

fn run(scene: impl Future<Output = ()> + 'static) {
    env::Runtime::simulated(1).block_on(scene);
}

const SIZE: u64 = 30_000 * EXTENT;

#[test]
fn a_clone_of_a_full_100_gib_volume_touches_a_few_records_and_no_node() {
    run(async {
        let mut asked = Vec::new();
        for count in [1, 25_600] {
            let mut world = World::new();
            let volume = world.create(SIZE).await.unwrap();
            for index in 0..count {
                world.write(volume, index, true).await;
            }
            let snapshot = world.snapshot(volume).await.unwrap();
            let before = (
                world.memory.counters(),
                world
                    .images
                    .meta
                    .get("numbers")
                    .await
                    .unwrap()
                    .unwrap()
                    .changed,
            );
            let clone = world.clone(snapshot).await.unwrap();
            let after = (
                world.memory.counters(),
                world
                    .images
                    .meta
                    .get("numbers")
                    .await
                    .unwrap()
                    .unwrap()
                    .changed,
            );
            assert_eq!(after.0.reads - before.0.reads, 0);
            assert_eq!(after.0.writes - before.0.writes, 0);
            asked.push((after.0.lists - before.0.lists, after.1.0 - before.1.0));
            let (_, head) = super::world::heads(&world.images, clone).await.unwrap();
            assert_eq!(world.entries(head.record.root).await.len(), count as usize);
        }
        assert_eq!(asked[0], asked[1]);
        // One transaction.
        assert_eq!(asked[1].1, 1);
    });
}

#[test]
fn a_delete_reads_what_differs_and_not_the_whole_map() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        for index in 0..25_600 {
            world.write(volume, index, true).await;
        }
        let first = world.snapshot(volume).await.unwrap();
        world.write(volume, 7, true).await;
        let second = world.snapshot(volume).await.unwrap();
        world.write(volume, 7, true).await;
        world.write(volume, 20_000, false).await;
        world.commit(volume).await.unwrap();
        let before = world.memory.counters();
        world.delete_snapshot(second).await.unwrap();
        world.collect().await.unwrap();
        let after = world.memory.counters();
        // Of each of three maps the first node, and the leaf of extent 7; of the deleted one nothing else differs from
        // both: 51 nodes are never looked at.
        assert_eq!(after.reads - before.reads, 6);
        // Extent 7, the leaf and the first node; two copies each.
        assert_eq!(after.deletes - before.deletes, 6);
        world.check(true).await;
        world.delete_snapshot(first).await.unwrap();
        world.collect().await.unwrap();
        world.check(true).await;
    });
}

#[test]
fn a_deleted_snapshot_with_two_clones_is_freed_with_the_first_that_goes() {
    run(async {
        let mut world = World::new();
        let golden = world.create(SIZE).await.unwrap();
        for index in 0..600 {
            world.write(golden, index, true).await;
        }
        let snapshot = world.snapshot(golden).await.unwrap();
        let clones = [
            world.clone(snapshot).await.unwrap(),
            world.clone(snapshot).await.unwrap(),
        ];
        world.delete_snapshot(snapshot).await.unwrap();
        world.delete_volume(golden).await.unwrap();
        world.collect().await.unwrap();
        let image = world.images.image(snapshot).await.unwrap();
        assert_eq!(
            image.record.state,
            ImageState::DeferredDelete { swept: true }
        );
        world.check(true).await;
        // Both write over all of it: the old extents are the deferred-delete image's alone.
        for clone in clones {
            for index in 0..600 {
                world.write(clone, index, true).await;
            }
            world.commit(clone).await.unwrap();
        }
        world.check(true).await;
        world.delete_volume(clones[0]).await.unwrap();
        world.collect().await.unwrap();
        assert!(world.images.image(snapshot).await.is_err());
        // 600 extents, two leaves and a node above.
        assert_eq!(world.memory.names().len(), 603);
        world.check(true).await;
        world.delete_volume(clones[1]).await.unwrap();
        world.collect().await.unwrap();
        assert_eq!(world.memory.names().len(), 0);
    });
}

#[test]
fn a_rollback_frees_what_only_the_old_head_had_and_keeps_later_snapshots() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        world.write(volume, 1, true).await;
        let first = world.snapshot(volume).await.unwrap();
        world.write(volume, 2, true).await;
        let second = world.snapshot(volume).await.unwrap();
        world.write(volume, 3, true).await;
        world.commit(volume).await.unwrap();
        world.write(volume, 4, true).await;
        world.rollback(volume, first).await.unwrap();
        world.collect().await.unwrap();
        let (_, head) = super::world::heads(&world.images, volume).await.unwrap();
        assert_eq!(
            world
                .entries(head.record.root)
                .await
                .keys()
                .copied()
                .collect::<Vec<_>>(),
            [1]
        );
        let kept = world.images.image(second).await.unwrap();
        assert_eq!(world.entries(kept.record.root).await.len(), 2);
        world.check(true).await;
        // Extents 1 and 2, a leaf with a node above for each snapshot.
        let extents = world
            .memory
            .names()
            .into_iter()
            .filter(|name| name.starts_with("v/"));
        assert_eq!(extents.count(), 2);
    });
}

#[test]
fn a_management_operation_that_fails_at_any_step_loses_and_leaves_nothing() {
    run(async {
        for operation in 0..6 {
            for step in 0.. {
                let mut world = World::new();
                let volume = world.create(SIZE).await.unwrap();
                for index in [1, 2, 600] {
                    world.write(volume, index, true).await;
                }
                let first = world.snapshot(volume).await.unwrap();
                world.write(volume, 2, false).await;
                let second = world.snapshot(volume).await.unwrap();
                let clone = world.clone(first).await.unwrap();
                world.write(clone, 600, true).await;
                world.commit(clone).await.unwrap();
                world.write(volume, 1, true).await;
                world.write(volume, 700, true).await;
                world.memory.fail_in(Some(step));
                let tried = match operation {
                    0 => world.snapshot(volume).await.map(drop),
                    1 => world.clone(second).await.map(drop),
                    2 => world.rollback(volume, first).await,
                    3 => world.resize(volume, 500).await,
                    4 => match world.delete_snapshot(first).await {
                        Ok(()) => world.collect().await,
                        Err(error) => Err(error),
                    },
                    _ => match world.delete_volume(clone).await {
                        Ok(()) => world.collect().await,
                        Err(error) => Err(error),
                    },
                };
                let done = tried.is_ok();
                world.memory.fail_in(None);
                // The node crashes, others go on.
                world.check(false).await;
                world.collect().await.unwrap();
                for known in world.images.all().await.unwrap().into_values() {
                    if known.record.state == ImageState::Head {
                        world.reopen(known.record.volume).await.unwrap();
                    }
                }
                let found = Audit(&world.collector()).run(true).await.unwrap();
                assert_eq!(found.losses, [], "operation {operation}, step {step}");
                assert!(
                    !done || found.leaks.is_empty(),
                    "operation {operation}: {:?}",
                    found.leaks
                );
                world.check(true).await;
                if done {
                    assert!(step > 4, "operation {operation} has steps");
                    break;
                }
            }
        }
    });
}

#[test]
fn an_audit_finds_what_is_lost_and_what_is_left_and_touches_nothing_else() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        for index in 0..20 {
            world.write(volume, index, true).await;
        }
        world.snapshot(volume).await.unwrap();
        world.write(volume, 3, true).await;
        world.commit(volume).await.unwrap();
        // In no map yet.
        world.write(volume, 9, true).await;
        let report = Audit(&world.collector()).run(false).await.unwrap();
        assert_eq!(
            (report.losses.len(), report.leaks.len(), report.references),
            (0, 0, 20 + 1 + 2)
        );
        let objects = world.memory.names();
        // Left by a crash: of this volume, and of one that is no more.
        let store = crate::names::Stores::new(&[crate::names::StoreNumber(2)]).unwrap();
        let data = base::View::copy_of(b"x");
        world
            .memory
            .put(&store, "v/00000001/0000000001/00000055", data.clone());
        world
            .memory
            .put(&store, "m/00000000/0000000009/00000000", data.clone());
        // A volume that is made right now.
        world
            .memory
            .put(&store, "v/00000002/0000000001/00000000", data);
        let (_, head) = super::world::heads(&world.images, volume).await.unwrap();
        let entry = world.entries(head.record.root).await[&5];
        let name = entry.top.name(5).to_string();
        let lost = entry.top.stores.as_slice()[1];
        assert!(world.memory.take(lost, &name));
        let report = Audit(&world.collector()).run(true).await.unwrap();
        assert_eq!(report.losses.len(), 1, "{report:?}");
        let loss = &report.losses[0];
        assert_eq!(
            (loss.name.to_string(), loss.store, loss.left),
            (name, lost, 1)
        );
        let leaks: Vec<_> = report
            .leaks
            .iter()
            .map(|(_, name)| name.to_string())
            .collect();
        assert_eq!(
            leaks,
            [
                "v/00000001/0000000001/00000055",
                "m/00000000/0000000009/00000000"
            ]
        );
        let mut expected = objects;
        expected.insert("v/00000002/0000000001/00000000".to_owned());
        assert_eq!(world.memory.names(), expected);
    });
}

#[test]
fn an_audit_beside_a_committing_writer_finds_no_loss_and_no_false_leak() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        for index in 0..3_000 {
            world.write(volume, index, true).await;
        }
        world.commit(volume).await.unwrap();
        let first = world.images.volume(volume).await.unwrap().record.generation;
        let collector = world.collector();
        let audit = env::spawn(async move { Audit(&collector).run(true).await.unwrap() });
        while !audit.is_done() {
            for n in 0..7 {
                world.write(volume, n * 411, true).await;
            }
            world.open[&volume].map.remove(2_999).await.unwrap();
            world.commit(volume).await.unwrap();
        }
        let report = audit.await;
        assert_eq!(report.losses, []);
        let last = world.images.volume(volume).await.unwrap().record.generation;
        assert!(
            last.0 > first.0 + 1,
            "commits went on beside it: {first} to {last}"
        );
        world.check(true).await;
    });
}

#[test]
fn an_audit_frees_nothing_below_a_node_that_is_gone() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        for index in [1, 2, 600] {
            world.write(volume, index, true).await;
        }
        world.commit(volume).await.unwrap();
        let (_, head) = super::world::heads(&world.images, volume).await.unwrap();
        let extents: Vec<String> = (world.memory.names().into_iter())
            .filter(|name| name.starts_with("v/"))
            .collect();
        let top = head.record.root.node.unwrap();
        let leaf = (world.memory.names().into_iter())
            .find(|name| name.starts_with("m/") && *name != top.name().to_string())
            .unwrap();
        for store in 0..4 {
            world.memory.take(StoreNumber(store), &leaf);
        }
        let report = Audit(&world.collector()).run(true).await.unwrap();
        assert_eq!(report.leaks, []);
        assert_eq!(report.losses.len(), 2, "{report:?}");
        let there = world.memory.names();
        assert!(extents.iter().all(|name| there.contains(name)), "{there:?}");
    });
}

#[test]
fn an_audit_leaves_a_copy_alone_that_was_made_since_the_map_was_committed() {
    run(async {
        let mut world = World::new();
        let volume = world.create(SIZE).await.unwrap();
        world.write(volume, 7, true).await;
        world.commit(volume).await.unwrap();
        let (_, head) = super::world::heads(&world.images, volume).await.unwrap();
        let top = world.entries(head.record.root).await[&7].top;
        let third = (0..4)
            .map(StoreNumber)
            .find(|store| !top.stores.contains(*store))
            .unwrap();
        world.memory.put(
            &Stores::new(&[third]).unwrap(),
            &top.name(7).to_string(),
            base::View::copy_of(b"data"),
        );
        let before = world.memory.copies();
        let report = Audit(&world.collector()).run(true).await.unwrap();
        assert_eq!((report.leaks.len(), report.losses.len()), (0, 0));
        assert_eq!(world.memory.copies(), before);
    });
}

#[test]
fn a_store_that_is_down_holds_up_only_what_is_on_it() {
    run(async {
        let mut world = World::new();
        let mut snapshots = Vec::new();
        for _ in 0..4 {
            let volume = world.create(SIZE).await.unwrap();
            world.write(volume, 3, true).await;
            snapshots.push(world.snapshot(volume).await.unwrap());
            world.write(volume, 3, true).await;
            world.commit(volume).await.unwrap();
            // The next volume's objects are one store further.
            world.memory.place();
        }
        let old: Vec<_> = (world.memory.copies().into_iter())
            .filter(|(_, name)| name.starts_with("v/") && name.contains("/0000000001/"))
            .collect();
        assert_eq!(old.len(), 8);
        for snapshot in &snapshots {
            world.delete_snapshot(*snapshot).await.unwrap();
        }
        world.memory.down(Some(StoreNumber(0)));
        let message = world.collect().await.unwrap_err().to_string();
        assert!(
            message.contains("on store 0: the store is down"),
            "{message}"
        );
        let there = world.memory.copies();
        let left: Vec<_> = old.iter().filter(|copy| there.contains(copy)).collect();
        assert!(
            left.len() == 2 && left.iter().all(|(store, _)| *store == StoreNumber(0)),
            "all that can be freed is: {left:?}"
        );
        let images = world.images.all().await.unwrap();
        let kept: Vec<bool> = snapshots.iter().map(|id| images.contains_key(id)).collect();
        // Only of the second one nothing is on the store.
        assert_eq!(kept, [true, false, true, true]);
        world.memory.down(None);
        world.collect().await.unwrap();
        world.check(true).await;
        let images = world.images.all().await.unwrap();
        assert!(!snapshots.iter().any(|id| images.contains_key(id)));
    });
}

#[test]
fn an_audit_looks_below_both_of_two_nodes_that_bear_one_name() {
    run(async {
        let mut world = World::new();
        let owner = world.create(SIZE).await.unwrap();
        let other = world.create(SIZE).await.unwrap();
        let born = Generation(1);
        // Two writers that knew nothing of each other, on other stores each.
        for (volume, index) in [(owner, 5), (other, 6)] {
            let stores = world.memory.place();
            let layer = Layer {
                owner,
                born,
                stores,
            };
            let name = layer.name(index).to_string();
            world
                .memory
                .put(&stores, &name, base::View::copy_of(b"data"));
            let empty = Root::empty(Generation(0));
            let map = Map::open(world.reader(), owner, empty, 100, Generation(0));
            map.set(index, Entry::full(layer)).await.unwrap();
            let root = map.commit(born).await.unwrap().root;
            let known = world.images.volume(volume).await.unwrap();
            let (_, change) = image::advance(&known);
            world.images.change(change).await.unwrap();
            let (known, head) = super::world::heads(&world.images, volume).await.unwrap();
            let (_, change) = image::commit(&known, &head, root).unwrap();
            world.images.change(change).await.unwrap();
        }
        let before = world.memory.copies();
        assert_eq!(world.memory.names().len(), 3, "one name for both nodes");
        let report = Audit(&world.collector()).run(true).await.unwrap();
        assert_eq!(report.leaks, []);
        assert_eq!(world.memory.copies(), before);
    });
}
