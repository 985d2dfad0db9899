//! Frees what deleted images alone had, step by step; a step that fails, or a crash, is gone on with later.
//!
//! ```text
//! deferred-delete image with two children   sweep: free extents that neither its parent nor a child has; its nodes stay
//! deferred-delete image with one or none    reparent -> walk: free those extents, and nodes, children before parents -> forget
//! ```
//!
//! The walk goes through three maps at once and skips each subtree that the image shares with a neighbour: the same
//! reference is the same node. So it reads what differs, and no more.
//!
//! Always true:
//! 1. What is freed was in the map of the image and of no neighbour at that moment; so no client will ever read it.
//! 2. A node of the image is freed after all below it, so a node that is gone says: nothing is left to do there. (The
//!    child's writer may have freed it too, in place of the image: what was below it then was the child's.)
//! 3. A store that does not answer holds up the images that have something there, and no others, and so does a node that is
//!    lost; it is asked again by the next run.
//! 4. Freeing what is gone already is no error.
//! 5. What a head allocated after its last commit is in no map, but for the nodes with which its writer gave older images
//!    other places: whatever an image of the same tree has stays.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::image::answering::{Answering, FirstError};
use crate::image::records::{AllImages, Images, ImagesError};
use crate::image::tree::{Change, ImageRecord, ImageState, Versioned, forget, reparent, swept};
use crate::map::node::{FANOUT, Node, Place};
use crate::map::objects::Objects;
use crate::map::reader::Reader;
use crate::map::{Entry, Freed, MapError, NodeRef, Root};
use crate::names::{ExtentName, Generation, ImageId, NodeName, StoreNumber};

/// Names asked for at once.
const PAGE: usize = 1_000;
/// How often a step is taken again at once because maps beside it changed.
const ROUNDS: u32 = 4;

/// Frees deleted images. See the module's head.
pub struct Collector {
    /// Their records.
    pub images: Images,
    /// Their maps.
    pub reader: Rc<Reader>,
    /// Their objects.
    pub objects: Rc<dyn Objects>,
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Free(ImageId),
    Reparent(ImageId),
    Sweep(ImageId),
}

/// What is next to be done for the deleted images among `images`, but for those of `later`.
fn next_step(images: &AllImages, later: &BTreeSet<ImageId>) -> Option<Step> {
    let near = |image: &ImageRecord| {
        let parent = image.parent.and_then(|parent| images.get(&parent));
        let children = children(images, image.id)
            .into_iter()
            .map(|child| &images[&child]);
        parent.into_iter().chain(children).collect::<Vec<_>>()
    };
    let deleting = |known: &Versioned<ImageRecord>| known.record.state == ImageState::Deleting;
    let now = |known: &&Versioned<ImageRecord>| !later.contains(&known.record.id);
    let free = (images.values().filter(now)).find(|known| deleting(known));
    if let Some(known) = free {
        return Some(Step::Free(known.record.id));
    }
    let deferred_deletes = || {
        let all = images.values().filter(now).map(|known| &known.record);
        all.filter(|image| matches!(image.state, ImageState::DeferredDelete { .. }))
    };
    let ready = deferred_deletes().find(|deferred| {
        children(images, deferred.id).len() < 2 && !near(deferred).into_iter().any(deleting)
    });
    if let Some(deferred) = ready {
        return Some(Step::Reparent(deferred.id));
    }
    deferred_deletes()
        .find(|deferred| deferred.state == ImageState::DeferredDelete { swept: false })
        .map(|deferred| Step::Sweep(deferred.id))
}

fn children(images: &AllImages, id: ImageId) -> Vec<ImageId> {
    let mut children = images
        .values()
        .filter(|known| known.record.parent == Some(id));
    std::iter::from_fn(|| children.next().map(|known| known.record.id)).collect()
}

/// Images that come from the same one as `id`, and itself.
fn tree_of(images: &AllImages, id: ImageId) -> BTreeSet<ImageId> {
    let first = |mut id: ImageId| {
        while let Some(parent) = images.get(&id).and_then(|known| known.record.parent) {
            id = parent;
        }
        id
    };
    let same = first(id);
    let all = images.keys().copied();
    all.filter(|other| first(*other) == same).collect()
}

/// A map beside the one that is walked through: a node, and its level.
type Beside = (NodeRef, u8);

