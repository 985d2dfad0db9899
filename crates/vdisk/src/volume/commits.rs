//! What is to become durable of the map ([`MapCommit`]), and the turns to commit it.

use std::cell::RefCell;
use std::rc::Rc;

use env::sync::Semaphore;
use replication::commit::MapCommit;

use crate::map::Freed;
use crate::names::Generation;

/// See the module's head.
pub(super) struct Commits {
    /// One commit at a time.
    pub one: Rc<Semaphore>,
    pub changes: RefCell<MapCommit>,
    /// What was replaced by commits whose root the meta store may not have.
    pub deferred_frees: RefCell<Freed>,
}

impl Commits {
    /// Nothing has changed yet.
    pub fn new(scan_floor: Generation) -> Commits {
        Commits {
            one: Semaphore::new(1),
            changes: RefCell::new(MapCommit::new(scan_floor)),
            deferred_frees: RefCell::default(),
        }
    }
}
