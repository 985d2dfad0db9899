//! A split virtqueue in a guest's memory.
//!
//! ```text
//! available ring -> take: a head -> chain: its descriptors, each read once -> ... -> put_used -> used ring -> call?
//! ```
//!
//! Source: VIRTIO 1.2, 2.7. Why not crate `virtio-queue`: `docs/decisions/0015-a-ring-of-our-own.md`.
//!
//! Always true:
//! 1. At most as many heads are taken as the ring has entries, beyond what the guest has announced.
//! 2. A chain has at most [`CHAIN_MAX`] descriptors, however they are linked.

use std::cell::Cell;
use std::rc::Rc;

use env::shared::SharedMemory;

use super::memory::{Outside, Place, Table};
use super::message::Addresses;

/// Entries of a ring.
pub const SIZE_MAX: u16 = 1024;
/// Descriptors of a request.
pub const CHAIN_MAX: usize = 1024;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;

/// What a driver takes of rings.
pub mod feature {
    /// Descriptors in tables of their own.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Each side says when it wants to be notified.
    pub const EVENT_IDX: u64 = 1 << 29;
}

/// Why a ring cannot go on. The guest broke it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// No power of two, or too large.
    #[error("a ring of {size} entries; it has a power of two up to {SIZE_MAX}")]
    Size {
        /// As asked.
        size: u32,
    },
    /// A part of it is not where it can be.
    #[error("the ring's {part}: {outside}")]
    Place {
        /// Which.
        part: &'static str,
        /// Where.
        outside: Outside,
    },
    /// An address that the part cannot have.
    #[error("the ring's {part} is at {address:#x}, which is odd")]
    Odd {
        /// Which.
        part: &'static str,
        /// Where.
        address: u64,
    },
    /// More than there is room for.
    #[error("the guest has announced {announced} requests in a ring of {size}")]
    Announced {
        /// How many.
        announced: u16,
        /// Entries.
        size: u16,
    },
    /// No descriptor has such a number.
    #[error("request {head} in a ring of {size} entries")]
    Head {
        /// The number.
        head: u16,
        /// Entries.
        size: u16,
    },
    /// The same request again, before it is answered.
    #[error("request {head} came again before it was answered")]
    Again {
        /// The number.
        head: u16,
    },
    /// It cannot be walked.
    #[error("request {head}: {why}")]
    Chain {
        /// Its first descriptor.
        head: u16,
        /// What is wrong.
        why: String,
    },
    /// The client took memory away.
    #[error("the client took memory of its guest away")]
    Memory,
}

/// The buffers of a request.
#[derive(Default)]
pub struct Chain {
    /// What the guest says.
    pub readable: Vec<Place>,
    /// What is for the answer.
    pub writable: Vec<Place>,
}

/// See the module's head.
pub struct Ring {
    size: u16,
    descriptors: Place,
    available: Place,
    used: Place,
    table: Rc<Table>,
    event_idx: bool,
    indirect: bool,
    /// The next to take.
    next_available: Cell<u16>,
    /// The next to fill.
    next_used: Cell<u16>,
    /// `next_used` when the guest was last called, or found not to want it.
    called: Cell<u16>,
}

