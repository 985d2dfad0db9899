//! Older images of the volume leave drained stores, too, and get the copies they lack: their maps are written anew, with what they
//! say in other places.
//!
//! ```text
//! own images but the head, of which no child names the store any more, or lacks copies
//!   -> part by part: copies of some extents on other stores -> a map that names those -> the image's record, by compare-and-swap
//!   -> what the map before had, and no image beside it, is freed
//! ```
//!
//! An image is what it was: the same objects in the same order, some of them elsewhere. A part that is in the image's record
//! stays so, whatever becomes of the rest.
//!
//! Always true:
//! 1. The images that have a node are neighbours of each other, as `image` asks for: a node leaves an image only when none
//!    of its children has it, and no child is made meanwhile (each takes a number, which is compared).
//! 2. A copy that a new map names is whole and durable, and made for it: what else lies about is not looked at.
//! 3. With a new map nothing has fewer in-sync copies than the record says.
//! 4. No copy is freed of what an image of another volume below it has: its writer may be copying it there again.
//! 5. The head gets no copy on a store while copies there are freed, and none is freed that it has by then, or is about to get.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Nanos;

use super::commit::MapIo;
use super::elsewhere::{Drained, Elsewhere, ImageList, Wanted, is_below, on, written_only};
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::image_io::ImageIo;
#[cfg(test)]
use super::life::Mutation;
use super::node_io::{NodeIo, Walked};
use super::record_io::RecordIo;
use super::replicas::Freeing;
use super::state::Core;
use crate::image::records::{AllImages, Images};
use crate::image::tree::{self as image, ImageRecord, ImageState, NUMBERS_KEY, Versioned};
use crate::map::{Commit, Entry, Freed, Layer, Map, Root, stores_of};
use crate::meta::{Outcome, Revision};
use crate::names::{COPIES_MAX, ExtentName, Generation, StoreNumber, Stores};
use crate::record::extents;

/// Extents relocated in one swap of the record: 64 MiB.
const PART: usize = 16;

/// A part ends after that time at the latest: a volume that is opened for a while is to get somewhere.
const PART_TIME: Nanos = Nanos::secs(1);

/// How often images are looked at again because one was made somewhere.
const NEWCOMERS: u32 = 4;

/// What became of an image's map.
enum Moved {
    /// It names none of the stores.
    Nothing,
    /// It names them, and so does a child, which comes first.
    Later(Walked),
    /// Some of it is elsewhere, or could not be moved.
    Some,
}

/// Was an image given another map?
enum Named {
    Yes(Revision),
    No,
    /// Somewhere an image was made meanwhile, maybe a child of this one.
    Newcomer,
}