/// One walk.
struct Walk<'a> {
    collector: &'a Collector,
    /// Are nodes freed too?
    nodes: bool,
}

type Walking<'a> = Pin<Box<dyn Future<Output = Result<(), ImagesError>> + 'a>>;

impl Collector {
    /// Does all there is to do for deleted images. What is on stores that do not answer waits for the next call, and the
    /// images that have something there.
    ///
    /// # Errors
    /// [`ImagesError`]: what was done stays done; call it again.
    pub async fn run(&self) -> Result<(), ImagesError> {
        let objects = Rc::new(Answering::new(Rc::clone(&self.objects)));
        let collector = Collector {
            images: self.images.clone(),
            reader: Rc::clone(&self.reader),
            objects,
        };
        collector.run_through().await
    }

    async fn run_through(&self) -> Result<(), ImagesError> {
        let mut later = BTreeSet::new();
        let mut again: BTreeMap<ImageId, u32> = BTreeMap::new();
        let mut held = FirstError::default();
        loop {
            let images = self.images.all().await?;
            let Some(step) = next_step(&images, &later) else {
                return held.done();
            };
            let (Step::Free(id) | Step::Reparent(id) | Step::Sweep(id)) = step;
            match self.step(&images, step).await {
                Ok(change) => match self.images.change(change).await {
                    // Another transaction changed a neighbour: look again.
                    Ok(()) | Err(ImagesError::Conflict(_)) => (),
                    Err(error) => return Err(error),
                },
                // A neighbour's writer freed a node that its older map had. Where that goes on and on, others are not to wait.
                Err(ImagesError::Map(MapError::Absent { .. }))
                    if again.get(&id).is_none_or(|rounds| *rounds < ROUNDS)
                        && self.moved(&images, id).await? =>
                {
                    *again.entry(id).or_default() += 1;
                }
                Err(error) => {
                    held.up::<()>(Err(error))?;
                    later.insert(id);
                }
            }
        }
    }

    /// Has any image of a tree another map than before, or is it gone?
    async fn moved(&self, before: &AllImages, id: ImageId) -> Result<bool, ImagesError> {
        let now = self.images.all().await?;
        Ok(tree_of(before, id).iter().any(|one| {
            now.get(one)
                .is_none_or(|now| now.record.root != before[one].record.root)
        }))
    }

    async fn step(&self, images: &AllImages, step: Step) -> Result<Change, ImagesError> {
        let (Step::Free(id) | Step::Reparent(id) | Step::Sweep(id)) = step;
        let known = &images[&id];
        let parent = known.record.parent.and_then(|parent| images.get(&parent));
        let children = children(images, id);
        let child = children.first().map(|child| &images[child]);
        let beside = children.iter().map(|child| &images[child]).chain(parent);
        let beside: Vec<Root> = beside.map(|known| known.record.root).collect();
        Ok(match step {
            Step::Reparent(_) => reparent(known, child),
            Step::Sweep(_) => {
                self.walk(known.record.root, &beside, false).await?;
                swept(known)
            }
            Step::Free(_) => {
                self.walk(known.record.root, &beside, true).await?;
                let image = &known.record;
                if let Some(until) = image.lost_until {
                    self.free_lost(images, image, until).await?;
                }
                let mut others = images.values().map(|known| &known.record);
                let is_last = !others.any(|it| it.volume == image.volume && it.id != id);
                let volume = match is_last {
                    true => self.images.volume(image.volume).await.map(Some),
                    false => Ok(None),
                };
                let volume = match volume {
                    Err(ImagesError::Missing(_)) => None,
                    other => other?,
                };
                forget(known, parent, child, volume.as_ref())
            }
        })
    }

    /// Frees what `root` has and none of `beside` has.
    async fn walk(&self, root: Root, beside: &[Root], nodes: bool) -> Result<(), ImagesError> {
        let Some(node) = root.node else {
            return Ok(());
        };
        let mut near = Vec::new();
        for other in beside {
            let start = other.node.map(|node| (node, other.level));
            near.extend(self.down_to(start, root.level).await?);
        }
        let place = Place {
            level: root.level,
            nth: 0,
        };
        let walk = Walk {
            collector: self,
            nodes,
        };
        walk.visit(place, node, near).await
    }

