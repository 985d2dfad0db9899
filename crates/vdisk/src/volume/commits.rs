//! Of the map what the meta store does not have yet, from commit to commit.
//!
//! ```text
//! uncommitted -> its nodes are written -> awaiting the root -> the meta store has the root: what it replaced is freed
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use env::sync::Semaphore;

use super::extent::ExtentEntry;
use crate::map::Freed;
use crate::names::{Generation, StoreNumber};

/// See the module's head.
pub(super) struct Commits {
    /// One commit at a time.
    pub one: Rc<Semaphore>,
    /// Changed in the map since the last commit began; by the one whose nodes are being written; and by commits whose root
    /// the meta store may not have.
    pub uncommitted: RefCell<Uncommitted>,
    pub writing: RefCell<Uncommitted>,
    pub written: RefCell<Uncommitted>,
    /// What those commits replaced.
    pub deferred_frees: RefCell<Freed>,
    /// What is named in it or before is in the map, in that of another image, or of no use.
    pub scan_floor: Cell<Generation>,
}

impl Commits {
    /// Nothing has changed yet.
    pub fn new(scan_floor: Generation) -> Commits {
        Commits {
            one: Semaphore::new(1),
            uncommitted: RefCell::default(),
            writing: RefCell::default(),
            written: RefCell::default(),
            deferred_frees: RefCell::default(),
            scan_floor: Cell::new(scan_floor),
        }
    }
}

/// Of the map what the meta store does not have yet.
#[derive(Default)]
pub(super) struct Uncommitted {
    /// Copies that extents got.
    pub added: Vec<(Rc<ExtentEntry>, StoreNumber)>,
    /// Extents that are there no more.
    pub forgotten: BTreeSet<u32>,
}

impl Uncommitted {
    pub fn join(&mut self, other: Uncommitted) {
        self.added.extend(other.added);
        self.forgotten.extend(other.forgotten);
    }
}
