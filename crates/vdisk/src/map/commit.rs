//! How changes of a map become durable: dirty nodes are written as new objects, children first, and a new root names them.
//!
//! ```text
//! begin(generation)   one step: what is dirty is this commit's; what changes from now on is the next one's
//! write               level by level from the leaves; references go up
//! done                one step: the root, what it replaced; references go into what is dirty again
//! failed, dropped     the changes are dirty as before; nodes that were written are freed by the next commit
//! ```
//!
//! The root counts only when the meta store has it. Until then the old one does, and all its nodes are where they were.

use std::rc::Rc;

use super::node::{Node, Place};
use super::state::{References, dropped_extents};
use super::tree::Map;
use super::{Freed, MapError, NewNode, NodeRef, Root};
use crate::names::{Generation, NodeName};

/// Nodes given to the stores at once: 1 MiB.
const BATCH: usize = 64;

/// What a commit did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Give it to the meta store.
    pub root: Root,
    /// Nodes that were written.
    pub written: Vec<NodeRef>,
    /// Where each of them stands.
    pub places: Vec<Place>,
    /// What the map needs no more once the meta store has the root. Of it [`Freed::later_than`] the `since` of the head's
    /// record is the head's alone, and may be freed: of that record with which the transaction that took the root compared,
    /// for a deletion may change it meanwhile.
    pub replaced: Freed,
}

/// A commit that has begun. Dropped before it is done, its changes wait for the next one.
pub struct Committing<'a> {
    map: &'a Map,
    generation: Generation,
    written: Vec<NodeRef>,
}

impl<'a> Committing<'a> {
    pub(super) fn new(map: &'a Map, generation: Generation) -> Committing<'a> {
        Committing {
            map,
            generation,
            written: Vec::new(),
        }
    }

    /// Writes what changed.
    ///
    /// # Errors
    /// [`MapError::Write`]: the changes wait for the next commit.
    pub async fn write(mut self) -> Result<Commit, MapError> {
        let mut references = References::new();
        // As they are written: with the references of their children.
        let mut finished: Vec<(NodeRef, Rc<Node>)> = Vec::new();
        let mut replaced = Vec::new();
        for level in 0..=self.level() {
            let nodes = self.nodes_of(level, &references, &mut replaced);
            for batch in nodes.chunks(BATCH) {
                let written = self.write_batch(batch).await?;
                finished.extend(written.iter().map(|(place, node)| {
                    references.insert(*place, Some(*node));
                    let (_, whole) = (batch.iter())
                        .find(|(other, _)| other == place)
                        .expect("it was written from there");
                    (*node, Rc::clone(whole))
                }));
            }
        }
        Ok(self.done(references, finished, replaced))
    }

    fn level(&self) -> u8 {
        self.map.writing(|writing, _| writing.level)
    }

    /// The nodes of a level that are to be written. Notes what they replace below, and those that are empty.
    fn nodes_of(
        &self,
        level: u8,
        references: &References,
        replaced: &mut Vec<NodeRef>,
    ) -> Vec<(Place, Rc<Node>)> {
        let range = Place { level, nth: 0 }..=Place {
            level,
            nth: u32::MAX,
        };
        self.map.writing(|writing, _| {
            let nodes = writing.nodes.range(range);
            nodes
                .map(|(place, node)| {
                    let mut node = Rc::clone(node);
                    if level > 0 {
                        let below = place.child(0)..=place.child(super::node::FANOUT as usize - 1);
                        for slot in (writing.nodes.range(below)).map(|(child, _)| child.parent().1)
                        {
                            let reference = references.get(&place.child(slot)).copied().flatten();
                            replaced.extend(node.child(slot));
                            Rc::make_mut(&mut node).set_child(slot, reference);
                        }
                    }
                    (*place, node)
                })
                .collect()
        })
    }

    async fn write_batch(
        &mut self,
        batch: &[(Place, Rc<Node>)],
    ) -> Result<Vec<(Place, NodeRef)>, MapError> {
        let mut new = Vec::new();
        let mut made = Vec::new();
        for (place, node) in batch.iter().filter(|(_, node)| node.count() > 0) {
            let name = self.next_name();
            let (bytes, crc) = node.encode(name);
            new.push(NewNode { name, bytes });
            made.push((*place, name, crc));
        }
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let count = new.len();
        let generation = self.generation;
        let stores = (self.map.reader.nodes().write(new).await)
            .and_then(|stores| match stores.len() == count {
                true => Ok(stores),
                false => Err(format!("{} answers for {count} nodes", stores.len()).into()),
            })
            .map_err(|source| MapError::Write {
                count,
                generation,
                source,
            })?;
        let references = made
            .into_iter()
            .zip(stores)
            .map(|((place, name, crc), stores)| {
                let node = NodeRef {
                    owner: name.owner,
                    born: name.born,
                    number: name.number,
                    stores,
                    crc,
                };
                (place, node)
            });
        let references: Vec<_> = references.collect();
        self.written
            .extend(references.iter().map(|(_, node)| *node));
        Ok(references)
    }

    fn next_name(&self) -> NodeName {
        let state = &mut *self.map.state.borrow_mut();
        if state.next_number.0 != self.generation {
            state.next_number = (self.generation, 0);
        }
        let number = state.next_number.1;
        state.next_number.1 += 1;
        NodeName {
            owner: self.map.volume,
            born: self.generation,
            number,
        }
    }

    fn done(
        mut self,
        references: References,
        finished: Vec<(NodeRef, Rc<Node>)>,
        mut replaced: Vec<NodeRef>,
    ) -> Commit {
        let written = std::mem::take(&mut self.written);
        let state = &mut *self.map.state.borrow_mut();
        let writing = state.writing.take().expect("it is under way");
        let top = Place {
            level: writing.level,
            nth: 0,
        };
        let (level, node) = match writing.nodes.contains_key(&top) {
            true => {
                // Where nodes were put above it meanwhile, its reference stands there.
                let above = state.dirty.get(&top.parent().0);
                replaced.extend(match state.level == top.level {
                    true => state.top,
                    false => above.and_then(|above| above.child(0)),
                });
                let node = references.get(&top).copied().flatten();
                (writing.level, node)
            }
            false => (state.committed.level, state.committed.node),
        };
        state.take_references(&writing.nodes, &references, top);
        state.committed = Root {
            generation: self.generation,
            level,
            node,
        };
        replaced.append(&mut state.orphans);
        let places = finished.iter().map(|(_, node)| node.place()).collect();
        let cache = self.map.reader.cache();
        for (reference, node) in finished {
            cache.put(&reference, node);
        }
        Commit {
            root: state.committed,
            written,
            places,
            replaced: Freed {
                nodes: replaced,
                extents: dropped_extents(&writing.dropped),
            },
        }
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let state = &mut *self.map.state.borrow_mut();
        // Nothing is left of it if it was done.
        let Some(writing) = state.writing.take() else {
            return;
        };
        for (place, node) in writing.nodes {
            state.dirty.entry(place).or_insert(node);
        }
        state.dropped.extend(writing.dropped);
        state.orphans.append(&mut self.written);
    }
}
