//! Mistakes that tests plant to see that the checkers catch them.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Sector, Span, View};
use device::{Class, Device, Info, Pending, WriteFlags, ready};

/// Mistakes that tests plant to see that the checkers catch them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A commit does not flush the data it names.
    SkippedFlush,
    /// A write past the cache does not wait for its intent.
    LateInvalidation,
    /// A page counts as clean before the slow device was flushed.
    EarlyClean,
    /// A copy of what the slow device may still lose is made without an intent.
    UnrecordedIntent,
    /// A region's pages are dropped on its way down before the slow device was flushed.
    DroppedEarly,
    /// A region counts as demoted, and its pages are forgotten, before the dirty ones are destaged.
    RecordFirst,
    /// A fill takes the place of what was written since it began.
    StaleFill,
    /// A published copy takes the place of what was written since it began.
    StaleCopy,
    /// The synchronization of a temporary buffer leaves a marked run out.
    IgnoredMark,
    /// The record of pairs does not say that data may be dirty before they are.
    UnrecordedDirty,
    /// An attachment before the one that the record of pairs knows is opened.
    OlderAccepted,
}

/// A fast device whose flushes before commits can be left out.
pub(crate) struct Flushless {
    fast: Rc<dyn Device>,
    planted: Rc<Cell<Option<Mutation>>>,
}

impl Flushless {
    pub fn over(fast: &Rc<dyn Device>, planted: &Rc<Cell<Option<Mutation>>>) -> Rc<dyn Device> {
        Rc::new(Flushless {
            fast: Rc::clone(fast),
            planted: Rc::clone(planted),
        })
    }
}

impl Device for Flushless {
    fn info(&self) -> Info {
        self.fast.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.fast.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.fast.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        match self.planted.get() {
            Some(Mutation::SkippedFlush) => ready(Ok(())),
            _ => self.fast.flush(),
        }
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.fast.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.fast.write_zeroes(span, flags)
    }
}
