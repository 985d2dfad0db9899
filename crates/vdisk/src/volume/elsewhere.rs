//! Where else could a layer of an older image be?
//!
//! Always true: a copy that a new map names is whole and durable, and made for it, or counted by a map that is in use.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::copies::{Copies, ResyncError};
use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::node_io::{NodeIo, Walked};
use super::record_io::RecordIo;
use super::replica::SyncState;
use super::room::Room;
use super::state::Core;
use crate::image::records::AllImages;
use crate::image::tree::ImageRecord;
use crate::map::{Commit, Entry, Freed, Layer, stores_of};
use crate::meta::Revision;
use crate::names::{Generation, ImageId, StoreNumber, Stores};

pub(super) type Drained = BTreeSet<StoreNumber>;

/// What the maps of older images are to say.
pub(super) enum Wanted {
    /// Nothing on these stores, which are drained.
    Without(Drained),
    /// So many copies of each thing, of which all that there are now are on these stores, which stay.
    Enough(usize, BTreeSet<StoreNumber>),
}

impl Wanted {
    /// Is what is there to be elsewhere, or in more places?
    pub fn is_about(&self, at: &Stores) -> bool {
        match self {
            Wanted::Without(stores) => at.iter().any(|one| stores.contains(&one)),
            Wanted::Enough(copies, stay) => {
                at.as_slice().len() < *copies && at.iter().all(|one| stay.contains(&one))
            }
        }
    }

    /// Stores that are to be empty.
    pub fn leaves(&self) -> &Drained {
        static NONE: Drained = Drained::new();
        match self {
            Wanted::Without(stores) => stores,
            Wanted::Enough(..) => &NONE,
        }
    }

    /// Is an image's map to be written anew? A deferred-delete image has no reader, but it is not to keep a store.
    pub fn is_for(&self, image: &ImageRecord) -> bool {
        matches!(self, Wanted::Without(_)) || image.is_live()
    }
}

/// All images, and what the record of the numbers was at before they were read.
pub(super) struct ImageList {
    pub all: AllImages,
    pub numbers: Revision,
}

/// Finds other places for what older images have.
#[derive(Clone, Copy)]
pub(super) struct Elsewhere<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Elsewhere<'a> {
    pub fn of(core: &'a Rc<Core>) -> Elsewhere<'a> {
        Elsewhere { core }
    }

    /// The entry with copies on other stores; none if there is no place for them now, or nothing to make them of.
    pub(super) async fn entry_elsewhere(
        self,
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
        self,
        layer: &Layer,
        stores: &Drained,
    ) -> Result<Option<Stores>, VolumeError> {
        let stay = layer.stores.iter().filter(|one| !stores.contains(one));
        let mut stay: Vec<StoreNumber> = stay.collect();
        if stay.is_empty()
            && let Some(number) = Room::of(self.core).choose_one(&[])
        {
            // The record says that something names the store, to the code that would forget it.
            RecordIo::of(self.core).list_stores(&[number]).await?;
            stay.push(number);
        }
        Ok(Stores::new(&stay))
    }

    async fn layer_elsewhere(
        self,
        images: &ImageList,
        index: u32,
        layer: &Layer,
        wanted: &Wanted,
    ) -> Result<Option<Stores>, VolumeError> {
        if !wanted.is_about(&layer.stores) {
            return Ok(Some(layer.stores));
        }
        let stores = wanted.leaves();
        let copies = usize::from(self.core.volume_record().copies);
        let had = layer.stores.as_slice();
        let stay = had.iter().copied().filter(|one| !stores.contains(one));
        let mut at: Vec<StoreNumber> = stay.collect();
        let name = layer.name(index);
        // Where the head or another image has it already, it need not be copied.
        let head = self.core.extents.placed(index).into_iter();
        let head = head.flat_map(|placed| placed.layers());
        let head = head.filter(|own| own.name == name);
        let head = head.flat_map(|own| own.stores());
        let mut there: Vec<StoreNumber> = head.collect();
        there.extend(self.where_older_have(images, index, layer).await);
        for number in there {
            if at.len() < copies && !had.contains(&number) && self.may_have_too(number, &at) {
                at.push(number);
            }
        }
        let placed = ExtentEntry::new(name, had.to_vec(), false);
        while at.len() < copies {
            let copied = match Room::of(self.core).choose_one(&at) {
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
        self,
        images: &ImageList,
        index: u32,
        layer: &Layer,
    ) -> Vec<StoreNumber> {
        let head = self.core.record.head.borrow().record.id;
        let all = images.all.values().map(|known| &known.record);
        let mut at = Vec::new();
        for image in all.filter(|it| it.volume == self.core.id && it.id != head && it.is_live()) {
            // What cannot be read is copied.
            let Ok((_, Some(entry))) = NodeIo::of(self.core).path(image.root, index).await else {
                continue;
            };
            let same = entry.layers().filter(|own| own.is(layer));
            at.extend(same.flat_map(|own| own.stores.as_slice().to_vec()));
        }
        at
    }

    /// Is a store in sync, to stay, and in a failure domain of its own?
    fn may_have_too(self, number: StoreNumber, has: &[StoreNumber]) -> bool {
        let Some(replica) = self.core.replicas.get(number) else {
            return false;
        };
        let domain = |one: &StoreNumber| self.core.replicas.get(*one).map(|it| it.info.domain);
        let own = Some(replica.info.domain);
        replica.sync_state() == SyncState::InSync
            && !self.core.replicas.is_drained(number)
            && !has.iter().any(|one| domain(one) == own)
    }

    /// Makes a copy, on a store, of what no write changes. `false`: not now.
    async fn copy_to(
        self,
        number: StoreNumber,
        placed: &Rc<ExtentEntry>,
    ) -> Result<bool, VolumeError> {
        RecordIo::of(self.core).list_stores(&[number]).await?;
        let replica = self
            .core
            .replicas
            .get(number)
            .expect("chosen from the members");
        let Some(connection) = replica.connection() else {
            return Ok(false);
        };
        let had = placed.stores();
        let copied = Copies::of(self.core).resync_layer(&connection, placed, &had, Generation(0));
        let copied = match copied.await {
            Ok(()) => {
                let flushed = self.core.within(connection.flush()).await;
                flushed.map_err(ResyncError::by_store)
            }
            Err(held) => Err(held),
        };
        let (why, indeterminate) = match copied {
            Ok(()) => return Ok(replica.sync_state() == SyncState::InSync),
            Err(ResyncError::Extent(why)) => (why, false),
            Err(ResyncError::Store(why)) => (why, true),
        };
        tracing::debug!(volume = %self.core.id, store = %self.core.replicas.label(number), why, "what an older image has was not copied");
        if indeterminate {
            replica.lose(&connection, true);
            RecordIo::of(self.core).renew().await?;
        }
        Ok(false)
    }
}

/// Is it a child of `top`, or a child's child, and so on?
pub(super) fn is_below(all: &AllImages, image: &ImageRecord, top: ImageId) -> bool {
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
pub(super) fn on(there: &Walked, stores: &Drained) -> Drained {
    let entries = there.entries.iter();
    let extents = entries.flat_map(|(_, entry)| stores_of(entry));
    let nodes = there.nodes.iter();
    let nodes = nodes.flat_map(|(node, _)| node.stores.as_slice().to_vec());
    let all = extents.chain(nodes);
    all.filter(|one| stores.contains(one)).collect()
}

/// What a commit made that no reader will look at.
pub(super) fn written_only(commit: &Commit) -> Freed {
    Freed {
        nodes: commit.written.clone(),
        extents: Vec::new(),
    }
}
