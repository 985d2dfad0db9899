//! A volume as a device: requests are checked, then read and changed.
//!
//! Always true: every write is durable when it is answered, so a flush waits for nothing but the lease.

use base::{Buf, Bytes, SECTOR, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags};

use super::Volume;
use super::read::Reads;
use super::users::UserId;

impl Device for Volume {
    fn info(&self) -> Info {
        Info {
            name: self.name(),
            size: self.core.size(),
            physical_block: Bytes::kib(4),
            max_io: Bytes::mib(32),
            volatile_cache: false,
            discards: true,
            rotational: false,
            read_only: false,
            crash_keeping: false,
        }
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        self.read_as(at, buf, UserId::OWN)
    }

    fn write(&self, at: Sector, data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.change(Op::Write, span, Some(data), UserId::OWN)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.flush_as(UserId::OWN)
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.change(Op::Discard, span, None, UserId::OWN)
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        self.change(Op::WriteZeroes, span, None, UserId::OWN)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self.info().check(Op::Read, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        let (at, len) = (span.start.byte(), span.len.0.max(SECTOR));
        device::ready(Ok(Reads::of(&self.core).allocation(at, len)))
    }
}
