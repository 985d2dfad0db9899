//! One behaviour each.

use std::rc::Rc;

use super::*;
use crate::map::MapError;
use crate::map::memory::Counters;
use crate::map::node::{FANOUT, NODE};

fn run(scene: impl Future<Output = ()> + 'static) {
    env::Runtime::simulated(1).block_on(scene);
}

/// All that is allocated.
async fn all(map: &Map) -> Vec<(u32, Entry)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((index, entry)) = map.next(from).await.unwrap() {
        found.push((index, entry));
        from = index + 1;
    }
    found
}

const FAR: [u32; 7] = [0, 1, 509, 510, 260_099, 260_100, 268_435_455];

#[test]
fn entries_are_found_before_and_after_a_commit_and_from_its_root() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 28);
        for (n, index) in FAR.into_iter().enumerate() {
            assert_eq!(map.set(index, full(n as u64 + 1)).await.unwrap(), None);
        }
        let entries: Vec<_> = FAR.into_iter().zip((1..).map(full)).collect();
        assert_eq!(all(&map).await, entries);
        let commit = map.commit(Generation(7)).await.unwrap();
        assert_eq!(all(&map).await, entries);
        // Three levels above the leaves: the last extent needs a path of its own below the first node.
        assert_eq!(
            (commit.root.level, commit.written.len()),
            (3, 5 + 3 + 2 + 1)
        );
        assert!(commit.replaced.is_empty(), "{:?}", commit.replaced);
        let again = super::map(&memory, commit.root, 1 << 28);
        assert_eq!(all(&again).await, entries);
        assert_eq!(again.get(2).await.unwrap(), None);
    });
}

#[test]
fn a_commit_writes_what_changed_and_the_old_root_reads_as_before() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 100_000);
        for index in 0..2_000 {
            map.set(index, full(1)).await.unwrap();
        }
        let first = map.commit(Generation(1)).await.unwrap();
        assert_eq!(first.written.len(), 4 + 1);
        map.set(700, full(2)).await.unwrap();
        map.remove(701).await.unwrap();
        let second = map.commit(Generation(2)).await.unwrap();
        assert_eq!(second.written.len(), 2);
        // The leaf and the root were the head's own, and so were both extents.
        assert_eq!(second.replaced.nodes.len(), 2);
        let dropped = [(700, layer(1)), (701, layer(1))];
        assert_eq!(second.replaced.extents, dropped);
        let old = super::map(&memory, first.root, 100_000);
        assert_eq!(all(&old).await.len(), 2_000);
        assert_eq!(old.get(700).await.unwrap(), Some(full(1)));
        assert_eq!(map.get(700).await.unwrap(), Some(full(2)));
    });
}

#[test]
fn what_an_older_image_has_is_not_freed() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 100_000);
        map.set(5, full(1)).await.unwrap();
        map.set(600, full(1)).await.unwrap();
        map.commit(Generation(1)).await.unwrap();
        // A snapshot is taken here.
        map.set(5, Entry::overlay(layer(2), layer(1)))
            .await
            .unwrap();
        let second = map.commit(Generation(2)).await.unwrap();
        assert!(second.replaced.later_than(Generation(1)).is_empty());
        map.set(5, full(3)).await.unwrap();
        let third = map.commit(Generation(3)).await.unwrap();
        let freed = third.replaced.later_than(Generation(1));
        assert_eq!(freed.extents, [(5, layer(2))]);
        assert_eq!(freed.nodes.len(), 2);
        assert!(freed.nodes.iter().all(|node| node.born == Generation(2)));
    });
}

