//! The record of pairs in a crash run: a file beside the devices, on the same power.
//!
//! ```text
//! write -> written beside -> replaced, visible -> its folder synced: durable
//!    power cut: the old or the new one
//!    writing beside fails: untouched
//!    replacing or syncing fails: the old or the new one is visible, and the old or the new one durable
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::crash::PowerSupply;
use env::Rng;

use crate::mutation::Mutation;
use crate::{Pair, PairBook, Unwritten};

/// How likely a write fails, before the record is replaced or after.
const FAILS: f64 = 0.03;
/// How likely the power goes in the middle of one: there are few of them among the requests to devices.
const CUT: f64 = 0.03;

pub(super) struct Notes {
    rng: RefCell<Rng>,
    /// A mistake in the record, which the crash run must catch.
    mutation: Option<Mutation>,
    visible: Cell<Option<Pair>>,
    durable: Cell<Option<Pair>>,
    /// May writes fail?
    pub shaky: Cell<bool>,
    /// Writes that failed with the power on.
    pub failed: Cell<u64>,
    /// Writes that the end of a life hit.
    pub cut: Cell<u64>,
    /// Of both, those after which the new record was on the disk and the old one was seen.
    pub unseen: Cell<u64>,
}

impl Notes {
    pub fn new(mutation: Option<Mutation>) -> Rc<Notes> {
        Rc::new(Notes {
            mutation,
            rng: RefCell::new(env::rng("notes")),
            visible: Cell::default(),
            durable: Cell::default(),
            shaky: Cell::default(),
            failed: Cell::default(),
            cut: Cell::default(),
            unseen: Cell::default(),
        })
    }

    /// The record as the next process finds it; after a power cut perhaps as it was when it was last durable.
    pub fn restart(&self, power_cut: bool) {
        if power_cut && self.rng.borrow_mut().chance(0.5) {
            self.visible.set(self.durable.get());
        }
        if power_cut {
            self.durable.set(self.visible.get());
        }
    }

    pub fn now(&self) -> Option<Pair> {
        self.visible.get()
    }

    /// As the process sees it that lives on `supply`.
    pub fn of_life(self: &Rc<Self>, supply: &Rc<PowerSupply>) -> Rc<dyn PairBook> {
        Rc::new(Life {
            notes: Rc::clone(self),
            supply: Rc::clone(supply),
        })
    }
}

struct Life {
    notes: Rc<Notes>,
    supply: Rc<PowerSupply>,
}

impl PairBook for Life {
    fn read(&self) -> Result<Option<Pair>, String> {
        let found = self.notes.visible.get();
        Ok(found.map(|pair| match self.notes.mutation {
            Some(Mutation::OlderAccepted) => Pair {
                generation: 0,
                ..pair
            },
            _ => pair,
        }))
    }

    fn write(&self, pair: &Pair) -> Result<(), Unwritten> {
        let notes = &self.notes;
        let pair = &Pair {
            dirty: pair.dirty && notes.mutation != Some(Mutation::UnrecordedDirty),
            ..*pair
        };
        // A dead process writes nothing.
        if !self.supply.is_on() {
            return Err(Unwritten {
                why: "the power is off".to_owned(),
                untouched: true,
            });
        }
        let mut rng = notes.rng.borrow_mut();
        let fails = notes.shaky.get() && rng.chance(FAILS);
        if notes.shaky.get() && rng.chance(CUT) {
            self.supply.cut_now();
        }
        let count = match (self.supply.operate(), fails) {
            (true, false) => {
                notes.visible.set(Some(*pair));
                notes.durable.set(Some(*pair));
                return Ok(());
            }
            (true, true) => &notes.failed,
            (false, _) => &notes.cut,
        };
        count.set(count.get() + 1);
        let unsure = Unwritten {
            why: "its folder could not be synced".to_owned(),
            untouched: false,
        };
        match rng.below(5) {
            0 => {
                return Err(Unwritten {
                    why: "no room is left on its file system".to_owned(),
                    untouched: true,
                });
            }
            1 => notes.durable.set(Some(*pair)),
            2 => {
                notes.visible.set(Some(*pair));
                notes.durable.set(Some(*pair));
            }
            3 => notes.visible.set(Some(*pair)),
            _ => {}
        }
        // The new one may be on the disk while the old one is seen.
        let unseen = notes.durable.get() != notes.visible.get();
        notes
            .unseen
            .set(notes.unseen.get() + u64::from(unseen && notes.durable.get() == Some(*pair)));
        Err(unsure)
    }
}
