//! The link of a node: whose data cross it next, and what of it is promised?
//!
//! ```text
//! an answer's data -> out \                     the session's flow: what is promised to it, else best effort by accounts
//! a write's data   -> in   > a queue each way  -> so fast as the link is -> sent | read off the stream
//! reservation of reads -> line `out`, of writes -> line `in`: a calendar each, over all stores of the node
//! ```
//!
//! Each way is a [`Queue`] over a device that does nothing but take the time its bytes take on the link. So promises, accounts
//! and pieces are what they are at a disk.
//!
//! Always true:
//! 1. What crosses the link is behind its own part of the queue; what does not (a volume's reads in its own node) is not.
//! 2. At each second what is promised of a direction, all stores together, leaves [`HEADROOM`] of the link free.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use base::{Buf, Bytes, Instant, SECTOR, Sector, Span, View};
use device::{Class, Device, Info, Pending, WriteFlags};
use policy::share::calendar::{Booking, BookingId, Calendar, Refusal};
use policy::share::{
    BytesPerSec, Contract, Costs, DepthOptions, Direction, Headroom, OpenError as Full, Second,
    SessionId, Share, Space, Terms,
};

use crate::qos::queue::{Queue, QueueOptions};

/// So much of the link is promised to no reservation: frames, and what else the node says.
pub const HEADROOM: Share = Share::percent(10);
/// Frames of 1500 bytes leave so much of a link for data; it is paced by that, so that none wait beyond the queue.
const DATA_PERCENT: u64 = 94;
/// What promises are reckoned in.
const UNIT: Bytes = Bytes::kib(256);

/// What is promised at one store.
pub trait Booked {
    /// The store's number.
    fn store(&self) -> u128;
    /// Its reservations.
    fn bookings(&self) -> Vec<OfStore>;
}

/// A reservation as its store has it.
#[derive(Debug, Clone, Copy)]
pub struct OfStore {
    /// Its number there.
    pub id: BookingId,
    /// What it is.
    pub booking: Booking,
    /// It is held to take the place of this one: of the two the greater counts.
    pub replaces: Option<BookingId>,
}

/// Bytes cross it one after the other.
struct Wire {
    name: String,
    speed: BytesPerSec,
    free: Cell<Instant>,
}

impl Device for Wire {
    fn info(&self) -> Info {
        Info {
            name: self.name.clone(),
            size: Bytes(u64::MAX / SECTOR * SECTOR),
            physical_block: Bytes(SECTOR),
            max_io: Bytes::mib(64),
            volatile_cache: false,
            discards: false,
            rotational: false,
            read_only: false,
            crash_keeping: false,
        }
    }

    fn read(&self, _at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        Box::pin(async move { Ok(buf) })
    }

    fn write(&self, _at: Sector, _data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _span: Span) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        let begins = self.free.get().max(env::now());
        let ends = begins + self.speed.time_for(span.len);
        self.free.set(ends);
        Box::pin(async move {
            env::sleep_until(ends).await;
            Ok(())
        })
    }
}

/// Why a link takes no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// The earliest begin at which it would; `None`: never.
    pub earliest: Option<Second>,
    /// Which line, and what would fit.
    pub why: String,
}

/// The link of a node. See the module's head.
pub struct Network {
    node: String,
    speed: BytesPerSec,
    /// So many flows each way are best effort; the rest is for promises.
    best_effort_max: usize,
    out: Rc<Queue>,
    into: Rc<Queue>,
    stores: RefCell<Vec<Weak<dyn Booked>>>,
}

impl Network {
    /// That of `node`, a link of this speed each way, as it is sold. To be called inside a runtime.
    pub fn new(node: &str, link: BytesPerSec) -> Rc<Network> {
        let speed = BytesPerSec(link.0 / 100 * DATA_PERCENT);
        let queue = |way: &str| {
            let wire = Wire {
                name: format!("{node}/{way}"),
                speed,
                free: Cell::new(env::now()),
            };
            let mut options = QueueOptions::new(Costs::flat(speed));
            options.discards = true;
            // One piece crosses, one is ready.
            options.share.tags.depth = DepthOptions::fixed(2);
            Queue::new(Rc::new(wire), options)
        };
        let flows = QueueOptions::new(Costs::flat(speed)).share.limits;
        Rc::new(Network {
            best_effort_max: flows.sessions_max / 2,
            node: node.to_owned(),
            speed,
            out: queue("out"),
            into: queue("in"),
            stores: RefCell::default(),
        })
    }

