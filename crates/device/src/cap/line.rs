//! Who is next to pass one way, and how much of its request?
//!
//! ```text
//! enter -> waiting, by tag: the time of the cap that its user had before it, then as it came
//!   first, and the gate lets a piece pass -> its tag moves on by the piece's time -> ... -> all of it passed: gone
//! ```
//!
//! Pure, but for the clock that waiters look at.
//!
//! Always true:
//! 1. Pieces of a request pass in order, and all of them before what its user asked for later.
//! 2. What waits stands in line by the cap of today.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant};
use env::sync::Event;
use policy::share::cap::{Gate, Limit};

use super::counters::Passed;

/// Where a request stands: by the time of the cap that its user had before it, then as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tag: u128,
    number: u64,
}

struct Waiting {
    user: u64,
    /// What has not passed yet.
    rest: Bytes,
    /// A piece of it has.
    begun: bool,
    /// Where its waiter looks for it.
    place: Rc<Cell<Place>>,
    wake: Rc<Event>,
}

/// One direction.
#[derive(Default)]
pub(super) struct Side {
    gate: Gate,
    waiting: BTreeMap<Place, Waiting>,
    /// The tag of what passed last.
    passed: u128,
    /// The tag of each user's next request, where that is ahead of `passed`.
    next: BTreeMap<u64, u128>,
    counters: Passed,
}

/// How long a request has to wait.
enum Until {
    /// So much of it passes now.
    Passed(Bytes),
    At(Instant),
    Called,
}

impl Side {
    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Would a new one let no more pass?
    pub fn is_as_new(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.gate.is_full(now)
    }

    /// What passed, and what waits.
    pub fn counters(&self) -> Passed {
        Passed {
            waiting: self.waiting.len() as u64,
            ..self.counters
        }
    }

    /// Something else may pass from now on. What waits keeps its order, and is reckoned anew: by a cap of before some would
    /// stand behind all that comes.
    pub fn set(&mut self, now: Instant, limit: Limit) {
        self.gate.set(now, limit);
        self.next.clear();
        let waiting = std::mem::take(&mut self.waiting);
        for (before, one) in waiting {
            let place = self.place(one.user, before.number, one.rest);
            one.place.set(place);
            self.waiting.insert(place, one);
        }
        self.call_first();
    }

    /// A user is gone.
    pub fn forget(&mut self, user: u64) {
        self.next.remove(&user);
    }

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

    /// Lets the request at `place`, or a piece of it if it may go so, pass if it is first and may. Else when it may, as far
    /// as is known.
    fn try_pass(&mut self, now: Instant, place: Place, in_pieces: bool) -> Until {
        let (first, waiting) = self.waiting.first_key_value().expect("it waits itself");
        if *first != place {
            return Until::Called;
        }
        let (rest, begun) = (waiting.rest, waiting.begun);
        let piece = match in_pieces {
            true => self.gate.piece(rest, begun),
            false => rest,
        };
        let requests = u64::from(!begun);
        let ready = self.gate.part_ready_at(now, piece, requests);
        if ready > now {
            return Until::At(ready);
        }
        self.gate.take_part(now, piece, requests);
        self.passed = self.passed.max(place.tag);
        let mut waiting = self.waiting.remove(&place).expect("it was first");
        if piece < rest {
            (waiting.rest, waiting.begun) = (rest - piece, true);
            let tag = place.tag + u128::from(self.gate.time_of(piece).0);
            let place = Place { tag, ..place };
            waiting.place.set(place);
            self.waiting.insert(place, waiting);
        }
        // A user that asks for nothing saves nothing.
        if self.waiting.is_empty() {
            self.next.retain(|_, next| *next > place.tag);
        }
        Until::Passed(piece)
    }

    /// The first one looks again.
    fn call_first(&self) {
        if let Some(first) = self.waiting.values().next() {
            first.wake.notify_all();
        }
    }
}

/// A request in line: gone from there with its caller.
pub(super) struct Turn<'a> {
    side: &'a RefCell<Side>,
    place: Rc<Cell<Place>>,
    wake: Rc<Event>,
    since: Instant,
    bytes: Bytes,
    rest: Bytes,
    waits: bool,
}

impl<'a> Turn<'a> {
    /// A request of a user is in line from now on.
    pub fn new(side: &'a RefCell<Side>, user: u64, number: u64, bytes: Bytes) -> Turn<'a> {
        let wake = Rc::new(Event::default());
        let mut line = side.borrow_mut();
        let place = Rc::new(Cell::new(line.place(user, number, bytes)));
        let waiting = Waiting {
            user,
            rest: bytes,
            begun: false,
            place: Rc::clone(&place),
            wake: Rc::clone(&wake),
        };
        line.waiting.insert(place.get(), waiting);
        drop(line);
        Turn {
            side,
            place,
            wake,
            since: env::now(),
            bytes,
            rest: bytes,
            waits: true,
        }
    }

    /// Waits until it may pass, or a piece of it if it may go `in_pieces`: how much. `None`: all of it has passed.
    pub async fn pass(&mut self, in_pieces: bool) -> Option<Bytes> {
        if !self.waits {
            return None;
        }
        let piece = loop {
            let now = env::now();
            let until = self
                .side
                .borrow_mut()
                .try_pass(now, self.place.get(), in_pieces);
            match until {
                Until::Passed(piece) => break piece,
                // Late or called: it looks again.
                Until::At(ready) => drop(env::timeout(ready.since(now), self.wake.wait()).await),
                Until::Called => self.wake.wait().await,
            }
        };
        self.rest -= piece;
        self.waits = self.rest.0 > 0;
        let mut side = self.side.borrow_mut();
        if !self.waits {
            let waited = env::now().since(self.since);
            side.counters.pass(self.bytes, waited);
        }
        side.call_first();
        Some(piece)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.waits {
            let mut side = self.side.borrow_mut();
            side.waiting.remove(&self.place.get());
            side.call_first();
        }
    }
}
