//! The map of an image in use: entries are found, set and removed while commits go on beside.
//!
//! ```text
//! dirty     changed since the last commit began        place -> node
//! writing   being written by the commit under way      place -> node
//! else      as the references say                       reader
//! ```
//!
//! Always true:
//! 1. What lies above a dirty node is dirty, and the same for writing; so a walk from the root finds the newest.
//! 2. A change is one step in memory, after all nodes it needs were read: nothing else happens between its parts.
//! 3. References in dirty nodes are those of the last commit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::commit::Writing;
use super::node::{FANOUT, LEVEL_MAX, Node, Place, level_for, stride};
use super::reader::Reader;
use super::{Entry, Layer, MapError, NodeRef, Root};
use crate::names::{COPIES_MAX, Generation, StoreNumber, Stores, VolumeId};

/// An image's map. See the module's head.
pub struct Map {
    pub(super) volume: VolumeId,
    pub(super) reader: Rc<Reader>,
    pub(super) state: RefCell<State>,
}

/// Nodes by where they stand.
pub(super) type Placed = BTreeMap<Place, Rc<Node>>;
/// Copies that are in use no more: of which extent, allocated by whom and when, on which store. By copy: an extent that is
/// dropped and allocated again in one generation has the same name, and may be on other stores.
pub(super) type Dropped = BTreeSet<(u32, VolumeId, Generation, StoreNumber)>;

pub(super) struct State {
    /// How many extents there are.
    extents: u32,
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

/// A node that must be read first.
pub(super) struct Missing(NodeRef, Place);

/// What was read for one operation; it stays until that is done, whatever the cache does.
#[derive(Default)]
pub(super) struct Hand(Vec<(NodeRef, Rc<Node>)>);

/// Nodes of the tree as it is now.
struct TreeView<'a> {
    state: &'a State,
    reader: &'a Reader,
    hand: &'a Hand,
}

impl Map {
    /// The map of volume `volume` that begins at `root`, with `extents` of them. `since` is the generation of the image
    /// before the head: what was born in it or earlier belongs to that one too.
    pub fn open(
        reader: Rc<Reader>,
        volume: VolumeId,
        root: Root,
        extents: u32,
        since: Generation,
    ) -> Map {
        let state = State {
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
        };
        Map {
            volume,
            reader,
            state: RefCell::new(state),
        }
    }

    /// As the last commit left it.
    pub fn root(&self) -> Root {
        self.state.borrow().committed
    }

    /// What reads its nodes.
    pub fn reader(&self) -> &Rc<Reader> {
        &self.reader
    }

    /// How many extents there are.
    pub fn extents(&self) -> u32 {
        self.state.borrow().extents
    }

    /// The generation up to which the head shares what it has.
    pub fn since(&self) -> Generation {
        self.state.borrow().since
    }

    /// Sets it: later when a snapshot was taken, earlier when the image before the head was deleted.
    pub fn set_since(&self, since: Generation) {
        self.state.borrow_mut().since = since;
    }

    /// Has anything changed since the last commit began?
    pub fn is_dirty(&self) -> bool {
        let state = self.state.borrow();
        !state.dirty.is_empty() || !state.dropped.is_empty()
    }

    /// Nodes that are in memory because they changed.
    pub fn dirty_nodes(&self) -> usize {
        let state = self.state.borrow();
        let writing = state.writing.as_ref();
        state.dirty.len() + writing.map_or(0, |writing| writing.nodes.len())
    }

    /// What holds extent `index`, if all nodes above it are in memory.
    pub fn get_now(&self, index: u32) -> Option<Option<Entry>> {
        let state = self.state.borrow();
        TreeView::new(&state, &self.reader, &Hand::default())
            .get(index)
            .ok()
    }