#[test]
fn changes_made_while_a_commit_is_written_are_the_next_ones() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = Rc::new(map(&memory, Root::empty(Generation(0)), 1 << 28));
        for index in [1, 1_000, 300_000] {
            map.set(index, full(1)).await.unwrap();
        }
        let writer = Rc::clone(&map);
        let commit = env::spawn(async move { writer.commit(Generation(1)).await.unwrap() });
        env::yield_now().await;
        assert!(matches!(
            map.begin(Generation(2)).map(drop),
            Err(MapError::Busy)
        ));
        map.set(1, full(2)).await.unwrap();
        map.set(2, full(2)).await.unwrap();
        map.remove(1_000).await.unwrap();
        // One level more than the commit under way has.
        map.set(150_000_000, full(2)).await.unwrap();
        let first = commit.await;
        let snapshot = super::map(&memory, first.root, 1 << 28);
        let before: Vec<_> = [1, 1_000, 300_000].map(|index| (index, full(1))).into();
        assert_eq!(all(&snapshot).await, before);
        let now = [
            (1, full(2)),
            (2, full(2)),
            (300_000, full(1)),
            (150_000_000, full(2)),
        ];
        assert_eq!(all(&map).await, now);
        let second = map.commit(Generation(2)).await.unwrap();
        assert_eq!(all(&super::map(&memory, second.root, 1 << 28)).await, now);
        let mut left = memory.names();
        for node in &second.replaced.nodes {
            assert!(left.remove(&node.name().to_string()), "freed once: {node}");
        }
        assert_eq!(second.replaced.extents, [(1, layer(1)), (1_000, layer(1))]);
    });
}

#[test]
fn a_commit_that_fails_anywhere_leaves_the_old_root_and_loses_no_change() {
    run(async {
        for step in 0.. {
            let memory = Memory::new(4, 2);
            let map = map(&memory, Root::empty(Generation(0)), 1 << 28);
            for index in [1, 1_000, 300_000] {
                map.set(index, full(1)).await.unwrap();
            }
            let first = map.commit(Generation(1)).await.unwrap();
            map.set(1, full(2)).await.unwrap();
            map.set(2_000, full(2)).await.unwrap();
            memory.fail_in(Some(step));
            let tried = map.commit(Generation(2)).await;
            let done = tried.is_ok();
            memory.fail_in(None);
            assert_eq!(
                all(&super::map(&memory, first.root, 1 << 28)).await.len(),
                3
            );
            map.set(3, full(3)).await.unwrap();
            let commit = map.commit(Generation(3)).await.unwrap();
            let again = super::map(&memory, commit.root, 1 << 28);
            assert_eq!(all(&again).await, all(&map).await);
            assert_eq!(all(&again).await.len(), 5);
            // What is freed is all that the new root does not need.
            let mut freed = commit.replaced.nodes;
            if let Ok(commit) = tried {
                freed.extend(commit.replaced.nodes);
            }
            for node in freed {
                for store in node.stores.iter() {
                    assert!(memory.take(store, &node.name().to_string()), "{node}");
                }
            }
            // Of the nodes that were given to the stores together with the one that failed the outcome is
            // indeterminate.
            let unknown = memory.names().len() - nodes_of(&memory, commit.root).await;
            assert!(
                unknown == 0 || (!done && unknown < 3),
                "step {step}: {unknown}"
            );
            if done {
                assert_eq!(step, 4, "two leaves and two nodes above");
                break;
            }
        }
    });
}

/// How many nodes a cold reader needs to see all of it.
async fn nodes_of(memory: &Rc<Memory>, root: Root) -> usize {
    let before = memory.counters().reads;
    all(&map(memory, root, 1 << 28)).await;
    (memory.counters().reads - before) as usize
}

#[test]
fn a_dropped_commit_leaves_its_changes_to_the_next() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 28);
        map.set(1, full(1)).await.unwrap();
        drop(map.begin(Generation(1)).unwrap());
        map.set(600, full(2)).await.unwrap();
        let commit = map.commit(Generation(2)).await.unwrap();
        assert_eq!(
            all(&super::map(&memory, commit.root, 1 << 28)).await.len(),
            2
        );
    });
}