    /// What is read leaves, and what is written comes in.
    pub fn queue(&self, direction: Direction) -> &Rc<Queue> {
        match direction {
            Direction::Read => &self.out,
            Direction::Write => &self.into,
        }
    }

    /// Is there a flow for one more to whom nothing is promised?
    pub(crate) fn has_best_effort(&self, direction: Direction) -> bool {
        self.queue(direction).totals().open < self.best_effort_max
    }

    /// What a store promises is promised of the link, too.
    pub(crate) fn joined(&self, store: Weak<dyn Booked>) {
        self.stores.borrow_mut().push(store);
    }

    /// Waits until so much may cross in the name of `class`.
    pub(crate) async fn pass(&self, direction: Direction, bytes: u64, class: Class) {
        let span = Span::bytes(0, bytes.next_multiple_of(SECTOR));
        let flags = WriteFlags { fua: false, class };
        let crossed = self.queue(direction).write_zeroes(span, flags).await;
        crossed.expect("a wire has no errors");
    }

    /// Is there room for `contract` beside all that the node's stores promise? Where it is to replace what a store has
    /// already, what is no more than that is granted.
    ///
    /// # Errors
    /// When there would be, and in words which line has none and what would fit.
    pub(crate) fn admits(
        &self,
        now: Second,
        contract: &Contract,
        replaced: Option<(u128, BookingId)>,
    ) -> Result<(), NoRoom> {
        let none = Space::new(Bytes(0), Bytes(0));
        let costs = Costs::flat(self.speed);
        let mut line = Calendar::new(costs, UNIT, Headroom::flat(HEADROOM), none);
        line.set_bookings_max(usize::MAX);
        let mut before = None;
        for store in self.stores.borrow().iter().filter_map(Weak::upgrade) {
            let mut there = BTreeMap::new();
            let all = store.bookings().into_iter();
            let same_way = |it: &OfStore| it.booking.contract.direction == contract.direction;
            let all: Vec<OfStore> = all.filter(same_way).collect();
            for it in &all {
                let booking = Booking {
                    contract: it.booking.contract.without_room(),
                    ..it.booking
                };
                let id = line.next_id();
                let adopted = line.adopt(id, booking, Bytes(0));
                adopted.expect("the calendar keeps no room");
                there.insert(it.id, id);
            }
            for it in &all {
                if let Some(old) = it.replaces.and_then(|old| there.get(&old)) {
                    line.amends(there[&it.id], *old);
                }
            }
            if let Some((_, id)) = replaced.filter(|(of, _)| *of == store.store()) {
                before = there.get(&id).copied();
            }
        }
        let (contract_there, until) = (contract.without_room(), Second(u64::MAX));
        let held = match before {
            Some(before) => line.amend(now, before, contract_there, until),
            None => line.hold(now, contract_there, until),
        };
        held.map(drop).map_err(|refusal| NoRoom {
            earliest: match &refusal {
                Refusal::Full { offer, .. } => offer.earliest.map(|slot| slot.start),
                _ => None,
            },
            why: self.words(contract, &refusal),
        })
    }

    fn words(&self, contract: &Contract, refusal: &Refusal) -> String {
        let way = match contract.direction {
            Direction::Read => "out",
            Direction::Write => "in",
        };
        let offer = match refusal {
            Refusal::Full { offer, .. } => offer.to_string(),
            other => other.to_string(),
        };
        format!(
            "the link {}/{way} of {} has no room for {} more in {}; {offer}",
            self.node, self.speed, contract.rate, contract.slot
        )
    }
}

/// A session's flow at one way of the link; closed when dropped.
pub(crate) struct LinkFlow {
    queue: Rc<Queue>,
    id: SessionId,
}

impl LinkFlow {
    /// With these terms.
    ///
    /// # Errors
    /// [`Full`] where there are too many.
    pub fn open(queue: &Rc<Queue>, terms: Terms) -> Result<LinkFlow, Full> {
        let id = queue.open(terms)?;
        let queue = Rc::clone(queue);
        Ok(LinkFlow { queue, id })
    }

    /// Whose what goes in it is.
    pub fn class(&self) -> Class {
        Class::Session(self.id.0)
    }
}

impl Drop for LinkFlow {
    fn drop(&mut self) {
        self.queue.close(self.id);
    }
}
