//! The dirty bits in memory, and the turns to write them.
//!
//! Always true: one task writes bits at a time.

use std::cell::RefCell;
use std::rc::Rc;

use env::sync::{Permit, Semaphore};
use replication::bitmap::DirtyBitmap;

use crate::names::{StoreNumber, VolumeId};

/// The object of a volume.
pub(super) fn object(volume: VolumeId) -> String {
    format!("d/{volume}")
}

/// The bits, and whose turn it is to write them.
pub(super) struct Dirty {
    pub bitmap: RefCell<DirtyBitmap>,
    one: Rc<Semaphore>,
}

impl Default for Dirty {
    fn default() -> Dirty {
        Dirty {
            bitmap: RefCell::default(),
            one: Semaphore::new(1),
        }
    }
}

impl Dirty {
    /// No task writes bits while this is held.
    pub async fn alone(&self) -> Permit {
        self.one.acquire(1).await
    }

    /// Does a store have all bits?
    pub fn is_bitmap_replica(&self, store: StoreNumber) -> bool {
        self.bitmap.borrow().is_replica(store)
    }
}

/// A change of an extent under way.
pub(super) struct InUse<'a>(&'a Dirty, u32);

impl<'a> InUse<'a> {
    /// A change of an extent begins.
    pub fn of(dirty: &'a Dirty, index: u32) -> InUse<'a> {
        dirty.bitmap.borrow_mut().begin_use(index);
        InUse(dirty, index)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.bitmap.borrow_mut().end_use(self.1, env::now());
    }
}