impl Ring {
    /// A ring of `size` entries at addresses of the client. It begins where `used` says, with nothing in flight.
    ///
    /// # Errors
    /// [`RingError::Size`], [`RingError::Place`], [`RingError::Odd`].
    pub fn new(
        table: Rc<Table>,
        at: Addresses,
        size: u32,
        features: u64,
    ) -> Result<Ring, RingError> {
        let entries = u16::try_from(size).ok().filter(|&n| n <= SIZE_MAX);
        let entries = entries.filter(|n| n.is_power_of_two());
        let entries = entries.ok_or(RingError::Size { size })?;
        let n = usize::from(entries);
        let part = |part: &'static str, address: u64, len: usize| {
            let place = table.of_client(address, len);
            let place = place.map_err(|outside| RingError::Place { part, outside })?;
            match place.is_even() {
                true => Ok(place),
                false => Err(RingError::Odd { part, address }),
            }
        };
        let ring = Ring {
            size: entries,
            descriptors: part("descriptors", at.descriptors, n * DESCRIPTOR)?,
            available: part("available ring", at.available, 6 + 2 * n)?,
            used: part("used ring", at.used, 6 + 8 * n)?,
            event_idx: features & feature::EVENT_IDX != 0,
            indirect: features & feature::INDIRECT_DESC != 0,
            next_available: Cell::default(),
            next_used: Cell::default(),
            called: Cell::default(),
            table,
        };
        ring.begin(0);
        Ok(ring)
    }

    /// The same ring where another memory table has it.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn moved(&self, table: Rc<Table>, at: Addresses) -> Result<Ring, RingError> {
        let features = [
            (self.event_idx, feature::EVENT_IDX),
            (self.indirect, feature::INDIRECT_DESC),
        ];
        let features = features
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, bit)| bit)
            .sum();
        let ring = Ring::new(table, at, self.size.into(), features)?;
        ring.next_available.set(self.next_available.get());
        ring.next_used.set(self.next_used.get());
        ring.called.set(self.called.get());
        Ok(ring)
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Did the client take any of the guest's memory away?
    pub fn is_broken(&self) -> bool {
        self.table.is_broken()
    }

    /// How many requests were answered, as the guest sees it.
    pub fn used_index(&self) -> u16 {
        self.used.load_u16(2)
    }

    /// How many the guest has announced.
    pub fn available_index(&self) -> u16 {
        self.available.load_u16(2)
    }

    /// How many requests were answered.
    pub fn used(&self) -> u16 {
        self.next_used.get()
    }

    /// The request that would be taken next.
    pub fn next(&self) -> u16 {
        self.next_available.get()
    }

    /// Goes on where the guest's used ring ends, with `in_flight` requests that were taken and not answered.
    pub fn begin(&self, in_flight: u16) {
        let used = self.used_index();
        self.next_used.set(used);
        self.called.set(used);
        self.next_available.set(used.wrapping_add(in_flight));
    }

    /// The next request, by its first descriptor.
    ///
    /// # Errors
    /// [`RingError::Announced`], [`RingError::Head`], [`RingError::Memory`].
    pub fn take(&self) -> Result<Option<u16>, RingError> {
        let next = self.next_available.get();
        let announced = self.available_index().wrapping_sub(next);
        let size = self.size;
        if self.table.is_broken() {
            return Err(RingError::Memory);
        }
        if announced == 0 {
            return Ok(None);
        }
        if announced > size {
            return Err(RingError::Announced { announced, size });
        }
        let head = self.available.load_u16(4 + 2 * self.slot(next));
        if head >= size {
            return Err(RingError::Head { head, size });
        }
        self.next_available.set(next.wrapping_add(1));
        Ok(Some(head))
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }

    /// Asks for a kick when the next request comes. True if one came meanwhile.
    pub fn wants_kick(&self) -> bool {
        self.ask_kick();
        self.has_more()
    }

    /// Asks for a kick when the next request comes. One that came before may have none: it is looked for afterwards, and
    /// never the other way round.
    pub fn ask_kick(&self) {
        match self.event_idx {
            true => self.used.store_u16(self.kick_event(), self.next()),
            false => self.used.store_u16(0, 0),
        }
        SharedMemory::fence();
    }

    /// Asks for no kick: this side looks by itself, until it asks for one again. Some may come all the same.
    pub fn ask_no_kick(&self) {
        match self.event_idx {
            // The guest kicks when it passes this place, which it has passed.
            true => {
                let passed = self.next().wrapping_sub(1);
                self.used.store_u16(self.kick_event(), passed);
            }
            false => self.used.store_u16(0, flag::NO_NOTIFY),
        }
    }

    /// Has the guest announced a request that was not taken?
    pub fn has_more(&self) -> bool {
        self.available_index() != self.next()
    }

    /// Where in the used ring this side says at which request it wants a kick.
    fn kick_event(&self) -> usize {
        4 + 8 * usize::from(self.size)
    }

    /// The buffers of a request.
    ///
    /// # Errors
    /// [`RingError::Chain`].
    pub fn chain(&self, head: u16) -> Result<Chain, RingError> {
        let wrong = |why: String| RingError::Chain { head, why };
        let mut chain = Chain::default();
        let mut walk = Walk {
            table: self.descriptors.clone(),
            count: self.size.into(),
            left: CHAIN_MAX,
            in_table: false,
            next: head,
        };
        loop {
            let descriptor = walk.read().map_err(wrong)?;
            if descriptor.flags & flag::INDIRECT != 0 {
                walk = self.indirect(&walk, &descriptor).map_err(wrong)?;
                continue;
            }
            let buffers = match descriptor.flags & flag::WRITE != 0 {
                true => &mut chain.writable,
                false if !chain.writable.is_empty() => {
                    let why = "a buffer to read comes after one to write";
                    return Err(wrong(why.to_owned()));
                }
                false => &mut chain.readable,
            };
            let (at, len) = (descriptor.address, descriptor.len.into());
            let found = self.table.of_guest(at, len, buffers);
            found.map_err(|outside| wrong(outside.to_string()))?;
            if descriptor.flags & flag::NEXT == 0 {
                return Ok(chain);
            }
            walk.next = descriptor.next;
        }
    }

    /// Goes on in the table that a descriptor names.
    fn indirect(&self, walk: &Walk, descriptor: &Descriptor) -> Result<Walk, String> {
        let len = descriptor.len as usize;
        if !self.indirect {
            return Err("a table of its own, which was not agreed on".to_owned());
        }
        if walk.in_table || descriptor.flags & flag::NEXT != 0 {
            return Err("a table in a table, or something after one".to_owned());
        }
        if len == 0 || !len.is_multiple_of(DESCRIPTOR) || len / DESCRIPTOR > CHAIN_MAX {
            return Err(format!("a table of {len} bytes"));
        }
        let mut places = Vec::new();
        let found = self
            .table
            .of_guest(descriptor.address, len as u64, &mut places);
        found.map_err(|outside| outside.to_string())?;
        let [table] = &places[..] else {
            return Err("a table that lies in two regions of memory".to_owned());
        };
        Ok(Walk {
            table: table.clone(),
            count: len / DESCRIPTOR,
            left: walk.left,
            in_table: true,
            next: 0,
        })
    }

    /// Answers a request, with so many bytes written.
    pub fn put_used(&self, head: u16, written: u32) {
        let next = self.next_used.get();
        let mut element = [0; 8];
        element[..2].copy_from_slice(&head.to_le_bytes());
        element[4..].copy_from_slice(&written.to_le_bytes());
        self.used.write(4 + 8 * self.slot(next), &element);
        self.next_used.set(next.wrapping_add(1));
        self.used.store_u16(2, next.wrapping_add(1));
    }

    /// Is the guest to be called, now that requests were answered?
    pub fn wants_call(&self) -> bool {
        SharedMemory::fence();
        if !self.event_idx {
            return self.available.load_u16(0) & 1 == 0;
        }
        let event = self.available.load_u16(4 + 2 * usize::from(self.size));
        let (new, old) = (self.next_used.get(), self.called.get());
        self.called.set(new);
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

mod flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 1 << 1;
    pub const INDIRECT: u16 = 1 << 2;
    /// Of the used ring.
    pub const NO_NOTIFY: u16 = 1;
}

struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// Where in a chain one is.
struct Walk {
    table: Place,
    /// Descriptors of the table.
    count: usize,
    /// How many more the chain may have.
    left: usize,
    /// Is the table the request's own?
    in_table: bool,
    next: u16,
}

impl Walk {
    fn read(&mut self) -> Result<Descriptor, String> {
        let index = usize::from(self.next);
        if index >= self.count {
            return Err(format!("descriptor {index} in a table of {}", self.count));
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("more than {CHAIN_MAX} descriptors, or a circle of them"))?;
        let mut bytes = [0; DESCRIPTOR];
        self.table.read(index * DESCRIPTOR, &mut bytes);
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Ok(Descriptor {
            address: u64::from_le_bytes(bytes[..8].try_into().expect("eight")),
            len: u32::from_le_bytes(bytes[8..12].try_into().expect("four")),
            flags: short(12),
            next: short(14),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::message::Region;

    const USED: u64 = 0x400;
    const AVAILABLE: u64 = 0x200;
    const SIZE: u16 = 8;

    /// A ring that has seen `taken` requests, and a guest that has announced as many.
    fn ring(event_idx: bool, taken: u16) -> (Ring, SharedMemory) {
        let descriptor = env::shared::Descriptor::memory(4096).unwrap();
        let map = || descriptor.map(0, 4096).unwrap();
        let region = Region {
            guest: 0,
            len: 4096,
            client: 0,
            offset: 0,
        };
        let (at, table) = (
            Addresses {
                descriptors: 0,
                used: USED,
                available: AVAILABLE,
            },
            Table::new(vec![(region, map())]),
        );
        let guest = map();
        guest.store_u16(AVAILABLE as usize + 2, taken);
        guest.store_u16(USED as usize + 2, taken);
        let features = if event_idx { feature::EVENT_IDX } else { 0 };
        let ring = Ring::new(Rc::new(table), at, SIZE.into(), features).unwrap();
        (ring, guest)
    }

    /// The steps of a guest that announces one request, as Linux and VIRTIO 1.2, 2.7.13 have them.
    struct Driver {
        guest: SharedMemory,
        event_idx: bool,
        before: u16,
        kicked: bool,
    }

    impl Driver {
        fn announce(&self) {
            let next = self.before.wrapping_add(1);
            self.guest.store_u16(AVAILABLE as usize + 2, next);
            SharedMemory::fence();
        }

        fn look(&mut self) {
            let new = self.before.wrapping_add(1);
            self.kicked = match self.event_idx {
                true => {
                    let event = self
                        .guest
                        .load_u16(USED as usize + 4 + 8 * usize::from(SIZE));
                    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(self.before)
                }
                false => self.guest.load_u16(USED as usize) & 1 == 0,
            };
        }
    }

    /// Every order of two steps of one side and two of the other: bit n of each says whose step n is.
    fn orders() -> impl Iterator<Item = u8> {
        (0..16u8).filter(|order| order.count_ones() == 2)
    }

    /// A spin ends (ask for a kick, look) while the guest announces a request (announce, look for the wish): true if neither
    /// side learns of the request. `backwards`: this side looks before it asks.
    fn is_lost(event_idx: bool, at: u16, order: u8, backwards: bool) -> bool {
        let (ring, guest) = ring(event_idx, at);
        ring.ask_no_kick();
        let mut driver = Driver {
            guest,
            event_idx,
            before: at,
            kicked: false,
        };
        let (mut seen, mut ours, mut theirs) = (false, 0, 0);
        for step in 0..4 {
            if order >> step & 1 == 1 {
                match ours == usize::from(backwards) {
                    true => ring.ask_kick(),
                    false => seen = ring.has_more(),
                }
                ours += 1;
            } else {
                match theirs {
                    0 => driver.announce(),
                    _ => driver.look(),
                }
                theirs += 1;
            }
        }
        !seen && !driver.kicked
    }

    #[test]
    fn no_request_is_lost_between_the_end_of_a_spin_and_the_sleep() {
        for (event_idx, at) in [(true, 0), (true, 7), (true, u16::MAX), (false, 7)] {
            for order in orders() {
                let lost = is_lost(event_idx, at, order, false);
                assert!(!lost, "{event_idx} at {at}, order {order:04b}");
            }
            let lost = orders().any(|order| is_lost(event_idx, at, order, true));
            assert!(lost, "one that looks first misses a request");
        }
    }

    #[test]
    fn a_guest_does_not_kick_while_it_is_not_asked_to() {
        for (event_idx, at) in [(true, 0), (true, 7), (true, u16::MAX), (false, 7)] {
            let (ring, guest) = ring(event_idx, at);
            let mut driver = Driver {
                guest,
                event_idx,
                before: at,
                kicked: false,
            };
            for (asks, kicks) in [(true, true), (false, false)] {
                match asks {
                    true => ring.ask_kick(),
                    false => ring.ask_no_kick(),
                }
                driver.announce();
                driver.look();
                assert_eq!(driver.kicked, kicks, "{event_idx} at {at}");
                assert!(ring.has_more());
                assert_eq!(ring.take(), Ok(Some(0)));
                driver.before = driver.before.wrapping_add(1);
            }
        }
    }
}
