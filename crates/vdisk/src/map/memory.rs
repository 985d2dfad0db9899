//! Objects in memory, as stores would have them: for tests of maps, and of what is built on them.
//!
//! Each write goes to `copies` of the stores in turn. Any operation can be made to fail, before or after it has done
//! part of its work.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::View;

use super::{NewNode, NodeRef, Nodes, Pending};
use crate::names::{StoreNumber, Stores};

/// Stores in memory. See the module's head.
pub struct Memory {
    stores: u16,
    copies: usize,
    objects: RefCell<BTreeMap<(StoreNumber, String), View>>,
    turn: Cell<u16>,
    /// So many operations succeed from now on, then one fails, then all succeed again.
    fail_in: Cell<Option<u64>>,
    /// This one does not answer.
    down: Cell<Option<StoreNumber>>,
    counters: Cell<Counters>,
}

/// What was asked of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Nodes read.
    pub reads: u64,
    /// Nodes written.
    pub writes: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Parts of listings.
    pub lists: u64,
}

impl Memory {
    /// `stores` of them, numbered from 0, and `copies` of each object (1 to 3).
    ///
    /// # Panics
    /// If there are fewer stores than copies.
    pub fn new(stores: u16, copies: usize) -> Rc<Memory> {
        assert!((1..=crate::names::COPIES_MAX).contains(&copies) && copies <= usize::from(stores));
        Rc::new(Memory {
            stores,
            copies,
            objects: RefCell::default(),
            turn: Cell::new(0),
            fail_in: Cell::new(None),
            down: Cell::new(None),
            counters: Cell::default(),
        })
    }

    /// Lets the operation after the next `count` fail, once.
    pub fn fail_in(&self, count: Option<u64>) {
        self.fail_in.set(count);
    }

    /// Lets a store answer no more that nodes are read from, or that is asked for names or to delete; `None`: all answer.
    pub fn down(&self, store: Option<StoreNumber>) {
        self.down.set(store);
    }

    /// What was asked so far.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// The next stores in turn.
    pub fn place(&self) -> Stores {
        let first = self.turn.get();
        self.turn.set((first + 1) % self.stores);
        let numbers: Vec<_> = (0..self.copies as u16)
            .map(|i| StoreNumber((first + i) % self.stores))
            .collect();
        Stores::new(&numbers).expect("there are as many stores as copies")
    }

    /// Puts an object on stores.
    pub fn put(&self, stores: &Stores, name: &str, bytes: View) {
        for store in stores.iter() {
            (self.objects.borrow_mut()).insert((store, name.to_owned()), bytes.clone());
        }
    }

    /// Takes one copy away; was it there?
    pub fn take(&self, store: StoreNumber, name: &str) -> bool {
        (self.objects.borrow_mut())
            .remove(&(store, name.to_owned()))
            .is_some()
    }

    /// Flips a bit of every copy.
    pub fn rot(&self, name: &str, byte: usize) {
        for ((_, _), bytes) in
            (self.objects.borrow_mut().iter_mut()).filter(|((_, other), _)| other == name)
        {
            let mut buf = base::Buf::copy_of(bytes);
            buf[byte] ^= 1;
            *bytes = buf.freeze();
        }
    }

    /// All copies there are.
    pub fn copies(&self) -> BTreeSet<(StoreNumber, String)> {
        self.objects.borrow().keys().cloned().collect()
    }

    /// Names of all objects there are.
    pub fn names(&self) -> BTreeSet<String> {
        (self.objects.borrow().keys())
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// Does the store answer?
    fn answers(&self, store: StoreNumber) -> Result<(), super::Trouble> {
        match self.down.get() == Some(store) {
            true => Err("the store is down".into()),
            false => Ok(()),
        }
    }

    /// Counts an operation; is it the one that fails?
    pub(crate) fn step(&self, count: impl FnOnce(&mut Counters)) -> Result<(), super::Trouble> {
        let mut counters = self.counters.get();
        count(&mut counters);
        self.counters.set(counters);
        match self.fail_in.get() {
            None => Ok(()),
            Some(0) => {
                self.fail_in.set(None);
                Err("the operation was made to fail".into())
            }
            Some(left) => {
                self.fail_in.set(Some(left - 1));
                Ok(())
            }
        }
    }
}

impl Nodes for Memory {
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>> {
        Box::pin(async move {
            env::yield_now().await;
            self.step(|counters| counters.reads += 1)?;
            let name = node.name().to_string();
            let objects = self.objects.borrow();
            let mut copies = (node.stores.iter())
                .filter(|store| self.answers(*store).is_ok())
                .filter_map(|store| objects.get(&(store, name.clone())))
                .peekable();
            if copies.peek().is_none() {
                node.stores
                    .iter()
                    .try_for_each(|store| self.answers(store))?;
                return Ok(None);
            }
            let whole = copies.find(|bytes| node.is_of(bytes)).cloned();
            whole
                .map(Some)
                .ok_or_else(|| "no copy of it is whole".into())
        })
    }

    fn write(&self, nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async move {
            let mut answer = Vec::new();
            for node in nodes {
                env::yield_now().await;
                self.step(|counters| counters.writes += 1)?;
                let stores = self.place();
                self.put(&stores, &node.name.to_string(), node.bytes);
                answer.push(stores);
            }
            Ok(answer)
        })
    }
}

impl super::objects::Objects for Memory {
    fn stores(&self) -> Vec<StoreNumber> {
        (0..self.stores).map(StoreNumber).collect()
    }

    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            env::yield_now().await;
            self.step(|counters| counters.deletes += 1)?;
            self.answers(store)?;
            self.take(store, name);
            Ok(())
        })
    }

    fn list<'a>(
        &'a self,
        store: StoreNumber,
        prefix: &'a str,
        after: &'a str,
        most: usize,
    ) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            env::yield_now().await;
            self.step(|counters| counters.lists += 1)?;
            self.answers(store)?;
            let objects = self.objects.borrow();
            let names = (objects.keys())
                .filter(|(at, name)| *at == store && name.starts_with(prefix) && **name > *after);
            Ok(names.take(most).map(|(_, name)| name.clone()).collect())
        })
    }
}
