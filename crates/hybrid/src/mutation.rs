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
    /// A write is answered before the restart log has it.
    AnsweredBeforeLog,
    /// A restart log of another boot counts, whatever the fast device has of what it names.
    LogOverReboot,
    /// A flush of a hybrid of several lanes flushes one of them.
    OneLaneFlushed,
}

thread_local! {
    static AT_OPEN: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// From now on openings on this thread make this mistake.
pub(crate) fn plant_at_open(mutation: Option<Mutation>) {
    AT_OPEN.set(mutation);
}

/// Does a test have openings make this mistake?
pub(crate) fn planted_at_open(mutation: Mutation) -> bool {
    AT_OPEN.get() == Some(mutation)
}

/// A fast device that is not flushed before commits; what is written with FUA, such as a batch, is durable.
pub(crate) struct Flushless {
    fast: Rc<dyn Device>,
}

impl Flushless {
    /// `fast`, unless the mutation is to leave its flushes out.
    pub fn over(fast: Rc<dyn Device>, mutation: Option<Mutation>) -> Rc<dyn Device> {
        match mutation {
            Some(Mutation::SkippedFlush) => Rc::new(Flushless { fast }),
            _ => fast,
        }
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
        ready(Ok(()))
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.fast.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.fast.write_zeroes(span, flags)
    }
}