    /// The first node of that level; a map of a lower one as it is.
    async fn down_to(
        &self,
        mut start: Option<Beside>,
        level: u8,
    ) -> Result<Option<Beside>, ImagesError> {
        while let Some((node, at)) = start.filter(|(_, at)| *at > level) {
            let place = Place { level: at, nth: 0 };
            let child = self.reader.node(&node, place).await?.child(0);
            start = child.map(|child| (child, at - 1));
        }
        Ok(start)
    }

    /// Frees objects, nodes only after all extents.
    ///
    /// # Errors
    /// [`ImagesError::Store`]: some may be gone; free them again.
    pub async fn free(&self, freed: &Freed) -> Result<(), ImagesError> {
        let mut held = FirstError::default();
        for (index, layer) in &freed.extents {
            let name = layer.name(*index).to_string();
            held.up(self.delete(layer.stores.iter(), name).await)?;
        }
        std::mem::take(&mut held).done()?;
        for node in &freed.nodes {
            let name = node.name().to_string();
            held.up(self.delete(node.stores.iter(), name).await)?;
            self.reader.cache().forget(node.name());
        }
        held.done()
    }

    pub(crate) async fn delete(
        &self,
        stores: impl Iterator<Item = StoreNumber>,
        name: String,
    ) -> Result<(), ImagesError> {
        let mut held = FirstError::default();
        for store in stores {
            let deleted = self.objects.delete(store, &name).await;
            held.up(deleted.map_err(|source| ImagesError::Store {
                store: self.objects.label(store),
                asked: format!("delete {name}"),
                source,
            }))?;
        }
        held.done()
    }

    /// Frees what the volume of `head` allocated after its root's generation, and not after `until`, and no image has.
    ///
    /// Choice: what images have is looked up, though it costs a walk through what was born after the root. A head that is
    /// committed behind every map that its writer gave an older image would say the same by its generation alone, but the
    /// two cannot be one transaction, and between them either the collector or an audit would take such a map for lost.
    ///
    /// # Errors
    /// [`ImagesError::Store`], [`ImagesError::Map`]: some may be gone; free it again.
    pub async fn free_lost(
        &self,
        images: &AllImages,
        head: &ImageRecord,
        until: Generation,
    ) -> Result<(), ImagesError> {
        let (volume, from) = (head.volume, head.root.generation);
        let needed = self.named_after(images, head).await?;
        // Behind all of generation `from`: '~' sorts behind every digit.
        let extents = format!("{}~", ExtentName::before(volume, from));
        let nodes = format!("{}~", NodeName::before(volume, from));
        let born = |name: &str| match ExtentName::parse(name) {
            Some(name) => Some(name.born),
            None => NodeName::parse(name).map(|name| name.born),
        };
        let mut held = FirstError::default();
        for store in self.objects.stores() {
            let starts = [
                (ExtentName::prefix(volume), extents.clone()),
                (NodeName::prefix(volume), nodes.clone()),
            ];
            for (prefix, after) in starts {
                let names = held.up(self.names(store, &prefix, after).await)?;
                for name in names.into_iter().flatten() {
                    let is_lost = born(&name).is_some_and(|born| born > from && born <= until);
                    if is_lost && !needed.contains(&name) {
                        held.up(self.delete([store].into_iter(), name).await)?;
                    }
                }
            }
        }
        held.done()
    }

