//! What this run of a node makes or changes now: it is left alone by what settles what earlier runs left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::record::ReservationId;

/// All of them, and how many calls do. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Making(Rc<RefCell<BTreeMap<ReservationId, usize>>>);

/// One call makes or changes one, until this is dropped.
pub(crate) struct Made(Making, ReservationId);

impl Making {
    pub fn begin(&self, id: ReservationId) -> Made {
        *self.0.borrow_mut().entry(id).or_default() += 1;
        Made(self.clone(), id)
    }

    pub fn contains(&self, id: ReservationId) -> bool {
        self.0.borrow().contains_key(&id)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let mut making = self.0.0.borrow_mut();
        // Another call may change the same one.
        match making.get_mut(&self.1) {
            Some(calls) if *calls > 1 => *calls -= 1,
            _ => drop(making.remove(&self.1)),
        }
    }
}
