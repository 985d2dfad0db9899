//! Which volumes are open on this node, and who uses them?
//!
//! Always true:
//! 1. A volume has one engine here at most, and one operation on it as a whole runs at a time.
//! 2. A slot counts its users: what is dropped is given back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Instant, Nanos};
use device::{Capped, Device, DeviceError, Throttle};
use env::sync::{Permit, Semaphore};

use crate::names::{Generation, VolumeId};
use crate::record::Name;
use crate::volume::Volume;

/// How long an engine may take to say that it is over.
const OVER: Nanos = Nanos::millis(500);

/// Epochs, from the first to the last, that no other node has one between.
pub(super) type Openings = (Generation, Generation);

/// A volume that is open here.
pub(super) struct Slot {
    id: VolumeId,
    volume: Rc<Volume>,
    openings: Openings,
    users: Cell<u64>,
    /// Those among them that are clients: the others are jobs of operators.
    clients: Cell<u64>,
    /// Its client wants no other one beside it.
    for_one: Cell<bool>,
    /// Since when no client uses it.
    idle_since: Cell<Instant>,
    /// It is open without a user, to be made well.
    pub visited: Cell<bool>,
    /// Another node wants it, and gets it.
    pub wanted: Cell<bool>,
    /// The number of the want that was refused last.
    pub answered: Cell<u64>,
    /// What all its clients here together get at most.
    throttle: Rc<Throttle>,
    /// What the account that it is of gets at most.
    account: RefCell<Option<Rc<Throttle>>>,
}

/// All volumes that are open here.
#[derive(Default)]
pub(super) struct Slots {
    open: RefCell<BTreeMap<VolumeId, Rc<Slot>>>,
    /// One operation on a volume as a whole at a time.
    alone: RefCell<BTreeMap<VolumeId, Rc<Semaphore>>>,
    /// Since this node began, open or not.
    openings: RefCell<BTreeMap<VolumeId, Openings>>,
}

/// A volume in use on this node; given back when it is dropped.
pub struct InUse(Rc<Slot>, Cell<Use>);

/// What a volume is in use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// What operators have done with it, which clients do not mind.
    Job,
    /// A client beside others.
    Client,
    /// A client that wants no other one beside it.
    One,
}

impl Slot {
    pub fn new(
        id: VolumeId,
        (volume, openings): (Rc<Volume>, Openings),
        account: Option<Rc<Throttle>>,
    ) -> Rc<Slot> {
        let throttle = Throttle::new(volume.record().terms.caps.into());
        Rc::new(Slot {
            throttle,
            account: RefCell::new(account),
            id,
            volume,
            openings,
            users: Cell::new(0),
            clients: Cell::new(0),
            for_one: Cell::new(false),
            idle_since: Cell::new(env::now()),
            visited: Cell::new(false),
            wanted: Cell::new(false),
            answered: Cell::new(0),
        })
    }

    pub fn id(&self) -> VolumeId {
        self.id
    }

    pub fn name(&self) -> Name {
        self.volume.record().name
    }

    pub fn volume(&self) -> &Rc<Volume> {
        &self.volume
    }

    /// Since the last request of its clients; `None`: one is under way, or waits for what they may get.
    pub fn idle_for(&self) -> Option<Nanos> {
        let counters = self.throttle.counters();
        let waits = counters.read.waiting + counters.write.waiting > 0;
        self.volume.idle_for().filter(|_| !waits)
    }

    pub fn throttle(&self) -> &Rc<Throttle> {
        &self.throttle
    }

    pub fn users(&self) -> u64 {
        self.users.get()
    }

    pub fn is_idle(&self, after: Nanos) -> bool {
        let unused = self.users.get() == 0 && !self.visited.get();
        unused && env::now().since(self.idle_since.get()) >= after
    }

    /// Is it of no more use to background work that has it open?
    pub fn is_given_up(&self) -> bool {
        self.wanted.get() || !self.volume.is_open()
    }

    /// Has another writer taken it, so that this one is of no more use?
    pub async fn is_over(&self) -> bool {
        let flushed = env::timeout(OVER, self.volume.flush()).await;
        matches!(flushed, Ok(Err(DeviceError::Gone { .. })))
    }
}

