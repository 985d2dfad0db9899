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

use super::membership::SyncState;
use super::nodes::Walked;
use super::reconcile::ResyncError;
use super::{Core, ExtentEntry, VolumeError};
use crate::image::records::{AllImages, Images};
use crate::image::tree::{self as image, ImageRecord, ImageState, NUMBERS_KEY, Versioned};
use crate::map::node::{Place, stride};
use crate::map::{Commit, Entry, Freed, Layer, Map, MapError, Root, stores_of};
use crate::meta::{Outcome, Revision};
use crate::names::{COPIES_MAX, ExtentName, Generation, ImageId, NodeName, StoreNumber, Stores};
use crate::record::extents;

/// Extents relocated in one swap of the record: 64 MiB.
const PART: usize = 16;
/// A part ends after that time at the latest: a volume that is opened for a while is to get somewhere.
const PART_TIME: Nanos = Nanos::secs(1);

/// How often images are looked at again because one was made somewhere.
const NEWCOMERS: u32 = 4;

type Drained = BTreeSet<StoreNumber>;

/// What the maps of older images are to say.
pub(super) enum Wanted {
    /// Nothing on these stores, which are drained.
    Without(Drained),
    /// So many copies of each thing, of which all that there are now are on these stores, which stay.
    Enough(usize, BTreeSet<StoreNumber>),
}

impl Wanted {
    /// Is what is there to be elsewhere, or in more places?
    fn is_about(&self, at: &Stores) -> bool {
        match self {
            Wanted::Without(stores) => at.iter().any(|one| stores.contains(&one)),
            Wanted::Enough(copies, stay) => {
                at.as_slice().len() < *copies && at.iter().all(|one| stay.contains(&one))
            }
        }
    }

    /// Stores that are to be empty.
    fn leaves(&self) -> &Drained {
        static NONE: Drained = Drained::new();
        match self {
            Wanted::Without(stores) => stores,
            Wanted::Enough(..) => &NONE,
        }
    }

    /// Is an image's map to be written anew? A deferred-delete image has no reader, but it is not to keep a store.
    fn is_for(&self, image: &ImageRecord) -> bool {
        matches!(self, Wanted::Without(_)) || image.is_live()
    }
}

/// Copies on some stores are being freed, until this is dropped.
struct Freeing<'a>(&'a Core);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.freeing.borrow_mut().clear();
    }
}

/// All images, and what the record of the numbers was at before they were read.
struct ImageList {
    all: AllImages,
    numbers: Revision,
}

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

impl Core {
    /// Gives older images whose copies are fewer than there should be more of them, where there is a place.
    pub(super) async fn rereplicate_older(self: &Rc<Self>) -> Result<bool, VolumeError> {
        let before = self.counters.get().relocated;
        let copies = usize::from(self.record.borrow().0.copies);
        let stay = self.replicas.keys().copied();
        let stay = stay.filter(|one| !self.is_drained(*one));
        self.relocate(&Wanted::Enough(copies, stay.collect()))
            .await?;
        Ok(self.counters.get().relocated > before)
    }

    /// Is there something of older images that lacks copies, and could have more?
    pub(super) fn older_lack_copies(&self) -> bool {
        let copies = {
            let record = &self.record.borrow().0;
            match record.redundancy_floor < record.copies {
                true => usize::from(record.copies),
                false => return false,
            }
        };
        let lacks = |stores: &[StoreNumber]| {
            stores.len() < copies && stores.iter().all(|one| !self.is_drained(*one))
        };
        self.takes_nodes() && self.older_images.any(lacks)
    }

