//! What is in flight, in memory that the client keeps: the requests that the next server repeats.
//!
//! ```text
//! take: counter, then "in flight" | answer: note the last one, used ring, then "not in flight", then the used index
//! reopen: the last answer may lack its end -> those in flight, by counter
//! ```
//!
//! Source: QEMU, `docs/interop/vhost-user.rst`, "Inflight I/O tracking", split virtqueues.
//!
//! Always true: the process may die between any two writes. A request is then repeated, or it is in the used ring, and
//! never neither; both only if the guest cannot see it yet.

use std::cell::Cell;
use std::rc::Rc;

use env::shared::SharedMemory;

use super::message::InflightArea;

/// Bytes before the entries of a queue.
const HEADER: usize = 16;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// What queues are aligned to.
const ALIGNMENT: usize = 64;
/// Bytes behind all queues, which are ours.
const TAIL: usize = 64;
/// Layout of a queue that was begun.
const VERSION: u16 = 1;

mod field {
    pub const VERSION: usize = 8;
    pub const ENTRIES: usize = 10;
    pub const LAST_BATCH_HEAD: usize = 12;
    pub const USED_INDEX: usize = 14;
    pub const IN_FLIGHT: usize = 0;
    pub const NEXT: usize = 6;
    pub const COUNTER: usize = 8;
}

/// Behind all queues.
mod tail {
    pub const WRITE_THROUGH: usize = 0;
    pub const DISK: usize = 8;
}

/// Bytes of a queue of so many entries.
pub fn queue_len(size: u16) -> usize {
    (HEADER + usize::from(size) * ENTRY).next_multiple_of(ALIGNMENT)
}

/// The area for so many queues.
pub fn area(queues: u16, size: u16) -> InflightArea {
    let len = usize::from(queues) * queue_len(size) + TAIL;
    InflightArea {
        len: len.next_multiple_of(4096) as u64,
        offset: 0,
        queues,
        size,
    }
}

/// Why an area is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InflightError {
    /// Too short for its queues.
    #[error("a record of {len} bytes for {queues} queues of {size} entries")]
    Short {
        /// Bytes.
        len: u64,
        /// Queues.
        queues: u16,
        /// Entries each.
        size: u16,
    },
    /// Of another layout, or another ring.
    #[error(
        "a record of version {version} for {entries} entries, where version {VERSION} for {size} is needed"
    )]
    Other {
        /// Its version.
        version: u16,
        /// Its entries.
        entries: u16,
        /// Those of the ring.
        size: u16,
    },
    /// It is not of this ring.
    #[error(
        "{in_flight} requests in flight, of {announced} that the guest has announced and not seen answered"
    )]
    OtherRing {
        /// By the record.
        in_flight: u16,
        /// By the ring.
        announced: u16,
    },
}

/// An area that is mapped.
pub struct Area {
    memory: Rc<SharedMemory>,
    what: InflightArea,
}

impl Area {
    /// Of memory that is `what.len` bytes long.
    ///
    /// # Errors
    /// [`InflightError::Short`].
    pub fn new(memory: SharedMemory, what: InflightArea) -> Result<Area, InflightError> {
        let needed = usize::from(what.queues) * queue_len(what.size);
        if memory.len() < needed || what.size == 0 {
            return Err(InflightError::Short {
                len: what.len,
                queues: what.queues,
                size: what.size,
            });
        }
        Ok(Area {
            memory: Rc::new(memory),
            what,
        })
    }

    /// The record of queue `index`, if there is one of so many entries.
    pub fn queue(&self, index: u16, size: u16) -> Option<Inflight> {
        let fits = index < self.what.queues && size <= self.what.size;
        fits.then(|| Inflight {
            memory: Rc::clone(&self.memory),
            at: usize::from(index) * queue_len(self.what.size),
            size,
            counter: Cell::default(),
        })
    }

    /// Was any queue of it begun?
    pub fn is_used(&self) -> bool {
        let queues = 0..self.what.queues;
        let mut begun = queues.filter_map(|index| self.queue(index, self.what.size));
        begun.any(|queue| queue.number(field::VERSION) != 0)
    }

    fn tail(&self) -> Option<usize> {
        let at = usize::from(self.what.queues) * queue_len(self.what.size);
        (self.memory.len() >= at + TAIL).then_some(at)
    }

    /// Did the guest ask for every write to be durable? One that cannot say so counts as one that did.
    pub fn is_write_through(&self) -> bool {
        match self.tail() {
            Some(at) => {
                let mut byte = [0];
                self.memory.read(at + tail::WRITE_THROUGH, &mut byte);
                byte[0] != 0
            }
            None => self.is_used(),
        }
    }

    /// Keeps what the guest asked for.
    pub fn set_write_through(&self, on: bool) {
        if let Some(at) = self.tail() {
            let at = at + tail::WRITE_THROUGH;
            self.memory.write(at, &[u8::from(on)]);
        }
    }