impl Slots {
    pub fn get(&self, id: VolumeId) -> Option<Rc<Slot>> {
        self.open.borrow().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Rc<Slot>> {
        self.open.borrow().values().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    pub fn insert(&self, slot: &Rc<Slot>) {
        self.open.borrow_mut().insert(slot.id, Rc::clone(slot));
    }

    /// Forgets a slot; another one of the same volume stays.
    pub fn remove(&self, slot: &Rc<Slot>) {
        let mut open = self.open.borrow_mut();
        if open.get(&slot.id).is_some_and(|it| Rc::ptr_eq(it, slot)) {
            open.remove(&slot.id);
        }
    }

    /// It was opened here, with the epoch after `generation`, where the epoch before was `before`; or another node was quicker, and
    /// `epoch` is another one.
    pub fn opened(
        &self,
        id: VolumeId,
        (before, generation): (Generation, Generation),
        epoch: Generation,
    ) -> Openings {
        let mut all = self.openings.borrow_mut();
        let first = match all.get(&id) {
            _ if epoch != generation.next() => epoch,
            Some((first, last)) if *last == before => *first,
            _ => before,
        };
        all.insert(id, (first, epoch));
        (first, epoch)
    }

    /// Leave to do something with a volume as a whole.
    pub async fn alone(&self, id: VolumeId) -> Permit {
        let one = {
            let mut alone = self.alone.borrow_mut();
            Rc::clone(alone.entry(id).or_insert_with(|| Semaphore::new(1)))
        };
        one.acquire(1).await
    }
}

impl InUse {
    pub(super) fn new(slot: &Rc<Slot>) -> InUse {
        slot.users.set(slot.users.get() + 1);
        InUse(Rc::clone(slot), Cell::new(Use::Job))
    }

    pub(super) fn id(&self) -> VolumeId {
        self.0.id
    }

    pub(super) fn slot(&self) -> &Rc<Slot> {
        &self.0
    }

    /// The engine; a `Device`.
    pub fn volume(&self) -> &Rc<Volume> {
        &self.0.volume
    }

    /// The epochs of openings, this one the last, between which no other node had the volume.
    pub fn openings(&self) -> (Generation, Generation) {
        self.0.openings
    }

    /// It is no job from now on, but a client.
    pub(super) fn become_client(&self, wanted: Use) {
        self.1.set(wanted);
        self.0.clients.set(self.0.clients.get() + 1);
        self.0.for_one.set(wanted == Use::One);
    }

    /// Does its client want no other one beside it?
    pub(super) fn is_for_one(&self) -> bool {
        self.0.for_one.get()
    }

    /// The clients that it has here.
    pub(super) fn clients(&self) -> u64 {
        self.0.clients.get()
    }

    /// What all clients of the volume here together get at most.
    pub fn throttle(&self) -> &Rc<Throttle> {
        &self.0.throttle
    }

    /// The volume as a client of its own has it that is under its cap; `device`: the engine, or as one of its users has it.
    pub fn capped(&self, device: Rc<dyn Device>) -> Rc<dyn Device> {
        let device = match &*self.0.account.borrow() {
            Some(account) => Capped::new(device, account),
            None => device,
        };
        Capped::new(device, &self.0.throttle)
    }

    /// It is of another account, for clients that come from now on.
    pub(super) fn set_account_cap(&self, account: Option<Rc<Throttle>>) {
        *self.0.account.borrow_mut() = account;
    }

    /// Has another writer taken it?
    pub async fn is_over(&self) -> bool {
        self.0.is_over().await
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let slot = &self.0;
        slot.users.set(slot.users.get() - 1);
        if self.1.get() != Use::Job {
            slot.clients.set(slot.clients.get() - 1);
        }
        if self.1.get() == Use::One {
            slot.for_one.set(false);
        }
        slot.idle_since.set(env::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_go_together_until_another_node_has_one() {
        let slots = Slots::default();
        let opened = |before, generation, epoch| {
            let numbers = (Generation(before), Generation(generation));
            let (first, last) = slots.opened(VolumeId(1), numbers, Generation(epoch));
            (first.0, last.0)
        };
        assert_eq!(opened(3, 5, 6), (3, 6), "after that of a daemon before");
        assert_eq!(opened(6, 9, 10), (3, 10));
        assert_eq!(opened(14, 14, 15), (14, 15), "14 was another node's");
        assert_eq!(
            opened(15, 15, 17),
            (17, 17),
            "another node was there meanwhile"
        );
    }
}
