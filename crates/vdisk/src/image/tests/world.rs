//! A small cluster: stores and a meta store in memory, volumes written to as an engine would, without data.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, View};

use super::failing::Failing;
use crate::image::collect::Collector;
use crate::image::records::{Images, ImagesError};
use crate::image::tree::{self as image, Versioned};
use crate::map::cache::Cache;
use crate::map::memory::Memory;
use crate::map::node::{FANOUT, Place};
use crate::map::reader::Reader;
use crate::map::{Entry, Freed, Layer, Map, MapError, Root};
use crate::meta::MemoryMetaStore;
use crate::names::{EXTENT, Generation, ImageId, VolumeId};
use crate::record::extents;

pub(crate) struct World {
    pub memory: Rc<Memory>,
    pub images: Images,
    pub open: BTreeMap<VolumeId, Open>,
    named: u32,
}

/// A volume in use.
pub(crate) struct Open {
    pub map: Map,
    /// What is allocated now is born in this generation.
    pub generation: Generation,
    pub head: ImageId,
    /// Of commits whose root may not be in the meta store yet.
    deferred_frees: Freed,
}

impl World {
    pub fn new() -> World {
        let memory = Memory::new(4, 2);
        let meta = Rc::new(Failing {
            below: MemoryMetaStore::new("meta").client(),
            memory: memory.clone(),
        });
        World {
            memory,
            images: Images { meta },
            open: BTreeMap::new(),
            named: 0,
        }
    }

    pub fn name(&mut self) -> crate::record::Name {
        self.named += 1;
        format!("n{}", self.named).parse().unwrap()
    }

    pub fn reader(&self) -> Rc<Reader> {
        Reader::new(self.memory.clone(), Cache::new(Bytes::mib(1)))
    }

    pub fn collector(&self) -> Collector {
        Collector {
            images: self.images.clone(),
            reader: self.reader(),
            objects: self.memory.clone(),
        }
    }

    pub async fn create(&mut self, size: u64) -> Result<VolumeId, ImagesError> {
        let name = self.name();
        let numbers = self.images.numbers().await?;
        let (volume, change) = image::create(&numbers, name, size, 2, 1)?;
        self.images.change(change).await?;
        self.reopen(volume.id).await?;
        Ok(volume.id)
    }

    /// Opens a volume as after a crash: what is in no map is gone.
    pub async fn reopen(&mut self, id: VolumeId) -> Result<(), ImagesError> {
        self.open.remove(&id);
        let (_, head) = heads(&self.images, id).await?;
        let images = self.images.all().await?;
        let (head, all) = (head.record, Generation::MAX);
        self.collector().free_lost(&images, &head, all).await?;
        self.begin(id).await
    }

    async fn begin(&mut self, id: VolumeId) -> Result<(), ImagesError> {
        let (volume, change) = image::advance(&self.images.volume(id).await?);
        self.images.change(change).await?;
        let head = self.images.image(volume.head).await?.record;
        let map = Map::open(self.reader(), id, head.root, extents(head.size), head.since);
        let open = Open {
            map,
            generation: volume.generation,
            head: head.id,
            deferred_frees: Freed::default(),
        };
        self.open.insert(id, open);
        Ok(())
    }

    /// Writes to a part of an extent: in place where the head's own object is on top, else into an overlay, or a new whole.
    pub async fn write(&mut self, id: VolumeId, index: u32, whole: bool) {
        let memory = &self.memory;
        let open = self.open.get_mut(&id).unwrap();
        let new = Layer {
            owner: id,
            born: open.generation,
            stores: memory.place(),
        };
        let entry = match open.map.get(index).await.unwrap() {
            Some(old) if old.top.born == open.generation && old.top.owner == id => return,
            Some(old) if !whole && old.top.born > open.map.since() => {
                assert!(memory.names().contains(&old.top.name(index).to_string()));
                return;
            }
            Some(Entry { top, base: None }) if !whole => Entry::overlay(new, top),
            _ => Entry::full(new),
        };
        memory.put(
            &new.stores,
            &new.name(index).to_string(),
            View::copy_of(b"data"),
        );
        open.map.set(index, entry).await.unwrap();
    }

