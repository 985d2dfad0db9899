//! The disks below the stores of the product bed, and their stalls.
//!
//! ```text
//! store's queue -> Stalling (a stall holds everything up) -> ModelDisk (how long it takes) -> Hollow (what is there)
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Pending, WriteFlags};

/// Reads that stall: the whole disk does nothing meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stalls {
    /// The chance that a read does.
    pub chance: f64,
    /// For so long.
    pub span: Nanos,
}

/// A disk that stalls now and then, from `begin` on.
pub(super) struct Stalling {
    below: Rc<dyn Device>,
    stalls: Option<Stalls>,
    chance: RefCell<env::Rng>,
    is_on: Cell<bool>,
    /// Until then it does nothing.
    until: Cell<Instant>,
}

impl Stalling {
    pub fn new(below: Rc<dyn Device>, stalls: Option<Stalls>, chance: env::Rng) -> Rc<Stalling> {
        Rc::new(Stalling {
            below,
            stalls,
            chance: RefCell::new(chance),
            is_on: Cell::new(false),
            until: Cell::new(Instant(0)),
        })
    }

    /// From now on it does.
    pub fn begin(&self) {
        self.is_on.set(true);
    }

    /// A read comes: when does the disk begin with it?
    fn begins(&self) -> Instant {
        let now = env::now();
        if let Some(stalls) = self.stalls.filter(|_| self.is_on.get())
            && self.until.get() <= now
            && self.chance.borrow_mut().chance(stalls.chance)
        {
            self.until.set(now + stalls.span);
        }
        self.until.get()
    }
}

impl Device for Stalling {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let begins = self.begins();
        if begins <= env::now() {
            return self.below.read(at, buf, class);
        }
        Box::pin(async move {
            env::sleep_until(begins).await;
            self.below.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.below.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.below.allocation(span)
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }
}
