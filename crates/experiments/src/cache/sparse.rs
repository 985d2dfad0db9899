//! A disk in memory that holds no zeroes: days write nothing else, and two of them would fill a machine.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};

/// See the module's head.
pub(super) struct Sparse(Rc<Memory>);

impl Sparse {
    pub fn of_size(name: &str, size: Bytes) -> Rc<dyn Device> {
        Rc::new(Sparse(Memory::new(name, size)))
    }
}

impl Device for Sparse {
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
}