    /// Commits: nodes, then the root, then what it replaced is freed.
    pub async fn commit(&mut self, id: VolumeId) -> Result<Root, ImagesError> {
        let (volume, change) = image::advance(&self.images.volume(id).await?);
        self.images.change(change).await?;
        let open = self.open.get_mut(&id).unwrap();
        let generation = std::mem::replace(&mut open.generation, volume.generation);
        let commit = open.map.commit(generation).await?;
        open.deferred_frees.join(commit.replaced);
        let (volume, head) = heads(&self.images, id).await?;
        open.map.set_since(head.record.since);
        let (_, change) = image::commit(&volume, &head, commit.root)?;
        self.images.change(change).await?;
        let collector = self.collector();
        let deferred_frees = std::mem::take(&mut self.open.get_mut(&id).unwrap().deferred_frees);
        collector
            .free(&deferred_frees.later_than(head.record.since))
            .await?;
        Ok(commit.root)
    }

    pub async fn snapshot(&mut self, id: VolumeId) -> Result<ImageId, ImagesError> {
        self.commit(id).await?;
        let name = self.name();
        let numbers = self.images.numbers().await?;
        let (volume, head) = heads(&self.images, id).await?;
        let (new, change) = image::snapshot(&numbers, &volume, &head, name)?;
        self.images.change(change).await?;
        let open = self.open.get_mut(&id).unwrap();
        open.map.set_since(new.since);
        open.head = new.id;
        Ok(head.record.id)
    }

    pub async fn clone(&mut self, source: ImageId) -> Result<VolumeId, ImagesError> {
        let name = self.name();
        let numbers = self.images.numbers().await?;
        let source = self.images.image(source).await?;
        let of = self.images.volume(source.record.volume).await?;
        let (volume, change) = image::clone(&numbers, &source, &of, name)?;
        self.images.change(change).await?;
        self.begin(volume.id).await?;
        Ok(volume.id)
    }

    pub async fn rollback(&mut self, id: VolumeId, target: ImageId) -> Result<(), ImagesError> {
        self.open.remove(&id);
        let numbers = self.images.numbers().await?;
        let (volume, head) = heads(&self.images, id).await?;
        let target = self.images.image(target).await?;
        let (_, change) = image::rollback(&numbers, &volume, &head, &target)?;
        self.images.change(change).await?;
        self.reopen(id).await
    }

    /// Gives an image a map that says the same in other nodes, as its writer does when they are to leave a store. Nothing if
    /// a child has any of them.
    pub async fn relocate(&mut self, id: ImageId) -> Result<(), ImagesError> {
        let all = self.images.all().await?;
        let known = &all[&id];
        let (image, nodes) = (
            &known.record,
            self.reachable(known.record.root, false).await,
        );
        for child in all.values().filter(|it| it.record.parent == Some(id)) {
            let shared = self.reachable(child.record.root, true).await;
            let mut shared = shared.intersection(&nodes);
            if shared.any(|name| crate::names::NodeName::parse(name).is_some()) {
                return Ok(());
            }
        }
        let numbers = self
            .images
            .numbers()
            .await?
            .changed
            .expect("there are some");
        let (volume, change) = image::advance(&self.images.volume(image.volume).await?);
        self.images.change(change).await?;
        let open = self.open.get_mut(&image.volume).unwrap();
        let generation = std::mem::replace(&mut open.generation, volume.generation);
        let map = Map::open(
            self.reader(),
            volume.id,
            image.root,
            extents(image.size),
            image.since,
        );
        for index in entries(&map).await.into_keys() {
            map.renew(index).await?;
        }
        if !map.is_dirty() {
            return Ok(());
        }
        let commit = map.commit(generation).await?;
        let volume = self.images.volume(image.volume).await?;
        let change = image::relocate(&volume, known, numbers, commit.root);
        self.images.change(change).await?;
        let mut freed = commit.replaced;
        if let Some(parent) = image.parent {
            let has = self.reachable(all[&parent].record.root, true).await;
            freed
                .nodes
                .retain(|node| !has.contains(&node.name().to_string()));
        }
        self.collector().free(&freed).await
    }

    pub async fn delete_snapshot(&mut self, image: ImageId) -> Result<(), ImagesError> {
        let image = self.images.image(image).await?;
        self.images.change(image::delete_snapshot(&image)?).await
    }

