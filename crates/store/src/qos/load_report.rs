//! How long is a store's queue, and what do load reports say of it?
//!
//! ```text
//! a read or write of an object -> begin: DiskQueue::enqueue -> done: complete, with its device time
//!                                          |                   '-- failed, or given up: cancel
//!                                          '-- state: in this process, beside answers (wire), in datagrams
//! ```
//!
//! Requests count from when they come in until they are answered, in the order they came in, whatever the queue in front of
//! the device does with them. What the device needed for one of them cannot be seen from here; it counts as the time since
//! it came in or the one before it was answered, whichever is later: exact where they follow each other, and where they
//! overlap the sum over all of them is the time the device was busy.
//!
//! A place on the disk is a byte of an object: extents lie together in the store, objects far apart.
//!
//! Source: COST 3.1, 3.2 (each disk keeps the cost of its queue and reports it to the clients).
//!
//! Always true:
//! 1. What was begun is done or cancelled exactly once.
//! 2. Whatever a caller says of itself changes what is reported, and by its class which request is next at the device
//!    where nothing is promised; nothing else.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use env::Critical;
use policy::place::{
    At, Class, ClientId, DiskQueue, Op, Origin, Penalties, PerByte, QueueOptions, Request, State,
    Ticket, Weights,
};
use policy::share::Costs;

/// Whose requests they are, for clients that choose between copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTag {
    /// The client and its class.
    pub origin: Origin,
    /// How other clients before it in a queue count.
    pub penalties: Penalties,
}

impl ClientTag {
    /// One that has said nothing of itself; `number` sets it apart from others.
    pub fn unknown(number: u64) -> ClientTag {
        // Clients that name themselves have numbers below.
        let client = ClientId(1 << 63 | number);
        ClientTag {
            origin: Origin {
                client,
                class: Class::Normal,
            },
            penalties: Penalties::default(),
        }
    }
}

/// Where a byte of an object is, for [`policy::place`].
///
/// # Example
/// ```
/// use store::place_of;
/// assert_eq!(place_of("v/1", 4096).after(base::Bytes(512)), place_of("v/1", 4608));
/// assert_ne!(place_of("v/1", 0).object, place_of("v/2", 0).object);
/// ```
pub fn place_of(object: &str, byte: u64) -> At {
    // Two objects of one number would count as near each other, and no more than that.
    let object = u64::from(base::crc::crc32c(object.as_bytes()));
    At { object, byte }
}

/// The queue of one store; see the module's head.
pub(crate) struct LoadReporter {
    queue: Critical<DiskQueue>,
    tickets: Cell<u64>,
    /// When something was answered last.
    answered: Cell<Instant>,
}

/// A request under way; dropped, it is given up.
pub(crate) struct UnderWay {
    reporter: Rc<LoadReporter>,
    ticket: Ticket,
    begun: Instant,
}

impl LoadReporter {
    /// `costs`: what requests should cost until that is known better.
    pub fn new(costs: &Costs) -> Rc<LoadReporter> {
        let local = PerByte::at(costs.read.rate);
        let options = QueueOptions {
            weights: Weights {
                local,
                // As in the policy's own: a fifth dearer from afar.
                remote: PerByte(local.0 + local.0 / 5),
                seek: costs.read.jump + costs.read.fixed,
            },
            measure: true,
            ..QueueOptions::default()
        };
        Rc::new(LoadReporter {
            queue: Critical::new(DiskQueue::new(options)),
            tickets: Cell::new(0),
            answered: Cell::new(Instant(0)),
        })
    }

    /// A request comes in; `None`: more wait than are counted.
    pub fn begin(
        self: &Rc<Self>,
        tag: &ClientTag,
        op: Op,
        at: At,
        bytes: u64,
        local: bool,
    ) -> Option<UnderWay> {
        let begun = env::now();
        let ticket = Ticket(self.tickets.get());
        let request = Request {
            origin: tag.origin,
            op,
            bytes: Bytes(bytes),
            sequential: false,
            penalties: tag.penalties,
        };
        let mut queue = self.queue.change();
        queue
            .enqueue(begun, ticket, &request, Some(at), local)
            .ok()?;
        self.tickets.set(ticket.0 + 1);
        Some(UnderWay {
            reporter: Rc::clone(self),
            ticket,
            begun,
        })
    }

    /// As it is now.
    pub fn state(&self) -> State {
        self.queue.change().report(env::now())
    }
}

impl UnderWay {
    /// It was carried out.
    pub fn done(self) {
        let now = env::now();
        let reporter = &self.reporter;
        let since = self.begun.max(reporter.answered.get());
        reporter.answered.set(now);
        let mut queue = reporter.queue.change();
        queue.complete(now, self.ticket, now.since(since));
    }
}

/// Ends the counting of a request that was answered so: one that failed took none of the device's time that is known.
pub(crate) fn over<T, E>(counted: Option<UnderWay>, answer: Result<T, E>) -> Result<T, E> {
    if let (Some(counted), Ok(_)) = (counted, &answer) {
        counted.done();
    }
    answer
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Nothing is there any more if it was done.
        let mut queue = self.reporter.queue.change();
        queue.cancel(env::now(), self.ticket);
    }
}

/// States are sent beside answers no more often.
pub(crate) const EVERY_LEAST: Nanos = Nanos::micros(100);

#[cfg(test)]
mod tests;
