//! A device of which users get no more than a cap: a request that is too early waits before the device.
//!
//! ```text
//! request of a user -> no cap? on | place in line -> first, and the gate lets it pass? -> the device below
//!                                                      '-- not yet: until then, or until the cap changes
//! longer than a burst: the same piece by piece; it keeps its place among its user's requests, and others go in between
//! ```
//!
//! A [`Throttle`] is what several [`Capped`] share that are capped together: the exports of a volume, the clients of an
//! export. Each `Capped` is one *user*. Requests of one user pass in the order they came. Users share what passes equally, by
//! the time of the cap their requests take (start-time fair queueing), so one with many requests waiting gets no more than one
//! with few that always has one. Caps on top of each other are waited for one after the other.
//!
//! Reads and writes have lines of their own. A flush waits for nothing: it covers writes that were answered. What gives room up
//! counts as one write request, and so does making zeroes; that costs bytes as well on a device that does not discard, which
//! writes them. A look at what is allocated counts as one read request if it finds a hole: that is answered without another.
//!
//! Always true:
//! 1. What passes keeps what [`policy::share::cap`] says of it, in every span of time.
//! 2. A request that waits is not at the device yet; one whose caller went away does not come there, and keeps no other waiting.
//! 3. A cap that is set or removed holds at once for all that wait, and they stand in line as if it had always been so.
//! 4. No request keeps other users waiting for longer than a second's worth of the cap.

mod accounts;
mod counters;
mod line;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base::{Buf, Bytes, SECTOR, Sector, Span, View};
use env::sync::Event;
use policy::share::Direction;
use policy::share::cap::{BURST, Caps};

use line::{Side, Turn};

pub use accounts::{AccountCaps, HeldAtCap, ThrottleUser};
pub use counters::{Counters, Passed};

use crate::{Class, Device, DeviceError, Info, Pending, Power, Spindle, WriteFlags};

/// What users may get together, and who of them waits. See the module's head.
#[derive(Default)]
pub struct Throttle {
    caps: Cell<Caps>,
    reads: RefCell<Side>,
    writes: RefCell<Side>,
    users: Cell<u64>,
    requests: Cell<u64>,
    /// Memory that requests hold which wait here, and were given a part of what their account may.
    held: Cell<u64>,
    room: Event,
    /// The daemon stops.
    stops: Cell<bool>,
}

impl Throttle {
    /// One that caps nothing unless `caps` do. To be called inside a runtime, whose clock it reads.
    pub fn new(caps: Caps) -> Rc<Throttle> {
        let throttle = Rc::new(Throttle::default());
        throttle.set(caps);
        throttle
    }

    /// What may pass.
    pub fn caps(&self) -> Caps {
        self.caps.get()
    }

    /// Something else may pass from now on.
    pub fn set(&self, caps: Caps) {
        if caps == self.caps.get() {
            return;
        }
        self.caps.set(caps);
        for direction in Direction::ALL {
            let mut side = self.side(direction).borrow_mut();
            side.set(env::now(), caps.of(direction));
        }
    }

    /// What passed, and what waits.
    pub fn counters(&self) -> Counters {
        let of = |direction| {
            let side = self.side(direction).borrow();
            side.counters()
        };
        Counters {
            read: of(Direction::Read),
            write: of(Direction::Write),
        }
    }

    fn side(&self, direction: Direction) -> &RefCell<Side> {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    /// May a request go on without a look at the cap?
    fn is_open(&self, direction: Direction) -> bool {
        self.caps.get().of(direction).is_none() && self.side(direction).borrow().is_empty()
    }

    /// Puts a request of a user in line.
    fn enter(&self, user: u64, direction: Direction, bytes: Bytes) -> Turn<'_> {
        let number = self.requests.get();
        self.requests.set(number + 1);
        let side = self.side(direction);
        Turn::new(side, user, number, bytes)
    }

    /// Would a new one let no more pass?
    fn is_as_new(&self) -> bool {
        let is_as_new = |it: Direction| self.side(it).borrow().is_as_new(env::now());
        Direction::ALL.into_iter().all(is_as_new)
    }

    fn leave(&self, user: u64) {
        for direction in Direction::ALL {
            self.side(direction).borrow_mut().forget(user);
        }
    }
}

/// A device as one user of a throttle has it. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos, Sector};
/// use device::{Capped, DeviceExt, Memory, Throttle};
/// use policy::share::cap::{Caps, Limit};
/// use policy::share::BytesPerSec;
/// env::Runtime::simulated(1).block_on(async {
///     let read = Limit { bytes: Some(BytesPerSec(1 << 20)), requests: None };
///     let throttle = Throttle::new(Caps { read, ..Caps::default() });
///     let disk = Capped::new(Memory::new("disk", Bytes::mib(4)), &throttle);
///     let begun = env::now();
///     for _ in 0..3 {
///         disk.read_at(Sector(0), Bytes::mib(1)).await.unwrap();
///     }
///     assert_eq!(env::now().since(begun), Nanos::secs(2), "a second's worth at once, then as the cap lets them");
///     assert_eq!(throttle.counters().read.waited, 2);
/// });
/// ```
pub struct Capped {
    inner: Rc<dyn Device>,
    throttle: Rc<Throttle>,
    user: u64,
    waiting: Cell<usize>,
}

impl Capped {
    /// `inner` for one more user of the throttle.
    pub fn new(inner: Rc<dyn Device>, throttle: &Rc<Throttle>) -> Rc<Capped> {
        let user = throttle.users.get();
        throttle.users.set(user + 1);
        Rc::new(Capped {
            inner,
            throttle: Rc::clone(throttle),
            user,
            waiting: Cell::new(0),
        })
    }

