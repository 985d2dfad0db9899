//! Which stores are to be empty, and which volumes hear of it?

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use base::Nanos;
use env::Rng;
use vdisk::StoreNumber;
use vdisk::volume::Volume;

/// Until the last one hears of a store that is drained.
const DRAIN_DELAY_MAX: Nanos = Nanos::millis(300);

/// Which stores are to be empty, and who hears of it.
#[derive(Default)]
pub struct Draining {
    stores: RefCell<BTreeSet<StoreNumber>>,
    /// Volumes that hear of it.
    open: RefCell<Vec<Weak<Volume>>>,
}

impl Draining {
    /// Stores that are to be empty.
    pub fn stores(&self) -> BTreeSet<StoreNumber> {
        self.stores.borrow().clone()
    }

    /// Notes a volume that is to hear of stores that are drained.
    pub fn note_open(&self, volume: &Rc<Volume>) {
        let mut open = self.open.borrow_mut();
        open.retain(|it| it.strong_count() > 0);
        open.push(Rc::downgrade(volume));
        volume.drain(self.stores());
    }

    /// Other stores are to be empty from now on; the volumes hear of it by and by.
    pub fn set(self: &Rc<Self>, stores: BTreeSet<StoreNumber>, rng: &mut Rng) {
        *self.stores.borrow_mut() = stores;
        let open: Vec<_> = self.open.borrow().clone();
        for volume in open {
            let (draining, wait) = (Rc::clone(self), Nanos(rng.below(DRAIN_DELAY_MAX.0)));
            env::spawn(async move {
                env::sleep(wait).await;
                if let Some(volume) = volume.upgrade() {
                    volume.drain(draining.stores());
                }
            });
        }
    }
}
