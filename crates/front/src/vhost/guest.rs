//! A guest as its client describes it: its memory, its queues, and the record of what is in flight.
//!
//! ```text
//! memory, sizes, addresses -> kick given: is the guest to be served? -> Queue     enabled -> it is served
//! stop: paused, quiet -> where it stands
//! ```
//!
//! Always true: no queue is served before [`judge`] has found that its guest misses nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::shared::{Descriptor, Notifier, SharedMemory};

use super::block;
use super::error::SessionError;
use super::inflight::{self, Area, Inflight, InflightError};
use super::last::{GuestBook, Last, MemoryId, Offer, is_noted_another, is_one_guest, note};
use super::memory::{self, Table};
use super::message::{self, Addresses, InflightArea, Notifies, Region};
use super::queue::{Disk, Queue};
use super::recover::{Course, Verdict, judge};
use super::ring::{Ring, SIZE_MAX};

/// Queues that a client may have.
pub(super) const QUEUES: u16 = 64;

/// What the client has said of one queue.
#[derive(Default)]
pub(super) struct Setup {
    pub size: Option<u32>,
    pub at: Option<Addresses>,
    pub base: u32,
    call: Option<Rc<Notifier>>,
    error: Option<Descriptor>,
    enabled: bool,
    queue: Option<Rc<Queue>>,
    /// It was served by this connection.
    was_served: bool,
}

/// Memory as it is mapped, and by which numbers it is known again.
type Mapped = (Rc<Table>, Vec<MemoryId>);

/// See the module's head.
pub(super) struct Guest {
    // Fixed.
    disk: Rc<Disk>,
    /// The device shows every write that an earlier process answered.
    found_all: bool,
    /// Whose guest this process served last.
    last: Option<Rc<Last>>,
    /// Whose guest any process did.
    book: Rc<dyn GuestBook>,
    // As it goes.
    features: Cell<u64>,
    /// As the guest chose it on this connection.
    write_back: Cell<Option<bool>>,
    /// The client knows the cache's mode from here, and begins with it.
    has_looked: Cell<bool>,
    /// No queue begins any more.
    ends: Cell<bool>,
    table: RefCell<Option<Mapped>>,
    queues: RefCell<BTreeMap<u16, Setup>>,
    area: RefCell<Option<Rc<Area>>>,
    /// Was the client's record used before it came here?
    recorded: Cell<bool>,
    /// Did another guest have the disk after this one? Asked once: the book names this one from its first queue on.
    another_came: Cell<Option<bool>>,
    /// What is left for the next connection, once the guest was found to be served.
    left: RefCell<Option<Rc<Last>>>,
}

impl Guest {
    pub fn new(disk: Rc<Disk>, offer: Offer) -> Guest {
        let Offer {
            found_all,
            last,
            book,
        } = offer;
        Guest {
            disk,
            found_all,
            last,
            book,
            features: Cell::default(),
            write_back: Cell::default(),
            has_looked: Cell::default(),
            ends: Cell::default(),
            table: RefCell::default(),
            queues: RefCell::default(),
            area: RefCell::default(),
            recorded: Cell::default(),
            another_came: Cell::default(),
            left: RefCell::default(),
        }
    }

    /// What is left for the next connection. `unknown`: the guest is not known again then, nor by the next process.
    pub fn take_left(&self, unknown: bool) -> Option<Rc<Last>> {
        let left = self.left.take()?;
        if !unknown {
            return Some(left);
        }
        if let Err(why) = self.book.write(&[]) {
            tracing::warn!(
                why,
                "the next daemon may not know that a guest cannot go on"
            );
        }
        Some(Last::unknown())
    }

    /// Did another guest have the disk after this one, with such memory?
    fn another_came(&self, memory: &[MemoryId]) -> Result<bool, SessionError> {
        if let Some(known) = self.another_came.get() {
            return Ok(known);
        }
        let came = match self.last.is_some() {
            true => !self.is_same_guest(),
            false => is_noted_another(&*self.book, memory).map_err(SessionError::Book)?,
        };
        self.another_came.set(Some(came));
        Ok(came)
    }

    /// From now on no queue begins, whatever the client asks.
    pub fn end(&self) {
        self.ends.set(true);
    }