#[test]
fn a_commit_goes_on_from_the_last_one_and_is_not_older_than_what_it_holds() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(4)), 1_000);
        let refused = |generation| map.begin(Generation(generation)).map(drop).unwrap_err();
        assert!(matches!(refused(4), MapError::Generation { .. }));
        map.set(1, full(9)).await.unwrap();
        assert_eq!(
            refused(8).to_string(),
            "cannot commit generation 8 of a map that is at 9; generations rise with each commit"
        );
        assert!(map.commit(Generation(9)).await.is_ok());
    });
}

#[test]
fn a_small_cache_reads_again_what_it_dropped_and_never_grows() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        for leaf in 0..200 {
            map.set(leaf * FANOUT, full(1)).await.unwrap();
        }
        let root = map.commit(Generation(1)).await.unwrap().root;
        let small = reader(&memory, 3);
        let map = Map::open(small.clone(), VolumeId(1), root, 1 << 20, Generation(0));
        for _ in 0..2 {
            for leaf in 0..200 {
                assert_eq!(map.get(leaf * FANOUT).await.unwrap(), Some(full(1)));
                assert!(small.cache().counters().held <= 3 * 17_000);
            }
        }
        let counters = small.cache().counters();
        assert!(counters.evicted > 390, "{counters:?}");
        // The first node is used all the time, and stays.
        assert_eq!(memory.counters().reads, 400 + 1, "{counters:?}");
        assert!(map.get_now(0).is_none() && map.get_now(199 * FANOUT).is_some());
    });
}

#[test]
fn a_node_that_many_wait_for_is_read_once() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        map.set(77, full(1)).await.unwrap();
        let root = map.commit(Generation(1)).await.unwrap().root;
        let map = Rc::new(super::map(&memory, root, 1 << 20));
        let readers = (0..20).map(|_| map.get(77));
        for found in env::sync::join_all(readers).await {
            assert_eq!(found.unwrap(), Some(full(1)));
        }
        assert_eq!(
            memory.counters(),
            Counters {
                reads: 1,
                writes: 1,
                ..Counters::default()
            }
        );
    });
}

#[test]
fn a_shorter_map_drops_what_lies_behind_its_end() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        for index in [0, 99, 100, 70_000, 700_000] {
            map.set(index, full(1)).await.unwrap();
        }
        map.commit(Generation(1)).await.unwrap();
        map.resize(100).await.unwrap();
        let message = map.set(100, full(2)).await.unwrap_err().to_string();
        assert_eq!(
            message,
            "extent 100 is beyond the map's 100; make the volume larger first"
        );
        map.resize(1 << 20).await.unwrap();
        assert_eq!(all(&map).await, [(0, full(1)), (99, full(1))]);
        let freed = map.commit(Generation(2)).await.unwrap().replaced;
        let freed: Vec<u32> = freed.extents.iter().map(|(index, _)| *index).collect();
        assert_eq!(freed, [100, 70_000, 700_000]);
    });
}

#[test]
fn a_map_with_nothing_in_it_any_more_has_no_nodes() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        map.set(300_000, full(1)).await.unwrap();
        let first = map.commit(Generation(1)).await.unwrap();
        map.remove(300_000).await.unwrap();
        let second = map.commit(Generation(2)).await.unwrap();
        assert_eq!((second.root.node, second.written.len()), (None, 0));
        let by_name = |nodes: &[crate::map::NodeRef]| {
            let mut names: Vec<_> = nodes.iter().map(|node| node.name()).collect();
            names.sort();
            names
        };
        assert_eq!(by_name(&second.replaced.nodes), by_name(&first.written));
    });
}

