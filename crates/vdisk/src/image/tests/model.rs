//! Random lives of volumes, beside reference models that copy a whole map for each snapshot.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::world::{World, entries, heads};
use crate::image::audit::Audit;
use crate::image::tree::ImageState;
use crate::map::Entry;
use crate::names::{EXTENT, ImageId, VolumeId};

#[derive(Debug, Clone)]
enum Act {
    Write {
        volume: usize,
        index: u32,
        whole: bool,
    },
    Discard {
        volume: usize,
        index: u32,
    },
    Commit(usize),
    Crash(usize),
    FailedCommit {
        volume: usize,
        step: u64,
    },
    Snapshot(usize),
    Clone(usize),
    Rollback {
        volume: usize,
        snapshot: usize,
    },
    DeleteSnapshot(usize),
    DeleteVolume(usize),
    Resize {
        volume: usize,
        count: u32,
    },
    /// A snapshot gets other nodes.
    Relocate(usize),
    Collect,
    FailedCollect(u64),
}

/// Extents at the borders of nodes, so that few writes make several levels.
const PLACES: [u32; 8] = [0, 1, 509, 510, 1_020, 260_099, 260_100, 300_000];
const EXTENTS: u32 = 300_001;

fn act() -> impl Strategy<Value = Act> {
    let index = || prop::sample::select(&PLACES[..]);
    let nth = 0..8_usize;
    prop_oneof![
        10 => (nth.clone(), index(), any::<bool>())
            .prop_map(|(volume, index, whole)| Act::Write { volume, index, whole }),
        2 => (nth.clone(), index()).prop_map(|(volume, index)| Act::Discard { volume, index }),
        3 => nth.clone().prop_map(Act::Commit),
        1 => nth.clone().prop_map(Act::Crash),
        1 => (nth.clone(), 0..8_u64).prop_map(|(volume, step)| Act::FailedCommit { volume, step }),
        3 => nth.clone().prop_map(Act::Snapshot),
        2 => nth.clone().prop_map(Act::Clone),
        1 => (nth.clone(), nth.clone()).prop_map(|(volume, snapshot)| Act::Rollback { volume, snapshot }),
        3 => nth.clone().prop_map(Act::DeleteSnapshot),
        1 => nth.clone().prop_map(Act::DeleteVolume),
        1 => (nth.clone(), prop::sample::select(vec![1, 510, 511, 260_100, EXTENTS]))
            .prop_map(|(volume, count)| Act::Resize { volume, count }),
        2 => nth.prop_map(Act::Relocate),
        2 => Just(Act::Collect),
        1 => (0..20_u64).prop_map(Act::FailedCollect),
    ]
}

/// What should be: whole maps.
#[derive(Default)]
struct ReferenceModel {
    now: BTreeMap<VolumeId, BTreeMap<u32, Entry>>,
    committed: BTreeMap<VolumeId, BTreeMap<u32, Entry>>,
    /// By image: of which volume, and what is in it.
    snapshots: BTreeMap<ImageId, (VolumeId, BTreeMap<u32, Entry>)>,
}

struct Life {
    world: World,
    model: ReferenceModel,
    /// Something failed, and an audit is due.
    untidy: bool,
}

fn pick<K: Copy, V>(from: &BTreeMap<K, V>, n: usize) -> Option<K> {
    from.keys().nth(n.checked_rem(from.len())?).copied()
}

impl Life {
    async fn act(&mut self, act: Act) {
        let (world, model) = (&mut self.world, &mut self.model);
        match act {
            Act::Write { volume: n, .. }
            | Act::Discard { volume: n, .. }
            | Act::Commit(n)
            | Act::Crash(n)
            | Act::FailedCommit { volume: n, .. }
            | Act::Snapshot(n)
            | Act::Rollback { volume: n, .. }
            | Act::DeleteVolume(n)
            | Act::Resize { volume: n, .. } => {
                if let Some(volume) = pick(&model.now, n) {
                    self.act_on(volume, act).await;
                }
            }
            Act::Clone(n) => {
                let Some(image) = pick(&model.snapshots, n) else {
                    return;
                };
                let of = model.snapshots[&image].0;
                if world.open.len() < 6 && world.open.contains_key(&of) {
                    let volume = world.clone(image).await.unwrap();
                    let map = model.snapshots[&image].1.clone();
                    model.now.insert(volume, map.clone());
                    model.committed.insert(volume, map);
                }
            }
            Act::DeleteSnapshot(n) => {
                if let Some(image) = pick(&model.snapshots, n) {
                    world.delete_snapshot(image).await.unwrap();
                    model.snapshots.remove(&image);
                }
            }
            Act::Relocate(n) => {
                if let Some(image) = pick(&model.snapshots, n) {
                    let volume = world.images.image(image).await.unwrap().record.volume;
                    assert!(model.now.contains_key(&volume));
                    world.relocate(image).await.unwrap();
                }
            }
            Act::Collect => world.collect().await.unwrap(),
            Act::FailedCollect(step) => {
                world.memory.fail_in(Some(step));
                drop(world.collect().await);
                world.memory.fail_in(None);
            }
        }
    }

