//! One device for several users: each sees a part of it as a device of its own.
//!
//! ```text
//! Slice      | 0 .............. | 1 .............. | 2 ...        one run each
//! Dealt      | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 | 0 | ...             units in turn, by address
//! Joined     such parts as one device again, each wherever it is served
//! Shared     flushes of all parts, together; sleep, when all parts allow it
//! ```
//!
//! The parts have no byte in common, so their users need not know of each other. What concerns the device as a whole goes
//! through [`Shared`].
//!
//! Always true:
//! 1. Each byte of the device lies in one part at most.
//! 2. A flush of one part is a flush of the device that began after it was asked for. Of those that come while one is under
//!    way one serves all.
//! 3. Once a flush failed, every later one of any part fails: it may have been what another part wrote that was lost.
//! 4. The device is sent to sleep when every part asked for it since any part was last used.

mod dealt;
mod joined;
mod slice;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Span};
use env::sync::{Event, join_all};

use crate::{Class, Device, DeviceError, Pending};

pub use dealt::{Dealt, part_of, size_of_part};
pub use joined::Joined;
pub use slice::Slice;

/// What neighbouring pieces hold, as one answer.
fn joined_runs(
    answers: Vec<Result<Vec<(u64, bool)>, DeviceError>>,
) -> Result<Vec<(u64, bool)>, DeviceError> {
    let mut runs: Vec<(u64, bool)> = Vec::new();
    for answer in answers {
        for (len, data) in answer? {
            match runs.last_mut() {
                Some((so_far, kind)) if *kind == data => *so_far += len,
                _ => runs.push((len, data)),
            }
        }
    }
    Ok(runs)
}

/// Fills `buf` from `pieces`, in order, all at once: each a device and where on it, together as long as the buffer.
fn read_apart<'a>(
    pieces: Vec<(&'a dyn Device, Span)>,
    mut buf: Buf,
    class: Class,
) -> Pending<'a, Buf> {
    if let [(device, piece)] = pieces[..] {
        return device.read(piece.start, buf, class);
    }
    // From the end: each piece takes what is behind it along.
    let mut parts = Vec::with_capacity(pieces.len());
    for (device, piece) in pieces.into_iter().rev() {
        let part = buf.split_off(buf.len() - piece.len.usize());
        parts.push((device, piece.start, part));
    }
    let sent: Vec<_> = parts
        .into_iter()
        .rev()
        .map(|(device, at, part)| device.read(at, part, class))
        .collect();
    Box::pin(async move {
        for answer in join_all(sent).await {
            buf.join(answer?);
        }
        Ok(buf)
    })
}

/// A device and what its parts share. Make the parts with [`Slice::new`] and [`Dealt::new`].
pub struct Shared {
    // Fixed.
    device: Rc<dyn Device>,
    parts: u32,
    // As it goes.
    flushes: Flushes,
    /// Parts that would let the device sleep, a bit each.
    sleepy: Cell<u64>,
}

/// Flushes of the device, numbered from 1.
#[derive(Default)]
struct Flushes {
    running: Cell<bool>,
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// The last one that a part waits for.
    wanted: Cell<u64>,
    /// The first one that failed: its number, and why.
    failed: RefCell<Option<(u64, DeviceError)>>,
    changed: Event,
}

impl Shared {
    /// The most parts of a device.
    pub const PARTS_MAX: u32 = 64;

    /// `device`, to be shared by `parts` users.
    ///
    /// # Panics
    /// If there are none, or more than [`Shared::PARTS_MAX`].
    pub fn new(device: Rc<dyn Device>, parts: u32) -> Rc<Shared> {
        assert!((1..=Shared::PARTS_MAX).contains(&parts), "{parts} parts");
        Rc::new(Shared {
            device,
            parts,
            flushes: Flushes::default(),
            sleepy: Cell::new(0),
        })
    }

    /// The device as a whole.
    pub fn device(&self) -> &Rc<dyn Device> {
        &self.device
    }

    /// A part is used.
    fn used(&self) {
        self.sleepy.set(0);
    }

    /// Part number `part` would let the device sleep: true if it will.
    fn standby(&self, part: u32) -> bool {
        let all = u64::MAX >> (Shared::PARTS_MAX - self.parts);
        let sleepy = self.sleepy.get() | 1 << part;
        self.sleepy.set(sleepy);
        sleepy == all && self.device.standby()
    }

    /// Makes every write that completed before this call durable.
    fn flush(self: &Rc<Self>) -> Pending<'static, ()> {
        self.used();
        let flushes = &self.flushes;
        let number = flushes.begun.get() + 1;
        flushes.wanted.set(number);
        if !flushes.running.replace(true) {
            // A task of its own: the caller that began it may go away, others wait as well.
            env::spawn(Rc::clone(self).flush_on());
        }
        let shared = Rc::clone(self);
        Box::pin(async move {
            let flushes = &shared.flushes;
            while flushes.ended.get() < number {
                flushes.changed.wait().await;
            }
            match &*flushes.failed.borrow() {
                Some((failed, error)) if *failed == number => Err(error.clone()),
                Some((failed, error)) if *failed < number => Err(DeviceError::FlushFailed {
                    device: shared.device.info().name,
                    why: error.to_string(),
                }),
                _ => Ok(()),
            }
        })
    }

    /// Flushes until no part waits for another flush.
    async fn flush_on(self: Rc<Self>) {
        let flushes = &self.flushes;
        while flushes.wanted.get() > flushes.begun.get() {
            let number = flushes.begun.get() + 1;
            flushes.begun.set(number);
            if let Err(error) = self.device.flush().await {
                let mut failed = flushes.failed.borrow_mut();
                failed.get_or_insert((number, error));
            }
            flushes.ended.set(number);
            flushes.changed.notify_all();
        }
        flushes.running.set(false);
    }
}
