//! A device whose users are a session at the queue beneath it.
//!
//! ```text
//! request of a client -> the session's flow: what its holder has reserved for this direction, else best effort
//!                     -> what stands between (a hybrid: hits end there) -> the queue, by that flow -> device
//! ```
//!
//! Always true: only requests of clients get the flow; what is background or metadata stays so.

use std::rc::Rc;

use base::{Buf, Sector, Span, View};
use device::{Class, Device, Info, Pending, Power, Spindle, WriteFlags};
use policy::share::Direction;

use super::Session;

/// A device whose requests from clients are a session's. See the module's head.
pub struct Flowed {
    inner: Rc<dyn Device>,
    session: Rc<Session>,
}

impl Flowed {
    /// `inner`, which stands on the queue of the session's manager, for that session's client.
    pub fn new(inner: Rc<dyn Device>, session: Rc<Session>) -> Rc<Flowed> {
        Rc::new(Flowed { inner, session })
    }

    fn class(&self, asked: Class, direction: Direction) -> Class {
        match asked {
            Class::Foreground => self.session.class_of(direction),
            other => other,
        }
    }

    fn flags(&self, flags: WriteFlags) -> WriteFlags {
        WriteFlags {
            class: self.class(flags.class, Direction::Write),
            ..flags
        }
    }
}

impl Device for Flowed {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let class = self.class(class, Direction::Read);
        self.inner.read(at, buf, class)
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let class = self.class(class, Direction::Read);
        self.inner.read_vectored(at, bufs, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.inner.write(at, data, self.flags(flags))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.inner.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.inner.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.inner.write_zeroes(span, self.flags(flags))
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
