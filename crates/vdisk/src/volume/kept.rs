//! What older images of the volume have: no write changes it, but it counts, and stores that come back get it.
//!
//! ```text
//! opened, a store comes back, now and then  -> records of the volume's images -> their maps, shared nodes once -> tables
//! a snapshot is taken                       -> all that the head has goes into the tables
//! ```
//!
//! Always true:
//! 1. While the tables are not known, no store leaves the in-sync set that `weakest` in the record does not spare, and
//!    `weakest` does not grow.
//! 2. What is there too much (an image was deleted meanwhile) makes `weakest` smaller than it could be, and no greater.
//! 3. What a map that was written anew names is in the tables from before the meta store can have that map. That holds
//!    whichever task reads the maps beside it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use super::members::Member;
use super::mend::Held;
use super::nodes::Known;
use super::{Core, Placed, VolumeError};
use crate::image_meta::Images;
use crate::link::Link;
use crate::map::node::Place;
use crate::map::{Entry, NodeRef};
use crate::names::{ExtentName, Generation, NodeName, StoreNumber};
use crate::record::VolumeRecord;

/// What the images before the head have.
#[derive(Default)]
pub(super) struct Kept {
    /// Are the tables whole?
    known: Cell<bool>,
    tables: Tables,
    /// How many read the maps just now.
    readers: Cell<usize>,
    /// What was added since the first of them began: some of what they read is older.
    newer: Tables,
}

#[derive(Default)]
struct Tables {
    /// By object: where it is. Images may have it in different places.
    extents: RefCell<BTreeMap<ExtentName, Places>>,
    nodes: Known,
}

impl Tables {
    fn add(&self, entries: &[(u32, Entry)], nodes: &[(NodeRef, Place)]) {
        let extents = &mut *self.extents.borrow_mut();
        for (index, entry) in entries {
            for layer in entry.layers() {
                let stores = layer.stores.as_slice().to_vec();
                note(extents, layer.name(*index), stores);
            }
        }
        self.nodes.add(nodes.iter().copied());
    }

    fn add_all(&self, other: &Tables) {
        let extents = &mut *self.extents.borrow_mut();
        for (name, places) in &*other.extents.borrow() {
            for stores in places {
                note(extents, *name, stores.clone());
            }
        }
        self.nodes.add_all(&other.nodes);
    }

    fn become_those_of(&self, other: Tables) {
        *self.extents.borrow_mut() = other.extents.into_inner();
        self.nodes.become_those_of(other.nodes);
    }
}

/// A task reads the maps, until this is dropped.
struct Reading<'a>(&'a Kept);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let left = self.0.readers.get() - 1;
        self.0.readers.set(left);
        if left == 0 {
            self.0.newer.become_those_of(Tables::default());
        }
    }
}

/// What each of some images says of where an object is; each only once.
type Places = Vec<Vec<StoreNumber>>;

fn note(extents: &mut BTreeMap<ExtentName, Places>, name: ExtentName, stores: Vec<StoreNumber>) {
    let places = extents.entry(name).or_default();
    if !places.contains(&stores) {
        places.push(stores);
    }
}

/// All of them.
fn union(places: &Places) -> Vec<StoreNumber> {
    let all: BTreeSet<StoreNumber> = places.iter().flatten().copied().collect();
    all.into_iter().collect()
}

impl Kept {
    pub fn is_known(&self) -> bool {
        self.known.get()
    }

    pub fn nodes(&self) -> &Known {
        &self.tables.nodes
    }

    /// Where an extent's object is, by all images that have it; `None`: none has.
    pub fn stores_of(&self, name: &ExtentName) -> Option<Vec<StoreNumber>> {
        self.tables.extents.borrow().get(name).map(union)
    }

    /// Extents of which a store has a copy.
    pub fn count_on(&self, store: StoreNumber) -> usize {
        let extents = self.tables.extents.borrow();
        let on = |places: &&Places| places.iter().flatten().any(|one| *one == store);
        extents.values().filter(on).count()
    }

    /// Is there anything whose places in some image are such?
    pub fn any(&self, are: impl Fn(&[StoreNumber]) -> bool) -> bool {
        let extents = self.tables.extents.borrow();
        extents.values().flatten().any(|stores| are(stores)) || self.nodes().any(are)
    }

    /// An image has this besides, or may come to have it.
    pub fn add(&self, entries: &[(u32, Entry)], nodes: &[(NodeRef, Place)]) {
        self.tables.add(entries, nodes);
        if self.readers.get() > 0 {
            self.newer.add(entries, nodes);
        }
    }

