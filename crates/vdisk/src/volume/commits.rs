//! The turns to commit the map, and what commits replaced.

use std::cell::RefCell;
use std::rc::Rc;

use env::sync::Semaphore;

use crate::map::Freed;

/// See the module's head.
pub(super) struct Commits {
    /// One commit at a time.
    pub one: Rc<Semaphore>,
    /// What was replaced by commits whose root the meta store may not have.
    pub deferred_frees: RefCell<Freed>,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits {
            one: Semaphore::new(1),
            deferred_frees: RefCell::default(),
        }
    }
}