/// Rewrites the maps of older images.
#[derive(Clone, Copy)]
pub(super) struct Relocate<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Relocate<'a> {
    pub fn of(core: &'a Rc<Core>) -> Relocate<'a> {
        Relocate { core }
    }

    /// Gives older images whose copies are fewer than there should be more of them, where there is a place.
    pub(super) async fn rereplicate_older(self) -> Result<bool, VolumeError> {
        let before = self.core.life.counters.get().relocated;
        let copies = usize::from(self.core.volume_record().copies);
        let stay = self.core.replicas.keys().copied();
        let stay = stay.filter(|one| !self.core.replicas.is_drained(*one));
        self.relocate(&Wanted::Enough(copies, stay.collect()))
            .await?;
        Ok(self.core.life.counters.get().relocated > before)
    }

    /// Is there something of older images that lacks copies, and could have more?
    pub(super) fn older_lack_copies(self) -> bool {
        let copies = {
            let record = &self.core.volume_record();
            match record.redundancy_floor < record.copies {
                true => usize::from(record.copies),
                false => return false,
            }
        };
        let lacks = |stores: &[StoreNumber]| {
            stores.len() < copies
                && stores
                    .iter()
                    .all(|one| !self.core.replicas.is_drained(*one))
        };
        NodeIo::of(self.core).takes_nodes() && self.core.maps.older.any(lacks)
    }

    /// Has the maps of older images written anew, as far as that can be done now; answers those of the stores to be empty that
    /// none of them names.
    pub(super) async fn relocate(self, wanted: &Wanted) -> Result<Drained, VolumeError> {
        let stores = wanted.leaves();
        let mut held = BTreeSet::new();
        loop {
            let mut images = self.read_images().await?;
            let mut left = Drained::new();
            let mut changed = false;
            let head = self.core.record.head.borrow().record.id;
            let own = images.all.values();
            let own = own.filter(|it| it.record.volume == self.core.id && it.record.id != head);
            let own = own.filter(|it| wanted.is_for(&it.record));
            for known in &own.cloned().collect::<Vec<_>>() {
                if known.record.state == ImageState::Deleting {
                    // What it has there goes in a moment.
                    left.extend(stores);
                    continue;
                }
                let id = known.record.id;
                if held.contains(&id) {
                    let there = self.named(&known.record, wanted).await;
                    left.extend(there.map_or_else(|_| stores.clone(), |there| on(&there, stores)));
                    continue;
                }
                match self.move_image(&mut images, known, wanted).await {
                    Ok(Moved::Nothing) => {}
                    Ok(Moved::Later(there)) => left.extend(on(&there, stores)),
                    Ok(Moved::Some) => {
                        // Once in a round: what is left of it then cannot be moved now.
                        held.insert(id);
                        changed = true;
                        break;
                    }
                    Err(error @ VolumeError::Meta { .. }) => return Err(error),
                    Err(error) if error.passes() => {
                        // What a map names that cannot be read is unknown. Others are moved all the same.
                        tracing::debug!(volume = %self.core.id, image = %id, %error, "an older image stays where it is");
                        held.insert(id);
                        left.extend(stores);
                    }
                    Err(error) => return Err(error),
                }
            }
            if changed {
                match ImageIo::of(self.core).read_older_images().await {
                    Err(error) if !error.passes() => return Err(error),
                    // What there is too much in the tables goes when they are read again.
                    _ => continue,
                }
            }
            return Ok(stores.difference(&left).copied().collect());
        }
    }

    /// Does what is wanted of an image as far as that can be done now, if it is wanted of none of its children.
    async fn move_image(
        self,
        images: &mut ImageList,
        known: &Versioned<ImageRecord>,
        wanted: &Wanted,
    ) -> Result<Moved, VolumeError> {
        let there = self.named(&known.record, wanted).await?;
        if there.is_empty() {
            return Ok(Moved::Nothing);
        }
        if self.has_heirs(&images.all, &known.record, wanted).await? {
            return Ok(Moved::Later(there));
        }
        self.rewrite(images, known, wanted, there).await?;
        Ok(Moved::Some)
    }

    async fn read_images(self) -> Result<ImageList, VolumeError> {
        let meta = Rc::clone(&self.core.meta);
        let numbers = self.core.meta.get(NUMBERS_KEY).await;
        let numbers = numbers.map_err(|error| self.core.meta_error(error))?;
        let all = Images { meta }.all().await;
        Ok(ImageList {
            all: all.map_err(|error| self.core.image_error(&error))?,
            numbers: numbers.map_or(Revision(0), |entry| entry.changed),
        })
    }

    /// What is to be changed of what an image names. What it shares with the head is not looked at: the head comes first.
    pub(super) async fn named(
        self,
        image: &ImageRecord,
        wanted: &Wanted,
    ) -> Result<Walked, VolumeError> {
        let walked = NodeIo::of(self.core)
            .walk(image.root, &self.core.maps.nodes.names())
            .await;
        let mut walked = walked.map_err(|error| self.core.map_error(&error))?;
        (walked.nodes).retain(|(node, _)| wanted.is_about(&node.stores));
        (walked.entries).retain(|(_, entry)| {
            let mut layers = entry.layers();
            layers.any(|layer| wanted.is_about(&layer.stores))
        });
        Ok(walked)
    }

    /// Is there a child of which the same is wanted? Then it shares nodes of which it is.
    async fn has_heirs(
        self,
        all: &AllImages,
        image: &ImageRecord,
        wanted: &Wanted,
    ) -> Result<bool, VolumeError> {
        for child in all.values().filter(|it| it.record.parent == Some(image.id)) {
            if !self.named(&child.record, wanted).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the map of an image anew, as far as that can be done now.
    async fn rewrite(
        self,
        images: &mut ImageList,
        known: &Versioned<ImageRecord>,
        wanted: &Wanted,
        there: Walked,
    ) -> Result<(), VolumeError> {
        let mut known = known.clone();
        let image = known.record.clone();
        let reader = Rc::clone(self.core.maps.head.reader());
        let length = extents(image.size);
        let map = Map::open(reader, self.core.id, image.root, length, image.since);
        let mut ahead = there.entries.iter().peekable();
        while ahead.peek().is_some() {
            let until = env::now() + PART_TIME;
            let mut part = BTreeMap::new();
            while part.len() < PART && (part.is_empty() || env::now() < until) {
                let Some((index, entry)) = ahead.next() else {
                    break;
                };
                if !self.may_relocate(wanted)? {
                    return Ok(());
                }
                if let Some(entry) = Elsewhere::of(self.core)
                    .entry_elsewhere(images, *index, entry, &image, wanted)
                    .await?
                {
                    let set = map.set(*index, entry).await;
                    set.map_err(|error| self.core.map_error(&error))?;
                    part.insert(*index, entry);
                }
            }
            if !part.is_empty()
                && !self
                    .swap_map(images, &mut known, &map, &part, wanted)
                    .await?
            {
                return Ok(());
            }
        }
        // Nodes on the way to nothing that moved.
        let nodes = self.named(&known.record, wanted).await?.nodes;
        if nodes.is_empty() || !self.may_relocate(wanted)? {
            return Ok(());
        }
        for (_, place) in &nodes {
            let renewed = map.renew(place.first(0) as u32).await;
            renewed.map_err(|error| self.core.map_error(&error))?;
        }
        let none = BTreeMap::new();
        let all = self.swap_map(images, &mut known, &map, &none, wanted);
        all.await.map(drop)
    }

    /// Is there a place for nodes, and are the stores to be empty still?
    fn may_relocate(self, wanted: &Wanted) -> Result<bool, VolumeError> {
        self.core.usable()?;
        let mut leaves = wanted.leaves().iter();
        Ok(NodeIo::of(self.core).takes_nodes()
            && leaves.all(|one| self.core.replicas.is_drained(*one)))
    }

    /// Gives the image what changed in its map, and frees what no image has any more. `false`: another change came
    /// between, or too few copies are in sync.
    async fn swap_map(
        self,
        images: &mut ImageList,
        known: &mut Versioned<ImageRecord>,
        map: &Map,
        part: &BTreeMap<u32, Entry>,
        wanted: &Wanted,
    ) -> Result<bool, VolumeError> {
        let stores = wanted.leaves();
        // That they are drained may be taken back at any moment.
        let _freeing = self.freeing(stores);
        let commit = {
            // No commit of the head comes between: what is written here is born after the head's map until it is named.
            let _one = self.core.maps.commits.one.acquire(1).await;
            RecordIo::of(self.core).change_record(|_| Ok(true)).await?;
            let generation = Generation(self.core.generation().0 - 1);
            let commit = map.commit(generation).await;
            let commit = commit.map_err(|error| self.core.map_error(&error))?;
            let written = commit.written.iter().flat_map(|node| node.stores.iter());
            let entered = part.values().flat_map(stores_of);
            let back = written.chain(entered).any(|one| stores.contains(&one));
            let mut named = match back {
                true => Named::No,
                false => self.name(images, known, &commit, part).await?,
            };
            for _ in 0..NEWCOMERS {
                if !matches!(named, Named::Newcomer) {
                    break;
                }
                *images = self.read_images().await?;
                named = match self.has_heirs(&images.all, &known.record, wanted).await? {
                    true => Named::No,
                    false => self.name(images, known, &commit, part).await?,
                };
            }
            let Named::Yes(revision) = named else {
                MapIo::of(self.core).free(written_only(&commit)).await?;
                return Ok(false);
            };
            known.record.root = commit.root;
            known.changed = Some(revision);
            commit
        };
        self.core
            .count(|counters| counters.relocated += part.len() as u64);
        tracing::info!(volume = %self.core.id, image = %known.record.id, "an older image has another map");
        let freed = self.had_alone(images, &known.record, &commit).await;
        MapIo::of(self.core).free(freed).await?;
        Ok(true)
    }

    /// Only this task frees like that: one set of stores at a time.
    fn freeing(self, stores: &Drained) -> Freeing<'a> {
        *self.core.replicas.freeing.borrow_mut() = stores.clone();
        Freeing(&self.core.replicas)
    }

    /// May what is being freed be so, on that store? Something may have been on its way there before, or have arrived.
    fn may_free(self, name: ExtentName, store: StoreNumber) -> bool {
        let placed = self.core.extents.placed(name.index);
        let mut own = placed.iter().flat_map(ExtentEntry::layers);
        let is_heads = own.any(|it| it.name == name && it.copies.borrow().stores.contains(&store));
        !is_heads
            && !self
                .core
                .replicas
                .pending_placements
                .borrow()
                .contains_key(&store)
    }

    /// One transaction: the image has this map.
    async fn name(
        self,
        images: &ImageList,
        known: &Versioned<ImageRecord>,
        commit: &Commit,
        part: &BTreeMap<u32, Entry>,
    ) -> Result<Named, VolumeError> {
        let _one = self.core.record.changing.acquire(1).await;
        self.core.usable()?;
        if !self.is_enough(&known.record, commit, part) {
            return Ok(Named::No);
        }
        let volume = self.core.versioned_record();
        let change = image::relocate(&volume, known, images.numbers, commit.root);
        let nodes = commit.written.iter().copied();
        let nodes: Vec<_> = nodes.zip(commit.places.iter().copied()).collect();
        let entries: Vec<_> = part.iter().map(|(index, it)| (*index, *it)).collect();
        let count = || {
            if known.record.is_live() {
                self.core.maps.older.add(&entries, &nodes);
            }
        };
        // A store that leaves the in-sync set from here on is counted with it, also if the maps were read before.
        count();
        let named = self.core.meta.txn(change.compares, change.ops).await;
        count();
        match named {
            Ok(Outcome::Done(revision)) => Ok(Named::Yes(revision)),
            Ok(Outcome::Refused(found)) => {
                let is = |nth: usize, changed| {
                    let found = found.get(nth).and_then(Option::as_ref);
                    found.is_some_and(|it| Some(it.changed) == changed)
                };
                // The volume's record, that of the numbers, the image's.
                Ok(match is(0, volume.changed) && is(2, known.changed) {
                    true => Named::Newcomer,
                    false => Named::No,
                })
            }
            Err(error) => {
                // It is looked at anew, and what was written in vain an audit finds. The next change of the record sees to
                // it that it does not come about later.
                self.core.replication.borrow_mut().record.lost();
                Err(self.core.meta_error(error))
            }
        }
    }

    /// Has everything there at least as many in-sync copies as the record says? Of an unread image nodes count alone.
    pub(super) fn is_enough(
        self,
        image: &ImageRecord,
        commit: &Commit,
        part: &BTreeMap<u32, Entry>,
    ) -> bool {
        let record = &self.core.volume_record();
        let in_sync = |at: &Stores| {
            let counts = at.iter().filter(|one| !record.out.contains_key(one));
            counts.count()
        };
        let nodes = commit.written.iter().map(|node| in_sync(&node.stores));
        let nodes = nodes.min().unwrap_or(COPIES_MAX);
        if !image.is_live() {
            // No table has them, but they should last as long as others.
            return nodes >= usize::from(record.redundancy_floor.max(1));
        }
        let layers = part.values().flat_map(Entry::layers);
        let least = layers.map(|layer| in_sync(&layer.stores)).min();
        let least = least.unwrap_or(COPIES_MAX).min(nodes);
        #[cfg(test)]
        if self.core.mutated(Mutation::UncountedRelocation) {
            return true;
        }
        least >= usize::from(record.redundancy_floor.max(1))
    }

    /// Of what an image's map had before what no image beside it has. What is not known stays: an audit finds it.
    async fn had_alone(self, images: &ImageList, image: &ImageRecord, commit: &Commit) -> Freed {
        let parent = image.parent.and_then(|parent| images.all.get(&parent));
        let others = images.all.values().filter(|it| {
            it.record.volume != self.core.id && is_below(&images.all, &it.record, image.id)
        });
        let beside: Vec<Root> = others.chain(parent).map(|it| it.record.root).collect();
        let mut alone = Freed::default();
        for (index, layer) in &commit.replaced.extents {
            let mut is_alone = true;
            for root in &beside {
                let has = |(_, entry): (_, Option<Entry>)| entry.is_some_and(|it| it.has(layer));
                is_alone &= NodeIo::of(self.core)
                    .path(*root, *index)
                    .await
                    .is_ok_and(|it| !has(it));
            }
            let may = |store: &StoreNumber| self.may_free(layer.name(*index), *store);
            let stores: Vec<StoreNumber> = layer.stores.iter().filter(may).collect();
            if let Some(stores) = Stores::new(&stores).filter(|_| is_alone) {
                alone.extents.push((*index, Layer { stores, ..*layer }));
            }
        }
        // Children have none of them.
        let mut nodes = BTreeSet::new();
        for place in parent.iter().flat_map(|_| &commit.places) {
            let root = parent.expect("there is one").record.root;
            match NodeIo::of(self.core)
                .path(root, place.first(0) as u32)
                .await
            {
                Ok((above, _)) => nodes.extend(above),
                Err(_) => return alone,
            }
        }
        let own = commit.replaced.nodes.iter().copied();
        alone.nodes = own.filter(|it| !nodes.contains(&it.name())).collect();
        alone
    }
}