    /// What holds extent `index`; nothing behind the end.
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Absent`], [`MapError::Damaged`].
    pub async fn get(&self, index: u32) -> Result<Option<Entry>, MapError> {
        self.seen(|seen| seen.get(index)).await
    }

    /// The first extent from `from` on that is allocated, and what holds it.
    ///
    /// # Errors
    /// As for [`Map::get`].
    pub async fn next(&self, from: u32) -> Result<Option<(u32, Entry)>, MapError> {
        self.seen(|seen| seen.next(from)).await
    }

    /// Lets `entry` hold extent `index`; answers what did before. What the volume allocates is entered when it is named,
    /// before its data is written: so whatever has data is in the map, or found behind the generation of its root.
    ///
    /// # Errors
    /// [`MapError::Beyond`], [`MapError::Late`], and as for [`Map::get`]; nothing is changed then.
    pub async fn set(&self, index: u32, entry: Entry) -> Result<Option<Entry>, MapError> {
        self.put(index, Some(entry)).await
    }

    /// As [`Map::set`], if `still` holds in the very step in which the map is changed. Does it?
    ///
    /// # Errors
    /// As for [`Map::set`].
    pub async fn set_if(
        &self,
        index: u32,
        entry: Entry,
        still: impl Fn() -> bool,
    ) -> Result<bool, MapError> {
        let put = self.put_if(index, Some(entry), still).await?;
        Ok(put.is_some())
    }

    /// Lets nothing hold extent `index`; answers what did before.
    ///
    /// # Errors
    /// As for [`Map::set`].
    pub async fn remove(&self, index: u32) -> Result<Option<Entry>, MapError> {
        self.put(index, None).await
    }

    /// Makes the map as long as `extents`; what lies behind is removed first, from the front, and if that fails some of it
    /// is.
    ///
    /// # Errors
    /// As for [`Map::get`].
    pub async fn resize(&self, extents: u32) -> Result<(), MapError> {
        while let Some((index, _)) = self.next(extents).await? {
            self.remove(index).await?;
        }
        self.state.borrow_mut().extents = extents;
        Ok(())
    }

    /// Has the nodes above extent `index` written anew by the next commit: their copies go to other stores.
    ///
    /// # Errors
    /// As for [`Map::get`].
    pub async fn renew(&self, index: u32) -> Result<(), MapError> {
        let mut hand = Hand::default();
        loop {
            let missing = {
                let state = &mut *self.state.borrow_mut();
                match TreeView::new(state, &self.reader, &hand).path(index) {
                    Ok(path) => {
                        for node in path {
                            state.dirty.entry(node.place()).or_insert(node);
                        }
                        return Ok(());
                    }
                    Err(missing) => missing,
                }
            };
            self.fetch(&mut hand, missing).await?;
        }
    }

    async fn put(&self, index: u32, entry: Option<Entry>) -> Result<Option<Entry>, MapError> {
        let put = self.put_if(index, entry, || true).await?;
        Ok(put.expect("nothing is in its way"))
    }

    async fn put_if(
        &self,
        index: u32,
        entry: Option<Entry>,
        still: impl Fn() -> bool,
    ) -> Result<Option<Option<Entry>>, MapError> {
        let extents = self.extents();
        if index >= extents {
            return Err(MapError::Beyond { index, extents });
        }
        let mut hand = Hand::default();
        loop {
            let missing = {
                let state = &mut *self.state.borrow_mut();
                match TreeView::new(state, &self.reader, &hand).path(index) {
                    Ok(_) if !still() => return Ok(None),
                    Ok(path) => {
                        state.admit(self.volume, index, held(&path, index), entry)?;
                        return Ok(Some(state.change(index, path, entry)));
                    }
                    Err(missing) => missing,
                }
            };
            self.fetch(&mut hand, missing).await?;
        }
    }

    /// Tries `look` until all it needs is in memory.
    async fn seen<T>(
        &self,
        look: impl Fn(TreeView<'_>) -> Result<T, Missing>,
    ) -> Result<T, MapError> {
        let mut hand = Hand::default();
        loop {
            let tried = look(TreeView::new(&self.state.borrow(), &self.reader, &hand));
            match tried {
                Ok(found) => return Ok(found),
                Err(missing) => self.fetch(&mut hand, missing).await?,
            }
        }
    }

    /// Reads what is missing. A commit may replace and free a node while it is read. Then there is no such node, and a
    /// retry does not ask for it.
    async fn fetch(&self, hand: &mut Hand, missing: Missing) -> Result<(), MapError> {
        let Missing(reference, place) = missing;
        let committed = self.root();
        match self.reader.node(&reference, place).await {
            Ok(node) => hand.0.push((reference, node)),
            Err(MapError::Absent { .. }) if self.root() != committed => (),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl<'a> TreeView<'a> {
    fn new(state: &'a State, reader: &'a Reader, hand: &'a Hand) -> TreeView<'a> {
        TreeView {
            state,
            reader,
            hand,
        }
    }

    /// The node at `place`, where the node above refers to `reference`.
    fn node(&self, place: Place, reference: Option<NodeRef>) -> Result<Option<Rc<Node>>, Missing> {
        let writing = self.state.writing.as_ref().map(|writing| &writing.nodes);
        let changed =
            (self.state.dirty.get(&place)).or_else(|| writing.and_then(|nodes| nodes.get(&place)));
        if let Some(node) = changed {
            return Ok(Some(Rc::clone(node)));
        }
        let Some(reference) = reference else {
            return Ok(None);
        };
        let in_hand = (self.hand.0.iter()).find(|(other, _)| other.is(&reference));
        in_hand
            .map(|(_, node)| Rc::clone(node))
            .or_else(|| self.reader.cached(&reference, place))
            .map(Some)
            .ok_or(Missing(reference, place))
    }

    fn get(&self, index: u32) -> Result<Option<Entry>, Missing> {
        if index >= self.state.extents {
            return Ok(None);
        }
        let path = self.path(index)?;
        Ok(held(&path, index))
    }

    /// The nodes above extent `index`, from the first one down to where there is none.
    fn path(&self, index: u32) -> Result<Vec<Rc<Node>>, Missing> {
        let mut path = Vec::new();
        if u64::from(index) >= stride(self.state.level + 1) {
            return Ok(path);
        }
        let mut reference = self.state.top;
        for level in (0..=self.state.level).rev() {
            let place = Place::of(level, index);
            let Some(node) = self.node(place, reference)? else {
                break;
            };
            if level > 0 {
                reference = node.child(place.slot(index));
            }
            path.push(node);
        }
        Ok(path)
    }

    fn next(&self, from: u32) -> Result<Option<(u32, Entry)>, Missing> {
        let top = Place {
            level: self.state.level,
            nth: 0,
        };
        let found = match self.node(top, self.state.top)? {
            Some(node) => self.next_below(&node, u64::from(from))?,
            None => None,
        };
        Ok(found.filter(|(index, _)| *index < self.state.extents))
    }

    fn next_below(&self, node: &Node, from: u64) -> Result<Option<(u32, Entry)>, Missing> {
        let place = node.place();
        let first = place.first(0);
        let mut slot = (from.saturating_sub(first) / stride(place.level)) as usize;
        while let Some(found) = self.next_slot(node, slot) {
            if place.level == 0 {
                let entry = node.entry(found).expect("the slot is taken");
                return Ok(Some((place.first(found) as u32, entry)));
            }
            if let Some(child) = self.node(place.child(found), node.child(found))? {
                let below = self.next_below(&child, from)?;
                if below.is_some() {
                    return Ok(below);
                }
            }
            slot = found + 1;
        }
        Ok(None)
    }

    /// The first slot from `slot` on that leads anywhere: a new child has no reference yet.
    fn next_slot(&self, node: &Node, slot: usize) -> Option<usize> {
        let last = FANOUT as usize - 1;
        if slot > last {
            return None;
        }
        let stored = node.next_slot(slot);
        if node.place().level == 0 {
            return stored;
        }
        let range = node.place().child(slot)..=node.place().child(last);
        let among = |nodes: &Placed| {
            let (place, _) = nodes.range(range.clone()).next()?;
            Some(place.parent().1)
        };
        let writing = self.state.writing.as_ref();
        let dirty = among(&self.state.dirty);
        let written = writing.and_then(|writing| among(&writing.nodes));
        [stored, dirty, written].into_iter().flatten().min()
    }
}

/// What holds extent `index`, as the nodes above it say.
fn held(path: &[Rc<Node>], index: u32) -> Option<Entry> {
    let leaf = path.last().filter(|node| node.place().level == 0)?;
    leaf.entry(leaf.place().slot(index))
}

impl State {
    /// May `entry` hold extent `index` after `before`? What `owner` allocated anew is born after any root that may be in
    /// the meta store without it. Else the opening after a crash would not look for it.
    fn admit(
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
    fn change(&mut self, index: u32, path: Vec<Rc<Node>>, entry: Option<Entry>) -> Option<Entry> {
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
