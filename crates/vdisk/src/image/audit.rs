//! Do the objects of the stores and the references of the maps agree?
//!
//! ```text
//! begin   which generation each head was committed in           what was born later is left alone
//! mark    every reference of every image, shared nodes once
//! list    every extent, node, fence and bitmap of every store
//! leak    an object that no map refers to                       freed, if that was asked
//! scrap   a copy on its way that no task waits for, a fence or bitmap of a volume that is no more     freed as leaks are
//! extra   a copy of one that is referred to, on another store   left alone: the map does not have it yet
//! loss    a reference of an image people read, without object
//! ```
//!
//! Writers go on beside it. What they allocate is born after the beginning; what they free is asked for again before it
//! is called lost.
//!
//! Always true:
//! 1. What is called a leak was allocated no later than its volume's last commit before the audit began, and no map has
//!    it; so no map ever will.
//! 2. Where a node of any map is gone nothing is called a leak: what lies below it is in use.
//! 3. What is called a scrap belongs to a volume that no node had open, or that was gone, when the audit began. A node that opens it
//!    meanwhile makes the copy again.
//! 4. A store that cannot be listed is named, and nothing is said of it.

use std::collections::BTreeSet;

use base::{Map, Set};

use crate::image::collect::Collector;
use crate::image::records::ImagesError;
use crate::image::tree::{ImageRecord, ImageState};
use crate::map::node::{FANOUT, Place};
use crate::map::{MapError, NodeRef};
use crate::names::{
    ExtentName, Generation, ImageId, NodeName, StoreNumber, Stores, VolumeId, hex, volume_filling,
};
use crate::record::{VolumeState, extents};

/// An extent or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectName {
    /// Of an extent.
    Extent(ExtentName),
    /// Of a node.
    Node(NodeName),
}

/// A copy that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Of what.
    pub name: ObjectName,
    /// Where.
    pub store: StoreNumber,
    /// Copies that are there.
    pub left: usize,
    /// An image that needs it.
    pub image: ImageId,
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that maps refer to.
    pub references: u64,
    /// Copies that stores have.
    pub copies: u64,
    /// Copies that no map refers to, by store and name.
    pub leaks: Vec<(StoreNumber, ObjectName)>,
    /// Objects that are never in a map, and of no use any more.
    pub scraps: Vec<(StoreNumber, String)>,
    /// Copies of what a map refers to, on stores that it does not name: made a moment ago, or left over. Never freed here.
    pub extra: Vec<(StoreNumber, ObjectName)>,
    /// Copies that are not there.
    pub losses: Vec<Loss>,
    /// Nodes of which no copy is there. What lies below them is in use, and cannot be listed: it proves no leak.
    pub gone: BTreeSet<NodeName>,
    /// Stores of which nothing is known.
    pub unknown: Vec<StoreNumber>,
    /// Are the leaks and scraps freed?
    pub freed: bool,
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ObjectName::Extent(name) => name.fmt(f),
            ObjectName::Node(name) => name.fmt(f),
        }
    }
}

impl ObjectName {
    fn parse(name: &str) -> Option<ObjectName> {
        match ExtentName::parse(name) {
            Some(name) => Some(ObjectName::Extent(name)),
            None => NodeName::parse(name).map(ObjectName::Node),
        }
    }

    fn birth(&self) -> (VolumeId, Generation) {
        match self {
            ObjectName::Extent(name) => (name.owner, name.born),
            ObjectName::Node(name) => (name.owner, name.born),
        }
    }
}

/// Where an object should be, and where it was seen.
struct Wanted {
    stores: Vec<(StoreNumber, bool)>,
    /// An image that needs it.
    image: ImageId,
    needed: bool,
}

/// All references.
#[derive(Default)]
struct Marks {
    wanted: Map<ObjectName, Wanted>,
    /// By name and checksum: what lies below two nodes of one name is all in use.
    walked: Set<(NodeName, u32)>,
    gone: BTreeSet<NodeName>,
}

/// Up to which generation something that no map refers to is a leak.
struct Limits {
    volumes: Map<VolumeId, Generation>,
    /// Volumes that a node has open.
    open: Set<VolumeId>,
    /// Volumes from this one on were made after the audit began.
    next: VolumeId,
}

impl Limits {
    fn is_leak(&self, name: &ObjectName) -> bool {
        let (owner, born) = name.birth();
        match self.volumes.get(&owner) {
            Some(limit) => born <= *limit,
            None => self.is_gone(owner),
        }
    }