    /// Has the maps of older images written anew, as far as that can be done now; answers those of the stores to be empty that
    /// none of them names.
    pub(super) async fn relocate(self: &Rc<Self>, wanted: &Wanted) -> Result<Drained, VolumeError> {
        let stores = wanted.leaves();
        let mut held = BTreeSet::new();
        loop {
            let mut images = self.read_images().await?;
            let mut left = Drained::new();
            let mut changed = false;
            let head = self.head.borrow().record.id;
            let own = images.all.values();
            let own = own.filter(|it| it.record.volume == self.id && it.record.id != head);
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
                        tracing::debug!(volume = %self.id, image = %id, %error, "an older image stays where it is");
                        held.insert(id);
                        left.extend(stores);
                    }
                    Err(error) => return Err(error),
                }
            }
            if changed {
                match self.read_older_images().await {
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
        self: &Rc<Self>,
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

    async fn read_images(&self) -> Result<ImageList, VolumeError> {
        let meta = Rc::clone(&self.meta);
        let numbers = self.meta.get(NUMBERS_KEY).await;
        let numbers = numbers.map_err(|error| self.meta_error(error))?;
        let all = Images { meta }.all().await;
        Ok(ImageList {
            all: all.map_err(|error| self.image_error(&error))?,
            numbers: numbers.map_or(Revision(0), |entry| entry.changed),
        })
    }

    /// What is to be changed of what an image names. What it shares with the head is not looked at: the head comes first.
    pub(super) async fn named(
        &self,
        image: &ImageRecord,
        wanted: &Wanted,
    ) -> Result<Walked, VolumeError> {
        let walked = self.walk(image.root, &self.nodes.names()).await;
        let mut walked = walked.map_err(|error| self.map_error(&error))?;
        (walked.nodes).retain(|(node, _)| wanted.is_about(&node.stores));
        (walked.entries).retain(|(_, entry)| {
            let mut layers = entry.layers();
            layers.any(|layer| wanted.is_about(&layer.stores))
        });
        Ok(walked)
    }

    /// Is there a child of which the same is wanted? Then it shares nodes of which it is.
    async fn has_heirs(
        &self,
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
        self: &Rc<Self>,
        images: &mut ImageList,
        known: &Versioned<ImageRecord>,
        wanted: &Wanted,
        there: Walked,
    ) -> Result<(), VolumeError> {
        let mut known = known.clone();
        let image = known.record.clone();
        let reader = Rc::clone(self.map.reader());
        let length = extents(image.size);
        let map = Map::open(reader, self.id, image.root, length, image.since);
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
                if let Some(entry) = self
                    .entry_elsewhere(images, *index, entry, &image, wanted)
                    .await?
                {
                    let set = map.set(*index, entry).await;
                    set.map_err(|error| self.map_error(&error))?;
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
            renewed.map_err(|error| self.map_error(&error))?;
        }
        let none = BTreeMap::new();
        let all = self.swap_map(images, &mut known, &map, &none, wanted);
        all.await.map(drop)
    }

    /// Is there a place for nodes, and are the stores to be empty still?
    fn may_relocate(&self, wanted: &Wanted) -> Result<bool, VolumeError> {
        self.usable()?;
        let mut leaves = wanted.leaves().iter();
        Ok(self.takes_nodes() && leaves.all(|one| self.is_drained(*one)))
    }

    /// Gives the image what changed in its map, and frees what no image has any more. `false`: another change came
    /// between, or too few copies are in sync.
    async fn swap_map(
        self: &Rc<Self>,
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
            let _one = self.committing.acquire(1).await;
            self.change_record(|_| Ok(true)).await?;
            let generation = Generation(self.generation().0 - 1);
            let commit = map.commit(generation).await;
            let commit = commit.map_err(|error| self.map_error(&error))?;
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
                self.free(written_only(&commit)).await?;
                return Ok(false);
            };
            known.record.root = commit.root;
            known.changed = Some(revision);
            commit
        };
        self.count(|counters| counters.relocated += part.len() as u64);
        tracing::info!(volume = %self.id, image = %known.record.id, "an older image has another map");
        let freed = self.had_alone(images, &known.record, &commit).await;
        self.free(freed).await?;
        Ok(true)
    }

    /// Only this task frees like that: one set of stores at a time.
    fn freeing(&self, stores: &Drained) -> Freeing<'_> {
        *self.freeing.borrow_mut() = stores.clone();
        Freeing(self)
    }

    /// May what is being freed be so, on that store? Something may have been on its way there before, or have arrived.
    fn may_free(&self, name: ExtentName, store: StoreNumber) -> bool {
        let placed = self.placed(name.index);
        let mut own = placed.iter().flat_map(ExtentEntry::layers);
        let is_heads = own.any(|it| it.name == name && it.stores.borrow().contains(&store));
        !is_heads && !self.pending_placements.borrow().contains_key(&store)
    }

    /// One transaction: the image has this map.
    async fn name(
        &self,
        images: &ImageList,
        known: &Versioned<ImageRecord>,
        commit: &Commit,
        part: &BTreeMap<u32, Entry>,
    ) -> Result<Named, VolumeError> {
        let _one = self.changing.acquire(1).await;
        self.usable()?;
        if !self.is_enough(&known.record, commit, part) {
            return Ok(Named::No);
        }
        let (record, changed) = self.record.borrow().clone();
        let volume = Versioned {
            record,
            changed: Some(changed),
        };
        let change = image::relocate(&volume, known, images.numbers, commit.root);
        let nodes = commit.written.iter().copied();
        let nodes: Vec<_> = nodes.zip(commit.places.iter().copied()).collect();
        let entries: Vec<_> = part.iter().map(|(index, it)| (*index, *it)).collect();
        let count = || {
            if known.record.is_live() {
                self.older_images.add(&entries, &nodes);
            }
        };
        // A store that leaves the in-sync set from here on is counted with it, also if the maps were read before.
        count();
        let named = self.meta.txn(change.compares, change.ops).await;
        count();
        match named {
            Ok(Outcome::Done(revision)) => Ok(Named::Yes(revision)),
            Ok(Outcome::Refused(found)) => {
                let is = |nth: usize, changed| {
                    let found = found.get(nth).and_then(Option::as_ref);
                    found.is_some_and(|it| Some(it.changed) == changed)
                };
                // The volume's record, that of the numbers, the image's.
                Ok(match is(0, Some(changed)) && is(2, known.changed) {
                    true => Named::Newcomer,
                    false => Named::No,
                })
            }
            Err(error) => {
                // It is looked at anew, and what was written in vain an audit finds. The next change of the record sees to
                // it that it does not come about later.
                self.record_indeterminate.set(true);
                Err(self.meta_error(error))
            }
        }
    }

    /// Has everything there at least as many in-sync copies as the record says? Of an unread image nodes count alone.
    pub(super) fn is_enough(
        &self,
        image: &ImageRecord,
        commit: &Commit,
        part: &BTreeMap<u32, Entry>,
    ) -> bool {
        let record = &self.record.borrow().0;
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
        if self.mutated(super::Mutation::UncountedRelocation) {
            return true;
        }
        least >= usize::from(record.redundancy_floor.max(1))
    }

    /// Of what an image's map had before what no image beside it has. What is not known stays: an audit finds it.
    async fn had_alone(&self, images: &ImageList, image: &ImageRecord, commit: &Commit) -> Freed {
        let parent = image.parent.and_then(|parent| images.all.get(&parent));
        let others = images.all.values().filter(|it| {
            it.record.volume != self.id && is_below(&images.all, &it.record, image.id)
        });
        let beside: Vec<Root> = others.chain(parent).map(|it| it.record.root).collect();
        let mut alone = Freed::default();
        for (index, layer) in &commit.replaced.extents {
            let mut is_alone = true;
            for root in &beside {
                let has = |(_, entry): (_, Option<Entry>)| entry.is_some_and(|it| it.has(layer));
                is_alone &= self.path(*root, *index).await.is_ok_and(|it| !has(it));
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
            match self.path(root, place.first(0) as u32).await {
                Ok((above, _)) => nodes.extend(above),
                Err(_) => return alone,
            }
        }
        let own = commit.replaced.nodes.iter().copied();
        alone.nodes = own.filter(|it| !nodes.contains(&it.name())).collect();
        alone
    }

    /// The nodes of a map above an extent, and what it has for it.
    async fn path(
        &self,
        root: Root,
        index: u32,
    ) -> Result<(Vec<NodeName>, Option<Entry>), MapError> {
        let mut names = Vec::new();
        let mut at = root.node.map(|node| (node, root.level));
        while let Some((node, level)) = at.filter(|(_, top)| u64::from(index) < stride(top + 1)) {
            names.push(node.name());
            let place = Place::of(level, index);
            let whole = self.map.reader().node(&node, place).await?;
            if level == 0 {
                return Ok((names, whole.entry(place.slot(index))));
            }
            let child = whole.child(place.slot(index));
            at = child.map(|child| (child, level - 1));
        }
        Ok((names, None))
    }

    /// The entry with copies on other stores; none if there is no place for them now, or nothing to make them of.
    async fn entry_elsewhere(
        self: &Rc<Self>,
        images: &ImageList,
        index: u32,
        entry: &Entry,
        image: &ImageRecord,
        wanted: &Wanted,
    ) -> Result<Option<Entry>, VolumeError> {
        let mut layers = Vec::new();
        for layer in entry.layers() {
            let stores = match image.is_live() {
                true => self.layer_elsewhere(images, index, &layer, wanted).await?,
                false => self.unread_elsewhere(&layer, wanted.leaves()).await?,
            };
            let Some(stores) = stores else {
                return Ok(None);
            };
            layers.push(Layer { stores, ..layer });
        }
        let elsewhere = match layers[..] {
            [top, base] => Entry::overlay(top, base),
            _ => Entry::full(layers[0]),
        };
        Ok(Some(elsewhere).filter(|it| it != entry))
    }

    /// No client reads it, and it may be freed already: what counts is its name.
    async fn unread_elsewhere(
        &self,
        layer: &Layer,
        stores: &Drained,
    ) -> Result<Option<Stores>, VolumeError> {
        let stay = layer.stores.iter().filter(|one| !stores.contains(one));
        let mut stay: Vec<StoreNumber> = stay.collect();
        if stay.is_empty()
            && let Some(number) = self.choose_one(&[])
        {
            // The record says that something names the store, to the code that would forget it.
            self.list_stores(&[number]).await?;
            stay.push(number);
        }
        Ok(Stores::new(&stay))
    }

    async fn layer_elsewhere(
        &self,
        images: &ImageList,
        index: u32,
        layer: &Layer,
        wanted: &Wanted,
    ) -> Result<Option<Stores>, VolumeError> {
        if !wanted.is_about(&layer.stores) {
            return Ok(Some(layer.stores));
        }
        let stores = wanted.leaves();
        let copies = usize::from(self.record.borrow().0.copies);
        let had = layer.stores.as_slice();
        let stay = had.iter().copied().filter(|one| !stores.contains(one));
        let mut at: Vec<StoreNumber> = stay.collect();
        let name = layer.name(index);
        // Where the head or another image has it already, it need not be copied.
        let head = self.placed(index).into_iter();
        let head = head.flat_map(|placed| placed.layers());
        let head = head.filter(|own| own.name == name);
        let head = head.flat_map(|own| own.stores.borrow().clone());
        let mut there: Vec<StoreNumber> = head.collect();
        there.extend(self.where_older_have(images, index, layer).await);
        for number in there {
            if at.len() < copies && !had.contains(&number) && self.may_have_too(number, &at) {
                at.push(number);
            }
        }
        let placed = ExtentEntry::new(name, had.to_vec(), false);
        while at.len() < copies {
            let copied = match self.choose_one(&at) {
                Some(number) if self.copy_to(number, &placed).await? => number,
                // One more is better than none.
                _ if at.len() > had.len() => break,
                _ => return Ok(None),
            };
            at.push(copied);
        }
        Ok(Stores::new(&at))
    }

    /// Where the volume's older images have a layer, by their maps. What is in the table of what is kept may be of an image that
    /// is gone: then it was the head's alone for a while, and changes did not reach each place.
    async fn where_older_have(
        &self,
        images: &ImageList,
        index: u32,
        layer: &Layer,
    ) -> Vec<StoreNumber> {
        let head = self.head.borrow().record.id;
        let all = images.all.values().map(|known| &known.record);
        let mut at = Vec::new();
        for image in all.filter(|it| it.volume == self.id && it.id != head && it.is_live()) {
            // What cannot be read is copied.
            let Ok((_, Some(entry))) = self.path(image.root, index).await else {
                continue;
            };
            let same = entry.layers().filter(|own| own.is(layer));
            at.extend(same.flat_map(|own| own.stores.as_slice().to_vec()));
        }
        at
    }

    /// Is a store in sync, to stay, and in a failure domain of its own?
    fn may_have_too(&self, number: StoreNumber, has: &[StoreNumber]) -> bool {
        let Some(replica) = self.replica(number) else {
            return false;
        };
        let domain = |one: &StoreNumber| self.replica(*one).map(|it| it.info.domain);
        let own = Some(replica.info.domain);
        replica.sync_state.get() == SyncState::InSync
            && !self.is_drained(number)
            && !has.iter().any(|one| domain(one) == own)
    }

    /// Makes a copy, on a store, of what no write changes. `false`: not now.
    async fn copy_to(
        &self,
        number: StoreNumber,
        placed: &Rc<ExtentEntry>,
    ) -> Result<bool, VolumeError> {
        self.list_stores(&[number]).await?;
        let replica = self.replica(number).expect("chosen from the members");
        let Some(connection) = replica.connection() else {
            return Ok(false);
        };
        let had = placed.stores.borrow().clone();
        let copied = self.resync_layer(&connection, placed, &had, Generation(0));
        let copied = match copied.await {
            Ok(()) => {
                let flushed = self.within(connection.flush()).await;
                flushed.map_err(ResyncError::by_store)
            }
            Err(held) => Err(held),
        };
        let (why, indeterminate) = match copied {
            Ok(()) => return Ok(replica.sync_state.get() == SyncState::InSync),
            Err(ResyncError::Extent(why)) => (why, false),
            Err(ResyncError::Store(why)) => (why, true),
        };
        tracing::debug!(volume = %self.id, store = %self.label(number), why, "what an older image has was not copied");
        if indeterminate {
            replica.lose(&connection, true);
            self.renew().await?;
        }
        Ok(false)
    }
}

impl Walked {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.nodes.is_empty()
    }
}

/// Is it a child of `top`, or a child's child, and so on?
fn is_below(all: &AllImages, image: &ImageRecord, top: ImageId) -> bool {
    let mut parent = image.parent;
    // A record that is damaged may name one twice.
    for _ in 0..all.len() {
        match parent {
            Some(id) if id == top => return true,
            Some(id) => parent = all.get(&id).and_then(|it| it.record.parent),
            None => return false,
        }
    }
    false
}

/// Which of the stores it names.
fn on(there: &Walked, stores: &Drained) -> Drained {
    let entries = there.entries.iter();
    let extents = entries.flat_map(|(_, entry)| stores_of(entry));
    let nodes = there.nodes.iter();
    let nodes = nodes.flat_map(|(node, _)| node.stores.as_slice().to_vec());
    let all = extents.chain(nodes);
    all.filter(|one| stores.contains(one)).collect()
}

/// What a commit made that no reader will look at.
fn written_only(commit: &Commit) -> Freed {
    Freed {
        nodes: commit.written.clone(),
        extents: Vec::new(),
    }
}
