//! What a map knows in memory: changes that wait for a commit, and those that one writes.
//!
//! Always true: what a commit that failed took is dirty again, and what changed meanwhile stays the newer.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::node::{LEVEL_MAX, Node, Place, level_for};
use super::{Entry, Layer, MapError, NodeRef, Root};
use crate::names::{COPIES_MAX, Generation, StoreNumber, Stores, VolumeId};

/// Nodes by where they stand.
pub(super) type Placed = BTreeMap<Place, Rc<Node>>;
/// Copies that are in use no more: of which extent, allocated by whom and when, on which store. By copy: an extent that is
/// dropped and allocated again in one generation has the same name, and may be on other stores.
pub(super) type Dropped = BTreeSet<(u32, VolumeId, Generation, StoreNumber)>;

/// See the module's head.
pub(super) struct State {
    /// How many extents there are.
    pub extents: u32,
    /// What was born in this generation or before is not the head's alone.
    pub since: Generation,
    /// As of the last commit.
    pub committed: Root,

    /// The level of the first node.
    pub level: u8,
    /// Its reference as of the last commit.
    pub top: Option<NodeRef>,
    pub dirty: Placed,
    pub dropped: Dropped,
    /// The latest-born object that was set.
    pub youngest: Generation,

    pub writing: Option<Writing>,
    /// Written by commits that failed.
    pub orphans: Vec<NodeRef>,
    /// The number of the next node, in the generation of the last try.
    pub next_number: (Generation, u32),
}

/// A commit under way: what it writes.
pub(super) struct Writing {
    pub nodes: Placed,
    pub dropped: Dropped,
    pub generation: Generation,
    /// The level of the first node when it began.
    pub level: u8,
}

/// What was written, by place; nothing where a node became empty.
pub(super) type References = BTreeMap<Place, Option<NodeRef>>;

/// What holds extent `index`, as the nodes above it say.
pub(super) fn held(path: &[Rc<Node>], index: u32) -> Option<Entry> {
    let leaf = path.last().filter(|node| node.place().level == 0)?;
    leaf.entry(leaf.place().slot(index))
}

impl State {
    /// As the root says, with nothing changed.
    pub fn new(root: Root, extents: u32, since: Generation) -> State {
        State {
            extents,
            since,
            committed: root,
            level: root.level,
            top: root.node,
            dirty: Placed::new(),
            dropped: Dropped::new(),
            youngest: Generation(0),
            writing: None,
            orphans: Vec::new(),
            next_number: (root.generation, 0),
        }
    }

    /// May `entry` hold extent `index` after `before`? What `owner` allocated anew is born after any root that may be in
    /// the meta store without it. Else the opening after a crash would not look for it.
    pub fn admit(
        &self,
        owner: VolumeId,
        index: u32,
        before: Option<Entry>,
        entry: Option<Entry>,
    ) -> Result<(), MapError> {
        let writing = self.writing.as_ref().map(|writing| writing.generation);
        let last = self.committed.generation.max(writing.unwrap_or_default());
        let is_new = |layer: &Layer| !before.is_some_and(|before| before.has(layer));
        let mut layers = entry.iter().flat_map(Entry::layers);
        match layers.find(|layer| layer.owner == owner && layer.born <= last && is_new(layer)) {
            None => Ok(()),
            Some(Layer { born, .. }) => Err(MapError::Late { index, born, last }),
        }
    }

    /// Lets `entry` hold extent `index`; `path` has the nodes above it that there are.
    pub fn change(
        &mut self,
        index: u32,
        path: Vec<Rc<Node>>,
        entry: Option<Entry>,
    ) -> Option<Entry> {
        let before = held(&path, index);
        if before == entry {
            return before;
        }
        self.grow(index);
        for node in path {
            self.dirty.entry(node.place()).or_insert(node);
        }
        for level in 0..=self.level {
            let place = Place::of(level, index);
            (self.dirty.entry(place)).or_insert_with(|| Rc::new(Node::empty(place)));
        }
        let place = Place::of(0, index);
        let leaf = self.dirty.get_mut(&place).expect("just made");
        Rc::make_mut(leaf).set_entry(place.slot(index), entry);
        self.account(index, before, entry);
        before
    }

    /// Puts nodes above the first one until they cover extent `index`.
    fn grow(&mut self, index: u32) {
        let needed = level_for(index.saturating_add(1)).min(LEVEL_MAX);
        while self.level < needed {
            let below = Place {
                level: self.level,
                nth: 0,
            };
            let writing = self.writing.as_ref();
            let changed = self.dirty.contains_key(&below)
                || writing.is_some_and(|writing| writing.nodes.contains_key(&below));
            let reference = self.top.take();
            self.level += 1;
            if reference.is_some() || changed {
                let (place, slot) = below.parent();
                let mut above = Node::empty(place);
                above.set_child(slot, reference);
                self.dirty.insert(place, Rc::new(above));
            }
        }
    }

    /// Notes what is in use no more, and takes note that something is again.
    fn account(&mut self, index: u32, before: Option<Entry>, after: Option<Entry>) {
        for layer in before.iter().flat_map(Entry::layers) {
            self.dropped.extend(copies(index, &layer));
        }
        for layer in after.iter().flat_map(Entry::layers) {
            for copy in copies(index, &layer) {
                self.dropped.remove(&copy);
                if let Some(writing) = &mut self.writing {
                    writing.dropped.remove(&copy);
                }
            }
            self.youngest = self.youngest.max(layer.born);
        }
    }

    /// What changed again since the commit began refers to what the commit wrote.
    pub fn take_references(&mut self, written: &Placed, references: &References, top: Place) {
        for place in written.keys() {
            let reference = references.get(place).copied().flatten();
            let (parent, slot) = place.parent();
            if *place == top && self.level == top.level {
                self.top = reference;
            } else if let Some(parent) = self.dirty.get_mut(&parent) {
                Rc::make_mut(parent).set_child(slot, reference);
            }
        }
    }
}

fn copies(
    index: u32,
    layer: &Layer,
) -> impl Iterator<Item = (u32, VolumeId, Generation, StoreNumber)> {
    let (owner, born) = (layer.owner, layer.born);
    (layer.stores.as_slice().to_vec().into_iter()).map(move |store| (index, owner, born, store))
}

/// The same, by extent.
pub(super) fn dropped_extents(dropped: &Dropped) -> Vec<(u32, Layer)> {
    let dropped: Vec<_> = dropped.iter().copied().collect();
    let same = |a: &(u32, VolumeId, Generation, StoreNumber), b: &(_, _, _, _)| {
        (a.0, a.1, a.2) == (b.0, b.1, b.2)
    };
    let extents = dropped
        .chunk_by(same)
        .flat_map(|extent| extent.chunks(COPIES_MAX));
    let layers = extents.map(|copies| {
        let stores: Vec<StoreNumber> = copies.iter().map(|copy| copy.3).collect();
        let (index, owner, born, _) = copies[0];
        let stores = Stores::new(&stores).expect("one to three, from a set");
        let layer = Layer {
            owner,
            born,
            stores,
        };
        (index, layer)
    });
    layers.collect()
}