    /// Is the volume gone for good?
    fn is_gone(&self, volume: VolumeId) -> bool {
        !self.volumes.contains_key(&volume) && volume < self.next
    }

    /// Of an object that is neither extent nor node: is it of no use?
    fn is_scrap(&self, name: &str) -> bool {
        let volume = |text: &str| hex(text, 8).map(|number| VolumeId(number as u32));
        let own = name.strip_prefix("g/").or_else(|| name.strip_prefix("d/"));
        if let Some(own) = own {
            return volume(own).is_some_and(|it| self.is_gone(it));
        }
        volume_filling(name).is_some_and(|it| !self.open.contains(&it) && it < self.next)
    }
}

impl Marks {
    fn mark(&mut self, name: ObjectName, stores: &Stores, image: &ImageRecord) {
        let wanted = self.wanted.entry(name).or_insert_with(|| Wanted {
            stores: Vec::new(),
            image: image.id,
            needed: image.is_live(),
        });
        for store in stores.iter() {
            if !wanted.stores.iter().any(|(known, _)| *known == store) {
                wanted.stores.push((store, false));
            }
        }
    }
}

/// An audit of what a collector collects. See the module's head.
pub struct Audit<'a>(pub &'a Collector);

impl Audit<'_> {
    /// Compares all maps with all objects; with `free`, leaks are deleted.
    ///
    /// Memory: about 100 bytes for each object that a map refers to.
    ///
    /// # Errors
    /// [`ImagesError`] if records or maps cannot be read now, or a leak cannot be deleted.
    pub async fn run(&self, free: bool) -> Result<Report, ImagesError> {
        let limits = self.limits().await?;
        let images = self.0.images.all().await?;
        let mut marks = Marks::default();
        let (live, others): (Vec<_>, Vec<_>) = (images.into_values())
            .map(|known| known.record)
            .partition(ImageRecord::is_live);
        for image in live.into_iter().chain(others) {
            self.mark_image(&mut marks, image).await?;
        }
        let mut report = Report {
            references: marks.wanted.len() as u64,
            gone: marks.gone.clone(),
            ..Report::default()
        };
        for store in self.0.objects.stores() {
            let before = report.clone();
            if self
                .list_store(store, &limits, &mut marks, &mut report)
                .await
                .is_err()
            {
                report = before;
                report.unknown.push(store);
            }
        }
        self.find_losses(marks, &mut report).await?;
        if free {
            let leaks = report
                .leaks
                .iter()
                .map(|(store, name)| (*store, name.to_string()));
            for (store, name) in leaks.chain(report.scraps.iter().cloned()) {
                self.0.delete([store].into_iter(), name).await?;
            }
            report.freed = true;
        }
        Ok(report)
    }

    async fn limits(&self) -> Result<Limits, ImagesError> {
        let next = VolumeId(self.0.images.numbers().await?.record.volume);
        let (mut volumes, mut open) = (Map::default(), Set::default());
        // Heads that a rollback replaces meanwhile are of earlier generations than the new ones: the least counts.
        for known in self.0.images.all().await?.values() {
            let volume = known.record.volume;
            if volumes.contains_key(&volume) {
                continue;
            }
            match self.0.images.volume(volume).await {
                Ok(found) if found.record.state == VolumeState::Live => {
                    if let Some(writer) = &found.record.writer
                        && self.0.images.holds(writer).await?
                    {
                        open.insert(volume);
                    }
                    let head = self.0.images.image(found.record.head).await?;
                    volumes.insert(volume, head.record.root.generation);
                }
                // What is being removed is the collector's.
                Ok(_) => drop(volumes.insert(volume, Generation(0))),
                Err(ImagesError::Missing(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(Limits {
            volumes,
            open,
            next,
        })
    }

    /// Marks what an image has; begins again where its writer replaced the map meanwhile.
    async fn mark_image(
        &self,
        marks: &mut Marks,
        mut image: ImageRecord,
    ) -> Result<(), ImagesError> {
        loop {
            let gone = self.mark_below(marks, &image).await?;
            if gone.is_empty() {
                return Ok(());
            }
            match self.0.images.image(image.id).await {
                Ok(now) if now.record.root != image.root => image = now.record,
                // Its nodes are being freed, after what lay below them.
                Ok(now) if now.record.state == ImageState::Deleting => return Ok(()),
                Ok(_) => {
                    marks.gone.extend(gone);
                    return Ok(());
                }
                Err(ImagesError::Missing(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers which nodes are gone; what lies below them is not looked at.
    async fn mark_below(
        &self,
        marks: &mut Marks,
        image: &ImageRecord,
    ) -> Result<Vec<NodeName>, ImagesError> {
        let top = Place {
            level: image.root.level,
            nth: 0,
        };
        let mut ahead: Vec<(Place, NodeRef)> = image
            .root
            .node
            .map(|node| (top, node))
            .into_iter()
            .collect();
        let mut gone = Vec::new();
        while let Some((place, reference)) = ahead.pop() {
            marks.mark(ObjectName::Node(reference.name()), &reference.stores, image);
            let known = (reference.name(), reference.crc);
            if marks.walked.contains(&known) {
                continue;
            }
            let node = match self.0.reader.node(&reference, place).await {
                Ok(node) => node,
                Err(MapError::Absent { node, .. }) => {
                    gone.push(node);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            marks.walked.insert(known);
            for slot in (0..FANOUT as usize).filter(|slot| node.next_slot(*slot) == Some(*slot)) {
                if place.level > 0 {
                    ahead.extend(node.child(slot).map(|child| (place.child(slot), child)));
                    continue;
                }
                let index = place.first(slot) as u32;
                for layer in node.entry(slot).iter().flat_map(|entry| entry.layers()) {
                    marks.mark(ObjectName::Extent(layer.name(index)), &layer.stores, image);
                }
            }
        }
        Ok(gone)
    }

    async fn list_store(
        &self,
        store: StoreNumber,
        limits: &Limits,
        marks: &mut Marks,
        report: &mut Report,
    ) -> Result<(), ImagesError> {
        for prefix in ["v/", "m/", "g/", "d/"] {
            for listed in self.0.names(store, prefix, prefix.to_owned()).await? {
                let Some(name) = ObjectName::parse(&listed) else {
                    if limits.is_scrap(&listed) {
                        report.scraps.push((store, listed));
                    }
                    continue;
                };
                report.copies += 1;
                match marks.wanted.get_mut(&name) {
                    Some(wanted) => match wanted.stores.iter_mut().find(|(at, _)| *at == store) {
                        Some((_, seen)) => *seen = true,
                        None => report.extra.push((store, name)),
                    },
                    None if marks.gone.is_empty() && limits.is_leak(&name) => {
                        report.leaks.push((store, name));
                    }
                    None => (),
                }
            }
        }
        Ok(())
    }

    async fn find_losses(&self, marks: Marks, report: &mut Report) -> Result<(), ImagesError> {
        let mut lost: Vec<_> = (marks.wanted.into_iter())
            .filter(|(_, wanted)| wanted.needed && wanted.stores.iter().any(|(_, seen)| !seen))
            .collect();
        lost.sort_by_key(|(name, _)| *name);
        for (name, wanted) in lost {
            let left = wanted.stores.iter().filter(|(_, seen)| *seen).count();
            for (store, _) in wanted.stores.iter().filter(|(_, seen)| !seen) {
                if report.unknown.contains(store) || !self.is_needed(wanted.image, &name).await? {
                    continue;
                }
                let listed = self.0.objects.list(*store, &name.to_string(), "", 1).await;
                if listed.is_ok_and(|names| names.is_empty()) {
                    report.losses.push(Loss {
                        name,
                        store: *store,
                        left,
                        image: wanted.image,
                    });
                }
            }
        }
        Ok(())
    }

    /// Does the image as it is now have it?
    async fn is_needed(&self, image: ImageId, name: &ObjectName) -> Result<bool, ImagesError> {
        let image = match self.0.images.image(image).await {
            Ok(known) if known.record.is_live() => known.record,
            Ok(_) | Err(ImagesError::Missing(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut marks = Marks::default();
        match name {
            ObjectName::Extent(name) => {
                let size = extents(image.size);
                let map = crate::map::Map::open(
                    self.0.reader.clone(),
                    image.volume,
                    image.root,
                    size,
                    image.since,
                );
                let entry = match map.get(name.index).await {
                    Ok(entry) => entry,
                    // The node above is the loss.
                    Err(MapError::Absent { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                };
                let layers = entry.into_iter().flat_map(|entry| entry.layers());
                let mut names = layers.map(|layer| layer.name(name.index));
                Ok(names.any(|has| has == *name))
            }
            ObjectName::Node(_) => {
                self.mark_image(&mut marks, image).await?;
                Ok(marks.wanted.contains_key(name))
            }
        }
    }
}