    pub async fn delete_volume(&mut self, id: VolumeId) -> Result<(), ImagesError> {
        self.open.remove(&id);
        let (volume, head) = heads(&self.images, id).await?;
        let count = self.images.snapshots(id).await?;
        self.images
            .change(image::delete_volume(&volume, &head, count)?)
            .await
    }

    pub async fn resize(&mut self, id: VolumeId, count: u32) -> Result<(), ImagesError> {
        self.open[&id].map.resize(count).await?;
        self.commit(id).await?;
        let (volume, head) = heads(&self.images, id).await?;
        let (_, change) = image::resize(&volume, &head, u64::from(count) * EXTENT)?;
        self.images.change(change).await
    }

    /// Deletes what is to be deleted; the volumes in use take note of it, as they would with their next commit.
    pub async fn collect(&mut self) -> Result<(), ImagesError> {
        self.collector().run().await?;
        for open in self.open.values() {
            let head = self.images.image(open.head).await?;
            open.map.set_since(head.record.since);
        }
        Ok(())
    }

    /// All that a map has, read cold.
    pub async fn entries(&self, root: Root) -> BTreeMap<u32, Entry> {
        let map = Map::open(self.reader(), VolumeId(0), root, u32::MAX, Generation(0));
        entries(&map).await
    }

    /// Names of all objects of a map, nodes too; of one that is being freed what is still found.
    pub async fn reachable(&self, root: Root, freed: bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let top = root.node.map(|node| {
            (
                node,
                Place {
                    level: root.level,
                    nth: 0,
                },
            )
        });
        let mut ahead: Vec<_> = top.into_iter().collect();
        let reader = self.reader();
        while let Some((node, place)) = ahead.pop() {
            names.insert(node.name().to_string());
            let whole = match reader.node(&node, place).await {
                Err(MapError::Absent { .. }) if freed => continue,
                whole => whole.unwrap(),
            };
            for slot in 0..FANOUT as usize {
                if place.level > 0 {
                    ahead.extend(whole.child(slot).map(|child| (child, place.child(slot))));
                } else if let Some(entry) = whole.entry(slot) {
                    let index = place.first(slot) as u32;
                    names.extend(entry.layers().map(|layer| layer.name(index).to_string()));
                }
            }
        }
        names
    }

    /// No readable image lacks anything, and nothing is there that none needs: but what open volumes have not
    /// committed, and what deferred-delete images hold.
    pub async fn check(&self, exact: bool) {
        let mut needed = BTreeSet::new();
        let mut held = BTreeSet::new();
        for known in self.images.all().await.unwrap().values() {
            let image = &known.record;
            if image.is_live() {
                needed.extend(self.reachable(image.root, false).await);
            } else {
                held.extend(self.reachable(image.root, true).await);
            }
        }
        let there = self.memory.names();
        let lost: Vec<_> = needed.difference(&there).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        if !exact {
            return;
        }
        for (id, open) in &self.open {
            let head = self.images.image(open.head).await.unwrap();
            for (index, entry) in entries(&open.map).await {
                held.extend(entry.layers().map(|layer| layer.name(index).to_string()));
            }
            // Replaced since the last commit: to be freed with the next.
            held.extend(
                there
                    .iter()
                    .filter(|name| {
                        let name = crate::names::ExtentName::parse(name);
                        name.is_some_and(|name| {
                            name.owner == *id && name.born > head.record.root.generation
                        })
                    })
                    .cloned(),
            );
        }
        let left: Vec<_> = there
            .iter()
            .filter(|name| !needed.contains(*name) && !held.contains(*name))
            .collect();
        assert!(left.is_empty(), "no image needs {left:?}");
    }
}

pub(crate) async fn entries(map: &Map) -> BTreeMap<u32, Entry> {
    let mut found = BTreeMap::new();
    let mut from = 0;
    while let Some((index, entry)) = map.next(from).await.unwrap() {
        found.insert(index, entry);
        from = index + 1;
    }
    found
}

pub(crate) async fn heads(
    images: &Images,
    id: VolumeId,
) -> Result<
    (
        Versioned<crate::record::VolumeRecord>,
        Versioned<image::ImageRecord>,
    ),
    ImagesError,
> {
    let volume = images.volume(id).await?;
    let head = images.image(volume.record.head).await?;
    Ok((volume, head))
}
