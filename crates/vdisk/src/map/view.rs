//! A map's nodes as they are now: changed ones first, else as the references say, from memory alone.

use std::rc::Rc;

use super::node::{FANOUT, Node, Place, stride};
use super::reader::Reader;
use super::state::{Placed, State, held};
use super::{Entry, NodeRef};

/// A node that must be read first.
pub(super) struct Missing(pub NodeRef, pub Place);

/// What was read for one operation; it stays until that is done, whatever the cache does.
#[derive(Default)]
pub(super) struct Hand(pub Vec<(NodeRef, Rc<Node>)>);

/// Nodes of the tree as it is now.
pub(super) struct TreeView<'a> {
    state: &'a State,
    reader: &'a Reader,
    hand: &'a Hand,
}

impl<'a> TreeView<'a> {
    pub fn new(state: &'a State, reader: &'a Reader, hand: &'a Hand) -> TreeView<'a> {
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

    pub fn get(&self, index: u32) -> Result<Option<Entry>, Missing> {
        if index >= self.state.extents {
            return Ok(None);
        }
        let path = self.path(index)?;
        Ok(held(&path, index))
    }

    /// The nodes above extent `index`, from the first one down to where there is none.
    pub fn path(&self, index: u32) -> Result<Vec<Rc<Node>>, Missing> {
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

    pub fn next(&self, from: u32) -> Result<Option<(u32, Entry)>, Missing> {
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
