//! What stores say of their queues unasked, as this node hears it ([`crate::replica::broadcast`]).
//!
//! Always true: only stores of the cluster are remembered, so what strangers send takes no memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Instant;
use policy::place::{DiskId, State};

use super::shared::Shared;
use super::stores::StoreTable;
use crate::names::StoreNumber;

/// What was heard of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// States, since this node began.
    pub states: u64,
    /// When the last one came.
    pub last: Instant,
}

/// What was heard of all stores.
pub struct LoadReports {
    stores: Rc<StoreTable>,
    shared: Shared,
    all: RefCell<BTreeMap<StoreNumber, Heard>>,
}

impl LoadReports {
    pub(super) fn new(stores: &Rc<StoreTable>, shared: Shared) -> LoadReports {
        LoadReports {
            stores: Rc::clone(stores),
            shared,
            all: RefCell::default(),
        }
    }

    /// A store's queue is so long now: for the policy of all volumes that are open here.
    pub fn heard(&self, store: StoreNumber, state: &State) {
        if !self.stores.known().contains_key(&store) {
            return;
        }
        let disk = DiskId(u32::from(store.0));
        self.shared.heard(disk, &state.bounded());
        let last = env::now();
        let mut all = self.all.borrow_mut();
        let heard = all.entry(store).or_insert(Heard { states: 0, last });
        heard.states += 1;
        heard.last = last;
    }

    /// What was heard of a store so far; `None`: nothing.
    pub fn heard_of(&self, store: StoreNumber) -> Option<Heard> {
        self.all.borrow().get(&store).copied()
    }
}
