//! Several devices as one, where units are dealt out to them in turn: what [`Dealt`](super::Dealt) takes apart.
//!
//! ```text
//! device:  | 0 | 1 | 2 | 3 | 0 | 1 | ...      one unit each; the parts may be on any threads
//! request -> cut at units -> each piece to its part, all at once, in the order of their addresses
//! flush   -> all parts
//! ```
//!
//! Unlike a [stripe](crate::Striped) it has parts of unequal sizes, and units so long that what meets several parts is rare:
//! each unit is a request of its own.
//!
//! Always true:
//! 1. A request is complete when every part has done its piece; its error is that of the first piece that has one.
//! 2. What lies within one unit goes to one part as one request.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use env::sync::join_all;

use super::{joined_runs, part_of, read_apart};
use crate::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags, ready};

/// See the file's head.
pub struct Joined {
    parts: Vec<Rc<dyn Device>>,
    unit: Bytes,
    /// What the whole is like, as far as that does not change.
    info: Info,
}

/// A piece of a request: of which part, and where in it.
struct Piece<'a> {
    part: &'a dyn Device,
    span: Span,
}

impl Joined {
    /// `parts`, to which units of `unit` bytes of the device `name` are dealt out in turn.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(name: impl Into<String>, parts: Vec<Rc<dyn Device>>, unit: Bytes) -> Rc<Joined> {
        let of_parts: Vec<Info> = parts.iter().map(|part| part.info()).collect();
        let info = Info {
            name: name.into(),
            size: Bytes(of_parts.iter().map(|info| info.size.0).sum()),
            max_io: of_parts
                .iter()
                .map(|info| info.max_io)
                .min()
                .unwrap_or_default(),
            ..of_parts.into_iter().next().expect("one part at least")
        };
        Rc::new(Joined { parts, unit, info })
    }

    /// The parts, the first one first.
    pub fn parts(&self) -> &[Rc<dyn Device>] {
        &self.parts
    }

    /// The pieces of `span`, which lie within one unit each, in its order.
    fn pieces(&self, span: Span) -> Vec<Piece<'_>> {
        let (unit, count) = (self.unit.0, self.parts.len() as u32);
        let (mut at, end) = (span.start.byte(), span.end().byte());
        let mut pieces = Vec::with_capacity(1);
        while at < end {
            let until = (at / unit).saturating_add(1).saturating_mul(unit).min(end);
            let (part, there) = part_of(self.unit, count, at);
            pieces.push(Piece {
                part: &*self.parts[part as usize],
                span: Span::bytes(there, until - at),
            });
            at = until;
        }
        pieces
    }

    fn check(&self, op: Op, span: Span) -> Result<(), DeviceError> {
        self.info.check(op, span.start, span.len.0)
    }

    /// Sends a request that answers nothing to each part that has a piece of it.
    fn each<'a>(
        &'a self,
        op: Op,
        span: Span,
        mut send: impl FnMut(&'a dyn Device, Span) -> Pending<'a, ()>,
    ) -> Pending<'a, ()> {
        if let Err(refusal) = self.check(op, span) {
            return ready(Err(refusal));
        }
        let pieces = self.pieces(span);
        let mut sent: Vec<_> = pieces
            .iter()
            .map(|piece| send(piece.part, piece.span))
            .collect();
        if sent.len() == 1 {
            return sent.remove(0);
        }
        Box::pin(async move { join_all(sent).await.into_iter().collect() })
    }
}

impl Device for Joined {
    fn info(&self) -> Info {
        // Whether a part keeps answered writes may depend on how things stand.
        let crash_keeping = self.parts.iter().all(|part| part.info().crash_keeping);
        Info {
            crash_keeping,
            ..self.info.clone()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        if let Err(refusal) = self.check(Op::Read, span) {
            return ready(Err(refusal));
        }
        let pieces = self.pieces(span).into_iter();
        let pieces = pieces.map(|piece| (piece.part, piece.span));
        read_apart(pieces.collect(), buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        let mut from = 0;
        self.each(Op::Write, span, |part, piece| {
            let cut = data.slice(from, piece.len.usize());
            from += cut.len();
            part.write(piece.start, cut, flags)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        let sent: Vec<_> = self.parts.iter().map(|part| part.flush()).collect();
        Box::pin(async move { join_all(sent).await.into_iter().collect() })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.each(Op::Discard, span, |part, piece| part.discard(piece))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.each(Op::WriteZeroes, span, |part, piece| {
            part.write_zeroes(piece, flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(refusal) = self.check(Op::Read, span) {
            return ready(Err(refusal));
        }
        let pieces = self.pieces(span).into_iter();
        let asked: Vec<_> = pieces
            .map(|piece| piece.part.allocation(piece.span))
            .collect();
        Box::pin(async move { joined_runs(join_all(asked).await) })
    }

    fn in_flight(&self) -> usize {
        self.parts.iter().map(|part| part.in_flight()).sum()
    }
}
