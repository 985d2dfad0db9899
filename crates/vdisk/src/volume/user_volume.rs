//! A volume as one of its users has it.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags};

use super::Volume;
use super::users::UserId;

/// A volume as one of its users has it: the same blocks, on the user's terms. Held as `Rc<dyn Device>`.
pub struct UserVolume {
    pub(super) volume: Rc<Volume>,
    pub(super) user: UserId,
}

impl Device for UserVolume {
    fn info(&self) -> Info {
        self.volume.info()
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        self.volume.read_as(at, buf, self.user)
    }

    fn write(&self, at: Sector, data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.volume.change(Op::Write, span, Some(data), self.user)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.volume.flush_as(self.user)
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.volume.change(Op::Discard, span, None, self.user)
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        self.volume.change(Op::WriteZeroes, span, None, self.user)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.volume.allocation(span)
    }
}
