//! Nodes as they are needed: from the cache, else read once, however many wait for them.

use std::cell::RefCell;
use std::rc::Rc;

use base::Map;
use env::sync::Event;

use super::cache::Cache;
use super::node::{Node, Place};
use super::{MapError, NodeRef, Nodes};
use crate::names::NodeName;

/// Reads nodes and keeps them. Serves all maps of a process.
pub struct Reader {
    nodes: Rc<dyn Nodes>,
    cache: Rc<Cache>,
    loading: RefCell<Map<NodeName, Rc<Event>>>,
}

/// Takes the name from those being read, also if no task waits for it any more.
struct Loading<'a>(&'a Reader, NodeName);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.0.loading.borrow_mut().remove(&self.1) {
            event.notify_all();
        }
    }
}

impl Reader {
    /// Over these stores, with this cache.
    pub fn new(nodes: Rc<dyn Nodes>, cache: Rc<Cache>) -> Rc<Reader> {
        Rc::new(Reader {
            nodes,
            cache,
            loading: RefCell::default(),
        })
    }

    /// Where its nodes are.
    pub fn nodes(&self) -> &Rc<dyn Nodes> {
        &self.nodes
    }

    /// What it keeps.
    pub fn cache(&self) -> &Rc<Cache> {
        &self.cache
    }

    /// The node that `reference` leads to from `place`.
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Absent`], [`MapError::Damaged`].
    pub async fn node(&self, reference: &NodeRef, place: Place) -> Result<Rc<Node>, MapError> {
        let name = reference.name();
        loop {
            if let Some(node) = self.cached(reference, place) {
                return Ok(node);
            }
            let under_way = self.loading.borrow().get(&name).cloned();
            match under_way {
                Some(event) => event.wait().await,
                None => break,
            }
        }
        self.loading.borrow_mut().insert(name, Rc::default());
        let _loading = Loading(self, name);
        let read = self.nodes.read(reference).await;
        let bytes = read.map_err(|source| MapError::Read { node: name, source })?;
        let bytes = bytes.ok_or(MapError::Absent {
            node: name,
            stores: reference.stores,
        })?;
        let node = Node::decode(reference, place, &bytes)
            .map_err(|source| MapError::Damaged { node: name, source })?;
        let node = Rc::new(node);
        self.cache.put(reference, Rc::clone(&node));
        Ok(node)
    }

    /// The same, if it is in memory.
    pub fn cached(&self, reference: &NodeRef, place: Place) -> Option<Rc<Node>> {
        let node = self.cache.get(reference)?;
        // A reference that leads to a node from two places is damaged: reading it says so.
        (node.place() == place).then_some(node)
    }
}
