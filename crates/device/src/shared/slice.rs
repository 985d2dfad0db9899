//! A run of a device as a device of its own.
//!
//! Always true: byte `n` of the slice is byte `start + n` of the device, and no other request passes.

use std::rc::Rc;

use base::{Buf, Sector, Span, View};

use super::Shared;
use crate::{Class, Device, Info, Op, Pending, Power, Spindle, WriteFlags, ready};

/// See the file's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, Span, View};
/// use device::shared::{Shared, Slice};
/// use device::{Device, DeviceExt, Memory};
///
/// env::Runtime::simulated(1).block_on(async {
///     let disk = Memory::new("ssd0", Bytes::mib(2));
///     let shared = Shared::new(disk.clone(), 2);
///     let half = Slice::new(&shared, 1, Span::bytes(1 << 20, 1 << 20));
///     half.write_at(Sector(0), View::copy_of(&[7; 512])).await?;
///     assert_eq!(disk.contents(Span::bytes(1 << 20, 512)), [7; 512]);
///     assert!(half.read_at(Sector(2048), Bytes(512)).await.is_err(), "behind its end");
///     Ok::<(), device::DeviceError>(())
/// }).unwrap();
/// ```
pub struct Slice {
    shared: Rc<Shared>,
    part: u32,
    start: Sector,
    info: Info,
}

impl Slice {
    /// Part number `part` of the device: what lies in `span`.
    ///
    /// # Panics
    /// If it is not in whole sectors within the device, or there is no such part.
    pub fn new(shared: &Rc<Shared>, part: u32, span: Span) -> Rc<Slice> {
        let whole = shared.device.info();
        assert!(part < shared.parts, "part {part} of {}", shared.parts);
        if let Err(refusal) = whole.check(Op::Read, span.start, span.len.0) {
            panic!("{refusal}");
        }
        Rc::new(Slice {
            shared: Rc::clone(shared),
            part,
            start: span.start,
            info: Info {
                size: span.len,
                ..whole
            },
        })
    }

    fn at(&self, at: Sector) -> Sector {
        Sector(self.start.0 + at.0)
    }

    fn span(&self, span: Span) -> Span {
        Span::new(self.at(span.start), span.len)
    }
}

impl Device for Slice {
    fn info(&self) -> Info {
        // Whether the device keeps answered writes may depend on how things stand.
        Info {
            crash_keeping: self.shared.device.info().crash_keeping,
            ..self.info.clone()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        if let Err(refusal) = self.info.check(Op::Read, at, buf.len() as u64) {
            return ready(Err(refusal));
        }
        self.shared.used();
        self.shared.device.read(self.at(at), buf, class)
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if let Err(refusal) = self.info.check(Op::Read, at, len) {
            return ready(Err(refusal));
        }
        self.shared.used();
        self.shared.device.read_vectored(self.at(at), bufs, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(refusal) = self.info.check(Op::Write, at, data.len() as u64) {
            return ready(Err(refusal));
        }
        self.shared.used();
        self.shared.device.write(self.at(at), data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.shared.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(refusal) = self.info.check(Op::Discard, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        self.shared.used();
        self.shared.device.discard(self.span(span))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let checked = self.info.check(Op::WriteZeroes, span.start, span.len.0);
        if let Err(refusal) = checked {
            return ready(Err(refusal));
        }
        self.shared.used();
        self.shared.device.write_zeroes(self.span(span), flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(refusal) = self.info.check(Op::Read, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        self.shared.device.allocation(self.span(span))
    }

    /// The whole device's.
    fn power(&self) -> Option<Power> {
        self.shared.device.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.shared.device.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.shared.device.spindle()
    }

    fn standby(&self) -> bool {
        self.shared.standby(self.part)
    }

    /// The whole device's.
    fn in_flight(&self) -> usize {
        self.shared.device.in_flight()
    }
}