    /// Takes no more requests, and waits for the end of those that were taken.
    pub async fn wait_quiet(&self) {
        let queues: Vec<Rc<Queue>> = {
            let setup = self.queues.borrow();
            setup
                .values()
                .filter_map(|setup| setup.queue.clone())
                .collect()
        };
        for queue in &queues {
            queue.pause();
        }
        for queue in &queues {
            queue.wait_quiet().await;
        }
    }

    /// What the driver took.
    pub fn set_features(&self, features: u64) {
        self.features.set(features);
        self.choose_durability();
    }

    /// Does the guest flush what has to be durable? A record that was not used before says nothing of that. A guest of which
    /// nothing is known may have turned its cache off where an earlier daemon served it.
    pub fn write_back(&self) -> bool {
        if let Some(chosen) = self.write_back.get() {
            return chosen;
        }
        match (&*self.area.borrow(), &self.last) {
            (Some(area), _) if self.recorded.get() => !area.is_write_through(),
            (_, Some(last)) if self.is_same_guest() => last.write_back.get(),
            _ => self.has_looked.get(),
        }
    }

    /// The client is about to read the cache's mode. Before its guest begins that is what the guest begins with.
    pub fn look(&self) {
        if self.table.borrow().is_none() {
            self.has_looked.set(true);
        }
    }

    /// The guest chooses.
    pub fn set_write_back(&self, write_back: bool) {
        self.write_back.set(Some(write_back));
        if let Some(area) = &*self.area.borrow() {
            area.set_write_through(!write_back);
        }
        if let Some(left) = &*self.left.borrow() {
            left.write_back.set(write_back);
        }
        self.choose_durability();
    }

    fn choose_durability(&self) {
        let through = block::writes_through(self.features.get(), self.write_back());
        self.disk.write_through.set(through);
    }

    /// The guest's memory, a descriptor a region.
    pub fn set_table(
        &self,
        regions: Vec<Region>,
        descriptors: &[Descriptor],
    ) -> Result<(), SessionError> {
        memory::check(&regions, SharedMemory::most())?;
        let (mut mapped, mut ids) = (Vec::new(), Vec::new());
        for (region, descriptor) in regions.iter().zip(descriptors) {
            let map = descriptor.map(region.offset, region.len as usize);
            mapped.push((*region, map.map_err(SessionError::Descriptor)?));
            ids.push(descriptor.identity().map_err(SessionError::Descriptor)?);
        }
        let table = Rc::new(Table::new(mapped));
        // Queues that are served go on in the new mappings of the same memory.
        for (&number, setup) in self.queues.borrow().iter() {
            if let (Some(queue), Some(at)) = (&setup.queue, setup.at) {
                let moved = queue.ring.borrow().moved(Rc::clone(&table), at);
                let moved = moved.map_err(|source| SessionError::Ring {
                    queue: number,
                    source,
                })?;
                *queue.ring.borrow_mut() = moved;
            }
        }
        *self.table.borrow_mut() = Some((table, ids));
        Ok(())
    }

    fn is_same_guest(&self) -> bool {
        let table = self.table.borrow();
        let ids = table.as_ref().map(|(_, ids)| ids);
        match (&self.last, ids) {
            (Some(last), Some(ids)) => is_one_guest(ids, &last.memory),
            _ => false,
        }
    }

    /// The record of what is in flight, which the client keeps.
    pub fn set_area(
        &self,
        what: InflightArea,
        descriptor: Option<Descriptor>,
    ) -> Result<(), SessionError> {
        let Some(descriptor) = descriptor else {
            return Ok(());
        };
        let most = inflight::area(message::QUEUES_MAX, SIZE_MAX).len;
        if what.len > most {
            let short = InflightError::Short {
                len: what.len,
                queues: what.queues,
                size: what.size,
            };
            return Err(SessionError::Area(short));
        }
        let memory = descriptor.map(what.offset, what.len as usize);
        let memory = memory.map_err(SessionError::Descriptor)?;
        let area = Area::new(memory, what).map_err(SessionError::Area)?;
        self.recorded.set(area.is_used());
        if area.is_used() && area.is_write_through() && self.write_back.get().is_none() {
            // It holds on this connection, whichever record comes next.
            self.write_back.set(Some(false));
        }
        if let Some(write_back) = self.write_back.get() {
            area.set_write_through(!write_back);
        }
        *self.area.borrow_mut() = Some(Rc::new(area));
        self.choose_durability();
        Ok(())
    }