    fn read(&self) -> Reading<'_> {
        self.readers.set(self.readers.get() + 1);
        Reading(self)
    }

    /// It has what was read, and what was added meanwhile.
    fn becomes(&self, read: Tables) {
        read.add_all(&self.newer);
        self.tables.become_those_of(read);
        self.known.set(true);
    }

    /// The least number of copies that anything has with these stores out.
    pub fn weakest(&self, out: &BTreeMap<StoreNumber, Generation>) -> Option<u8> {
        let extents = self.tables.extents.borrow();
        let counts = extents.values().flatten().map(|stores| {
            let in_sync = stores.iter().filter(|one| !out.contains_key(one));
            in_sync.count() as u8
        });
        counts.chain(self.nodes().weakest(out)).min()
    }
}

impl Core {
    /// Reads anew what the images before the head have.
    pub(super) async fn read_kept(&self) -> Result<(), VolumeError> {
        if self.record_in_doubt.get() {
            // A rewritten map whose swap was indeterminate is in the meta store from here on, or never will be.
            self.change_record(|_| Ok(false)).await?;
        }
        let _reading = self.kept.read();
        let head = self.head.borrow().record.id;
        let images = Images {
            meta: Rc::clone(&self.meta),
        };
        let all = images.all().await.map_err(|it| self.image_error(&it))?;
        let own = all.values().map(|known| &known.record);
        let older = own.filter(|it| it.volume == self.id && it.id != head && it.is_live());
        let mut seen: BTreeSet<NodeName> = BTreeSet::new();
        let read = Tables::default();
        for image in older {
            let walked = self.walk(image.root, &seen).await;
            let walked = walked.map_err(|error| self.image_error(&error))?;
            seen.extend(walked.nodes.iter().map(|(node, _)| node.name()));
            read.add(&walked.entries, &walked.nodes);
        }
        if self.head.borrow().record.id != head {
            return Err(self.image_error(&"a snapshot was taken while its images were read"));
        }
        self.kept.becomes(read);
        Ok(())
    }

    /// Reads it if it is not known, or may be too much.
    pub(super) async fn keep_kept(&self, turn: u64) -> Result<(), VolumeError> {
        let (out, copies) = {
            let record = &self.record.borrow().0;
            (record.out.clone(), record.copies)
        };
        let thin = self.kept.weakest(&out).is_some_and(|least| least < copies);
        match !self.kept.is_known() || (thin && turn.is_multiple_of(64)) {
            true => self.read_kept().await,
            false => Ok(()),
        }
    }

    /// A snapshot was taken: all that the head has is the snapshot's too.
    pub(super) fn all_is_kept(&self) {
        let mut kept = self.kept.tables.extents.borrow_mut();
        for placed in self.extents.borrow().values() {
            for layer in placed.layers() {
                let stores = layer.stores.borrow().clone();
                note(&mut kept, layer.name, stores);
            }
        }
        self.kept.nodes().add_all(&self.nodes);
    }

    /// `weakest` when `newly` more stores are out than the record says; what is not known is as weak as the record says.
    pub(super) fn weakest_of_all(&self, record: &VolumeRecord, newly: usize) -> u8 {
        let weakest = self.weakest(&record.out, record.copies);
        match self.kept.is_known() {
            true => weakest,
            false => weakest.min(record.weakest.saturating_sub(newly as u8)),
        }
    }

    /// Something of older images that a store should have, behind that one, and was not resynced yet.
    pub(super) fn next_kept(
        &self,
        member: &Member,
        after: Option<ExtentName>,
    ) -> Option<(ExtentName, Vec<StoreNumber>)> {
        #[cfg(test)]
        if self.planted(super::Bug::HeadOnlyResync) {
            return None;
        }
        let (number, brought) = (member.site.number, member.brought.borrow());
        let kept = self.kept.tables.extents.borrow();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut all = (kept.range((from, Bound::Unbounded))).filter(|(name, places)| {
            places.iter().flatten().any(|one| *one == number) && !brought.contains(name)
        });
        all.next().map(|(name, places)| (*name, union(places)))
    }

    /// Resyncs to a store that is out what the images before the head have there; returns why something of it cannot
    /// be.
    pub(super) async fn bring_kept(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        since: Generation,
    ) -> Result<Option<String>, String> {
        let (mut held, mut after) = (None, None);
        while let Some((name, stores)) = self.next_kept(member, after) {
            after = Some(name);
            let placed = Placed::new(name, stores.clone(), false);
            if !self.is_shared(&placed) && self.is_heads(&placed) {
                // It is the head's alone by now, which resyncs it extent by extent, or has.
                let synced = member.synced.borrow().contains(&name.index);
                if synced {
                    member.brought.borrow_mut().insert(name);
                }
                continue;
            }
            match self.bring_layer(link, &placed, &stores, since).await {
                Ok(()) => drop(member.brought.borrow_mut().insert(name)),
                Err(Held::Store(why)) => return Err(why),
                Err(Held::Extent(why)) => held = Some(why),
            }
        }
        Ok(held)
    }
}