    /// A read that is longer than passes at once.
    async fn read_long(&self, at: Sector, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
        let bytes = buf.len() as u64;
        let mut rest = Some(buf);
        let done = Rc::new(RefCell::new(Vec::new()));
        let pieces = Rc::clone(&done);
        let work = move |from: u64, len: u64| -> Pending<'_, ()> {
            let mut buf = rest
                .take()
                .expect("pieces come in order and end with the last");
            if buf.len() as u64 > len {
                rest = Some(buf.split_off(len as usize));
            }
            let pieces = Rc::clone(&pieces);
            let nth = pieces.borrow().len();
            pieces.borrow_mut().push(None);
            Box::pin(async move {
                let read = self
                    .inner
                    .read(Sector(at.0 + from / SECTOR), buf, class)
                    .await?;
                pieces.borrow_mut()[nth] = Some(read);
                Ok(())
            })
        };
        self.piece_by_piece(Direction::Read, bytes, work).await?;
        let mut pieces = done
            .take()
            .into_iter()
            .map(|it| it.expect("no piece failed"));
        let mut whole = pieces.next().expect("at least one piece");
        pieces.for_each(|piece| whole.join(piece));
        Ok(whole)
    }

    /// `work` as soon as it may pass; it begins at once where nothing is capped.
    fn when_due<'a, T: 'a>(
        &'a self,
        direction: Direction,
        bytes: u64,
        work: impl FnOnce(&'a dyn Device) -> Pending<'a, T> + 'a,
    ) -> Pending<'a, T> {
        if self.throttle.is_open(direction) {
            return work(&*self.inner);
        }
        Box::pin(async move {
            self.until_due(direction, bytes).await;
            work(&*self.inner).await
        })
    }

    async fn until_due(&self, direction: Direction, bytes: u64) {
        let _counted = Counted::new(&self.waiting);
        let mut turn = self.throttle.enter(self.user, direction, Bytes(bytes));
        while turn.pass(false).await.is_some() {}
    }

    /// Is it longer than passes at once?
    fn is_long(&self, direction: Direction, bytes: u64) -> bool {
        let limit = self.throttle.caps().of(direction).bytes;
        limit.is_some_and(|rate| Bytes(bytes) > rate.within(BURST))
    }

    /// A request that is longer than passes at once: piece by piece, each as soon as it may pass. `work` begins one, which
    /// is so far from the request's first byte, and so long.
    async fn piece_by_piece<'a>(
        &'a self,
        direction: Direction,
        bytes: u64,
        mut work: impl FnMut(u64, u64) -> Pending<'a, ()>,
    ) -> Result<(), DeviceError> {
        let mut counted = Some(Counted::new(&self.waiting));
        let mut turn = self.throttle.enter(self.user, direction, Bytes(bytes));
        let due = RefCell::new(Vec::new());
        let mut passing = pin!(async {
            let mut at = 0;
            while let Some(piece) = turn.pass(true).await {
                due.borrow_mut().push((at, piece.0));
                at += piece.0;
            }
        });
        let mut at_device: Vec<Pending<'a, ()>> = Vec::new();
        let mut failed = None;
        poll_fn(|context| {
            if counted.is_some() && passing.as_mut().poll(context).is_ready() {
                counted = None;
            }
            let begun = due
                .borrow_mut()
                .drain(..)
                .map(|(at, len)| work(at, len))
                .collect::<Vec<_>>();
            at_device.extend(begun);
            at_device.retain_mut(|piece| match piece.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            match failed.is_some() || counted.is_none() {
                true if at_device.is_empty() => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
        failed.map_or(Ok(()), Err)
    }
}

/// One more, as long as it is there.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        self.throttle.leave(self.user);
    }
}

impl Device for Capped {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let bytes = buf.len() as u64;
        if self.is_long(Direction::Read, bytes) {
            return Box::pin(self.read_long(at, buf, class));
        }
        self.when_due(Direction::Read, bytes, move |it| it.read(at, buf, class))
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        if self.is_long(Direction::Read, bytes) {
            return Box::pin(async move {
                let mut read = Vec::new();
                let mut at = at;
                for buf in bufs {
                    let next = Sector(at.0 + buf.len() as u64 / SECTOR);
                    read.push(self.read(at, buf, class).await?);
                    at = next;
                }
                Ok(read)
            });
        }
        self.when_due(Direction::Read, bytes, move |it| {
            it.read_vectored(at, bufs, class)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let bytes = data.len() as u64;
        if self.is_long(Direction::Write, bytes) {
            let work = move |from: u64, len: u64| {
                let piece = data.slice(from as usize, len as usize);
                self.inner.write(Sector(at.0 + from / SECTOR), piece, flags)
            };
            return Box::pin(self.piece_by_piece(Direction::Write, bytes, work));
        }
        self.when_due(Direction::Write, bytes, move |it| it.write(at, data, flags))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.inner.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.when_due(Direction::Write, 0, move |it| it.discard(span))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let bytes = match self.inner.info().discards {
            true => 0,
            false => span.len.0,
        };
        if self.is_long(Direction::Write, bytes) {
            let work = move |from: u64, len: u64| {
                let piece = Span::bytes(span.start.0 * SECTOR + from, len);
                self.inner.write_zeroes(piece, flags)
            };
            return Box::pin(self.piece_by_piece(Direction::Write, bytes, work));
        }
        self.when_due(Direction::Write, bytes, move |it| {
            it.write_zeroes(span, flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if self.throttle.is_open(Direction::Read) {
            return self.inner.allocation(span);
        }
        Box::pin(async move {
            let found = self.inner.allocation(span).await?;
            // Data are read next; a read of a hole is answered without them, and without another request.
            if found.iter().any(|(_, is_data)| !is_data) {
                self.until_due(Direction::Read, 0).await;
            }
            Ok(found)
        })
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.waiting.get()
    }
}
