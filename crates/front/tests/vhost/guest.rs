//! A guest's driver in virtual time, on memory that it shares: as strict as a kernel's.
//!
//! ```text
//! slot free -> descriptors (or a table of them) -> available ring -> kick?     call -> used ring -> slot free
//! ```
//!
//! A used element that names no request under way fails the test: each request is answered once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::shared::{Descriptor, SharedMemory};
use env::sync::Event;
use front::vhost::message::{Addresses, Region};

/// Entries of the ring.
pub const SIZE: u16 = 32;
/// Requests at once.
const SLOTS: usize = 8;
/// Descriptors of a slot.
const PER_SLOT: u16 = 4;
/// Bytes of a slot: header, status, table, data.
const SLOT: u64 = 16 << 10;
const STATUS: u64 = 16;
const TABLE: u64 = 64;
const DATA: u64 = 4096;
pub const DATA_MAX: usize = (SLOT - DATA) as usize;
/// Bytes of each of the two regions of memory.
pub const REGION: u64 = 1 << 20;
/// The data of slot 4 lie in both regions.
const SLOTS_AT: u64 = REGION - 4 * SLOT - 2 * DATA;

const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const CLIENT: [u64; 2] = [0x7f00_0000_0000, 0x7e00_0000_0000];

mod flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// What the guest's block layer asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Read { at: u64, len: usize },
    Write { at: u64, data: Vec<u8> },
    Flush,
    Name,
    Discard { at: u64, len: u64 },
    WriteZeroes { at: u64, len: u64, unmap: bool },
}

struct UnderWay {
    result: Cell<Option<u8>>,
}

/// See the module's head.
pub struct Guest {
    // Fixed.
    pub memory: Descriptor,
    pub kick: Descriptor,
    pub call: Descriptor,
    raw: SharedMemory,
    pub event_idx: bool,
    // As it goes.
    indirect: Cell<bool>,
    slots: RefCell<Vec<Option<Rc<UnderWay>>>>,
    available: Cell<u16>,
    seen: Cell<u16>,
    changed: Event,
    /// Requests that were announced.
    pub asked: Cell<u64>,
    /// Kicks that were wanted.
    pub kicks: Cell<u64>,
    /// Has it announced what was no request?
    lies: Cell<bool>,
}

impl Guest {
    /// A guest that has just booted.
    pub fn new(event_idx: bool) -> Rc<Guest> {
        let memory = Descriptor::memory(2 * REGION as usize).unwrap();
        let guest = Rc::new(Guest {
            raw: memory.map(0, 2 * REGION as usize).unwrap(),
            memory,
            kick: Descriptor::event().unwrap(),
            call: Descriptor::event().unwrap(),
            event_idx,
            indirect: Cell::new(false),
            slots: RefCell::new((0..SLOTS).map(|_| None).collect()),
            available: Cell::default(),
            seen: Cell::default(),
            changed: Event::default(),
            asked: Cell::default(),
            kicks: Cell::default(),
            lies: Cell::default(),
        });
        let (of, call) = (Rc::downgrade(&guest), guest.call.notifier().unwrap());
        env::spawn(async move {
            loop {
                call.wait().await.unwrap();
                let Some(guest) = of.upgrade() else { return };
                guest.interrupt();
            }
        });
        guest
    }

    /// Its memory, as its client tells of it.
    pub fn regions() -> Vec<Region> {
        let region = |number: u64| Region {
            guest: number * REGION,
            len: REGION,
            client: CLIENT[number as usize],
            offset: number * REGION,
        };
        vec![region(0), region(1)]
    }

    /// Its ring, in the client's addresses.
    pub fn addresses() -> Addresses {
        Addresses {
            descriptors: CLIENT[0] + DESCRIPTORS,
            used: CLIENT[0] + USED,
            available: CLIENT[0] + AVAILABLE,
        }
    }

    /// A second ring, which it never uses.
    pub fn idle_addresses() -> Addresses {
        Addresses {
            descriptors: CLIENT[0] + 0x5000,
            used: CLIENT[0] + 0x7000,
            available: CLIENT[0] + 0x6000,
        }
    }

    /// What the client hands to a server as the ring's base.
    pub fn used_index(&self) -> u16 {
        self.raw.load_u16(USED as usize + 2)
    }

    /// Requests that are not answered.
    pub fn under_way(&self) -> usize {
        self.slots.borrow().iter().flatten().count()
    }

    /// Its memory, to break.
    pub fn raw(&self) -> &SharedMemory {
        &self.raw
    }

    /// Carries out one request.
    ///
    /// # Errors
    /// The status.
    pub async fn submit(&self, ask: Ask) -> Result<Vec<u8>, u8> {
        let slot = self.free_slot().await;
        let request = Rc::new(UnderWay {
            result: Cell::default(),
        });
        self.slots.borrow_mut()[slot] = Some(Rc::clone(&request));
        let (kind, sector, out, room) = parts(&ask);
        let base = SLOTS_AT + slot as u64 * SLOT;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.raw.write(base as usize, &header);
        self.raw.write((base + STATUS) as usize, &[0xff]);
        self.raw.write((base + DATA) as usize, &out);
        // Tables of their own and descriptors of the ring take turns.
        let indirect = self.indirect.replace(!self.indirect.get());
        self.put_chain(slot as u16, base, (out.len(), room), indirect);
        self.announce(slot as u16 * PER_SLOT);
        let status = loop {
            match request.result.get() {
                Some(status) => break status,
                None => self.changed.wait().await,
            }
        };
        let mut data = vec![0; room];
        self.raw.read((base + DATA) as usize, &mut data);
        self.slots.borrow_mut()[slot] = None;
        self.changed.notify_all();
        match status {
            0 => Ok(data),
            status => Err(status),
        }
    }