#[test]
fn a_damaged_node_and_a_missing_one_give_different_errors() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        map.set(5, full(1)).await.unwrap();
        let root = map.commit(Generation(1)).await.unwrap().root;
        let name = root.node.unwrap().name().to_string();
        memory.rot(&name, NODE - 1);
        let message = super::map(&memory, root, 9)
            .get(5)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            message
                .starts_with("cannot read the map's node m/00000001/0000000001/00000000: no copy"),
            "{message}"
        );
        for store in root.node.unwrap().stores.iter() {
            assert!(memory.take(store, &name));
        }
        let message = super::map(&memory, root, 9)
            .get(5)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("is on none of its stores [0, 1]"),
            "{message}"
        );
    });
}

#[test]
fn an_extent_moved_or_set_again_in_one_generation_loses_its_old_copies() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(0)), 1 << 20);
        let on = |stores: &[u16]| {
            let stores: Vec<_> = stores.iter().copied().map(StoreNumber).collect();
            Layer {
                stores: Stores::new(&stores).unwrap(),
                ..layer(1)
            }
        };
        map.set(5, Entry::full(on(&[0, 1]))).await.unwrap();
        map.remove(5).await.unwrap();
        map.set(5, Entry::full(on(&[1, 2]))).await.unwrap();
        map.set(5, Entry::full(on(&[2, 3]))).await.unwrap();
        let freed = map.commit(Generation(1)).await.unwrap().replaced;
        assert_eq!(freed.extents, [(5, on(&[0, 1]))]);
        map.set(5, Entry::full(on(&[3]))).await.unwrap();
        let freed = map.commit(Generation(2)).await.unwrap().replaced;
        assert_eq!(freed.extents, [(5, on(&[2]))]);
    });
}

#[test]
fn a_node_of_the_same_name_and_another_content_is_not_taken_from_the_cache() {
    run(async {
        let memory = Memory::new(4, 2);
        let shared = reader(&memory, 64);
        let open = |root| Map::open(shared.clone(), VolumeId(1), root, 1_000, Generation(0));
        let mut roots = Vec::new();
        // Two writers that both took generation 1; the second knows nothing of the first.
        for index in [5, 6] {
            let map = map(&memory, Root::empty(Generation(0)), 1_000);
            map.set(index, full(1)).await.unwrap();
            roots.push((index, map.commit(Generation(1)).await.unwrap().root));
        }
        assert_eq!(
            roots[0].1.node.unwrap().name(),
            roots[1].1.node.unwrap().name()
        );
        for turn in 0..2 {
            for (index, root) in &roots {
                let stores = root.node.unwrap().stores;
                let found = all(&open(*root)).await;
                assert_eq!(found, [(*index, full(1))], "turn {turn}, from {stores:?}");
            }
        }
    });
}

#[test]
fn what_is_allocated_late_is_refused_and_what_moves_is_not() {
    run(async {
        let memory = Memory::new(4, 2);
        let map = map(&memory, Root::empty(Generation(4)), 1_000);
        assert!(map.set(1, full(4)).await.is_err(), "as old as the root");
        map.set(1, full(5)).await.unwrap();
        let committing = map.begin(Generation(7)).unwrap();
        for born in [5, 7] {
            assert!(
                map.set(2, full(born)).await.is_err(),
                "as old as the commit under way"
            );
        }
        map.set(2, full(8)).await.unwrap();
        committing.write().await.unwrap();
        let message = map.set(3, full(7)).await.unwrap_err().to_string();
        assert_eq!(
            message,
            "cannot enter extent 3, allocated in generation 7: the map is at 7 already; allocate it anew in a later one"
        );
        assert_eq!(map.get(3).await.unwrap(), None);
        let moved = Layer {
            stores: Stores::new(&[StoreNumber(3)]).unwrap(),
            ..layer(5)
        };
        map.set(1, Entry::overlay(layer(8), moved)).await.unwrap();
        map.set(1, Entry::full(moved)).await.unwrap();
        // What another volume allocated is as old as it is.
        let owner = VolumeId(2);
        map.set(4, Entry::full(Layer { owner, ..layer(3) }))
            .await
            .unwrap();
    });
}
