//! A digest of the requests to some devices, in their order: which device, what, where, how long, how durable.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, Power, Spindle, WriteFlags};

/// What was asked so far of all devices that [`Requests::of`] gave.
#[derive(Default)]
pub struct Requests {
    sum: Cell<u64>,
}

impl Requests {
    /// The digest.
    pub fn digest(&self) -> u64 {
        self.sum.get()
    }

    /// The same device, with its requests in the digest.
    pub fn of(self: &Rc<Requests>, device: Rc<dyn Device>) -> Rc<dyn Device> {
        let name = device.info().name;
        Rc::new(Noted {
            device,
            name,
            requests: Rc::clone(self),
        })
    }

    /// FNV-1a, which is short and the same everywhere.
    fn mix(&self, bytes: &[u8]) {
        for byte in bytes {
            let mixed = self.sum.get() ^ u64::from(*byte);
            self.sum.set(mixed.wrapping_mul(0x0100_0000_01b3));
        }
    }
}

struct Noted {
    device: Rc<dyn Device>,
    name: String,
    requests: Rc<Requests>,
}

impl Noted {
    fn note(&self, op: Op, at: Sector, len: u64, fua: bool) {
        let requests = &self.requests;
        requests.mix(self.name.as_bytes());
        requests.mix(&[op as u8, u8::from(fua)]);
        requests.mix(&at.0.to_le_bytes());
        requests.mix(&len.to_le_bytes());
    }
}

impl Device for Noted {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.note(Op::Read, at, buf.len() as u64, false);
        self.device.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.note(Op::Write, at, data.len() as u64, flags.fua);
        self.device.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.note(Op::Flush, Sector(0), 0, false);
        self.device.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.note(Op::Discard, span.start, span.len.0, false);
        self.device.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.note(Op::WriteZeroes, span.start, span.len.0, flags.fua);
        self.device.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.device.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.device.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.device.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.device.spindle()
    }

    fn standby(&self) -> bool {
        self.device.standby()
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }
}
