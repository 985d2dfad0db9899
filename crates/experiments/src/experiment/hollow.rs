//! Contents of a modelled disk that cost no memory.
//!
//! Always true: what was written is read; what is all zeroes takes no memory.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};

/// A device in memory that stores no zeroes.
pub(crate) struct Hollow(Rc<Memory>);

impl Hollow {
    pub fn of_size(name: &str, size: Bytes) -> Rc<dyn Device> {
        Rc::new(Hollow(Memory::new(name, size)))
    }
}

impl Device for Hollow {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.0.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if data.iter().all(|byte| *byte == 0) {
            let span = Span::new(at, Bytes(data.len() as u64));
            return self.0.write_zeroes(span, flags);
        }
        self.0.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.0.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.0.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write_zeroes(span, flags)
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}
