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
use std::rc::Rc;

use super::commit::{Commit, Committing};
use super::reader::Reader;
use super::state::{State, Writing, held};
use super::view::{Hand, Missing, TreeView};
use super::{Entry, MapError, Root};
use crate::names::{Generation, VolumeId};

/// An image's map. See the module's head.
pub struct Map {
    pub(super) volume: VolumeId,
    pub(super) reader: Rc<Reader>,
    pub(super) state: RefCell<State>,
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
        Map {
            volume,
            reader,
            state: RefCell::new(State::new(root, extents, since)),
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

    /// [`Map::begin`] and [`Committing::write`] in one.
    ///
    /// # Errors
    /// As for both.
    pub async fn commit(&self, generation: Generation) -> Result<Commit, MapError> {
        self.begin(generation)?.write().await
    }

    /// Begins a commit: it takes all changes made so far, in one step. Whatever is allocated from now on must be born in a
    /// later generation than this one.
    ///
    /// # Errors
    /// [`MapError::Busy`]; [`MapError::Generation`] if it is not later than the last commit, or earlier than something in
    /// the map was born.
    pub fn begin(&self, generation: Generation) -> Result<Committing<'_>, MapError> {
        let state = &mut *self.state.borrow_mut();
        if state.writing.is_some() {
            return Err(MapError::Busy);
        }
        let last = state.committed.generation;
        let earlier = generation <= last || generation < state.youngest;
        if earlier || generation > Generation::MAX {
            return Err(MapError::Generation {
                asked: generation,
                last: last.max(state.youngest),
            });
        }
        state.writing = Some(Writing {
            nodes: std::mem::take(&mut state.dirty),
            dropped: std::mem::take(&mut state.dropped),
            generation,
            level: state.level,
        });
        Ok(Committing::new(self, generation))
    }

    /// Looks at the commit that is under way.
    pub(super) fn writing<T>(&self, look: impl FnOnce(&Writing, &State) -> T) -> T {
        let state = self.state.borrow();
        let writing = state.writing.as_ref().expect("a commit is under way");
        look(writing, &state)
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
