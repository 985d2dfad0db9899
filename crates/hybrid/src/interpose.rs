//! What stands between a request and the two devices while a region moves.
//!
//! A mover may hold what users wrote (a buffer), or copies that no reader sees yet. The engine asks it before it goes
//! to the devices, and says what changed beneath it. One that only reads and writes through the cache needs none of it.

use std::ops::Range;

use base::{Buf, View};

use crate::index::slots::SlotRun;
use crate::payload::Payload;

/// What a mover holds of a read.
pub(crate) struct Overlay {
    /// Byte of the request, contents.
    pub held: Vec<(usize, View)>,
    /// Bytes of the request from the first to the last that the mover does not hold.
    ///
    /// Choice: what it holds between them is read as well and laid over; one request costs a disk less than two.
    pub beneath: Range<usize>,
}

impl Overlay {
    /// Lays what is held over what was read from beneath.
    pub fn lay_over(&self, buf: &mut Buf) {
        for (at, view) in &self.held {
            if !(view.is_known_zero() && buf.is_known_zero()) {
                buf[*at..*at + view.len()].copy_from_slice(view);
            }
        }
    }
}

/// A mover as requests and the cache meet it. Ranges are bytes of the volume; pages are whole.
pub(crate) trait Interpose {
    /// What it holds of `range`; `None`: nothing.
    fn read(&self, range: &Range<u64>) -> Option<Overlay>;

    /// Takes what it may of a write of `payload` to `range`, whose pages the caller holds; returns the rest.
    fn write(&self, range: Range<u64>, payload: &Payload) -> Vec<Range<u64>>;

    /// Does one of pages `first..end` belong to the region that moves? Only the mover copies those.
    fn owns(&self, first: u64, end: u64) -> bool;

    /// Pages `first..end` were written or forgotten: copies of them are out of date. Returns the slots of copies that no
    /// reader has seen, to be given back.
    fn changed(&self, first: u64, end: u64) -> Vec<SlotRun>;

    /// Is a region being moved?
    fn is_moving(&self) -> bool;

    /// `range` was written, and not to the mover: what it holds of it is out of date.
    fn written(&self, range: Range<u64>);

    /// Bytes of memory of what it holds.
    fn memory(&self) -> usize;

    /// The cache's condition or the choices changed: tasks that wait look again.
    fn wake(&self);
}
