//! A device of which users get no more than a cap: a request that is too early waits before the device.
//!
//! ```text
//! request of a user -> no cap? on | place in line -> first, and the gate lets it pass? -> the device below
//!                                                      '-- not yet: until then, or until the cap changes
//! ```
//!
//! A [`Throttle`] is what several [`Capped`] share that are capped together: the exports of a volume, the clients of an
//! export. Each `Capped` is one *user*. Requests of one user pass in the order they came. Users share what passes equally, by
//! the time of the cap their requests take (start-time fair queueing), so one with many requests waiting gets no more than one
//! with few that always has one. Caps on top of each other are waited for one after the other.
//!
//! Reads and writes have lines of their own. A flush waits for nothing: it covers writes that were answered. What gives room up
//! counts as one write request, and so does making zeroes; that costs bytes as well on a device that does not discard, which
//! writes them. Looks at what is allocated do not wait.
//!
//! Always true:
//! 1. What passes keeps what [`policy::share::cap`] says of it, in every span of time.
//! 2. A request that waits is not at the device yet; one whose caller went away does not come there, and keeps no other waiting.
//! 3. A cap that is set or removed holds at once for all that wait.

mod counters;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Sector, Span, View};
use env::sync::Event;
use policy::share::Direction;
use policy::share::cap::{Caps, Gate};

pub use counters::{Counters, Passed};

use crate::{Class, Device, Info, Pending, Power, WriteFlags};

/// Where a request stands: by the time of the cap that its user had before it, then as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tag: u128,
    number: u64,
}

struct Waiting {
    bytes: Bytes,
    since: Instant,
    wake: Rc<Event>,
}

/// One direction.
#[derive(Default)]
struct Side {
    gate: Gate,
    waiting: BTreeMap<Place, Waiting>,
    /// The tag of what passed last.
    passed: u128,
    /// The tag of each user's next request, where that is ahead of `passed`.
    next: BTreeMap<u64, u128>,
    counters: Passed,
}

impl Side {
    /// A place in line for a request of a user.
    fn place(&mut self, user: u64, number: u64, bytes: Bytes) -> Place {
        let tag = self
            .next
            .get(&user)
            .map_or(self.passed, |next| (*next).max(self.passed));
        self.next
            .insert(user, tag + u128::from(self.gate.time_of(bytes).0));
        Place { tag, number }
    }

    /// Lets the request at `place` pass if it is first and may: then `None`. Else when it may, as far as is known.
    fn try_pass(&mut self, now: Instant, place: Place) -> Option<Until> {
        let (first, waiting) = self.waiting.first_key_value().expect("it waits itself");
        if *first != place {
            return Some(Until::Called);
        }
        let (bytes, since) = (waiting.bytes, waiting.since);
        let ready = self.gate.ready_at(now, bytes);
        if ready > now {
            return Some(Until::At(ready));
        }
        self.gate.take(now, bytes);
        self.waiting.pop_first();
        self.passed = place.tag;
        // A user that asks for nothing saves nothing.
        if self.waiting.is_empty() {
            self.next.retain(|_, next| *next > place.tag);
        }
        self.counters.pass(bytes, now.since(since));
        None
    }

    /// The first one looks again.
    fn call_first(&self) {
        if let Some(first) = self.waiting.values().next() {
            first.wake.notify_all();
        }
    }
}

/// How long a request has to wait.
enum Until {
    At(Instant),
    Called,
}

/// What users may get together, and who of them waits. See the module's head.
#[derive(Default)]
pub struct Throttle {
    caps: Cell<Caps>,
    reads: RefCell<Side>,
    writes: RefCell<Side>,
    users: Cell<u64>,
    requests: Cell<u64>,
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
            side.gate.set(env::now(), caps.of(direction));
            side.call_first();
        }
    }

    /// What passed, and what waits.
    pub fn counters(&self) -> Counters {
        let of = |direction| {
            let side = self.side(direction).borrow();
            Passed {
                waiting: side.waiting.len() as u64,
                ..side.counters
            }
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
        self.caps.get().of(direction).is_none() && self.side(direction).borrow().waiting.is_empty()
    }

    /// Puts a request of a user in line.
    fn enter(&self, user: u64, direction: Direction, bytes: Bytes) -> (Place, Rc<Event>) {
        let number = self.requests.get();
        self.requests.set(number + 1);
        let wake = Rc::new(Event::default());
        let mut side = self.side(direction).borrow_mut();
        let place = side.place(user, number, bytes);
        let waiting = Waiting {
            bytes,
            since: env::now(),
            wake: Rc::clone(&wake),
        };
        side.waiting.insert(place, waiting);
        (place, wake)
    }

    /// Waits until a request of a user may pass.
    async fn pass(&self, user: u64, direction: Direction, bytes: Bytes) {
        let (place, wake) = self.enter(user, direction, bytes);
        let mut asked = Asked {
            side: self.side(direction),
            place,
            waits: true,
        };
        loop {
            let now = env::now();
            let until = asked.side.borrow_mut().try_pass(now, place);
            match until {
                None => break,
                // Late or called: it looks again.
                Some(Until::At(ready)) => drop(env::timeout(ready.since(now), wake.wait()).await),
                Some(Until::Called) => wake.wait().await,
            }
        }
        asked.waits = false;
        asked.side.borrow().call_first();
    }

    fn leave(&self, user: u64) {
        for direction in Direction::ALL {
            self.side(direction).borrow_mut().next.remove(&user);
        }
    }
}

/// A request in line: gone from there with its caller.
struct Asked<'a> {
    side: &'a RefCell<Side>,
    place: Place,
    waits: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.waits {
            let mut side = self.side.borrow_mut();
            side.waiting.remove(&self.place);
            side.call_first();
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
            let counted = Counted::new(&self.waiting);
            self.throttle.pass(self.user, direction, Bytes(bytes)).await;
            drop(counted);
            work(&*self.inner).await
        })
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
        self.when_due(Direction::Read, bytes, move |it| it.read(at, buf, class))
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.when_due(Direction::Read, bytes, move |it| {
            it.read_vectored(at, bufs, class)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let bytes = data.len() as u64;
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
        self.when_due(Direction::Write, bytes, move |it| {
            it.write_zeroes(span, flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.waiting.get()
    }
}
