//! Older images of the volume leave drained stores, too, where `Settings::rehomes` says so: their maps are written anew, with what
//! they say in other places.
//!
//! ```text
//! own images but the head, of which no child names the store any more
//!   -> copies of their extents on other stores -> a map that names those -> the image's record, by compare-and-swap
//!   -> what the map before had, and the parent does not, is freed
//! ```
//!
//! An image is what it was: the same objects in the same order, some of them elsewhere.
//!
//! Always true:
//! 1. The images that have a node are neighbours of each other, as `image` asks for: a node leaves an image only when none
//!    of its children has it, and no child is made meanwhile (each takes a number, which is compared).
//! 2. A copy that a new map names is whole and durable.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::mend::Held;
use super::nodes::Walked;
use super::{Core, Placed, VolumeError};
use crate::image::{self, ImageRecord, ImageState, Known, NUMBERS_KEY};
use crate::image_meta::{AllImages, Images};
use crate::map::{Commit, Entry, Freed, Layer, Map};
use crate::meta::{Outcome, Revision};
use crate::names::{ExtentName, Generation, NodeName, StoreNumber, Stores};
use crate::record::extents;

type Drained = BTreeSet<StoreNumber>;

impl Core {
    /// Has the maps of older images written anew where they name these stores, if that is allowed; answers those that none of
    /// them names.
    pub(super) async fn rehome(self: &Rc<Self>, stores: Drained) -> Result<Drained, VolumeError> {
        let images = Images {
            meta: Rc::clone(&self.meta),
        };
        let failed = |why: &dyn std::fmt::Display| self.image_error(&why);
        loop {
            let numbers = self.meta.get(NUMBERS_KEY).await;
            let numbers = numbers.map_err(|error| self.meta_error(error))?;
            let numbers = numbers.map_or(Revision(0), |entry| entry.changed);
            let all = images.all().await.map_err(|error| failed(&error))?;
            let mut left = Drained::new();
            let mut changed = false;
            let head = self.head.borrow().record.id;
            let own = all
                .values()
                .filter(|it| it.record.volume == self.id && it.record.id != head);
            for known in own {
                if known.record.state == ImageState::Deleting {
                    // What it has there goes in a moment.
                    left.extend(&stores);
                    continue;
                }
                let there = self.named(&known.record, &stores).await?;
                if there.is_empty() {
                    continue;
                }
                let stays =
                    !self.settings.rehomes || self.has_heirs(&all, &known.record, &stores).await?;
                match stays {
                    true => left.extend(on(&there, &stores)),
                    false if self.rewrite(&all, known, numbers, &stores, there).await? => {
                        changed = true;
                        break;
                    }
                    false => left.extend(&stores),
                }
            }
            if changed {
                self.read_kept().await?;
                continue;
            }
            return Ok(stores.difference(&left).copied().collect());
        }
    }

    /// What an image names on these stores. What it shares with the head is not looked at: the head names none of them.
    async fn named(&self, image: &ImageRecord, stores: &Drained) -> Result<Walked, VolumeError> {
        let walked = self.walk(image.root, &self.nodes.names()).await;
        let mut walked = walked.map_err(|error| self.map_error(&error))?;
        let on = |at: &Stores| at.iter().any(|one| stores.contains(&one));
        walked.nodes.retain(|(node, _)| on(&node.stores));
        (walked.entries).retain(|(_, entry)| entry.layers().any(|layer| on(&layer.stores)));
        Ok(walked)
    }