    /// The disk whose requests it keeps, as [`Area::set_disk`] was told: a number, and bytes. None if it has no room for that.
    pub fn disk(&self) -> Option<(u64, u64)> {
        let at = self.tail()?;
        let mut bytes = [0; 16];
        self.memory.read(at + tail::DISK, &mut bytes);
        let word = |at: usize| bytes[at..at + 8].try_into().expect("eight");
        Some((u64::from_le_bytes(word(0)), u64::from_le_bytes(word(8))))
    }

    /// Keeps whose requests they are.
    pub fn set_disk(&self, number: u64, size: u64) {
        if let Some(at) = self.tail() {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes[8..].copy_from_slice(&size.to_le_bytes());
            self.memory.write(at + tail::DISK, &bytes);
        }
    }
}

/// The record of one queue.
pub struct Inflight {
    memory: Rc<SharedMemory>,
    at: usize,
    size: u16,
    counter: Cell<u64>,
}

impl Inflight {
    fn number(&self, at: usize) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read(self.at + at, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.memory.write(self.at + at, bytes);
    }

    fn entry(&self, head: u16) -> usize {
        HEADER + usize::from(head) * ENTRY
    }

    /// Makes it a record of a ring where nothing is in flight and `used` requests were answered.
    pub fn clear(&self, used: u16) {
        for head in 0..self.size {
            self.put(self.entry(head) + field::IN_FLIGHT, &[0]);
        }
        self.counter.set(0);
        self.put(field::ENTRIES, &self.size.to_le_bytes());
        self.put(field::LAST_BATCH_HEAD, &[0, 0]);
        self.put(field::USED_INDEX, &used.to_le_bytes());
        self.put(field::VERSION, &VERSION.to_le_bytes());
    }

    /// Did the client take it away?
    pub fn is_broken(&self) -> bool {
        self.memory.is_broken()
    }

    /// Was it begun?
    pub fn is_used(&self) -> bool {
        self.number(field::VERSION) != 0
    }

    /// Ends what the last server began, for a ring of which the guest has seen `used` requests answered, and announced
    /// `available`. What is in flight, in its order.
    ///
    /// # Errors
    /// [`InflightError::Other`], [`InflightError::OtherRing`]; nothing is changed then.
    pub fn recover(&self, used: u16, available: u16) -> Result<Vec<u16>, InflightError> {
        let (version, entries) = (self.number(field::VERSION), self.number(field::ENTRIES));
        if version == 0 {
            self.clear(used);
            return Ok(Vec::new());
        }
        if version != VERSION || entries != self.size {
            let size = self.size;
            return Err(InflightError::Other {
                version,
                entries,
                size,
            });
        }
        let behind = used.wrapping_sub(self.number(field::USED_INDEX));
        let is_other = behind > self.size;
        // Of another ring: no request of it was answered here.
        let answered = if is_other {
            Vec::new()
        } else {
            self.last_batch(behind)
        };
        let mut in_flight = Vec::new();
        for head in (0..self.size).filter(|head| !answered.contains(head)) {
            let mut entry = [0; ENTRY];
            self.memory.read(self.at + self.entry(head), &mut entry);
            if entry[field::IN_FLIGHT] != 0 {
                let counter = entry[field::COUNTER..].try_into().expect("eight");
                in_flight.push((u64::from_le_bytes(counter), head));
            }
        }
        let announced = available.wrapping_sub(used);
        let count = in_flight.len() as u16;
        if count > 0 && (announced > self.size || count > announced || is_other) {
            return Err(InflightError::OtherRing {
                in_flight: count,
                announced,
            });
        }
        for head in answered {
            self.put(self.entry(head) + field::IN_FLIGHT, &[0]);
        }
        self.put(field::USED_INDEX, &used.to_le_bytes());
        in_flight.sort_unstable();
        let last = in_flight.last().map_or(0, |(counter, _)| *counter);
        self.counter.set(last.wrapping_add(1));
        Ok(in_flight.into_iter().map(|(_, head)| head).collect())
    }

    /// Requests that the last server put into the used ring, and died before it noted that.
    fn last_batch(&self, count: u16) -> Vec<u16> {
        let mut batch = Vec::new();
        let mut head = self.number(field::LAST_BATCH_HEAD);
        for _ in 0..count {
            if head >= self.size {
                break;
            }
            batch.push(head);
            head = self.number(self.entry(head) + field::NEXT);
        }
        batch
    }

    /// A request was taken, and is about to be carried out.
    pub fn begin(&self, head: u16) {
        let counter = self.counter.get();
        self.counter.set(counter.wrapping_add(1));
        let entry = self.entry(head);
        self.put(entry + field::COUNTER, &counter.to_le_bytes());
        self.put(entry + field::IN_FLIGHT, &[1]);
    }

    /// Its answer is about to be put into the used ring.
    pub fn before_used(&self, head: u16) {
        let last = self.number(field::LAST_BATCH_HEAD);
        self.put(self.entry(head) + field::NEXT, &last.to_le_bytes());
        self.put(field::LAST_BATCH_HEAD, &head.to_le_bytes());
    }

    /// It is there, and `used` is the ring's index.
    pub fn after_used(&self, head: u16, used: u16) {
        self.put(self.entry(head) + field::IN_FLIGHT, &[0]);
        self.put(field::USED_INDEX, &used.to_le_bytes());
    }
}