    async fn act_on(&mut self, volume: VolumeId, act: Act) {
        let (world, model) = (&mut self.world, &mut self.model);
        match act {
            Act::Write { index, whole, .. } if index < world.open[&volume].map.extents() => {
                let born = world.open[&volume].generation;
                world.write(volume, index, whole).await;
                // The stores are chosen by turns: the model takes the object that was made, and says what became of the old.
                let made = world.open[&volume].map.get(index).await.unwrap().unwrap();
                let now = model.now.get_mut(&volume).unwrap();
                let expected = match now.get(&index) {
                    _ if made.top.born != born => now[&index],
                    Some(old) if old.top.is(&made.top) => *old,
                    Some(old) if !whole && old.base.is_none() => Entry::overlay(made.top, old.top),
                    _ => Entry::full(made.top),
                };
                now.insert(index, expected);
            }
            Act::Discard { index, .. } if index < world.open[&volume].map.extents() => {
                world.open[&volume].map.remove(index).await.unwrap();
                model.now.get_mut(&volume).unwrap().remove(&index);
            }
            Act::Commit(_) => {
                world.commit(volume).await.unwrap();
                model.committed.insert(volume, model.now[&volume].clone());
            }
            Act::Crash(_) => {
                world.reopen(volume).await.unwrap();
                model.now.insert(volume, model.committed[&volume].clone());
            }
            Act::FailedCommit { step, .. } => {
                world.memory.fail_in(Some(step));
                let before = heads(&world.images, volume).await;
                let done = world.commit(volume).await.is_ok();
                world.memory.fail_in(None);
                // The writer does not know, crashes, and finds one or the other.
                let after = heads(&world.images, volume).await.unwrap();
                let moved =
                    done || before.is_ok_and(|before| before.1.record.root != after.1.record.root);
                if moved {
                    model.committed.insert(volume, model.now[&volume].clone());
                }
                self.untidy = true;
                if !done {
                    world.reopen(volume).await.unwrap();
                    let root = after.1.record.root;
                    // With `heads` failing it is indeterminate whether it moved: it is one of the two, whole.
                    let found = world.entries(root).await;
                    assert!(found == model.committed[&volume] || found == model.now[&volume]);
                    model.committed.insert(volume, found.clone());
                    model.now.insert(volume, found);
                }
            }
            Act::Snapshot(_) => {
                let image = world.snapshot(volume).await.unwrap();
                model.committed.insert(volume, model.now[&volume].clone());
                model
                    .snapshots
                    .insert(image, (volume, model.now[&volume].clone()));
            }
            Act::Rollback { snapshot, .. } => {
                let own = (model.snapshots.iter()).filter(|(_, (of, _))| *of == volume);
                let own: BTreeMap<_, _> = own.map(|(id, (_, map))| (*id, map.clone())).collect();
                if let Some(target) = pick(&own, snapshot) {
                    world.rollback(volume, target).await.unwrap();
                    model.now.insert(volume, own[&target].clone());
                    model.committed.insert(volume, own[&target].clone());
                }
            }
            Act::DeleteVolume(_) if !model.snapshots.values().any(|(of, _)| *of == volume) => {
                world.delete_volume(volume).await.unwrap();
                model.now.remove(&volume);
                model.committed.remove(&volume);
            }
            Act::Resize { count, .. } => {
                world.resize(volume, count).await.unwrap();
                model
                    .now
                    .get_mut(&volume)
                    .unwrap()
                    .retain(|index, _| *index < count);
                model.committed.insert(volume, model.now[&volume].clone());
            }
            _ => (),
        }
    }

    async fn compare(&mut self) {
        for (volume, map) in &self.model.now {
            assert_eq!(
                entries(&self.world.open[volume].map).await,
                *map,
                "now: {volume}"
            );
            let (_, head) = heads(&self.world.images, *volume).await.unwrap();
            let committed = self.world.entries(head.record.root).await;
            assert_eq!(
                committed, self.model.committed[volume],
                "committed: {volume}"
            );
        }
        for (image, (_, map)) in &self.model.snapshots {
            let known = self.world.images.image(*image).await.unwrap();
            assert!(matches!(known.record.state, ImageState::Snapshot(_)));
            assert_eq!(
                self.world.entries(known.record.root).await,
                *map,
                "snapshot {image}"
            );
        }
    }

    /// Deletes all there is: nothing may be left.
    async fn end(mut self) {
        for image in self.model.snapshots.keys() {
            self.world.delete_snapshot(*image).await.unwrap();
        }
        for volume in self.model.now.keys() {
            self.world.delete_volume(*volume).await.unwrap();
        }
        self.world.collect().await.unwrap();
        let found = Audit(&self.world.collector()).run(true).await.unwrap();
        assert!(self.untidy || found.leaks.is_empty(), "{:?}", found.leaks);
        assert_eq!(self.world.memory.names().len(), 0);
        assert_eq!(self.world.images.all().await.unwrap().len(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn images_are_what_whole_copies_would_be_and_nothing_is_lost_or_left(
        acts in prop::collection::vec(act(), 1..60),
    ) {
        env::Runtime::simulated(1).block_on(async move {
            let mut life = Life { world: World::new(), model: ReferenceModel::default(), untidy: false };
            let volume = life.world.create(u64::from(EXTENTS) * EXTENT).await.unwrap();
            life.model.now.insert(volume, BTreeMap::new());
            life.model.committed.insert(volume, BTreeMap::new());
            for act in acts {
                let collected = matches!(act, Act::Collect);
                life.act(act).await;
                life.compare().await;
                if life.untidy && collected {
                    Audit(&life.world.collector()).run(true).await.unwrap();
                }
                life.world.check(collected).await;
            }
            life.end().await;
        });
    }
}
