//! What a device has at the addresses of one part, where units are dealt out in turn, as a device of its own.
//!
//! ```text
//! device:  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | ...       one unit each
//! part 0:  | 0 | 3 | 6 | ...                        of three
//! part 1:  | 1 | 4 | ...       a request -> at most one piece for each unit that it touches, all under way at once
//! ```
//!
//! The last unit may be short; it is the last one of its part.
//!
//! Always true:
//! 1. Each byte of the device is a byte of one part, and [`part_of`] says of which.
//! 2. What lies within one unit goes to the device as one request.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use env::sync::join_all;

use super::{Shared, joined_runs, read_apart};
use crate::{Class, Device, Info, Op, Pending, Power, Spindle, WriteFlags, ready};

/// See the file's head.
pub struct Dealt {
    shared: Rc<Shared>,
    part: u32,
    unit: u64,
    info: Info,
}

/// Which of `parts` has byte `at` of the device, and as which of its own?
///
/// # Example
/// ```
/// use base::Bytes;
/// use device::shared::part_of;
/// assert_eq!(part_of(Bytes::mib(1), 4, 5 << 20 | 7), (1, 1 << 20 | 7));
/// ```
pub fn part_of(unit: Bytes, parts: u32, at: u64) -> (u32, u64) {
    let (number, within) = (at / unit.0, at % unit.0);
    let parts = u64::from(parts);
    ((number % parts) as u32, number / parts * unit.0 + within)
}

/// How much of a device of `size` bytes part number `part` has.
///
/// # Example
/// ```
/// use base::Bytes;
/// use device::shared::size_of_part;
/// let size = |part| size_of_part(Bytes::mib(1), 2, part, Bytes(5 << 19));
/// assert_eq!([size(0), size(1)], [Bytes(3 << 19), Bytes::mib(1)]);
/// ```
pub fn size_of_part(unit: Bytes, parts: u32, part: u32, size: Bytes) -> Bytes {
    let (whole, rest) = (size.0 / unit.0, size.0 % unit.0);
    let (parts, part) = (u64::from(parts), u64::from(part));
    let units = whole / parts + u64::from(part < whole % parts);
    Bytes(units * unit.0 + if whole % parts == part { rest } else { 0 })
}

impl Dealt {
    /// Part number `part` of the device, whose units of `unit` bytes are dealt out to all its parts.
    ///
    /// # Panics
    /// If the unit is not in whole sectors, or there is no such part.
    pub fn new(shared: &Rc<Shared>, part: u32, unit: Bytes) -> Rc<Dealt> {
        assert!(part < shared.parts, "part {part} of {}", shared.parts);
        assert!(
            unit.0 > 0 && unit.0.is_multiple_of(base::SECTOR),
            "units of {unit}"
        );
        let whole = shared.device.info();
        Rc::new(Dealt {
            shared: Rc::clone(shared),
            part,
            unit: unit.0,
            info: Info {
                size: size_of_part(unit, shared.parts, part, whole.size),
                ..whole
            },
        })
    }

    /// Where on the device the pieces of `span` lie, in its order.
    fn pieces(&self, span: Span) -> Vec<Span> {
        let (unit, parts) = (self.unit, u64::from(self.shared.parts));
        let (mut at, end) = (span.start.byte(), span.end().byte());
        let mut pieces = Vec::with_capacity(1);
        while at < end {
            let until = ((at / unit + 1) * unit).min(end);
            let there = (at / unit * parts + u64::from(self.part)) * unit + at % unit;
            pieces.push(Span::bytes(there, until - at));
            at = until;
        }
        pieces
    }

    /// Sends a request that answers nothing to each unit that it touches.
    fn each<'a>(
        &'a self,
        op: Op,
        span: Span,
        mut send: impl FnMut(&'a dyn Device, Span) -> Pending<'a, ()>,
    ) -> Pending<'a, ()> {
        if let Err(refusal) = self.info.check(op, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        self.shared.used();
        let device = &*self.shared.device;
        let pieces = self.pieces(span);
        if let [piece] = pieces[..] {
            return send(device, piece);
        }
        let sent: Vec<_> = pieces
            .into_iter()
            .map(|piece| send(device, piece))
            .collect();
        Box::pin(async move {
            let answers = join_all(sent).await;
            answers.into_iter().collect()
        })
    }
}

impl Device for Dealt {
    fn info(&self) -> Info {
        // Whether the device keeps answered writes may depend on how things stand.
        Info {
            crash_keeping: self.shared.device.info().crash_keeping,
            ..self.info.clone()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        if let Err(refusal) = self.info.check(Op::Read, at, span.len.0) {
            return ready(Err(refusal));
        }
        self.shared.used();
        let device = &*self.shared.device;
        let pieces = self.pieces(span).into_iter();
        read_apart(pieces.map(|piece| (device, piece)).collect(), buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        let mut from = 0;
        self.each(Op::Write, span, |device, piece| {
            let len = piece.len.usize();
            let part = data.slice(from, len);
            from += len;
            device.write(piece.start, part, flags)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.shared.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.each(Op::Discard, span, |device, piece| device.discard(piece))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.each(Op::WriteZeroes, span, |device, piece| {
            device.write_zeroes(piece, flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(refusal) = self.info.check(Op::Read, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        let device = &*self.shared.device;
        let pieces = self.pieces(span).into_iter();
        let asked: Vec<_> = pieces.map(|piece| device.allocation(piece)).collect();
        Box::pin(async move { joined_runs(join_all(asked).await) })
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