    /// Changes what is known of a queue that is not in use.
    pub fn set_up(&self, queue: u16, change: impl FnOnce(&mut Setup)) -> Result<(), SessionError> {
        let mut queues = self.queues.borrow_mut();
        if queue >= QUEUES {
            return Err(SessionError::Queue { queue });
        }
        let setup = queues.entry(queue).or_default();
        if setup.queue.is_some() {
            return Err(SessionError::InUse { queue });
        }
        change(setup);
        Ok(())
    }

    /// A notifier of a queue. With its kick a queue is complete.
    pub fn set_notifier(
        &self,
        queue: u16,
        what: Notifies,
        descriptor: Option<Descriptor>,
    ) -> Result<(), SessionError> {
        if queue >= QUEUES {
            return Err(SessionError::Queue { queue });
        }
        let notifier = descriptor.as_ref().map(Descriptor::notifier).transpose();
        let notifier = notifier.map_err(SessionError::Descriptor)?;
        if what == Notifies::Kick {
            let what = "kick, which has to be an eventfd or a pipe";
            let kick = notifier.ok_or(SessionError::Early { queue, what })?;
            return self.prepare(queue, kick);
        }
        let mut queues = self.queues.borrow_mut();
        let setup = queues.entry(queue).or_default();
        if what == Notifies::Error {
            if let Some(queue) = &setup.queue {
                *queue.error.borrow_mut() = notifier;
            }
            setup.error = descriptor;
            return Ok(());
        }
        let call = notifier.map(Rc::new);
        if let Some(call) = &call {
            // Answers that were given before, by a server that died before it called.
            let _ = call.notify();
        }
        if let Some(queue) = &setup.queue {
            *queue.call.borrow_mut() = call.clone();
        }
        setup.call = call;
        Ok(())
    }

    /// Makes a queue of what is known of it, if its guest is to be served.
    fn prepare(&self, queue: u16, kick: Notifier) -> Result<(), SessionError> {
        let mut queues = self.queues.borrow_mut();
        let setup = queues.entry(queue).or_default();
        let early = |what| SessionError::Early { queue, what };
        if setup.queue.is_some() {
            return Err(SessionError::InUse { queue });
        }
        let size = setup.size.ok_or(early("size"))?;
        let at = setup.at.ok_or(early("addresses"))?;
        let (table, ids) = self.table.borrow().clone().ok_or(early("memory"))?;
        let in_ring = |source| SessionError::Ring { queue, source };
        let ring = Ring::new(table, at, size, self.features.get()).map_err(in_ring)?;
        let given = self.area.borrow().clone();
        let course = Course {
            used: ring.used_index(),
            available: ring.available_index(),
            base: setup.base,
            recorded: self.recorded.get() && !setup.was_served,
            same_guest: setup.was_served || self.is_same_guest(),
            found_all: self.found_all,
            other_disk: given.as_ref().is_some_and(|area| !self.is_of_disk(area)),
            another_came: self.another_came(&ids)?,
        };
        let verdict = judge(course);
        if let Verdict::Refuse(why) = verdict {
            return Err(SessionError::Refused { queue, why });
        }
        self.keep(ids)?;
        self.choose_durability();
        let through = !self.write_back();
        if let Some(area) = given
            .as_ref()
            .filter(|area| area.is_write_through() != through)
        {
            area.set_write_through(through);
        }
        if let Some(area) = given
            .as_ref()
            .filter(|area| area.disk() != Some(self.disk_now()))
        {
            let (number, size) = self.disk_now();
            area.set_disk(number, size);
        }
        let (inflight, again) = self.record(queue, &ring, given, verdict)?;
        ring.begin(again.len() as u16);
        let made = Queue::new(Rc::clone(&self.disk), ring, kick, inflight, again);
        *made.call.borrow_mut() = setup.call.clone();
        let error = setup.error.as_ref().map(Descriptor::notifier).transpose();
        *made.error.borrow_mut() = error.map_err(SessionError::Descriptor)?;
        setup.was_served = true;
        // A client of the first version knows no enabling.
        let begins = setup.enabled || self.features.get() & block::feature::PROTOCOL == 0;
        if begins && !self.ends.get() {
            made.serve();
        }
        setup.queue = Some(made);
        Ok(())
    }