    /// Does a child name one of these stores? Then it shares nodes that do.
    async fn has_heirs(
        &self,
        all: &AllImages,
        image: &ImageRecord,
        stores: &Drained,
    ) -> Result<bool, VolumeError> {
        for child in all.values().filter(|it| it.record.parent == Some(image.id)) {
            if !self.named(&child.record, stores).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the map of an image anew. `false`: somebody changed something meanwhile, or there is no place to go.
    async fn rewrite(
        self: &Rc<Self>,
        all: &AllImages,
        known: &Known<ImageRecord>,
        numbers: Revision,
        stores: &Drained,
        there: Walked,
    ) -> Result<bool, VolumeError> {
        let image = &known.record;
        let reader = Rc::clone(self.map.reader());
        let map = Map::open(
            reader,
            self.id,
            image.root,
            extents(image.size),
            image.since,
        );
        for (index, entry) in &there.entries {
            let Some(entry) = self.entry_elsewhere(*index, entry, stores).await? else {
                return Ok(false);
            };
            let set = map.set(*index, entry).await;
            set.map_err(|error| self.map_error(&error))?;
        }
        // No commit of the head comes between: what is written here is younger than the head's map until it is named.
        let _one = self.committing.acquire(1).await;
        for (_, place) in &there.nodes {
            let renewed = map.renew(place.first(0) as u32).await;
            renewed.map_err(|error| self.map_error(&error))?;
        }
        self.change_record(|_| Ok(true)).await?;
        let generation = Generation(self.generation().0 - 1);
        let commit = map.commit(generation).await;
        let commit = commit.map_err(|error| self.map_error(&error))?;
        if commit
            .written
            .iter()
            .any(|node| node.stores.iter().any(|one| stores.contains(&one)))
        {
            self.free(written_only(&commit)).await?;
            return Ok(false);
        }
        self.hand_over(all, known, numbers, commit).await
    }

    /// Gives the image its new map, and frees what nobody has any more.
    async fn hand_over(
        &self,
        all: &AllImages,
        known: &Known<ImageRecord>,
        numbers: Revision,
        commit: Commit,
    ) -> Result<bool, VolumeError> {
        let outcome = {
            let _one = self.changing.acquire(1).await;
            self.usable()?;
            let (record, changed) = self.record.borrow().clone();
            let volume = Known {
                record,
                changed: Some(changed),
            };
            let change = image::rehome(&volume, known, numbers, commit.root);
            self.meta.txn(change.compares, change.ops).await
        };
        match outcome {
            Ok(Outcome::Done(_)) => {}
            Ok(Outcome::Refused(_)) => {
                self.free(written_only(&commit)).await?;
                return Ok(false);
            }
            // It is looked at anew. What was written in vain an audit finds.
            Err(error) => return Err(self.meta_error(error)),
        }
        tracing::info!(volume = %self.id, image = %known.record.id, "an older image has another map");
        let parent = known.record.parent.and_then(|parent| all.get(&parent));
        let has = match parent {
            None => Walked::default(),
            Some(parent) => match self.walk(parent.record.root, &BTreeSet::new()).await {
                Ok(has) => has,
                // It is being freed: an audit finds what is left.
                Err(_) => return Ok(true),
            },
        };
        let nodes: BTreeSet<NodeName> = has.nodes.iter().map(|(node, _)| node.name()).collect();
        let extents = has.entries.iter();
        let extents = extents.flat_map(|(index, entry)| entry.layers().map(|it| it.name(*index)));
        let extents: BTreeSet<ExtentName> = extents.collect();
        let mut replaced = commit.replaced;
        replaced.nodes.retain(|node| !nodes.contains(&node.name()));
        (replaced.extents).retain(|(index, layer)| !extents.contains(&layer.name(*index)));
        self.free(replaced).await?;
        Ok(true)
    }

    /// The entry with copies on other stores; none if there are too few of them.
    async fn entry_elsewhere(
        &self,
        index: u32,
        entry: &Entry,
        stores: &Drained,
    ) -> Result<Option<Entry>, VolumeError> {
        let mut layers = Vec::new();
        for layer in entry.layers() {
            let Some(at) = self.layer_elsewhere(index, &layer, stores).await? else {
                return Ok(None);
            };
            layers.push(Layer {
                stores: at,
                ..layer
            });
        }
        Ok(Some(match layers[..] {
            [top, base] => Entry::overlay(top, base),
            _ => Entry::full(layers[0]),
        }))
    }

    async fn layer_elsewhere(
        &self,
        index: u32,
        layer: &Layer,
        stores: &Drained,
    ) -> Result<Option<Stores>, VolumeError> {
        let copies = usize::from(self.record.borrow().0.copies);
        let had = layer.stores.as_slice();
        let stay = had.iter().copied().filter(|one| !stores.contains(one));
        let mut at: Vec<StoreNumber> = stay.collect();
        if at.len() == had.len() {
            return Ok(Some(layer.stores));
        }
        let name = layer.name(index);
        // Where the head has it already, it need not be brought.
        let head = self
            .placed(index)
            .into_iter()
            .flat_map(|placed| placed.layers());
        for own in head.filter(|own| own.name == name) {
            let own = own.stores.borrow();
            at.extend(
                own.iter()
                    .copied()
                    .filter(|one| !stores.contains(one) && !had.contains(one)),
            );
        }
        at.truncate(copies.max(had.len()));
        let placed = Placed::new(name, had.to_vec(), false);
        while at.len() < copies {
            let Some(number) = self.choose_one(&at) else {
                return Ok(None);
            };
            self.list_stores(&[number]).await?;
            let member = self.member(number).expect("chosen from the members");
            let Some(link) = member.link() else {
                return Ok(None);
            };
            let brought = self.bring_layer(&link, &placed, had, Generation(0)).await;
            let flushed = match brought {
                Ok(()) => self
                    .within(link.flush())
                    .await
                    .map_err(|error| error.to_string()),
                Err(Held::Store(why) | Held::Extent(why)) => Err(why),
            };
            flushed.map_err(|why| self.image_error(&why))?;
            at.push(number);
        }
        Ok(Stores::new(&at))
    }
}

impl Walked {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.nodes.is_empty()
    }
}

/// Which of the stores it names.
fn on(there: &Walked, stores: &Drained) -> Drained {
    let extents = there
        .entries
        .iter()
        .flat_map(|(_, entry)| crate::map::stores_of(entry));
    let nodes = there
        .nodes
        .iter()
        .flat_map(|(node, _)| node.stores.as_slice().to_vec());
    extents
        .chain(nodes)
        .filter(|one| stores.contains(one))
        .collect()
}

/// What a commit made that nobody will look at.
fn written_only(commit: &Commit) -> Freed {
    Freed {
        nodes: commit.written.clone(),
        extents: Vec::new(),
    }
}