    /// What other images of a head's tree have that its volume allocated after the head's root.
    async fn named_after(
        &self,
        images: &AllImages,
        head: &ImageRecord,
    ) -> Result<BTreeSet<String>, ImagesError> {
        let mut named = BTreeSet::new();
        let others = tree_of(images, head.id);
        for id in others.into_iter().filter(|id| *id != head.id) {
            let mut image = images[&id].record.clone();
            loop {
                match self.name_after(&image, head, &mut named).await {
                    Ok(()) => break,
                    // Its writer goes on: what its map has of others only becomes less.
                    Err(ImagesError::Map(error @ MapError::Absent { .. })) => {
                        match self.images.image(id).await {
                            Ok(now) if now.record.root != image.root => image = now.record,
                            Err(ImagesError::Missing(_)) => break,
                            _ => return Err(error.into()),
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(named)
    }

    async fn name_after(
        &self,
        image: &ImageRecord,
        head: &ImageRecord,
        named: &mut BTreeSet<String>,
    ) -> Result<(), ImagesError> {
        let from = head.root.generation;
        let place = Place {
            level: image.root.level,
            nth: 0,
        };
        let top = image.root.node.map(|node| (place, node));
        let mut ahead: Vec<(Place, NodeRef)> = top.into_iter().collect();
        while let Some((place, node)) = ahead.pop() {
            let own = node.owner == head.volume;
            if own && node.born <= from {
                // Nothing below it was born later.
                continue;
            }
            let below = match self.reader.node(&node, place).await {
                Ok(below) => below,
                // It is being freed, after all below it.
                Err(MapError::Absent { .. }) if image.state == ImageState::Deleting => continue,
                Err(error) => return Err(error.into()),
            };
            if own {
                named.insert(node.name().to_string());
            }
            for slot in (0..FANOUT as usize).filter(|slot| below.next_slot(*slot) == Some(*slot)) {
                if place.level > 0 {
                    ahead.extend(below.child(slot).map(|child| (place.child(slot), child)));
                    continue;
                }
                let layers = below.entry(slot).into_iter().flat_map(|it| it.layers());
                let lost = layers.filter(|it| it.owner == head.volume && it.born > from);
                let index = place.first(slot) as u32;
                named.extend(lost.map(|layer| layer.name(index).to_string()));
            }
        }
        Ok(())
    }

    /// All names of a store that begin with `prefix` and come behind `after`.
    pub(crate) async fn names(
        &self,
        store: StoreNumber,
        prefix: &str,
        mut after: String,
    ) -> Result<Vec<String>, ImagesError> {
        let mut names = Vec::new();
        loop {
            let page =
                (self.objects.list(store, prefix, &after, PAGE).await).map_err(|source| {
                    ImagesError::Store {
                        store: self.objects.label(store),
                        asked: format!("list {prefix}"),
                        source,
                    }
                })?;
            let Some(last) = page.last() else {
                return Ok(names);
            };
            after = last.clone();
            names.extend(page);
        }
    }
}

impl<'a> Walk<'a> {
    /// Frees what is below `node` and not in any of `beside`, which are of the same place, or maps too low to have it.
    fn visit(&'a self, place: Place, node: NodeRef, beside: Vec<Beside>) -> Walking<'a> {
        Box::pin(async move {
            // By name alone: freeing is by name, too.
            if beside.iter().any(|(other, _)| other.name() == node.name()) {
                return Ok(());
            }
            let reader = &self.collector.reader;
            let whole = match reader.node(&node, place).await {
                Ok(whole) => whole,
                // Nothing is left to do below it.
                Err(MapError::Absent { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let mut others = Vec::new();
            for (other, level) in beside {
                let here = match level == place.level {
                    true => Some(reader.node(&other, place).await?),
                    false => None,
                };
                others.push((other, level, here));
            }
            let mut freed = Freed::default();
            let mut held = FirstError::default();
            for slot in (0..FANOUT as usize).filter(|slot| whole.next_slot(*slot) == Some(*slot)) {
                if place.level == 0 {
                    let nodes = others.iter().filter_map(|(_, _, here)| here.as_deref());
                    let near: Vec<Entry> = nodes.filter_map(|node| node.entry(slot)).collect();
                    free_entry(&whole, slot, &near, &mut freed);
                } else if let Some(child) = whole.child(slot) {
                    let near = others.iter().filter_map(|(other, level, here)| match here {
                        Some(here) => here.child(slot).map(|child| (child, level - 1)),
                        None => (slot == 0 && place.nth == 0).then_some((*other, *level)),
                    });
                    let visited = self.visit(place.child(slot), child, near.collect()).await;
                    held.up(visited)?;
                }
            }
            held.done()?;
            if self.nodes {
                freed.nodes.push(node);
            }
            self.collector.free(&freed).await
        })
    }
}

fn free_entry(leaf: &Node, slot: usize, near: &[Entry], freed: &mut Freed) {
    let index = leaf.place().first(slot) as u32;
    let alone = leaf
        .entry(slot)
        .into_iter()
        .flat_map(|entry| entry.layers());
    let alone = alone.filter(|layer| !near.iter().any(|entry| entry.has(layer)));
    freed.extents.extend(alone.map(|layer| (index, layer)));
}
