//! What stores say of their queues unasked, as this node hears it ([`crate::replica::broadcast`]).
//!
//! Always true: only stores of the cluster are remembered, so what strangers send takes no memory.

use base::Instant;
use policy::place::{DiskId, State};

use super::Cluster;
use crate::names::StoreNumber;

/// What was heard of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// States, since this node began.
    pub states: u64,
    /// When the last one came.
    pub last: Instant,
}

impl Cluster {
    /// A store's queue is so long now: for the policy of all volumes that are open here.
    pub fn heard(&self, store: StoreNumber, state: &State) {
        if !self.known.borrow().contains_key(&store) {
            return;
        }
        let disk = DiskId(u32::from(store.0));
        self.shared.heard(disk, &state.bounded());
        let last = env::now();
        let mut all = self.heard.borrow_mut();
        let heard = all.entry(store).or_insert(Heard { states: 0, last });
        heard.states += 1;
        heard.last = last;
    }

    /// What was heard of a store so far; `None`: nothing.
    pub fn heard_of(&self, store: StoreNumber) -> Option<Heard> {
        self.heard.borrow().get(&store).copied()
    }
}