    async fn free_slot(&self) -> usize {
        loop {
            let free = self.slots.borrow().iter().position(Option::is_none);
            match free {
                Some(slot) => return slot,
                None => self.changed.wait().await,
            }
        }
    }

    /// Descriptors of a request: its header, its data in two pieces, its status.
    fn put_chain(&self, slot: u16, base: u64, (out, room): (usize, usize), indirect: bool) {
        let (len, flags) = match room {
            0 => (out, 0),
            _ => (room, flag::WRITE),
        };
        let first = len / 2;
        let mut buffers = vec![(base, 16, 0)];
        for (at, len) in [(DATA, first), (DATA + first as u64, len - first)] {
            if len > 0 {
                buffers.push((base + at, len, flags));
            }
        }
        buffers.push((base + STATUS, 1, flag::WRITE));
        let (table, index) = match indirect {
            true => (base + TABLE, 0),
            false => (DESCRIPTORS, slot * PER_SLOT),
        };
        let last = buffers.len() - 1;
        for (number, (at, len, flags)) in buffers.iter().enumerate() {
            let next = index + number as u16 + 1;
            let more = if number < last { flag::NEXT } else { 0 };
            let place = table + u64::from(next - 1) * 16;
            self.put_descriptor(place, *at, *len, flags | more, next);
        }
        if indirect {
            let place = DESCRIPTORS + u64::from(slot * PER_SLOT) * 16;
            self.put_descriptor(place, table, 16 * buffers.len(), flag::INDIRECT, 0);
        }
    }

    pub fn put_descriptor(&self, place: u64, at: u64, len: usize, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.raw.write(place as usize, &bytes);
    }

    /// Puts a request into the available ring, and kicks if the server wants it.
    pub fn announce(&self, head: u16) {
        let next = self.available.get();
        let place = AVAILABLE as usize + 4 + 2 * usize::from(next % SIZE);
        self.raw.store_u16(place, head);
        self.available.set(next.wrapping_add(1));
        self.raw
            .store_u16(AVAILABLE as usize + 2, next.wrapping_add(1));
        self.asked.set(self.asked.get() + 1);
        let wanted = match self.event_idx {
            true => self.raw.load_u16(USED as usize + 4 + 8 * usize::from(SIZE)) == next,
            false => self.raw.load_u16(USED as usize) & 1 == 0,
        };
        if wanted {
            self.kicks.set(self.kicks.get() + 1);
            self.kick.notifier().unwrap().notify().unwrap();
        }
    }

    /// Announces a request that may be anything, and takes whatever is answered.
    pub fn lie(&self, head: u16) {
        self.lies.set(true);
        self.announce(head);
        self.kick.notifier().unwrap().notify().unwrap();
    }

    /// Takes answers out of the used ring.
    fn interrupt(&self) {
        while self.seen.get() != self.used_index() {
            let seen = self.seen.get();
            let mut element = [0; 8];
            let place = USED as usize + 4 + 8 * usize::from(seen % SIZE);
            self.raw.read(place, &mut element);
            self.seen.set(seen.wrapping_add(1));
            let head = u32::from_le_bytes(element[..4].try_into().unwrap());
            let slot = head as usize / usize::from(PER_SLOT);
            let slots = self.slots.borrow();
            let request = slots.get(slot).and_then(Option::as_ref);
            if self.lies.get() && request.is_none_or(|it| it.result.get().is_some()) {
                continue;
            }
            let request = request.unwrap_or_else(|| panic!("{head} was answered, and not asked"));
            assert_eq!(request.result.get(), None, "{head} was answered twice");
            let mut status = [0];
            let base = SLOTS_AT + slot as u64 * SLOT;
            self.raw.read((base + STATUS) as usize, &mut status);
            request.result.set(Some(status[0]));
        }
        if self.event_idx {
            // Call for the next answer.
            let place = AVAILABLE as usize + 4 + 2 * usize::from(SIZE);
            self.raw.store_u16(place, self.seen.get());
        }
        self.changed.notify_all();
    }
}

/// Type, first sector, data to the device, room for data from it.
fn parts(ask: &Ask) -> (u32, u64, Vec<u8>, usize) {
    let range = |at: u64, len: u64, flags: u32| {
        let mut bytes = (at / 512).to_le_bytes().to_vec();
        bytes.extend(((len / 512) as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes
    };
    match ask {
        Ask::Read { at, len } => (0, at / 512, Vec::new(), *len),
        Ask::Write { at, data } => (1, at / 512, data.clone(), 0),
        Ask::Flush => (4, 0, Vec::new(), 0),
        Ask::Name => (8, 0, Vec::new(), 20),
        Ask::Discard { at, len } => (11, 0, range(*at, *len, 0), 0),
        Ask::WriteZeroes { at, len, unmap } => (13, 0, range(*at, *len, u32::from(*unmap)), 0),
    }
}