    /// The number of the disk, and its bytes now.
    fn disk_now(&self) -> (u64, u64) {
        (self.disk.identity, self.disk.pieces.device().info().size.0)
    }

    /// Does a record that was used belong to this disk, which may have grown since?
    fn is_of_disk(&self, area: &Area) -> bool {
        let (number, size) = self.disk_now();
        area.disk()
            .is_some_and(|(of, had)| of == number && had <= size)
    }

    /// The record of a queue, and the requests in flight.
    fn record(
        &self,
        queue: u16,
        ring: &Ring,
        given: Option<Rc<Area>>,
        verdict: Verdict,
    ) -> Result<(Inflight, Vec<u16>), SessionError> {
        let (used, available) = (ring.used_index(), ring.available_index());
        if let Some(area) = given {
            let record = area.queue(queue, ring.size());
            let what = "place in the record of what is in flight";
            let record = record.ok_or(SessionError::Early { queue, what })?;
            let again = match verdict {
                Verdict::Begin => {
                    record.clear(used);
                    Vec::new()
                }
                _ => record
                    .recover(used, available)
                    .map_err(|source| SessionError::Inflight { queue, source })?,
            };
            return Ok((record, again));
        }
        let left = self.left.borrow().clone().expect("it was just made");
        let mut records = left.records.borrow_mut();
        let known = records.get(&queue).filter(|(size, _)| *size == ring.size());
        let area = match known {
            Some((_, area)) => Rc::clone(area),
            None => {
                let what = inflight::area(1, ring.size());
                let memory = SharedMemory::private(what.len as usize);
                let area = Area::new(memory, what).map_err(SessionError::Area)?;
                let area = Rc::new(area);
                records.insert(queue, (ring.size(), Rc::clone(&area)));
                area
            }
        };
        let record = area.queue(0, ring.size()).expect("made for it");
        let again = match verdict {
            Verdict::Begin => Err(()),
            _ => record.recover(used, available).map_err(drop),
        };
        // The guest began anew while no client was there: its old requests are gone with its old rings.
        let again = again.unwrap_or_else(|()| {
            record.clear(used);
            Vec::new()
        });
        Ok((record, again))
    }

    /// This guest is the one that was served last, for the next process too before anything of it is carried out.
    fn keep(&self, memory: Vec<MemoryId>) -> Result<(), SessionError> {
        let mut left = self.left.borrow_mut();
        if left.is_some() {
            return Ok(());
        }
        note(&*self.book, &memory, self.is_same_guest()).map_err(SessionError::Book)?;
        let records = match &self.last {
            Some(last) if self.is_same_guest() => last.records.take(),
            _ => BTreeMap::new(),
        };
        *left = Some(Rc::new(Last {
            memory,
            records: RefCell::new(records),
            write_back: Cell::new(self.write_back()),
        }));
        Ok(())
    }

    /// Begins with a queue, or pauses.
    pub fn enable(&self, queue: u16, on: bool) -> Result<(), SessionError> {
        if queue >= QUEUES {
            return Err(SessionError::Queue { queue });
        }
        let mut queues = self.queues.borrow_mut();
        let setup = queues.entry(queue).or_default();
        setup.enabled = on;
        match (&setup.queue, on) {
            (Some(queue), true) if !self.ends.get() => queue.serve(),
            (Some(queue), false) => queue.pause(),
            _ => {}
        }
        Ok(())
    }

    /// Ends a queue; where it stands.
    pub async fn stop(&self, queue: u16) -> u32 {
        let stopped = {
            let mut queues = self.queues.borrow_mut();
            queues.get_mut(&queue).and_then(|setup| setup.queue.take())
        };
        if let Some(stopped) = &stopped {
            stopped.pause();
            stopped.wait_quiet().await;
        }
        let mut queues = self.queues.borrow_mut();
        let setup = queues.entry(queue).or_default();
        if let Some(stopped) = stopped {
            setup.base = stopped.ring.borrow().next().into();
        }
        setup.base
    }
}
