//! The record of pairs in a crash run: a file beside the devices, on the same power.
//!
//! ```text
//! write -> replaced, visible -> its folder synced: durable
//!    power cut: the old or the new one      a sync that fails: visible, perhaps not durable
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::crash::PowerSupply;
use env::Rng;

use crate::{Pair, PairBook};

/// How likely a write fails, before the record is replaced or after.
const FAILS: f64 = 0.03;
/// How likely the power goes in the middle of one: there are few of them among the requests to devices.
const CUT: f64 = 0.03;

pub(super) struct Notes {
    rng: RefCell<Rng>,
    visible: Cell<Option<Pair>>,
    durable: Cell<Option<Pair>>,
    /// May writes fail?
    pub shaky: Cell<bool>,
    /// Writes that failed with the power on.
    pub failed: Cell<u64>,
    /// Writes that the end of a life hit.
    pub cut: Cell<u64>,
}

impl Notes {
    pub fn new() -> Rc<Notes> {
        Rc::new(Notes {
            rng: RefCell::new(env::rng("notes")),
            visible: Cell::default(),
            durable: Cell::default(),
            shaky: Cell::default(),
            failed: Cell::default(),
            cut: Cell::default(),
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
        Ok(self.notes.visible.get())
    }

    fn write(&self, pair: &Pair) -> Result<(), String> {
        let notes = &self.notes;
        // A dead process writes nothing.
        if !self.supply.is_on() {
            return Err("the power is off".to_owned());
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
        if rng.chance(0.5) {
            notes.visible.set(Some(*pair));
        }
        Err("its folder could not be synced".to_owned())
    }
}
